//! When a finished Job is left alone: of one that nothing is left to be done for, nobody needs to hold more than the Job
//! itself until something comes of it.

use jiff::Timestamp;

use super::pod::{Phase, Pod};
use super::spec::Job;
use super::state::{JobState, Limits};
use super::ttl;

/// When a Job is to be looked after next, should nothing come of it before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextLook {
    /// It is not finished, or has outlived its TTL.
    Now,
    /// When its TTL ends.
    At(Timestamp),
    /// Nothing is left to be done.
    Never,
}

/// When a Job of which no pod is held is to be looked after next.
pub fn next_look(job: &Job, limits: Limits, now: Timestamp) -> NextLook {
    match ttl::expires_at(job, limits) {
        _ if job.status.finished().is_none() => NextLook::Now,
        None => NextLook::Never,
        Some(at) if at > now => NextLook::At(at),
        Some(_) => NextLook::Now,
    }
}

/// Whether a pod may give a finished Job something to do: not one that has been counted, or never will be, and may stay.
/// `selected`: the Job's selector selects it.
pub fn concerns(job: &Job, pod: &Pod, selected: bool) -> bool {
    let settled = pod.phase.is_final() && !pod.tracked && selected;
    !settled || job.prunes_counted(pod.phase == Phase::Failed)
}

/// Whether nothing is left to be done but what [`next_look`] tells, and nothing is held that would be missed. Whether
/// requests are under way is the caller's to know.
pub fn can_passivate(state: &JobState, now: Timestamp) -> bool {
    state.job.status.finished().is_some()
        && state.pods.holds_nothing()
        && !state.deletion_in_flight
        && state.write_retry.waits(now).is_none()
}
