//! `max-finished-pods`: how many pods are kept that have ended. The rule is in [`retention`](crate::job::retention).

use super::form::{COUNT, Form};
use super::{JobOption, Needs, Options};

/// `yardmaster.dev/max-finished-pods`.
pub(super) struct FinishedPodsLimit;

impl JobOption for FinishedPodsLimit {
    const NAME: &'static str = "max-finished-pods";
    type Value = u32;
    const FORM: Form<u32> = COUNT;
    const EFFECT: &'static str = "how many pods are kept that have succeeded or failed, those that ended last; older ones are deleted \
                                  once they are counted, also when the Job has ended";
    const WITHOUT: &'static str = "all are kept";

    fn set(options: &mut Options, limit: u32) {
        options.max_finished_pods = Some(limit);
    }

    fn needs(options: &Options) -> Needs {
        let asks = options.max_finished_pods.is_some();
        Needs { counted_failures: asks, counted_successes: asks, ..Needs::default() }
    }
}
