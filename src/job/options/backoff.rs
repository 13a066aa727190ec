//! `backoff-initial` and `backoff-max`: the back-off between failed pods.

use std::time::Duration;

use super::form::{DURATION, Form};
use super::{JobOption, Options};
use crate::job::exponential::Exponential;

/// `yardmaster.dev/backoff-initial`.
pub(super) struct InitialBackoff;

impl JobOption for InitialBackoff {
    const NAME: &'static str = "backoff-initial";
    type Value = Duration;
    const FORM: Form<Duration> = DURATION;
    const EFFECT: &'static str = "delay before the first failed pod (of an index, with `backoffLimitPerIndex`) is replaced; \
                                  it doubles with every failure in a row";
    const WITHOUT: &'static str = "`--pod-failure-backoff`, 10s";

    fn set(options: &mut Options, delay: Duration) {
        options.backoff_initial = Some(delay);
    }
}

/// `yardmaster.dev/backoff-max`.
pub(super) struct MaxBackoff;

impl JobOption for MaxBackoff {
    const NAME: &'static str = "backoff-max";
    type Value = Duration;
    const FORM: Form<Duration> = DURATION;
    const EFFECT: &'static str = "longest such delay; it also bounds `backoff-initial`";
    const WITHOUT: &'static str = "`--pod-failure-backoff-max`, 10m";

    fn set(options: &mut Options, delay: Duration) {
        options.backoff_max = Some(delay);
    }
}

/// The controller's settings of the back-off between failed pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodBackoff {
    /// The back-off of Jobs that ask for none.
    pub default: Exponential,
    /// The shortest delay that a Job may ask for. Without it, a Job whose pods fail at once would be a loop of creations.
    pub least: Duration,
}

/// By how much the first restart of all pods together comes sooner than the first retry of a pod.
const QUICKER: u32 = 10;

impl Default for PodBackoff {
    fn default() -> Self {
        Self { default: Exponential::POD_FAILURE, least: Duration::from_secs(1) }
    }
}

impl Options {
    /// Back-off between failed pods. The longest delay also caps the initial one. If all pods restart together, the first
    /// restart is quick: a Job of many nodes that waits wastes them.
    pub fn backoff(&self, controller: PodBackoff) -> Exponential {
        let PodBackoff { default, least } = controller;
        // A Job may always ask for what it would get without asking.
        let least = least.min(default.initial);
        let delay = |asked: Option<Duration>, default| asked.map_or(default, |asked| asked.max(least));
        let first =
            if self.restart_together { least.max(default.initial / QUICKER) } else { default.initial };
        Exponential { initial: delay(self.backoff_initial, first), max: delay(self.backoff_max, default.max) }
    }
}
