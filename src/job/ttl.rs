//! `spec.ttlSecondsAfterFinished`: a finished Job is deleted, with its pods, after this time.

use jiff::Timestamp;

use super::limits::Limits;
use super::plan::Plan;
use super::saturating::after;
use super::spec::Job;
use super::state::JobState;
use crate::mutants::{Mutant, is};

/// When the TTL expires, if the Job is ours to delete. The TTL begins at the transition of the terminal
/// condition.
pub fn expires_at(job: &Job, limits: Limits) -> Option<Timestamp> {
    let ours = limits.ttl_controller && !job.deleting;
    let ttl = job.spec.ttl_after_finished.filter(|_| ours)?;
    let finished = job.status.finished()?.last_transition_time?;
    Some(after(if is(Mutant::TtlFromStart) { job.status.start_time? } else { finished }, ttl))
}

/// Adds the deletion of a Job whose TTL has expired to the plan.
pub fn plan(state: &JobState, now: Timestamp, plan: &mut Plan) {
    match (expires_at(&state.job, state.limits), state.write_retry.waits(now)) {
        (None, _) => {}
        (Some(_), _) if state.deletion_in_flight => {}
        (Some(at), _) if at > now => plan.wake(at),
        (Some(_), Some(retry)) => plan.wake(retry),
        (Some(_), None) => plan.delete_job = true,
    }
}
