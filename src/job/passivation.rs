//! Passivation: a finished Job without work left needs no actor. Its shard keeps the Job alone until there is
//! work for it again.

use jiff::Timestamp;

use super::limits::Limits;
use super::pod::{Phase, Pod};
use super::spec::Job;
use super::state::JobState;
use super::ttl;
use crate::mutants::{Mutant, is};

/// When a Job must be activated next, if no event concerns it before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextLook {
    /// Now: it is not finished, or its TTL has expired.
    Now,
    /// When its TTL expires.
    At(Timestamp),
    /// Never: there is nothing left to do.
    Never,
}

/// When a Job without known pods must be activated next.
pub fn next_look(job: &Job, limits: Limits, now: Timestamp) -> NextLook {
    match ttl::expires_at(job, limits) {
        _ if job.status.finished().is_none() => NextLook::Now,
        None => NextLook::Never,
        Some(at) if at > now => NextLook::At(at),
        Some(_) => NextLook::Now,
    }
}

/// Whether a pod may give a finished Job work. A pod does not if it has ended, has no finalizer, and may
/// stay. `selected`: the Job's selector selects the pod; others stay.
pub fn concerns(job: &Job, pod: &Pod, selected: bool) -> bool {
    let done = pod.phase.is_final() && !pod.tracked;
    !done || selected && job.prunes_counted(pod.phase == Phase::Failed)
}

/// Whether the Job has no work left before [`next_look`], and the state holds nothing that would be lost. The
/// caller checks that no requests are under way.
pub fn can_passivate(state: &JobState, now: Timestamp) -> bool {
    state.job.status.finished().is_some()
        && (state.pods.holds_nothing() || is(Mutant::PassivatedWithPods))
        && !state.deletion_in_flight
        && state.write_retry.waits(now).is_none()
}
