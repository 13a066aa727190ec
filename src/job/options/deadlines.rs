//! `start-deadline`, `pod-run-deadline`, `run-deadline` and `signal-before`: how long pods may wait to start and run. The rules
//! are in [`pod_deadlines`](crate::job::pod_deadlines).

use std::time::Duration;

use super::form::{DURATION, Form};
use super::{JobOption, Needs, Options};

/// The shortest deadline. API servers note the times of pods in whole seconds.
const LEAST: Duration = Duration::from_secs(1);

/// `yardmaster.dev/start-deadline`.
pub(super) struct StartDeadline;

impl JobOption for StartDeadline {
    const NAME: &'static str = "start-deadline";
    type Value = Duration;
    const FORM: Form<Duration> = DURATION;
    const EFFECT: &'static str = "a pod that has waited so long to start counts as failed: it is pending, whatever the \
                                  cause. The pod is deleted. See \
                                  [Pods that do not start](#pods-that-do-not-start)";
    const WITHOUT: &'static str = "it waits for ever";

    fn set(options: &mut Options, deadline: Duration) {
        options.start_deadline = Some(deadline.max(LEAST));
    }

    fn needs(options: &Options) -> Needs {
        Needs { times: options.start_deadline.is_some(), ..Needs::default() }
    }
}

/// `yardmaster.dev/pod-run-deadline`.
pub(super) struct PodRunDeadline;

impl JobOption for PodRunDeadline {
    const NAME: &'static str = "pod-run-deadline";
    type Value = Duration;
    const FORM: Form<Duration> = DURATION;
    const EFFECT: &'static str = "a pod that has run for so long, since its `status.startTime`, is deleted and counts as \
                                  failed. See [Deadlines of runs](#deadlines-of-runs)";
    const WITHOUT: &'static str = "it runs for as long as it wants";

    fn set(options: &mut Options, deadline: Duration) {
        options.pod_run_deadline = Some(deadline.max(LEAST));
    }

    fn needs(options: &Options) -> Needs {
        Needs { times: options.pod_run_deadline.is_some(), ..Needs::default() }
    }
}

/// `yardmaster.dev/run-deadline`.
pub(super) struct RunDeadline;

impl JobOption for RunDeadline {
    const NAME: &'static str = "run-deadline";
    type Value = Duration;
    const FORM: Form<Duration> = DURATION;
    const EFFECT: &'static str = "the Job fails so long after its first pod began to run, with the reason `RunDeadlineExceeded`. Time \
                                  in which its pods wait for nodes does not count";
    const WITHOUT: &'static str =
        "`spec.activeDeadlineSeconds` alone, which counts from the start of the Job";

    fn set(options: &mut Options, deadline: Duration) {
        options.run_deadline = Some(deadline.max(LEAST));
    }

    fn needs(options: &Options) -> Needs {
        Needs { times: options.run_deadline.is_some(), ..Needs::default() }
    }
}

/// `yardmaster.dev/signal-before`.
pub(super) struct SignalBefore;

impl JobOption for SignalBefore {
    const NAME: &'static str = "signal-before";
    type Value = Duration;
    const FORM: Form<Duration> = DURATION;
    const EFFECT: &'static str = "so long before a run deadline, pods get the signal that they are to end (`SIGTERM`, or that of their \
                                  image), in place of at the deadline. They have until the deadline";
    const WITHOUT: &'static str =
        "the signal comes at the deadline, and pods have their `terminationGracePeriodSeconds`";

    fn set(options: &mut Options, time: Duration) {
        options.signal_before = Some(time.max(LEAST));
    }
}

impl Options {
    /// When pods get the signal for a deadline, and how long they have from then on, if that is not the business of the pods.
    pub fn signalled(&self, deadline: Duration) -> (Duration, Option<Duration>) {
        match self.signal_before {
            Some(before) if before < deadline => (deadline - before, Some(before)),
            // The signal would come before the start.
            Some(_) | None => (deadline, None),
        }
    }
}
