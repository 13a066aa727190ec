//! `spec.ttlSecondsAfterFinished`: a finished Job is deleted, with its pods, after this time.

use jiff::Timestamp;

use super::plan::Plan;
use super::state::{JobState, after};

/// When the Job is to be deleted: counted from the transition of its terminal condition.
pub fn expires_at(state: &JobState) -> Option<Timestamp> {
    let finished = state.job.status.finished()?.last_transition_time?;
    Some(after(finished, state.job.spec.ttl_after_finished?))
}

/// Adds to the plan the deletion of a Job that has outlived its TTL.
pub fn plan(state: &JobState, now: Timestamp, plan: &mut Plan) {
    if !state.limits.ttl_controller || state.job.deleting || state.deletion_in_flight {
        return;
    }
    match (expires_at(state), state.write_retry.waits(now)) {
        (None, _) => {}
        (Some(at), _) if at > now => plan.wake(at),
        (Some(_), Some(retry)) => plan.wake(retry),
        (Some(_), None) => plan.delete_job = true,
    }
}
