//! Tables: when pods that have failed are evaluated, alone or with others.

#![allow(clippy::unwrap_used)]

use super::ends::exits;
use super::fixture::{at, at_index, at_ms, but, ended, job, quiet, running, template, with};
use crate::job::limits::Limits;
use crate::job::plan::Wait;
use crate::job::pod::{Phase, Pod};
use crate::job::reconcile::reconcile;
use crate::job::spec::{
    Completion, Job, JobSpec, PerIndexLimit, PodFailureAction, PodFailurePattern, PodFailureRule, SuccessRule,
};
use crate::job::state::JobState;
use crate::job::status::ConditionKind;
use crate::job::uid::UidSet;

/// The state of a Job of which a pod has failed at second 200, while these others are active.
fn failing(job: Job, others: Vec<Pod>) -> JobState {
    let mut state = JobState::new(job, Limits::default());
    others.into_iter().for_each(|pod| _ = state.observe_pod(pod, at(199)));
    state.pods_listed(&UidSet::default(), 0);
    state.observe_pod(ended(at_index("a", 0, 0), Phase::Failed, 100), at(200));
    state
}

/// While other pods are active that could end the Job as well, a failure waits for those that follow.
#[test]
fn failures_that_end_the_job_are_evaluated_together() {
    let job = with(quiet(job(Completion::Count(9), 3)), |spec| spec.backoff_limit = 0);
    let announces = |state: &JobState, ms| {
        let status = reconcile(state, at_ms(ms)).status.map(|write| write.status);
        status.is_some_and(|status| status.holding(ConditionKind::FailureTarget).is_some())
    };
    let mut debouncing = failing(job.clone(), vec![running("b")]);
    let plan = reconcile(&debouncing, at(200));
    assert_eq!(plan.waiting, Some(Wait::FailureDebounce(at(201))));
    assert_eq!((plan.status, plan.status_waits), (None, true), "one write has the failures and the end");
    assert!(!announces(&debouncing, 200_999));
    assert!(announces(&debouncing, 201_000));
    assert!(announces(&failing(job, vec![]), 200_000), "without active pods there is nothing to wait for");

    debouncing.observe_pod(but(running("b"), |pod| pod.version = 2), at_ms(200_990));
    assert!(announces(&debouncing, 201_000), "readings of pods that have not ended make no difference");
    let last = ended(running("c"), Phase::Failed, 100);
    debouncing.observe_pod(last, at_ms(200_900));
    assert!(!announces(&debouncing, 201_899), "it may be followed by another");
    assert!(announces(&debouncing, 201_900));
    for tick in 1..=40 {
        let other = ended(running(&format!("c{tick}")), Phase::Failed, 100);
        debouncing.observe_pod(other, at_ms(200_900 + 90 * tick));
    }
    assert!(!announces(&debouncing, 202_999), "failures follow each other");
    assert!(announces(&debouncing, 203_000), "but not for ever");
}

