#![allow(clippy::unwrap_used)]
use super::*;
use crate::job::pod::{ContainerExit, Outcome as PodOutcome};
use crate::job::reconcile::reconcile;
use crate::job::spec::{PodFailurePattern, PodFailureRule};
use crate::job::status::{ConditionStatus, Uncounted};
use crate::job::tests::fixture::{at, at_index, but, ended, job, running, state, with};
use crate::job::uid::UidSet;
use crate::job::verdict::condition;

fn announcing(mut job: Job, kind: ConditionKind) -> Job {
    job.status.conditions.push(condition(kind, ConditionStatus::True, "", "", at(90)));
    job
}

#[test]
fn looks_have_the_names_that_the_built_in_controller_gives_them() {
    use ConditionKind::FailureTarget;
    let started = |parallelism| {
        let mut job = job(Completion::Count(9), parallelism);
        (job.status.start_time, job.status.uncounted) = (Some(at(50)), Some(Uncounted::default()));
        job
    };
    let failed = || ended(running("b"), Phase::Failed, 100);
    for (name, job, pods, expected) in [
        ("creates", started(2), vec![running("a")], SyncAction::PodsCreated),
        ("backs off", started(2), vec![running("a"), failed()], SyncAction::PodsCreated),
        ("has its pods", started(1), vec![running("a")], SyncAction::Tracking),
        ("counts", started(1), vec![running("a"), failed()], SyncAction::Tracking),
        ("removes", started(0), vec![running("a")], SyncAction::PodsDeleted),
        ("suspended", with(started(1), |s| s.suspend = true), vec![running("a")], SyncAction::PodsDeleted),
        ("still suspended", with(started(1), |s| s.suspend = true), vec![], SyncAction::PodsDeleted),
        ("fails", with(started(2), |s| s.backoff_limit = 0), vec![failed()], SyncAction::Reconciling),
        ("winds down", announcing(started(2), FailureTarget), vec![running("a")], SyncAction::Reconciling),
        ("is deleted", Job { deleting: true, ..started(2) }, vec![], SyncAction::Reconciling),
    ] {
        let mut state = state(job, pods);
        let plan = reconcile(&state, at(101));
        state.begin(&plan, at(101));
        assert_eq!(action(&state, &plan), expected, "{name}");
    }
    let mut state = state(started(1), []);
    let plan = reconcile(&state, at(101));
    state.begin(&plan, at(101));
    assert_eq!(action(&state, &reconcile(&state, at(101))), SyncAction::Reconciling, "in flight");
}

#[test]
fn rules_apply_to_pods_that_count_as_failed() {
    let rule = PodFailureRule {
        action: PodFailureAction::Ignore,
        on: PodFailurePattern::ExitCodes { container: None, inside: true, values: [3].into() },
    };
    let indexed = || {
        with(job(Completion::Indexed(2), 2), |spec| {
            (spec.pod_failure_policy, spec.replace_only_failed) = (Some(vec![rule.clone()]), true);
        })
    };
    let exits = |pod: Pod, phase, code| {
        let exit = ContainerExit { name: "c".into(), exit_code: code, out_of_memory: false };
        let outcome = PodOutcome { containers: vec![exit], ..PodOutcome::default() };
        but(ended(pod, phase, 80), |pod| pod.outcome = Some(Box::new(outcome)))
    };
    let failing = || announcing(indexed(), ConditionKind::FailureTarget);
    let pod = |phase, code| exits(at_index("a", 0, 0), phase, code);
    for (name, job, pod, handled_by_rule) in [
        ("failed", indexed(), pod(Phase::Failed, 3), true),
        ("no rule", indexed(), pod(Phase::Failed, 4), false),
        ("no policy", job(Completion::Indexed(2), 2), pod(Phase::Failed, 3), false),
        ("succeeded", indexed(), pod(Phase::Succeeded, 3), false),
        ("runs", indexed(), pod(Phase::Running, 3), false),
        ("runs while the Job fails", failing(), pod(Phase::Running, 3), true),
        ("succeeded while the Job fails", failing(), pod(Phase::Succeeded, 3), false),
        ("without index in range", indexed(), exits(at_index("a", 2, 0), Phase::Failed, 3), false),
        ("the Job has failed", announcing(failing(), ConditionKind::Failed), pod(Phase::Failed, 3), false),
    ] {
        let mut state = JobState::new(job, crate::job::limits::Limits::default());
        state.pods_listed(&UidSet::default(), 0);
        let expected = handled_by_rule.then_some(PodFailureAction::Ignore);
        assert_eq!(handled(&state, &pod), expected, "{name}");
        state.job_vanished();
        assert_eq!(handled(&state, &pod), None, "{name}: the Job is gone");
    }
}

#[test]
fn a_failure_that_needs_no_other_pod_is_not_replaced() {
    let failing = |wanted: u32, limit: u32| {
        let job = with(job(Completion::Count(9), wanted), |spec| spec.backoff_limit = limit);
        let mut state = state(job, [running("a"), running("b")]);
        state.observe_pod(ended(running("b"), Phase::Failed, 100), at(100));
        state
    };
    let replaces = |state: &JobState, second| replaces_failures(state, &reconcile(state, at(second)));
    let mut state = failing(2, 6);
    assert!(replaces(&state, 100), "it waits for its back-off");
    assert!(replaces(&state, 200), "it is created");
    let plan = reconcile(&state, at(200));
    state.begin(&plan, at(200));
    assert!(replaces(&state, 200), "its creation is in flight");
    assert!(!replaces(&failing(1, 6), 200), "the parallelism was lowered to what still runs");
    assert!(!replaces(&failing(0, 6), 200), "even more");
    assert!(!replaces(&failing(2, 0), 200), "the Job fails");
}
