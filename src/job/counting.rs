//! Exactly-once counting of pods, and the status that records it.
//!
//! Invariant: every pod is counted exactly once. Counting takes three steps. Each is visible on the API
//! server before the next begins:
//!
//! 1. record: the pod's UID enters `uncountedTerminatedPods` (or its index `completedIndexes`);
//! 2. release: the tracking finalizer is removed from the pod;
//! 3. count: the UID moves from `uncountedTerminatedPods` into `succeeded` or `failed`.
//!
//! A UID is counted only once its pod has no finalizer, and a finalizer is removed only once the UID is
//! recorded. So a crash, a hand-over or a lost reply between two steps does not change the final numbers.
//!
//! As in Kubernetes, a pod may be a failure and a success. It was recorded as failed while it was being
//! deleted, and has succeeded before its finalizer was removed. `failed` counts it, and its success
//! completes its index, or the Job.

use std::time::Duration;

use jiff::Timestamp;

use super::index_ends;
use super::limits::Pace;
use super::plan::{JobEvent, StatusWrite, Urgency};
use super::pod::{Phase, Pod};
use super::pod_set::{Gauges, PodSet};
use super::saturating::end_of_wait;
use super::spec::Completion;
use super::state::{GateTurn, JobState};
use super::status::{Condition, ConditionKind, ConditionStatus, JobStatus, Uncounted};
use super::uid::Uid;
use super::verdict::{End, condition};
use super::waiting_condition;
use crate::mutants::{Mutant, is};

/// How soon a status must be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing has changed.
    Never,
    /// At once.
    Now,
    /// Together with changes that follow, at this time at the latest.
    At(Timestamp),
}

/// The content of the next status beyond counts.
#[derive(Clone, Debug, Default)]
pub struct Next {
    /// The end of the Job, newly decided or announced before.
    pub end: Option<End>,
    /// The condition that says why the Job waits, if it changes.
    pub waits: Option<Condition>,
    /// The pods are as `spec.suspend` wants them, so the Suspended condition may follow the spec.
    pub managed: bool,
}

/// Longest time that the start of a Job waits for the answer to its first creation: as long as a webhook may take for one. The
/// built-in controller writes nothing before that answer.
const UNANSWERED: Duration = Duration::from_secs(30);
/// The same for a Job with a deadline, which counts from the start that is written.
const UNANSWERED_BEFORE_DEADLINE: Duration = Duration::from_secs(10);
/// After a rest, progress waits for this long, and no longer than a batch period. Pods that end or become ready together are then
/// shown together, and the second of them does not wait for a whole period.
const TOGETHER: Duration = Duration::from_millis(50);
/// Longest time that pods exist before a status shows the start of their Job: clients read `startTime`, `ready` and
/// `terminating`, which are absent before.
const UNSHOWN: Duration = Duration::from_secs(2);
/// Longest time that the start of a Job waits in all.
const UNWRITTEN: Duration = Duration::from_secs(40);

/// When the status must be written, without composing it. `busy`: requests about pods are under way or about
/// to be sent, and their outcome belongs in the same write. The first of these that holds decides:
///
/// 1. Conditions change, unless the Job resumes; it finishes or restarts; or it says why it waits, or which
///    predecessors have ended: now.
/// 2. The counts stay as they are, or the Job waits for others: never.
/// 3. The turn at the gate has come: now.
/// 4. No creation is answered yet: 30 s after the change, or 10 s if the Job has a deadline.
/// 5. A batch of uncounted pods is full: now.
/// 6. Requests about pods are in flight: a period after the change.
/// 7. Pods can be counted at once, or the end of the Job waits for the count: now.
/// 8. The Job starts and has active pods: a fifth of a batch period after the change, or longer.
/// 9. The Job starts: a period after the last status, if there was one.
/// 10. Otherwise: a period after the last status, and 50 ms after the change.
///
/// The start of a Job is due 40 s after it was decided at the latest.
pub fn due(state: &JobState, next: &Next, busy: bool, now: Timestamp) -> Due {
    let restarts = state.has_restarted() && next.end.is_none();
    let says_more = next.waits.is_some() || restarts || state.has_met_more();
    if conditions_change(state, next) && !resumes(state, next) || finishes(state, next) || says_more {
        return Due::Now;
    }
    // A Job that waits for others has not begun, so there is nothing to count.
    if state.is_held_by_order() || !counts_change(state, next) {
        return Due::Never;
    }
    if state.status_turn == GateTurn::Here {
        return Due::Now;
    }
    let waits_for = |period| end_of_wait(state.status_waits_since().unwrap_or(now), period, now);
    let starts = state.job.status.start_time.is_none() && !state.job.spec.suspend;
    let start_period = start_period(state, next);
    let period = match starts {
        true => state.limits.batch_period.clamp(start_period, UNSHOWN),
        false => status_period(state, next),
    };
    let due = if state.awaits_first_pod() && !counting_goes_on(state, next) {
        // There is nothing to show before the first answer.
        let has_deadline = state.job.spec.active_deadline.is_some();
        waits_for(if has_deadline { UNANSWERED_BEFORE_DEADLINE } else { UNANSWERED })
    } else if full_batch(state, next) {
        now
    } else if busy {
        waits_for(period)
    } else if state.may_count_at_once() {
        now
    } else if next.end.is_some() && counting_goes_on(state, next) {
        // The end waits for this. It does not wait for the number of pods that are still there.
        now
    } else if starts && state.pods.gauges().active > 0 {
        waits_for(start_period)
    } else {
        let together = if starts { now } else { waits_for(state.limits.batch_period.min(TOGETHER)) };
        state.status_written.map_or(now, |last| end_of_wait(last, period, now).max(together))
    };
    let at_latest = state.started.filter(|_| starts).map(|started| end_of_wait(started, UNWRITTEN, now));
    let due = at_latest.map_or(due, |latest| latest.min(due));
    if due <= now { Due::Now } else { Due::At(due) }
}

