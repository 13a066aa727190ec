//! Deadlines, and the start and completion times of Jobs that end.

use std::time::Duration;

use super::{count, end_at};
use crate::job::index_set::IndexSet;
use crate::job::reconcile::reconcile;
use crate::job::spec::{Completion, Job};
use crate::job::status::{ConditionKind, JobStatus};
use crate::job::tests::fixture::{at, job, running, state, with};

#[test]
fn the_deadline_counts_from_the_start_and_not_while_suspended() {
    let limited = with(count(1), |spec| spec.active_deadline = Some(Duration::from_secs(30)));
    let pods = || vec![running("a")];
    assert_eq!(end_at(limited.clone(), pods(), 129), None);
    assert_eq!(end_at(limited.clone(), pods(), 130).as_deref(), Some("DeadlineExceeded"));
    let wake = reconcile(&state(limited.clone(), pods()), at(120)).wake_at;
    assert_eq!(wake, Some(at(130)));
    let suspended = with(limited.clone(), |spec| spec.suspend = true);
    assert_eq!(end_at(suspended, pods(), 500), None);
    let mut not_yet_started = limited;
    not_yet_started.status.start_time = None;
    assert_eq!(end_at(not_yet_started, pods(), 500), None);
}

/// The deadline counts from the start, which is now.
#[test]
fn a_deadline_of_0_passes_before_any_pod_is_created() {
    let limited = with(job(Completion::Count(2), 2), |spec| spec.active_deadline = Some(Duration::ZERO));
    let plan = reconcile(&state(limited.clone(), []), at(100));
    assert_eq!(plan.creates, []);
    let status = plan.status.unwrap().status;
    assert!(status.holding(ConditionKind::FailureTarget).is_some(), "{status:?}");
    assert_eq!(status.start_time, Some(at(100)));
    let suspended = with(limited, |spec| spec.suspend = true);
    assert_eq!(end_at(suspended, vec![], 100), None);
}

/// Suspending also drops a start time that was never written.
#[test]
fn resuming_restarts_the_deadline() {
    let limited =
        with(job(Completion::Count(1), 0), |spec| spec.active_deadline = Some(Duration::from_secs(30)));
    let suspended = with(limited.clone(), |spec| spec.suspend = true);
    let mut state = state(limited.clone(), []);
    state.begin(&reconcile(&state, at(100)), at(100));
    state.status_refused(true, at(100));
    state.observe_job(suspended);
    let plan = reconcile(&state, at(110));
    state.begin(&plan, at(110));
    let written = Job { status: plan.status.unwrap().status, ..limited };
    state.observe_job(written);
    state.status_written(at(110));
    let status = reconcile(&state, at(200)).status.unwrap().status;
    assert_eq!(status.start_time, Some(at(200)));
    assert!(status.holding(ConditionKind::FailureTarget).is_none());
}

/// A suspended Job with completions 0 needs no start time.
#[test]
fn a_finished_job_has_a_start_time_unless_it_was_suspended_with_nothing_to_do() {
    let finished = |job: Job| -> JobStatus { reconcile(&state(job, []), at(160)).status.unwrap().status };
    let suspended = finished(with(job(Completion::Count(0), 1), |spec| spec.suspend = true));
    assert_eq!((suspended.start_time, suspended.completion_time), (None, Some(at(160))));
    let status = finished(job(Completion::Count(0), 1));
    assert_eq!((status.start_time, status.completion_time), (Some(at(160)), Some(at(160))));
    let mut shrunk = with(job(Completion::Indexed(1), 1), |spec| spec.suspend = true);
    shrunk.status.completed_indexes = IndexSet::below(1);
    shrunk.status.succeeded = 1;
    assert_eq!(finished(shrunk).start_time, Some(at(160)));
}

/// The start may have been written by a replica whose clock is ahead of ours.
#[test]
fn no_job_is_complete_before_it_started() {
    let mut job = count(0);
    job.status.start_time = Some(at(170));
    let status = reconcile(&state(job, []), at(160)).status.unwrap().status;
    assert_eq!(status.completion_time, Some(at(170)));
}