/// Each case says until when a failure at second 200 waits for others, in milliseconds after it.
#[test]
fn a_failure_waits_only_where_those_that_follow_could_decide_otherwise() {
    let rule = |action| PodFailureRule {
        action,
        on: PodFailurePattern::ExitCodes { container: None, inside: true, values: [42].into() },
    };
    let policy = |action| move |spec: &mut JobSpec| spec.pod_failure_policy = Some(vec![rule(action)]);
    let per_index = |backoff_limit, max_failed_indexes| {
        move |spec: &mut JobSpec| {
            spec.backoff_limit = u32::MAX;
            spec.per_index = Some(PerIndexLimit { backoff_limit, max_failed_indexes });
        }
    };
    let succeeds_with = |count| {
        move |spec: &mut JobSpec| {
            spec.success_policy = vec![SuccessRule { indexes: None, count: Some(count) }]
        }
    };
    let indexed = || with(quiet(job(Completion::Indexed(9), 3)), |spec| spec.backoff_limit = 100);
    let both = |failures| -> Vec<Pod> {
        let at = |uid: &str, index| but(at_index(uid, index, 0), |pod| pod.index_failures.counted = failures);
        vec![at("b", 1), at("c", 2)]
    };
    for (name, job, others, expected) in [
        ("failures are far from the limit", indexed(), both(0), None),
        ("two more are one too many", with(indexed(), |spec| spec.backoff_limit = 2), both(0), Some(1000)),
        ("two more are allowed", with(indexed(), |spec| spec.backoff_limit = 3), both(0), None),
        ("indexes have retries left", with(indexed(), per_index(1, Some(0))), both(0), None),
        ("the others have none", with(indexed(), per_index(1, Some(1))), both(1), Some(1000)),
        ("as many may fail", with(indexed(), per_index(1, Some(2))), both(1), None),
        ("any number may fail", with(indexed(), per_index(0, None)), both(0), None),
        (
            "a rule may fail the others",
            with(with(indexed(), per_index(5, Some(1))), policy(PodFailureAction::FailIndex)),
            both(0),
            Some(1000),
        ),
        ("a rule may fail the Job", with(indexed(), policy(PodFailureAction::FailJob)), both(0), Some(100)),
        ("a rule ignores failures", with(indexed(), policy(PodFailureAction::Ignore)), both(0), None),
        ("the others may be success enough", with(indexed(), succeeds_with(2)), both(0), Some(1000)),
        ("they are not enough", with(indexed(), succeeds_with(3)), both(0), None),
    ] {
        let waiting = reconcile(&failing(job, others), at(200)).waiting;
        let until = expected.map(|ms| Wait::FailureDebounce(at_ms(200_000 + ms)));
        assert_eq!(waiting.filter(|wait| matches!(wait, Wait::FailureDebounce(_))), until, "{name}");
    }
}

/// All its active pods have to go anyway. Pods that were deleted before may still decide.
#[test]
fn a_failure_of_a_job_that_is_suspended_or_being_deleted_waits_for_no_active_pods() {
    let job = with(quiet(job(Completion::Count(9), 3)), |spec| {
        (spec.backoff_limit, spec.replace_only_failed) = (1, true);
    });
    let suspended = with(job.clone(), |spec| spec.suspend = true);
    let leaving = Job { deleting: true, ..job.clone() };
    let deleted = || but(running("b"), |pod| pod.deleting = true);
    for (job, other, waits) in [
        (&job, running("b"), true),
        (&suspended, running("b"), false),
        (&suspended, deleted(), true),
        (&leaving, running("b"), false),
        (&leaving, deleted(), false),
    ] {
        let plan = reconcile(&failing(job.clone(), vec![other]), at(200));
        assert_eq!(matches!(plan.waiting, Some(Wait::FailureDebounce(_))), waits, "{:?}", plan.waiting);
    }
}

/// With `restartPolicy: OnFailure`, the restarts of a pod that has succeeded do not count.
#[test]
fn too_many_restarts_end_the_job_only_if_the_pod_does_not_succeed_meanwhile() {
    use ConditionKind::{FailureTarget, SuccessCriteriaMet};
    let job = with(quiet(job(Completion::Count(1), 1)), |spec| {
        (spec.backoff_limit, spec.template) = (1, template("OnFailure"));
    });
    for (succeeds, expected) in [
        (None, (FailureTarget, "BackoffLimitExceeded")),
        (Some(200_900), (SuccessCriteriaMet, "CompletionsReached")),
    ] {
        let mut state = JobState::new(job.clone(), Limits::default());
        state.observe_pod(running("a"), at(199));
        state.pods_listed(&UidSet::default(), 0);
        for (ms, version) in [(200_000, 2), (200_500, 3)] {
            state.observe_pod(but(running("a"), |pod| (pod.restarts, pod.version) = (1, version)), at_ms(ms));
        }
        assert_eq!(reconcile(&state, at_ms(200_500)).waiting, Some(Wait::FailureDebounce(at(201))));
        assert_eq!(announced(&state, 200_999), None);
        if let Some(ms) = succeeds {
            end(&mut state, "a", Phase::Succeeded, ms);
        }
        let announced = announced(&state, 201_000);
        assert_eq!(announced.map(|(kind, reason)| (kind, reason == expected.1)), Some((expected.0, true)));
    }
}

