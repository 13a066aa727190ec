//! Tables: rules of a line or two, and what a state tells of itself.

use super::fixture::{at, at_index, but, job, pod, running, state, with};
use crate::job::adoption::Claimant;
use crate::job::counting::{Next, compose};
use crate::job::plan::{Plan, Wait};
use crate::job::pod::PodRef;
use crate::job::reconcile::reconcile;
use crate::job::spec::{Completion, Job};
use crate::job::state::JobState;
use crate::job::status::{ConditionKind, ConditionStatus, JobStatus, Uncounted};
use crate::job::verdict::{End, condition};

/// A finished Job makes no pods, so nobody needs what they are made from.
#[test]
fn a_status_that_is_taken_over_is_the_status() {
    let mut job = job(Completion::Count(2), 1);
    let mut ended = JobStatus { succeeded: 2, ..JobStatus::default() };
    job.take_status(JobStatus { succeeded: 1, ..JobStatus::default() });
    assert_eq!((job.status.succeeded, job.status.finished().is_some()), (1, false));
    ended.ensure(condition(ConditionKind::Complete, ConditionStatus::True, "", "", at(1)));
    job.take_status(JobStatus {
        uncounted: Some(Uncounted { succeeded: vec!["p".into()], failed: vec![] }),
        completed_indexes: [0, 1].into_iter().collect(),
        failed_indexes: Some([2].into_iter().collect()),
        ..ended.clone()
    });
    assert_eq!(job.status, ended, "nobody needs indexes and UIDs of a Job that has finished");
}

#[test]
fn a_job_that_is_gone_is_over_once_nothing_of_it_needs_a_request() {
    let one = || job(Completion::Count(1), 1);
    let mut still_there = state(one(), []);
    assert!(!still_there.is_gone() && !still_there.is_over());
    still_there.job_vanished();
    assert!(still_there.is_gone() && still_there.is_over());

    let mut holds_a_pod = state(one(), [running("a")]);
    holds_a_pod.job_vanished();
    assert!(!holds_a_pod.is_over());
    let release = Plan { releases: vec![PodRef::from(&pod("a"))], ..Plan::default() };
    holds_a_pod.begin(&release, at(1));
    holds_a_pod.pods.answered_released(&"a".into());
    assert!(!holds_a_pod.is_over(), "the request is under way");
    holds_a_pod.changed(&"a".into(), crate::job::state::Changed::Released, at(2));
    assert!(holds_a_pod.is_over());

    let mut adopts = state(one(), []);
    adopts.job_vanished();
    adopts.adoptions_in_flight = 1;
    assert!(!adopts.is_over());
}

fn complete(job: &Job) -> Vec<(bool, String)> {
    let end = End { failure: false, reason: "CompletionsReached".into(), message: "".into() };
    let write = compose(&state(job.clone(), []), &Next { end: Some(end), ..Next::default() }, at(300));
    write.events.iter().map(|event| (event.warning, event.reason.to_string())).collect()
}

#[test]
fn only_more_successes_than_wanted_are_too_many() {
    let succeeded = |succeeded| {
        let mut job = job(Completion::Count(3), 3);
        job.status.start_time = Some(at(100));
        job.status.uncounted = Some(Uncounted::default());
        job.status.succeeded = succeeded;
        job
    };
    let completed = (false, "Completed".to_owned());
    assert_eq!(complete(&succeeded(3)), std::slice::from_ref(&completed));
    assert_eq!(complete(&succeeded(4)), [(true, "TooManySucceededPods".to_owned()), completed]);
}

/// If a Job is being deleted, it is not managed, and its start stays as it is.
#[test]
fn the_start_of_a_suspended_job_is_cleared_by_who_manages_it() {
    let mut suspended = with(job(Completion::Count(3), 3), |spec| spec.suspend = true);
    suspended.status.start_time = Some(at(100));
    for (managed, start) in [(true, None), (false, Some(at(100)))] {
        let next = Next { managed, ..Next::default() };
        let write = compose(&state(suspended.clone(), [at_index("a", 0, 0)]), &next, at(300));
        assert_eq!(write.status.start_time, start, "{managed}");
        let suspended = write.status.holding(ConditionKind::Suspended).is_some();
        assert_eq!((suspended, write.events.len()), (managed, usize::from(managed)));
    }
}

/// The deadline of a Job that is resumed counts from then.
#[test]
fn the_start_of_a_job_that_is_resumed_is_when_that_happens() {
    let mut resumed = job(Completion::Count(3), 3);
    resumed.status.start_time = Some(at(100));
    for (suspended, start) in [(true, 300), (false, 100)] {
        let status = if suspended { ConditionStatus::True } else { ConditionStatus::False };
        let said = condition(ConditionKind::Suspended, status, "", "", at(200));
        resumed.status.conditions = vec![said];
        let next = Next { managed: true, ..Next::default() };
        let write = compose(&state(resumed.clone(), []), &next, at(300));
        assert_eq!(write.status.start_time, Some(at(start)), "{suspended}");
    }
}

/// Their number is not known before.
#[test]
fn no_pod_is_created_while_pods_are_being_adopted() {
    let mut adopts = state(job(Completion::Count(3), 3), []);
    assert!(adopts.is_new());
    let mut planned = |change: fn(&mut JobState)| {
        change(&mut adopts);
        let plan = reconcile(&adopts, at(1));
        (plan.creates.len(), plan.waiting, adopts.is_new())
    };
    let waits = (0, Some(Wait::Adopting), false);
    assert_eq!(planned(JobState::adoption_begun), waits);
    assert_eq!(planned(JobState::adoption_begun), waits);
    assert_eq!(planned(JobState::adoption_ended), waits, "the other is under way");
    assert_eq!(planned(JobState::adoption_ended), (1, None, true));
}

#[test]
fn a_deletion_is_not_taken_back_by_an_older_reading_of_the_job() {
    let mut leaves = state(job(Completion::Count(3), 3), []);
    let older = leaves.job.clone();
    assert_eq!(leaves.claimant(), Claimant::Manages);
    leaves.job_leaves();
    for _ in 0..2 {
        let plan = reconcile(&leaves, at(1));
        assert_eq!((plan.creates.len(), plan.waiting), (0, Some(Wait::Deleting)));
        assert_eq!(leaves.claimant(), Claimant::Leaves);
        leaves.observe_job(older.clone());
    }
}

/// Not more are wanted, so it does not wait for those that go.
#[test]
fn a_job_waits_for_pods_that_go_only_if_it_wants_others() {
    let goes = |uid| but(running(uid), |pod| pod.deleting = true);
    for (parallelism, waiting) in [(1, None), (2, Some(Wait::Terminating)), (3, None)] {
        let job = with(job(Completion::Count(9), parallelism), |spec| spec.replace_only_failed = true);
        let plan = reconcile(&state(job, [running("a"), goes("b")]), at(1));
        assert_eq!((plan.waiting, plan.creates.len()), (waiting, usize::from(parallelism == 3)));
    }
}
