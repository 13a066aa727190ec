//! A finished Job: its deletion after its TTL, and the release of its pods.

use std::time::Duration;

use super::fixture::{at, ended, job, quiet, running, state, with};
use crate::job::limits::Limits;
use crate::job::pod::Phase;
use crate::job::reconcile::reconcile;
use crate::job::spec::{Completion, Job};
use crate::job::state::{Changed, JobState};
use crate::job::status::{ConditionKind, ConditionStatus};
use crate::job::verdict::condition;

#[test]
fn a_finished_job_is_deleted_when_its_ttl_expires() {
    let mut finished = with(quiet(job(Completion::Count(1), 1)), |spec| {
        spec.ttl_after_finished = Some(Duration::from_secs(30));
    });
    let complete = condition(ConditionKind::Complete, ConditionStatus::True, "", "", at(200));
    finished.status.conditions.push(complete);
    let limits = Limits { ttl_controller: true, ..Limits::default() };
    let mut state = JobState::new(finished.clone(), limits);
    let early = reconcile(&state, at(229));
    assert_eq!((early.delete_job, early.wake_at), (false, Some(at(230))));
    let plan = reconcile(&state, at(230));
    assert!(plan.delete_job);
    state.begin(&plan, at(230));
    assert!(!reconcile(&state, at(231)).delete_job, "the deletion is requested once");
    state.deletion_refused(at(231));
    assert_eq!(reconcile(&state, at(231)).wake_at, Some(at(232)));
    let plan = reconcile(&state, at(232));
    assert!(plan.delete_job);
    state.begin(&plan, at(232));
    state.deletion_not_due();
    state.observe_job(with(finished.clone(), |spec| spec.ttl_after_finished = Some(Duration::from_secs(60))));
    let longer = reconcile(&state, at(232));
    assert_eq!((longer.delete_job, longer.wake_at), (false, Some(at(260))), "somebody has prolonged it");

    let elsewhere = JobState::new(finished.clone(), Limits::default());
    assert!(!reconcile(&elsewhere, at(500)).delete_job, "another controller deletes it");
    let leaving = JobState::new(Job { deleting: true, ..finished.clone() }, limits);
    assert!(!reconcile(&leaving, at(500)).delete_job);
    let forever = JobState::new(with(finished, |spec| spec.ttl_after_finished = None), limits);
    assert_eq!(reconcile(&forever, at(500)), crate::job::plan::Plan::default());
}

#[test]
fn a_finished_job_releases_its_pods_and_counts_no_more() {
    let mut finished = quiet(job(Completion::Count(1), 1));
    let failed = condition(ConditionKind::Failed, ConditionStatus::True, "", "", at(200));
    finished.status.conditions.push(failed);
    let mut state = state(finished, [running("a"), ended(running("b"), Phase::Failed, 150)]);
    let plan = reconcile(&state, at(300));
    assert_eq!((plan.releases.len(), plan.status.is_none(), plan.deletes.len()), (2, true, 0));
    state.begin(&plan, at(300));
    for pod in &plan.releases {
        state.changed(&pod.uid, Changed::Gone, at(300));
    }
    assert!(reconcile(&state, at(300)).is_idle());
}