/// A failure is followed by this at these times, in milliseconds after it. It waits for others for this long.
#[test]
fn a_success_prolongs_the_wait_of_a_failure_only_if_it_may_decide() {
    use Phase::{Failed, Running, Succeeded};
    let by_number = with(quiet(job(Completion::Count(9), 9)), |spec| spec.backoff_limit = 3);
    let by_policy = with(quiet(job(Completion::Indexed(9), 9)), |spec| {
        spec.success_policy = vec![SuccessRule { indexes: None, count: Some(4) }];
        spec.backoff_limit = 3;
    });
    for (job, news, expected) in [
        (&by_number, &[(500, Running)][..], 1000),
        (&by_number, &[(500, Succeeded)], 1000),
        (&by_number, &[(500, Failed)], 1500),
        (&by_number, &[(500, Succeeded), (900, Failed)], 1900),
        (&by_number, &[(500, Failed), (900, Running)], 1500),
        (&by_number, &[(500, Failed), (900, Succeeded)], 1500),
        (&by_policy, &[(500, Succeeded)], 1500),
        (&by_policy, &[(500, Succeeded), (900, Running)], 1500),
    ] {
        let others = (1..6).map(|index| at_index(&format!("{index}"), index, 0)).collect();
        let mut state = failing(job.clone(), others);
        for (number, (ms, phase)) in (1..).zip(news) {
            let next = at_index(&format!("{number}"), number, 0);
            state.observe_pod(ended(next, *phase, 100), at_ms(200_000 + ms));
        }
        let waiting = reconcile(&state, at_ms(200_950)).waiting;
        assert_eq!(waiting, Some(Wait::FailureDebounce(at_ms(200_000 + expected))), "{news:?}");
    }
}

/// Others decide nothing that what follows would decide otherwise: the next index gets its pod at once.
#[test]
fn successes_wait_for_others_only_if_they_meet_the_success_policy() {
    let indexed = with(quiet(job(Completion::Indexed(9), 3)), |spec| spec.backoff_limit = 0);
    let policy = |count| vec![SuccessRule { indexes: None, count: Some(count) }];
    let with_policy = |count| with(indexed.clone(), |spec| spec.success_policy = policy(count));
    for (job, waits) in [(indexed.clone(), false), (with_policy(2), false), (with_policy(1), true)] {
        let mut state = JobState::new(job, Limits::default());
        [0, 1]
            .iter()
            .for_each(|index| _ = state.observe_pod(at_index(&format!("{index}"), *index, 0), at(199)));
        state.pods_listed(&UidSet::default(), 0);
        state.observe_pod(ended(at_index("0", 0, 0), Phase::Succeeded, 100), at(200));
        let plan = reconcile(&state, at(200));
        assert_eq!(plan.waiting, waits.then_some(Wait::FailureDebounce(at(201))));
        assert_eq!(plan.creates.is_empty(), waits);
    }
}

/// The state of a Job whose pods, which are all being deleted and may still end in any way, have just been listed.
fn deleted(job: Job, uids: &[&str]) -> JobState {
    let job = with(job, |spec| spec.replace_only_failed = true);
    let mut state = JobState::new(job, Limits::default());
    for (index, uid) in (0..).zip(uids) {
        state.observe_pod(but(at_index(uid, index, 0), |pod| pod.deleting = true), at(199));
    }
    state.pods_listed(&UidSet::default(), 0);
    state
}

fn end(state: &mut JobState, uid: &str, phase: Phase, ms: i64) {
    let pod = state.pods.get(&uid.into()).unwrap().clone();
    state.observe_pod(ended(pod, phase, 100), at_ms(ms));
}

