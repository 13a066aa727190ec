//! `waiting-condition`: a condition says why the Job does not go on. The rule is in
//! [`waiting_condition`](crate::job::waiting_condition).

use super::form::{FLAG, Form};
use super::{JobOption, Options};

/// `yardmaster.dev/waiting-condition`.
pub(super) struct WaitingCondition;

impl JobOption for WaitingCondition {
    const NAME: &'static str = "waiting-condition";
    type Value = bool;
    const FORM: Form<bool> = FLAG;
    const EFFECT: &'static str = "the condition `yardmaster.dev/Waiting` of the Job says why it creates no pods, once that lasts for \
                                  10s. Its reasons are [those of `yardmaster status`](troubleshooting.md). It changes every 30s \
                                  at most";
    const WITHOUT: &'static str = "only `yardmaster status` and the controller's page show that";

    fn set(options: &mut Options, shows: bool) {
        options.waiting_condition = shows;
    }
}
