//! `yardmaster.dev/waiting-condition`: the Job says in a condition why it does not go on.
//!
//! A reason is shown once it has lasted for a while, and is not changed again soon after that. So the condition costs at most two
//! writes a minute, however often a Job begins to wait.

use std::time::Duration;

use jiff::Timestamp;

use super::plan::{Plan, Wait};
use super::saturating::end_of_wait;
use super::state::JobState;
use super::status::{Condition, ConditionKind, ConditionStatus};
use super::verdict::condition;

/// How long a reason lasts before it is shown.
const LASTS: Duration = Duration::from_secs(10);
/// The least time between two changes of the condition.
const PAUSE: Duration = Duration::from_secs(30);

/// The condition that the status does not have yet. The plan looks again when one may be due.
pub(super) fn next(state: &JobState, now: Timestamp, plan: &mut Plan) -> Option<Condition> {
    if !state.job.options.waiting_condition {
        return None;
    }
    let shown = state.job.status.condition(ConditionKind::Waiting);
    let (status, reason, message) = match plan.waiting.as_ref().and_then(told) {
        Some((reason, message)) => {
            let since =
                state.waits_since.filter(|(known, _)| *known == reason).map_or(now, |(_, since)| since);
            let at = end_of_wait(since, LASTS, now);
            if at > now {
                plan.wake(at);
                return None;
            }
            (ConditionStatus::True, reason, message)
        }
        None => (ConditionStatus::False, "NotWaiting", "The Job goes on"),
    };
    let says_it = |shown: &Condition| (shown.status, &*shown.reason) == (status, reason);
    if shown.map_or(status == ConditionStatus::False, says_it) {
        return None;
    }
    // A Job that ends says so at once.
    let last =
        shown.filter(|_| !state.job.status.announces_end()).and_then(|shown| shown.last_transition_time);
    if let Some(at) = last.map(|last| end_of_wait(last, PAUSE, now)).filter(|at| *at > now) {
        plan.wake(at);
        return None;
    }
    Some(condition(ConditionKind::Waiting, status, reason, message, now))
}

/// The condition in the status that ends a Job, which is its last: the Job waits for nothing. Without the condition,
/// the status stays as it is.
pub(super) fn at_end(now: Timestamp) -> Condition {
    condition(ConditionKind::Waiting, ConditionStatus::False, "NotWaiting", "The Job has ended", now)
}

/// The reason and message of a wait that is worth a condition. Others have one of their own, or are short.
fn told(wait: &Wait) -> Option<(&'static str, &'static str)> {
    let message = match wait {
        Wait::PodBackoff(_) => "Pods have failed, and the next one waits for the back-off",
        Wait::IndexBackoff(_) => "Pods have failed, and the next ones of their indexes wait for the back-off",
        Wait::Refused(_) => "The API server has refused to create a pod; the events say why",
        Wait::Gang => "The objects of the gang are not there yet",
        Wait::Adopting => "Pods are being adopted",
        Wait::PodsUnknown => "Not all pods of the Job are known",
        Wait::Terminating => "Pods that are being deleted have not ended",
        Wait::Restarting => "All pods are being replaced together, and the old ones have not ended",
        Wait::After(obstacle) => obstacle.cause.message(),
        Wait::Suspended | Wait::Deleting | Wait::FailureDebounce(_) | Wait::Finishing => return None,
    };
    Some((wait.reason(), message))
}

impl JobState {
    /// Records why the Job waits, and since when.
    pub(super) fn note_wait(&mut self, wait: Option<&Wait>, now: Timestamp) {
        let reason = wait.and_then(told).map(|(reason, _)| reason);
        if self.waits_since.map(|(known, _)| known) != reason {
            self.waits_since = reason.map(|reason| (reason, now));
        }
    }
}
