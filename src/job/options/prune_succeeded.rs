//! `prune-succeeded` and `prune-after`: succeeded pods are deleted once they are counted. The rule is in
//! [`retention`](crate::job::retention).

use std::time::Duration;

use super::form::{DURATION, FLAG, Form};
use super::{JobOption, Needs, Options};

/// `yardmaster.dev/prune-succeeded`.
pub(super) struct PruneSucceeded;

impl JobOption for PruneSucceeded {
    const NAME: &'static str = "prune-succeeded";
    type Value = bool;
    const FORM: Form<bool> = FLAG;
    const EFFECT: &'static str = "succeeded pods of an Indexed Job are deleted while it runs, once their index is counted; \
                                  a Job that has ended keeps those that are left";
    const WITHOUT: &'static str = "all are kept";

    fn set(options: &mut Options, prunes: bool) {
        options.prune_succeeded = prunes;
    }

    fn needs(options: &Options) -> Needs {
        Needs { counted_successes: options.prune_succeeded, ..Needs::default() }
    }
}

/// `yardmaster.dev/prune-after`.
pub(super) struct PruneAfter;

impl JobOption for PruneAfter {
    const NAME: &'static str = "prune-after";
    type Value = Duration;
    const FORM: Form<Duration> = DURATION;
    const EFFECT: &'static str =
        "how long after its end `prune-succeeded` deletes a pod, so that there is time to read its logs";
    const WITHOUT: &'static str = "it does so at once";

    fn set(options: &mut Options, time: Duration) {
        options.prune_after = Some(time);
    }
}