/// The time between two statuses. A slow API server makes it longer only if readers alone wait for the
/// counts. The end of the Job, its deletion, and the deletion of counted pods wait for them, too.
fn status_period(state: &JobState, next: &Next) -> Duration {
    let is_awaited = next.end.is_some() || state.job.deleting || state.job.options.deletes_counted_pods();
    if counting_goes_on(state, next) {
        if is_awaited { Pace::free(state.limits).status_period } else { state.pace.status_period }
    } else if state.job.status.holding(ConditionKind::Suspended).is_some() {
        // The user who has suspended the Job is about to change it, and every write of ours makes that
        // fail. Counts of a status must still not become too old.
        let free = Pace::free(state.limits).status_period;
        state.pace.status_period.max(free + state.limits.batch_period)
    } else {
        state.pace.status_period
    }
}

/// How long the start of the Job waits for its end. Where pods have ended that must be recorded, or where a deadline counts from
/// the start, a slow API server is no reason to wait.
fn start_period(state: &JobState, next: &Next) -> Duration {
    let is_awaited = state.job.spec.active_deadline.is_some() || counting_goes_on(state, next);
    let period = if is_awaited { Pace::free(state.limits).start_period } else { state.pace.start_period };
    period.min(UNSHOWN)
}

/// Whether anything waits for the next status.
pub fn urgency(state: &JobState, next: &Next) -> Urgency {
    // A deadline counts from the start that is written, and clients wait for the start of pods that exist.
    let shows_start = state.job.spec.active_deadline.is_some() || state.pods.active() > 0;
    let starts = shows_start && state.job.status.start_time.is_none();
    // A predecessor that has ended may be gone when the next owner looks.
    let is_step = next.end.is_some()
        || starts
        || conditions_change(state, next)
        || counting_goes_on(state, next)
        || state.has_met_more();
    if is_step { Urgency::Step } else { Urgency::Progress }
}

/// Whether a write would record pods that have ended, or count recorded ones.
fn counting_goes_on(state: &JobState, next: &Next) -> bool {
    let uncounted = state.job.status.uncounted.as_ref();
    records(state, next) || uncounted.is_some_and(|listed| listed.len() > state.pods.listed_and_tracked())
}

/// Whether a write would record pods that have ended. While `uncountedTerminatedPods` is full of pods that cannot be released,
/// it would only repeat itself. The successes of an Indexed Job are recorded by their indexes.
fn records(state: &JobState, next: &Next) -> bool {
    let pods = &state.pods;
    let unrecorded = unrecorded(state, next);
    let listed = match state.job.spec.completion {
        Completion::Indexed(_) => pods.unrecorded_failures(),
        Completion::Count(_) | Completion::WorkQueue => unrecorded,
    };
    unrecorded > listed || (listed > 0 && room(state) > 0)
}

/// Whether successes are recorded. Successes that a restart would make vain wait for the end of the Job.
fn records_successes(state: &JobState, next: &Next) -> bool {
    next.end.is_some() || !state.holds_successes()
}

/// Number of pods that the next status may record.
fn unrecorded(state: &JobState, next: &Next) -> usize {
    let pods = &state.pods;
    if records_successes(state, next) { pods.unrecorded() } else { pods.unrecorded_failures() }
}

