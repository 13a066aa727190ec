//! Suspended and resumed Jobs: their pods, conditions and start times.

use super::{but_deleting, places, slots, started, warm};
use crate::job::plan::Plan;
use crate::job::pod::{Phase, Pod};
use crate::job::reconcile::reconcile;
use crate::job::spec::{Completion, Job};
use crate::job::state::{Changed, Created, JobState};
use crate::job::status::{ConditionKind, ConditionStatus};
use crate::job::tests::fixture::{at, at_ms, at_ordinal, but, ended, job, quiet, running, state, with};

#[test]
fn a_suspended_job_removes_its_pods_and_clears_its_start_time() {
    let running_job = started(job(Completion::Count(3), 1));
    let suspended = with(running_job.clone(), |spec| spec.suspend = true);
    let mut state = warm(suspended.clone(), slots([0]));
    let plan = reconcile(&state, at(160));
    assert!(plan.status.is_none() && plan.deletes[0].forget, "{plan:?}");
    state.begin(&plan, at(160));
    state.changed(&plan.deletes[0].pod.uid, Changed::Gone, at(160));
    let write = reconcile(&state, at(161)).status.unwrap();
    assert_eq!((write.status.start_time, write.status.active), (None, 0));
    assert_eq!(&*write.events[0].reason, "Suspended");

    let resumed = Job { status: write.status, ..running_job };
    state.observe_job(resumed);
    let plan = reconcile(&state, at(300));
    assert_eq!(places(&plan).len(), 1);
    let write = plan.status.unwrap();
    assert_eq!(write.status.start_time, Some(at(300)), "the start time is set again");
    assert_eq!(&*write.events[0].reason, "Resumed");
}

#[test]
fn a_job_whose_pods_end_before_its_resume_is_written_was_resumed_all_the_same() {
    let mut suspended = with(job(Completion::Count(1), 1), |spec| spec.suspend = true);
    suspended.status = reconcile(&state(suspended.clone(), []), at(160)).status.unwrap().status;
    let resumed = with(suspended, |spec| spec.suspend = false);
    let mut state = warm(resumed.clone(), []);
    let plan = Plan { status: None, ..reconcile(&state, at(170)) };
    state.begin(&plan, at(170));
    let pod = ended(at_ordinal("done", 0), Phase::Succeeded, 171);
    state.created(plan.creates[0].place, Created::Pod(Box::new(pod)), at(171));
    let write = reconcile(&state, at(180)).status.unwrap();
    let condition = write.status.condition(ConditionKind::Suspended).unwrap();
    assert_eq!((condition.status, &*condition.reason), (ConditionStatus::False, "JobResumed"));
    assert_eq!(write.status.start_time, Some(at(170)));
    assert_eq!(&*write.events[0].reason, "Resumed");

    // As with the built-in controller, one that has nothing to do ends as it is.
    let mut done = resumed;
    done.status.succeeded = 1;
    let status = reconcile(&self::state(done, []), at(170)).status.unwrap().status;
    assert!(status.holding(ConditionKind::Suspended).is_some());
}

/// No status is written for the start time alone.
#[test]
fn a_job_that_is_resumed_while_it_is_deleted_does_not_start() {
    let mut job = with(job(Completion::Count(3), 1), |spec| spec.suspend = true);
    job.status = reconcile(&state(job.clone(), []), at(160)).status.unwrap().status;
    let resumed = but_deleting(with(job, |spec| spec.suspend = false));
    assert_eq!(reconcile(&state(resumed, []), at(170)).status, None);
}

/// Only the change of the condition clears it.
#[test]
fn a_suspended_job_keeps_a_start_time_that_somebody_has_written() {
    let mut job = with(job(Completion::Count(3), 1), |spec| spec.suspend = true);
    job.status = reconcile(&state(job.clone(), []), at(160)).status.unwrap().status;
    job.status.start_time = Some(at(100));
    assert_eq!(reconcile(&state(job.clone(), []), at(170)).status, None);
    job.status.active = 7;
    let status = reconcile(&state(job, []), at(170)).status.unwrap().status;
    assert_eq!((status.active, status.start_time), (0, Some(at(100))));
}

#[test]
fn a_job_created_suspended_reports_it_and_does_not_start() {
    let plan = reconcile(&state(with(job(Completion::Count(3), 1), |spec| spec.suspend = true), []), at(160));
    let write = plan.status.unwrap();
    assert!(plan.creates.is_empty());
    assert_eq!(write.status.start_time, None);
    assert_eq!(&*write.status.conditions[0].reason, "JobSuspended");
    let plain = reconcile(&state(job(Completion::Count(3), 1), []), at(160));
    assert_eq!(plain.status.map(|write| write.status.conditions), None, "no status without a suspension");
}

/// The pods of a suspended Job run until their removal is answered, and who reads that none is active gives their place away.
#[test]
fn a_pod_is_active_until_its_removal_is_answered() {
    let mut job = with(quiet(job(Completion::Count(9), 2)), |spec| spec.suspend = true);
    job.status.active = 2;
    let mut state =
        state(job, [but(running("a"), |pod| pod.ready_since = Some(at(150).into())), running("b")]);
    let plan = reconcile(&state, at(200));
    assert_eq!(plan.deletes.len(), 2);
    state.begin(&plan, at(200));
    let shown = |state: &JobState, ms| {
        let status = reconcile(state, at_ms(ms)).status?.status;
        Some((status.active, status.ready, status.terminating))
    };
    assert_eq!(shown(&state, 201_000), Some((2, Some(1), Some(0))), "as before, but for the ready one");
    state.changed(&"b".into(), Changed::Pod(Box::new(but(running("b"), leaves))), at(202));
    assert_eq!(shown(&state, 203_000), Some((1, Some(1), Some(1))));
    // The watch may be quicker than the answer.
    state.observe_pod(but(running("a"), leaves), at(204));
    assert_eq!(shown(&state, 205_000), Some((0, Some(0), Some(2))));
    state.changed(&"a".into(), Changed::Gone, at(206));
    assert_eq!(shown(&state, 206_000), Some((0, Some(0), Some(1))));
}

fn leaves(pod: &mut Pod) {
    (pod.deleting, pod.version) = (true, 2);
}
