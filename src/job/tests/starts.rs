//! The time at which the start of a Job, or its resume, is written to the status.

use std::time::Duration;

use super::fixture::{at, at_ms, ended, job, quiet, running, state, with};
use crate::job::counting::{Due, Next, due, urgency};
use crate::job::limits::{Limits, Pace};
use crate::job::plan::Urgency;
use crate::job::pod::{Phase, Pod};
use crate::job::reconcile::reconcile;
use crate::job::spec::Completion;
use crate::job::state::{Created, JobState};
use crate::job::status::{ConditionKind, ConditionStatus};
use crate::job::verdict::condition;

/// A Job that ends soon after its start needs one status write for both.
#[test]
fn the_start_waits_for_changes_that_follow_soon() {
    let mut job = quiet(job(Completion::Count(1), 1));
    job.status.start_time = None;
    let mut state = state(job, [running("a")]);
    let plan = reconcile(&state, at(200));
    assert_eq!((plan.status.clone(), plan.status_waits, plan.wake_at), (None, true, Some(at_ms(200_200))));
    state.begin(&plan, at(200));
    assert!(reconcile(&state, at_ms(200_200)).status.is_some());
    state.observe_pod(ended(running("a"), Phase::Succeeded, 200), at_ms(200_100));
    let status = reconcile(&state, at_ms(200_100)).status.unwrap().status;
    assert_eq!(
        (status.start_time, status.holding(ConditionKind::SuccessCriteriaMet).is_some()),
        (Some(at(200)), true)
    );
}

/// The start has nothing to show before the first answer, unless a pod has ended meanwhile.
#[test]
fn the_start_waits_for_the_first_pod() {
    let mut job = quiet(job(Completion::Count(9), 1));
    job.status.start_time = None;
    let mut state = state(job, []);
    let plan = reconcile(&state, at(200));
    assert_eq!((plan.status.clone(), plan.creates.len()), (None, 1));
    state.begin(&plan, at(200));
    assert!(reconcile(&state, at(229)).status.is_none() && reconcile(&state, at(230)).status.is_some());
    let mut with_pod = state.clone();
    with_pod.observe_pod(running("a"), at(220));
    assert!(
        reconcile(&with_pod, at(220)).status.is_none(),
        "its end may follow soon, however long it took to come"
    );
    let mut with_deadline = state.clone();
    with_deadline.job = with(state.job.clone(), |spec| spec.active_deadline = Some(Duration::from_secs(60)));
    assert!(reconcile(&with_deadline, at(210)).status.is_some(), "a deadline counts from the start");
    state.observe_pod(ended(running("a"), Phase::Failed, 200), at(200));
    assert!(reconcile(&state, at(203)).status.is_some());
}

/// However often its first pod goes again before it could be shown.
#[test]
fn the_start_is_written_in_the_end() {
    let mut new = state(job(Completion::Count(9), 1), [running("a")]);
    let start_period = Duration::from_secs(1);
    new.keep_pace(Pace { at_once: 100, status_period: Duration::ZERO, start_period });
    new.started = Some(at(200));
    let next = Next { managed: true, ..Next::default() };
    assert_eq!(due(&new, &next, false, at(220)), Due::At(at(221)));
    assert_eq!(due(&new, &next, false, at_ms(239_500)), Due::At(at(240)));
    assert_eq!(due(&new, &next, true, at(240)), Due::Now);
}

/// A pod that goes at once is followed by others, whose Job would never show its start.
#[test]
fn the_start_waits_for_the_first_pod_only_once() {
    let mut job = quiet(job(Completion::Count(9), 1));
    job.status.start_time = None;
    let mut state = state(job, []);
    let start_period = Duration::from_secs(60);
    state.keep_pace(Pace { at_once: 100, status_period: Duration::ZERO, start_period });
    let plan_at = |state: &mut JobState, ms| {
        let plan = reconcile(state, at_ms(ms));
        state.begin(&plan, at_ms(ms));
        plan
    };
    let creation = plan_at(&mut state, 200_000).creates;
    let pod = running("a");
    state.created(creation[0].place, Created::Pod(pod.clone().into()), at(205));
    assert!(plan_at(&mut state, 205_000).status.is_none());
    state.observe_pod(Pod { tracked: false, deleting: true, ..pod.clone() }, at(206));
    state.pod_vanished(&pod.uid);
    assert!(plan_at(&mut state, 206_000).status.is_none());
    state.observe_pod(running("b"), at(207));
    assert!(plan_at(&mut state, 207_000).status.is_some(), "pods have existed for 2 s");
}

