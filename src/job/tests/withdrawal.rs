//! Table: which changes make the creations that have yet to leave unwanted.

use super::fixture::{at, job, running, state, with};
use crate::job::plan::Plan;
use crate::job::reconcile::reconcile;
use crate::job::spec::{Completion, Job};
use crate::job::state::{Created, JobState};
use crate::job::status::{Condition, ConditionKind, ConditionStatus, Uncounted};

fn three_at_a_time() -> Job {
    let mut job = job(Completion::Count(9), 3);
    job.status.start_time = Some(at(100));
    job.status.uncounted = Some(Uncounted::default());
    job
}

/// A Job with one pod, and the creations of two more under way.
fn creating() -> (JobState, Plan) {
    let mut state = state(three_at_a_time(), [running("p")]);
    (0..20).for_each(|_| state.slow_start.accepted());
    let plan = reconcile(&state, at(160));
    assert_eq!((plan.creates.len(), plan.withdraw), (2, false));
    state.begin(&plan, at(160));
    (state, plan)
}

fn ended(kind: ConditionKind) -> Job {
    let mut job = three_at_a_time();
    job.status.conditions.push(Condition {
        kind,
        status: ConditionStatus::True,
        reason: "".into(),
        message: "".into(),
        last_probe_time: None,
        last_transition_time: Some(at(161)),
    });
    job
}

#[test]
fn creations_that_wait_are_withdrawn_when_no_pod_is_wanted_any_more_or_fewer_are() {
    let job = three_at_a_time();
    for (why, changed, withdraw) in [
        ("nothing has changed", job.clone(), false),
        ("more are wanted", with(job.clone(), |spec| spec.parallelism = 5), false),
        ("fewer are wanted", with(job.clone(), |spec| spec.parallelism = 2), true),
        ("it is suspended", with(job.clone(), |spec| spec.suspend = true), true),
        ("it is being deleted", Job { deleting: true, ..job.clone() }, true),
        ("its success is announced", ended(ConditionKind::SuccessCriteriaMet), true),
        ("it has failed", ended(ConditionKind::Failed), true),
    ] {
        let (mut state, _) = creating();
        state.observe_job(changed);
        assert_eq!(reconcile(&state, at(161)).withdraw, withdraw, "{why}");
    }
    let (mut state, _) = creating();
    state.job_vanished();
    assert!(reconcile(&state, at(161)).withdraw, "it is gone");
}

#[test]
fn a_withdrawn_creation_is_no_refusal() {
    let (mut state, plan) = creating();
    state.observe_job(with(three_at_a_time(), |spec| spec.parallelism = 2));
    plan.creates.iter().for_each(|new| state.created(new.place, Created::Withdrawn, at(161)));
    let plan = reconcile(&state, at(161));
    assert_eq!((plan.creates.len(), plan.withdraw), (1, false), "the one that is wanted leaves at once");
}