/// The announcement of the status at this time.
fn announced(state: &JobState, ms: i64) -> Option<(ConditionKind, String)> {
    let status = reconcile(state, at_ms(ms)).status?.status;
    let of = |kind| status.holding(kind).map(|condition| (kind, condition.reason.to_string()));
    of(ConditionKind::FailureTarget).or_else(|| of(ConditionKind::SuccessCriteriaMet))
}

/// A pod that is being deleted may still end, and then decides as much as another.
#[test]
fn pods_that_are_being_deleted_are_waited_for() {
    use ConditionKind::{FailureTarget, SuccessCriteriaMet};
    use Phase::{Failed, Succeeded};
    let policy = vec![SuccessRule { indexes: Some(Some([0].into_iter().collect())), count: None }];
    let succeeds = with(quiet(job(Completion::Indexed(2), 2)), |spec| {
        (spec.success_policy, spec.backoff_limit) = (policy, 0);
    });
    let queue = quiet(job(Completion::WorkQueue, 2));
    let both = |kind, reason: &str| Some((kind, reason.to_owned()));
    for (job, ends, expected) in [
        (&succeeds, [Succeeded, Failed], both(FailureTarget, "BackoffLimitExceeded")),
        (&succeeds, [Succeeded, Succeeded], both(SuccessCriteriaMet, "SuccessPolicy")),
        (&queue, [Succeeded, Succeeded], both(SuccessCriteriaMet, "CompletionsReached")),
        (&queue, [Succeeded, Failed], both(SuccessCriteriaMet, "CompletionsReached")),
    ] {
        let mut state = deleted(job.clone(), &["a", "b"]);
        end(&mut state, "a", ends[0], 200_000);
        let waits = reconcile(&state, at(200));
        assert_eq!(waits.waiting, Some(Wait::FailureDebounce(at(201))), "{ends:?}");
        end(&mut state, "b", ends[1], 200_007);
        assert_eq!(announced(&state, 200_007), expected, "nothing is left that may end: {ends:?}");
    }
}

#[test]
fn a_rule_that_fails_the_job_beats_the_limit_if_both_come_together() {
    let on_one = PodFailureRule {
        action: PodFailureAction::FailJob,
        on: PodFailurePattern::ExitCodes { container: None, inside: true, values: [1].into() },
    };
    let job = with(quiet(job(Completion::Indexed(2), 2)), |spec| {
        (spec.pod_failure_policy, spec.backoff_limit) = (Some(vec![on_one]), 0);
    });
    let mut state = deleted(job, &["a", "b"]);
    end(&mut state, "a", Phase::Failed, 200_000);
    assert!(matches!(reconcile(&state, at(200)).waiting, Some(Wait::FailureDebounce(_))));
    let pod = state.pods.get(&"b".into()).unwrap().clone();
    state.observe_pod(exits(pod, 1), at_ms(200_007));
    assert_eq!(
        announced(&state, 200_007),
        Some((ConditionKind::FailureTarget, "PodFailurePolicy".to_owned()))
    );
}

/// A single success ends a work queue: a failure that comes with it needs no replacement.
#[test]
fn a_failure_of_a_work_queue_waits_for_a_success() {
    let queue = quiet(job(Completion::WorkQueue, 2));
    let mut state = failing(queue.clone(), vec![running("b")]);
    assert_eq!(reconcile(&state, at(200)).waiting, Some(Wait::FailureDebounce(at(201))));
    state.observe_pod(ended(running("b"), Phase::Succeeded, 100), at_ms(200_300));
    let plan = reconcile(&state, at_ms(200_300));
    assert!(plan.creates.is_empty());
    assert_eq!(announced(&state, 200_300).map(|(kind, _)| kind), Some(ConditionKind::SuccessCriteriaMet));
    // A success decides nothing while others run.
    let mut state = JobState::new(queue, Limits::default());
    ["a", "b"].into_iter().for_each(|uid| _ = state.observe_pod(running(uid), at(199)));
    state.pods_listed(&UidSet::default(), 0);
    state.observe_pod(ended(running("a"), Phase::Succeeded, 100), at(200));
    assert!(!matches!(reconcile(&state, at(200)).waiting, Some(Wait::FailureDebounce(_))));
}
