//! The end of a Job: success or failure. Kubernetes decides in this order: the conditions that are already
//! set; `FailJob`; `backoffLimit`; `activeDeadlineSeconds`; failed indexes; the success policy; completions.
//!
//! So in one batch any failure beats success, and `FailJob` beats `BackoffLimitExceeded`.

use jiff::Timestamp;

use super::pod_deadlines;
use super::pod_failure_policy::judge;
use super::restart;
use super::saturating::after;
use super::spec::Completion;
use super::state::JobState;
use super::success_policy;
use super::verdict::End;
use crate::mutants::{Mutant, is};

/// Successes and failures as the rules count them, recorded in the status or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tally {
    /// Succeeded pods, or succeeded indexes of an Indexed Job.
    pub succeeded: u64,
    /// Failed pods that no policy ignores.
    pub failed: u64,
}

impl Tally {
    /// Counts what the status records and what the pods add to it.
    pub fn of(state: &JobState) -> Self {
        let status = &state.job.status;
        let (uncounted_succeeded, uncounted_failed) =
            status.uncounted.as_ref().map_or((0, 0), |u| (u.succeeded.len(), u.failed.len()));
        let succeeded = match state.job.spec.completion {
            Completion::Indexed(_) => u64::from(state.pods.succeeded_indexes().len()),
            _ => u64::from(status.succeeded) + (uncounted_succeeded + state.pods.fresh_successes()) as u64,
        };
        let failed = u64::from(status.failed) + (uncounted_failed + state.pods.fresh_failures()) as u64;
        let extra = u64::from(is(Mutant::CompletionsOffByOne));
        Self { succeeded: succeeded + extra, failed }
    }
}

/// When the Job's active deadline passes; `None` while the Job is suspended. A Job that has not started starts now.
pub fn deadline(state: &JobState, now: Timestamp) -> Option<Timestamp> {
    let spec = &state.job.spec;
    let start = state.job.status.start_time.or(state.started).unwrap_or(now);
    spec.active_deadline.filter(|_| !spec.suspend).map(|deadline| after(start, deadline))
}

/// Why the Job has failed, if it has.
pub fn failed(state: &JobState, tally: Tally, now: Timestamp) -> Option<End> {
    fail_job(state)
        .or_else(|| restart::too_many(state))
        .or_else(|| backoff_limit(state, tally))
        .or_else(|| {
            let passed = deadline(state, now).is_some_and(|at| at <= now);
            passed.then(|| End::failure("DeadlineExceeded", "Job was active longer than specified deadline"))
        })
        .or_else(|| pod_deadlines::ran_too_long(state, now))
        .or_else(|| failed_indexes(state))
}

/// Whether the Job ends now, or would if its pods that have not ended did. For a work queue, one success is
/// enough.
pub fn is_near(state: &JobState, tally: Tally) -> bool {
    let (spec, pods) = (&state.job.spec, &state.pods);
    let undecided = pods.undecided();
    let failures = tally.failed.saturating_add(undecided as u64);
    let last_chances = if spec.may_fail_indexes_by_policy() { undecided } else { pods.last_chances() };
    let failed_indexes = u64::from(pods.failed_indexes().len()).saturating_add(last_chances as u64);
    restart::is_last_attempt(state).unwrap_or(failures > u64::from(spec.backoff_limit))
        || spec.completion == Completion::WorkQueue
        || completions_reached(state, tally).is_some()
        || spec
            .per_index
            .and_then(|limit| limit.max_failed_indexes)
            .is_some_and(|max| failed_indexes > max.into())
        || pods.fails_job().is_some()
        || success_policy::is_in_reach(&spec.success_policy, pods.succeeded_indexes(), undecided)
}

fn fail_job(state: &JobState) -> Option<End> {
    let pod = state.pods.fails_job()?;
    let found = judge(state.job.spec.pod_failure_policy.as_ref()?, pod.outcome.as_ref()?)?;
    Some(End::failure("PodFailurePolicy", found.fail_job_message(&state.job.namespace, &pod.name)))
}

fn backoff_limit(state: &JobState, tally: Tally) -> Option<End> {
    let limit = u64::from(state.job.spec.backoff_limit);
    let restarts = restart::is_last_attempt(state).is_some();
    let exceeds = tally.failed + u64::from(is(Mutant::BackoffLimitOffByOne)) > limit && !restarts;
    (exceeds || state.restarts_too_often())
        .then(|| End::failure("BackoffLimitExceeded", "Job has reached the specified backoff limit"))
}

fn failed_indexes(state: &JobState) -> Option<End> {
    let (limit, completions) = (state.job.spec.per_index?, state.job.spec.completion.indexes()?);
    let failed = state.pods.failed_indexes().len();
    if limit.max_failed_indexes.is_some_and(|max| failed > max) {
        let message = "Job has exceeded the specified maximal number of failed indexes";
        return Some(End::failure("MaxFailedIndexesExceeded", message));
    }
    (failed > 0 && failed.saturating_add(state.pods.succeeded_indexes().len()) >= completions)
        .then(|| End::failure("FailedIndexes", "Job has failed indexes"))
}

/// The rule of the success policy that is met, if any.
pub fn success_policy_met(state: &JobState) -> Option<End> {
    let rule = success_policy::first_met(&state.job.spec.success_policy, state.pods.succeeded_indexes())?;
    Some(End::success("SuccessPolicy", format!("Matched rules at index {rule}")))
}

/// Whether the Job would end with success although pods may exist that nobody has shown: the answers to their creations
/// were lost. They may have succeeded by then, and would be removed uncounted.
pub fn doubts_success(state: &JobState) -> bool {
    !state.lost_creations.is_empty()
        && !state.gone
        && state.job.status.finished().is_none()
        && !state.job.status.announces_end()
        && completions_reached(state, Tally::of(state)).is_some()
}

/// Success, if enough pods have succeeded and no active pod is left, nor one whose creation or adoption has not been
/// answered: it may have succeeded, too. An adoption that was refused and is tried again holds up no end. Without completions
/// one success is enough.
pub fn completions_reached(state: &JobState, tally: Tally) -> Option<End> {
    let none_left = state.pods.active() + state.pods.pending_creates() + state.adoptions_unanswered == 0;
    let enough = match state.job.spec.completion.wanted() {
        None => tally.succeeded > 0,
        Some(completions) => tally.succeeded >= u64::from(completions),
    };
    (none_left && enough)
        .then(|| End::success("CompletionsReached", "Reached expected number of succeeded pods"))
}