/// How many more pods `uncountedTerminatedPods` may list.
fn room(state: &JobState) -> usize {
    state.limits.max_uncounted_pods.saturating_sub(state.pods.listed_and_tracked())
}

/// Whether a write would be full: at least half of `uncountedTerminatedPods` is free, and enough pods have
/// ended to fill the free part.
fn full_batch(state: &JobState, next: &Next) -> bool {
    let room = room(state);
    2 * room >= state.limits.max_uncounted_pods && unrecorded(state, next) >= room
}

/// Whether the counts, gauges or start time of the status would change.
fn counts_change(state: &JobState, next: &Next) -> bool {
    let (spec, status, pods) = (&state.job.spec, &state.job.status, &state.pods);
    // A Job that is being deleted starts no more; what else is written says when it was resumed.
    let starts = status.start_time.is_none() && !spec.suspend && !state.job.deleting;
    let completed = spec.completion.indexes().map_or(0, |_| pods.succeeded_indexes().len());
    let failed_indexes = spec.per_index.map(|_| pods.failed_indexes().len());
    starts
        || status.uncounted.is_none()
        || (status.running_since != state.running_since() && !spec.suspend)
        || ((status.active, status.ready, status.terminating) != gauges(pods)
            && !is(Mutant::GaugesNotWritten))
        || (status.completed_indexes.len() != completed && records_successes(state, next))
        || status.failed_indexes.as_ref().map(|failed| failed.len()) != failed_indexes
        || counting_goes_on(state, next)
}

