//! `prune-succeeded`: succeeded pods are deleted once they are counted. The rule is in
//! [`retention`](crate::job::retention).

use super::form::{FLAG, Form};
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
