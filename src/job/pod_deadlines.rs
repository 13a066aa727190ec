//! `yardmaster.dev/start-deadline` and `yardmaster.dev/pod-run-deadline`: a pod that does not start in time, or that runs for
//! too long, counts as failed. `yardmaster.dev/run-deadline`: a Job whose pods run for too long fails.
//!
//! A pod that is late is deleted, and keeps its finalizer. So it counts as a pod that a user has deleted: as failed, once
//! `podReplacementPolicy` allows, against the limits, and with the back-off.

use std::time::Duration;

use humantime::format_duration;
use jiff::Timestamp;

use super::plan::{JobEvent, Plan, PodDeletion};
use super::pod::Pod;
use super::saturating::after;
use super::second::Second;
use super::state::JobState;
use super::verdict::End;

/// Adds the deletions of pods that are late. The plan looks again when the next one will be.
pub(super) fn plan(state: &JobState, now: Timestamp, plan: &mut Plan) {
    // Pods that are removed anyway do not count.
    if state.job.spec.suspend || state.pods.outdated() > 0 {
        return;
    }
    let options = &state.job.options;
    if let Some(deadline) = options.start_deadline {
        let says = |pod: &Pod| {
            let message = format!("Pod {} has not started within {}", pod.name, format_duration(deadline));
            JobEvent::warning("StartDeadlineExceeded", message)
        };
        let late =
            LatePods { pods: state.pods.stalled(), since: |pod| pod.finished, time: deadline, grace: None };
        late.delete(state, says, now, plan);
    }
    if let Some(deadline) = options.pod_run_deadline {
        let says = |pod: &Pod| {
            let message = format!("Pod {} has run for longer than {}", pod.name, format_duration(deadline));
            JobEvent::warning("PodRunDeadlineExceeded", message)
        };
        let (time, grace) = options.signalled(deadline);
        let late = LatePods { pods: state.pods.running(), since: |pod| pod.finished, time, grace };
        late.delete(state, says, now, plan);
    }
}

/// Pods of which each is late a while after some time of its own. The pods are in the order of these times.
pub(super) struct LatePods<I> {
    /// The pods.
    pub(super) pods: I,
    /// The time of a pod.
    pub(super) since: fn(&Pod) -> Second,
    /// How long after it the pod is late.
    pub(super) time: Duration,
    /// The grace period of the deletion, if it is not that of the pod.
    pub(super) grace: Option<Duration>,
}

impl<'a, I: Iterator<Item = &'a Pod> + Clone> LatePods<I> {
    /// Adds the deletions of those that are late, so that they count as failed. The plan looks again when the next one will be.
    pub(super) fn delete(
        self,
        state: &JobState,
        says: impl Fn(&Pod) -> JobEvent,
        now: Timestamp,
        plan: &mut Plan,
    ) {
        let Self { pods, since, time, grace } = self;
        let due = |pod: &Pod| after(since(pod).into(), time);
        let late = state.ready(pods.clone().take_while(|pod| due(pod) <= now), now, plan);
        plan.events.extend(late.iter().map(|pod| says(pod)));
        plan.deletes.extend(late.into_iter().map(|pod| PodDeletion {
            pod: pod.into(),
            forget: false,
            grace,
        }));
        if let Some(next) = pods.map(due).find(|at| *at > now) {
            plan.wake(next);
        }
    }
}

/// When the run deadline of the Job passes, or the signal before it is due.
pub(super) fn run_deadline(state: &JobState) -> Option<Timestamp> {
    let options = &state.job.options;
    let (time, _) = options.signalled(options.run_deadline.filter(|_| !state.job.spec.suspend)?);
    state.running_since().map(|since| after(since.into(), time))
}

/// The failure of a Job whose run deadline has passed.
pub(super) fn ran_too_long(state: &JobState, now: Timestamp) -> Option<End> {
    let passed = run_deadline(state).is_some_and(|at| at <= now);
    passed.then(|| End::failure(RUN_DEADLINE_EXCEEDED, "Job ran longer than its run deadline"))
}

const RUN_DEADLINE_EXCEEDED: &str = "RunDeadlineExceeded";

/// The grace period of the pods of a Job that ends like this, if it is not their own.
pub(super) fn grace_at_end(state: &JobState, end: &End) -> Option<Duration> {
    let options = &state.job.options;
    let deadline = options.run_deadline.filter(|_| *end.reason == *RUN_DEADLINE_EXCEEDED)?;
    options.signalled(deadline).1
}

impl JobState {
    /// When the first pod began to run, for a Job with a run deadline.
    pub(super) fn running_since(&self) -> Option<Second> {
        let seen = self.pods.first_run().filter(|_| self.job.options.run_deadline.is_some());
        [self.job.status.running_since, seen].into_iter().flatten().min()
    }
}
