//! `failed-pods-limit`: how many failed pods are kept. The rule is in [`retention`](crate::job::retention).

use super::form::{COUNT, Form};
use super::{JobOption, Needs, Options};

/// `yardmaster.dev/failed-pods-limit`.
pub(super) struct FailedPodsLimit;

impl JobOption for FailedPodsLimit {
    const NAME: &'static str = "failed-pods-limit";
    type Value = u32;
    const FORM: Form<u32> = COUNT;
    const EFFECT: &'static str = "how many failed pods are kept for debugging, the newest ones; older ones are deleted once they \
                                  are counted, also when the Job has ended";
    const WITHOUT: &'static str = "all are kept";

    fn set(options: &mut Options, limit: u32) {
        options.failed_pods_limit = Some(limit);
    }

    fn needs(options: &Options) -> Needs {
        Needs { counted_failures: options.failed_pods_limit.is_some(), ..Needs::default() }
    }
}