fn gauges(pods: &PodSet) -> (u32, Option<u32>, Option<u32>) {
    let Gauges { active, ready, terminating } = pods.gauges();
    (count(active), Some(count(ready)), Some(count(terminating)))
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// Whether the Job is resumed: it starts anew. As at its first start, the status waits for what follows.
fn resumes(state: &JobState, next: &Next) -> bool {
    next.end.is_none() && !state.job.spec.suspend && state.job.status.start_time.is_none()
}

fn conditions_change(state: &JobState, next: &Next) -> bool {
    let status = &state.job.status;
    match &next.end {
        Some(end) => status.holding(end.announcement(Timestamp::UNIX_EPOCH).kind).is_none(),
        None if !next.managed => false,
        None => {
            let says_suspended = status.holding(ConditionKind::Suspended).is_some();
            says_suspended != state.job.spec.suspend
        }
    }
}

/// Whether the terminal condition may be written. The end is decided, all pods are gone or have ended, and
/// this write counts the last of them.
fn finishes(state: &JobState, next: &Next) -> bool {
    let pods = &state.pods;
    let Gauges { active, terminating, .. } = pods.gauges();
    next.end.is_some()
        && active + pods.pending_creates() + terminating == 0
        && (pods.tracked() == 0 || is(Mutant::EndsBeforeCounted))
        && pods.unrecorded() == 0
}

/// The status to write.
pub fn compose(state: &JobState, next: &Next, now: Timestamp) -> StatusWrite {
    let mut status = state.job.status.clone();
    let mut events = Vec::new();
    record(state, next, &mut status);
    index_ends::record(state, &mut status, now);
    (status.active, status.ready, status.terminating) = gauges(&state.pods);
    let used = state.pods.names_used(state.job.spec.suspend, &state.lost_creations);
    status.names_used = status.names_used.max(used);
    status.running_since = if state.job.spec.suspend { None } else { state.running_since() };
    if state.has_restarted() && next.end.is_none() {
        status.restarts = state.pods.restarts_together();
        let message = format!("Restarting all pods: restart {}", status.restarts);
        events.push(JobEvent::warning("Restarting", message));
    }
    status.after_met = state.predecessors_met().cloned().or(status.after_met);
    next.waits.iter().for_each(|waits| _ = status.ensure(waits.clone()));
    set_start_time(state, next, &mut status, now);
    match &next.end {
        Some(end) => {
            // It was resumed, and its pods may have ended before a status said so.
            if state.creates_pods {
                set_suspended(false, &mut status, &mut events, now);
            }
            if !is(Mutant::EndNotAnnounced) {
                status.ensure(end.announcement(now));
            }
            if finishes(state, next) {
                finish(state, end, &mut status, &mut events, now);
            }
        }
        None if next.managed => set_suspended(state.job.spec.suspend, &mut status, &mut events, now),
        None => {}
    }
    StatusWrite { status, urgency: urgency(state, next), events }
}

/// Steps 3 and 1: counts released pods, and records pods that have ended since. A Job that ends creates no
/// successors. So the status that announces its end also records the failures that are held for one: its
/// end may follow from them.
fn record(state: &JobState, next: &Next, status: &mut JobStatus) {
    let pods = &state.pods;
    let mut uncounted = status.uncounted.take().unwrap_or_default();
    let count_released = |uids: &mut Vec<Uid>| {
        let before = uids.len();
        uids.retain(|uid| pods.is_tracked(uid) && !is(Mutant::CountedWithFinalizer));
        count(before - uids.len())
    };
    status.succeeded = status.succeeded.saturating_add(count_released(&mut uncounted.succeeded));
    status.failed = status.failed.saturating_add(count_released(&mut uncounted.failed));
    let room = state.limits.max_uncounted_pods.saturating_sub(uncounted.len());
    if let Completion::Indexed(completions) = state.job.spec.completion {
        // The index alone prevents that a success is counted twice.
        if records_successes(state, next) {
            status.completed_indexes = pods.succeeded_indexes().clone();
        }
        // The API server lets the number decrease only if the Job is elastic: completions equal parallelism.
        let least = if completions == state.job.spec.parallelism { 0 } else { status.succeeded };
        status.succeeded = status.completed_indexes.len().max(least);
        let held = pods.held_to_record().filter(|_| next.end.is_some());
        let failures = pods.to_record().filter(|pod| pod.phase != Phase::Succeeded).chain(held);
        uncounted.failed.extend(failures.take(room).map(|pod| pod.uid.clone()));
    } else {
        let is_recorded = |pod: &&Pod| pod.phase != Phase::Succeeded || records_successes(state, next);
        for pod in pods.to_record().filter(is_recorded).take(room) {
            let Uncounted { succeeded, failed } = &mut uncounted;
            if pod.phase == Phase::Succeeded { succeeded } else { failed }.push(pod.uid.clone());
        }
    }
    status.uncounted = Some(uncounted);
    status.failed_indexes = state.job.spec.per_index.map(|_| pods.failed_indexes().clone());
}

/// `startTime` is set when the Job is first managed unsuspended, cleared when it is suspended, and set again
/// when it is resumed. A Job that ends must have one, unless it is suspended with completions 0.
fn set_start_time(state: &JobState, next: &Next, status: &mut JobStatus, now: Timestamp) {
    let spec = &state.job.spec;
    let suspended = status.holding(ConditionKind::Suspended).is_some();
    match &next.end {
        None if state.is_held_by_order() => {}
        Some(_) => {
            let nothing_to_do = spec.suspend && spec.completion.wanted() == Some(0);
            if status.start_time.is_none() && !nothing_to_do {
                status.start_time = state.started.or(Some(now));
            }
        }
        None if !spec.suspend && suspended && next.managed => status.start_time = state.started.or(Some(now)),
        None if !spec.suspend => status.start_time = status.start_time.or(state.started).or(Some(now)),
        None if next.managed && !suspended => status.start_time = None,
        None => {}
    }
}

fn set_suspended(suspend: bool, status: &mut JobStatus, events: &mut Vec<JobEvent>, now: Timestamp) {
    let (value, reason, message, event) = if suspend {
        (ConditionStatus::True, "JobSuspended", "Job suspended", "Suspended")
    } else {
        (ConditionStatus::False, "JobResumed", "Job resumed", "Resumed")
    };
    if status.ensure(condition(ConditionKind::Suspended, value, reason, message, now)) {
        events.push(JobEvent {
            warning: false,
            reason: event.into(),
            message: message.into(),
            terminal: false,
        });
    }
}

fn finish(state: &JobState, end: &End, status: &mut JobStatus, events: &mut Vec<JobEvent>, now: Timestamp) {
    if !status.ensure(end.conclusion(now)) {
        return;
    }
    if status.holding(ConditionKind::Waiting).is_some() {
        status.ensure(waiting_condition::at_end(now));
    }
    let mut emit = |warning, reason: &str, message: &str| {
        events.push(JobEvent { warning, reason: reason.into(), message: message.into(), terminal: true });
    };
    if end.failure {
        emit(true, &end.reason, &end.message);
        return;
    }
    // The start may have been written by a replica whose clock is ahead of ours.
    status.completion_time = status.start_time.max(Some(now));
    if state.job.spec.completion.wanted().is_some_and(|completions| status.succeeded > completions) {
        let message = "Too many succeeded pods running after completion count reached";
        emit(true, "TooManySucceededPods", message);
    }
    emit(false, "Completed", "Job completed");
}
