//! `spec.ttlSecondsAfterFinished`: a finished Job is deleted, with its pods, after this time.

use jiff::Timestamp;

use super::plan::Plan;
use super::spec::Job;
use super::state::{JobState, Limits, after};

/// When the Job is to be deleted, if that is ours to do: counted from the transition of its terminal condition.
pub fn expires_at(job: &Job, limits: Limits) -> Option<Timestamp> {
    let ours = limits.ttl_controller && !job.deleting;
    let ttl = job.spec.ttl_after_finished.filter(|_| ours)?;
    Some(after(job.status.finished()?.last_transition_time?, ttl))
}

/// Adds to the plan the deletion of a Job that has outlived its TTL.
pub fn plan(state: &JobState, now: Timestamp, plan: &mut Plan) {
    match (expires_at(&state.job, state.limits), state.write_retry.waits(now)) {
        (None, _) => {}
        (Some(_), _) if state.deletion_in_flight => {}
        (Some(at), _) if at > now => plan.wake(at),
        (Some(_), Some(retry)) => plan.wake(retry),
        (Some(_), None) => plan.delete_job = true,
    }
}
