//! `restart-together`, `max-restarts` and `restart-keep-succeeded`: all pods are replaced together. The rule is in
//! [`restart`](crate::job::restart).

use super::form::{COUNT, FLAG, Form};
use super::{JobOption, JobOptions, Needs, Options, PREFIX, PodFacts, Rejected};
use crate::job::names::{ATTEMPT_ENV, ATTEMPT_LABEL};
use crate::job::overlay::{Overlay, Variable, VariableValue};

/// `yardmaster.dev/restart-together`.
pub(super) struct RestartTogether;

impl JobOption for RestartTogether {
    const NAME: &'static str = "restart-together";
    type Value = bool;
    const FORM: Form<bool> = FLAG;
    const EFFECT: &'static str = "when a pod fails or is lost, all pods of the Job are replaced at once, as one new attempt. Pods have \
                                  the number of their attempt in the label `yardmaster.dev/attempt` and the variable \
                                  `YARDMASTER_ATTEMPT`. See [Restart together](#restart-together)";
    const WITHOUT: &'static str = "only that pod is replaced";

    fn set(options: &mut Options, together: bool) {
        options.restart_together = together;
    }

    fn needs(options: &Options) -> Needs {
        Needs { attempts: options.restart_together, ..Needs::default() }
    }

    fn overlay(options: &Options, facts: &PodFacts<'_>, overlay: &mut Overlay) {
        if options.restart_together {
            let attempt: Box<str> = facts.lineage.map_or(0, |lineage| lineage.attempt).to_string().into();
            overlay.labels.push((ATTEMPT_LABEL, attempt.clone()));
            overlay.env.push(Variable { name: ATTEMPT_ENV, value: VariableValue::Text(attempt) });
        }
    }
}

impl RestartTogether {
    /// The Jobs that may have it.
    pub(super) const OF: &'static str = "a Job without backoffLimitPerIndex";
}

impl JobOptions {
    /// The options of a Job with `backoffLimitPerIndex`. Its indexes fail one by one, and pods that a restart removes would take
    /// the earlier failures of their indexes with them: `restart-together` is ignored.
    #[must_use]
    pub fn per_index(mut self) -> Self {
        if self.restart_together {
            self.restart_together = false;
            let key = format!("{PREFIX}{}", RestartTogether::NAME).into();
            self.rejected.push(Rejected { key, value: "true".into(), expected: RestartTogether::OF });
        }
        self
    }
}

/// `yardmaster.dev/max-restarts`.
pub(super) struct RestartLimit;

impl JobOption for RestartLimit {
    const NAME: &'static str = "max-restarts";
    type Value = u32;
    const FORM: Form<u32> = COUNT;
    const EFFECT: &'static str = "how many times `restart-together` restarts the Job. One more failure fails it, with the reason \
                                  `MaxRestartsExceeded`";
    const WITHOUT: &'static str = "`spec.backoffLimit`";

    fn set(options: &mut Options, most: u32) {
        options.max_restarts = Some(most);
    }
}

/// `yardmaster.dev/restart-keep-succeeded`.
pub(super) struct KeepSucceeded;

impl JobOption for KeepSucceeded {
    const NAME: &'static str = "restart-keep-succeeded";
    type Value = bool;
    const FORM: Form<bool> = FLAG;
    const EFFECT: &'static str =
        "pods that succeeded before a restart count, and their indexes do not run again";
    const WITHOUT: &'static str =
        "they run again: successes count once all pods of one attempt have succeeded";

    fn set(options: &mut Options, keeps: bool) {
        options.restart_keep_succeeded = keeps;
    }
}