/// There is something to show, or nothing that could soon be shown.
#[test]
fn the_start_does_not_wait_for_the_first_pod_if_there_is_one_or_none_is_asked_for() {
    let mut job = quiet(job(Completion::Count(9), 2));
    job.status.start_time = None;
    let mut one_runs = state(job.clone(), [running("a")]);
    let plan = reconcile(&one_runs, at(200));
    assert_eq!((plan.status.clone(), plan.creates.len()), (None, 1));
    one_runs.begin(&plan, at(200));
    assert!(
        reconcile(&one_runs, at_ms(200_999)).status.is_none()
            && reconcile(&one_runs, at(201)).status.is_some()
    );

    let mut refused = state(job, []);
    let plan = reconcile(&refused, at(200));
    refused.begin(&plan, at(200));
    refused.created(plan.creates[0].place, Created::Refused, at(200));
    assert_eq!(reconcile(&refused, at(200)).status.and_then(|write| write.status.start_time), Some(at(200)));
}

/// A deadline counts from the start that is written, and clients wait for the start of pods that exist.
#[test]
fn the_start_of_a_job_with_a_deadline_or_pods_is_urgent() {
    let mut job = quiet(job(Completion::Count(9), 1));
    job.status.start_time = None;
    let deadline = Some(Duration::from_secs(60));
    for (deadline, pods, expected) in [
        (None, vec![], Urgency::Progress),
        (deadline, vec![], Urgency::Step),
        (None, vec![running("a")], Urgency::Step),
        (deadline, vec![running("a")], Urgency::Step),
    ] {
        let state = state(with(job.clone(), |spec| spec.active_deadline = deadline), pods);
        let next = Next { managed: true, ..Next::default() };
        assert_eq!(urgency(&state, &next), expected, "{deadline:?}");
    }
}

/// A Job whose pods end soon needs no status of its own for its start. It gets one if they do not.
#[test]
fn a_start_waits_for_the_end_where_the_api_server_is_slow() {
    let next = Next { managed: true, ..Next::default() };
    let mut new = state(job(Completion::Count(1), 1), [running("a")]);
    for (start_period_ms, written_at) in [(0, at_ms(200_200)), (1_500, at_ms(201_500)), (60_000, at(202))] {
        let start_period = Duration::from_millis(start_period_ms);
        new.keep_pace(Pace { at_once: 100, status_period: Duration::ZERO, start_period });
        assert_eq!(due(&new, &next, false, at(200)), Due::At(written_at));
    }
    assert_eq!(due(&new, &next, true, at(200)), Due::At(at(202)), "nor do requests under way hasten it");
    new.limits.batch_period = Duration::from_secs(60);
    for busy in [false, true] {
        assert_eq!(
            due(&new, &next, busy, at(200)),
            Due::At(at(202)),
            "nor does a long batch period delay it"
        );
    }
    assert_eq!(urgency(&new, &next), Urgency::Step, "nor the creations of other Jobs");
    new.limits = Limits::default();
    new.job = with(new.job.clone(), |spec| spec.active_deadline = Some(Duration::from_secs(60)));
    assert_eq!(due(&new, &next, false, at(200)), Due::At(at_ms(200_200)), "a deadline counts from the start");
    assert_eq!(due(&new, &next, true, at(200)), Due::At(at(201)));
    let mut ended = state(job(Completion::Count(1), 1), [Pod { phase: Phase::Succeeded, ..running("a") }]);
    ended.keep_pace(new.pace);
    assert!(reconcile(&ended, at(201)).status.is_some(), "an end is written at once");
}

/// The first status of a Job that is resumed shows its pods, as that of a new one.
#[test]
fn a_resume_waits_for_its_pods_as_a_start_does() {
    let mut job = quiet(job(Completion::Count(2), 2));
    job.status.start_time = None;
    let suspended = condition(ConditionKind::Suspended, ConditionStatus::True, "JobSuspended", "", at(150));
    job.status.ensure(suspended);
    let mut state = state(job, []);
    state.status_written(at_ms(199_900));
    let plan = reconcile(&state, at(200));
    assert_eq!((plan.status.is_none(), plan.creates.len()), (true, 1), "slow start");
    state.begin(&plan, at(200));
    assert!(reconcile(&state, at(201)).status.is_none(), "there is nothing to show before the first answer");
    state.created(plan.creates[0].place, Created::Pod(Box::new(running("a"))), at_ms(200_010));
    let plan = reconcile(&state, at_ms(200_010));
    state.begin(&plan, at_ms(200_010));
    assert!(plan.status.is_none(), "the second is awaited");
    state.created(plan.creates[0].place, Created::Pod(Box::new(running("b"))), at_ms(200_020));
    assert_eq!(reconcile(&state, at_ms(200_020)).wake_at, Some(at_ms(200_210)));
    let status = reconcile(&state, at_ms(200_210)).status.unwrap().status;
    assert_eq!((status.active, status.start_time), (2, Some(at(200))));
    let resumed = status.condition(ConditionKind::Suspended).unwrap();
    assert_eq!(resumed.status, ConditionStatus::False);
}
