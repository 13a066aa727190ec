//! The back-off after which failed pods are replaced.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{places, started, warm};
use crate::job::plan::Wait;
use crate::job::pod::{BackoffRecord, IndexFailures, Phase};
use crate::job::reconcile::reconcile;
use crate::job::spec::{Completion, Job, PerIndexLimit};
use crate::job::state::{Created, JobState};
use crate::job::tests::fixture::{at, at_index, but, ended, job, quiet, running, state, with};

/// 10 s after the end of the pod, then doubling. A success resets the back-off; simultaneous failures count
/// each.
#[test]
fn failed_pods_are_replaced_after_the_back_off() {
    let fails = |uid: &str, second| ended(running(uid), Phase::Failed, second);
    let succeeds = |uid: &str, second| ended(running(uid), Phase::Succeeded, second);
    for (name, pods, waits_until) in [
        ("none", vec![], None),
        ("one", vec![fails("a", 150)], Some(160)),
        ("two", vec![fails("a", 145), fails("b", 150)], Some(170)),
        ("a success after", vec![fails("a", 145), succeeds("b", 150)], None),
        ("a success before", vec![succeeds("a", 145), fails("b", 150)], Some(160)),
    ] {
        let mut state = warm(started(job(Completion::Count(9), 1)), []);
        pods.into_iter().for_each(|pod| _ = state.observe_pod(pod, at(151)));
        let plan = reconcile(&state, at(151));
        let expected = waits_until.map(|second| Wait::PodBackoff(at(second)));
        assert_eq!(
            (places(&plan).len(), plan.waiting),
            (usize::from(expected.is_none()), expected),
            "{name}"
        );
        if let Some(second) = waits_until {
            assert_eq!(plan.wake_at, Some(at(second)), "{name}");
            assert_eq!(places(&reconcile(&state, at(second))).len(), 1, "{name}");
        }
    }
}

/// A new owner restores the back-off from the annotations of pods and from counted pods.
#[test]
fn back_off_survives_a_take_over() {
    let carried = |failures, last| Some(BackoffRecord { failures, last: at(last) });
    let recorded =
        |uid: &str, phase, second| but(ended(running(uid), phase, second), |pod| pod.tracked = false);
    for (name, pods, expected) in [
        ("nothing known", vec![], None),
        (
            "pods that were counted",
            vec![recorded("a", Phase::Failed, 140), recorded("b", Phase::Failed, 150)],
            carried(2, 150),
        ),
        (
            "the back-off that a pod carries",
            vec![but(running("a"), |pod| {
                pod.carried = carried(3, 130).map(|record| Box::new(record.into()))
            })],
            carried(3, 130),
        ),
        (
            "and one failure more",
            vec![but(recorded("a", Phase::Failed, 150), |pod| {
                pod.carried = carried(3, 130).map(|record| Box::new(record.into()))
            })],
            carried(4, 150),
        ),
        (
            "a success since",
            vec![
                but(running("a"), |pod| pod.carried = carried(3, 130).map(|record| Box::new(record.into()))),
                recorded("b", Phase::Succeeded, 140),
            ],
            None,
        ),
        ("a pod that is not evaluated yet", vec![ended(running("a"), Phase::Failed, 150)], carried(1, 150)),
    ] {
        let state = state(started(job(Completion::Count(9), 1)), pods);
        assert_eq!(state.streak_now(at(170)), expected, "{name}");
    }
    let mut state =
        warm(started(job(Completion::Count(9), 2)), vec![ended(running("a"), Phase::Failed, 150)]);
    let plan = reconcile(&state, at(170));
    state.begin(&plan, at(170));
    assert_eq!(plan.creates[0].backoff, carried(1, 150), "new pods carry it on");
    assert_eq!(state.streak_now(at(170)), carried(1, 150), "it is evaluated once");
}

/// A clock that was ahead by hours has shown the failure, and is right again.
#[test]
fn a_back_off_from_a_time_that_is_yet_to_come_is_over() {
    let mut state =
        warm(started(job(Completion::Count(9), 2)), vec![ended(running("a"), Phase::Failed, 90_150)]);
    let plan = reconcile(&state, at(90_150));
    state.begin(&plan, at(90_150));
    assert_eq!(plan.creates.len(), 0, "it waits");
    let plan = reconcile(&state, at(200));
    assert!(!plan.creates.is_empty());
    let failures = state.streak_now(at(200)).map(|streak| streak.failures);
    assert_eq!(failures, Some(1), "the next one waits longer");
}

fn retried(max_failed_indexes: Option<u32>) -> Job {
    with(started(job(Completion::Indexed(3), 2)), |spec| {
        spec.backoff_limit = i32::MAX as u32;
        spec.per_index = Some(PerIndexLimit { backoff_limit: 3, max_failed_indexes });
    })
}

/// The failed pod keeps its finalizer and is not counted until its successor carries its failures.
#[test]
fn the_failures_of_an_index_are_carried_to_the_next_pod() {
    let failed = |uid: &str, attempt, counted, second| {
        but(ended(at_index(uid, 0, attempt), Phase::Failed, second), |pod| {
            pod.index_failures = IndexFailures { counted, ignored: 0 };
        })
    };
    let mut state =
        warm(retried(None), [failed("old", 0, 0, 140), failed("new", 1, 1, 150), at_index("b", 1, 0)]);
    let recorded =
        |state: &JobState| -> Vec<String> { state.pods.to_record().map(|pod| pod.uid.to_string()).collect() };
    assert_eq!(recorded(&state), ["old"], "the last one carries both failures");

    let waits = reconcile(&state, at(160));
    assert_eq!(waits.waiting, Some(Wait::IndexBackoff(at(170))), "20 s after the second failure");
    assert_eq!(waits.wake_at, Some(at(170)));
    assert_eq!(places(&waits), [], "the index keeps its turn: no pod for index 2");

    let plan = reconcile(&state, at(170));
    assert_eq!(places(&plan), [(0, 2)]);
    assert_eq!(plan.creates[0].index_failures, Some(IndexFailures { counted: 2, ignored: 0 }));
    state.begin(&plan, at(170));
    assert_eq!(recorded(&state), ["old"], "its successor may not exist");
    state.created(plan.creates[0].place, Created::Pod(Box::new(at_index("next", 0, 2))), at(171));
    assert_eq!(BTreeSet::from_iter(recorded(&state)), BTreeSet::from(["new", "old"].map(String::from)));
}

/// Clocks of nodes may be ahead, and ours may be set back. A back-off begins a second after the failure is
/// learnt of at the latest.
#[test]
fn a_pod_that_has_failed_in_the_future_is_replaced_after_its_backoff() {
    for (finished, replaced) in [(100, 110), (95, 105), (101, 111), (4000, 110)] {
        let job = quiet(job(Completion::Count(9), 1));
        let mut state = state(job, [running("a")]);
        state.limits.debounce_period = Duration::ZERO;
        state.observe_pod(ended(running("a"), Phase::Failed, finished), at(100));
        let plan = reconcile(&state, at(100));
        assert_eq!(plan.waiting, Some(Wait::PodBackoff(at(replaced))), "{finished}");
    }
}

/// The same, where the pod was found under the name of one to create, whose answer was lost.
#[test]
fn a_pod_that_was_found_and_has_failed_in_the_future_is_replaced_after_its_backoff() {
    let mut state = state(quiet(job(Completion::Count(9), 1)), []);
    state.limits.debounce_period = Duration::ZERO;
    let plan = reconcile(&state, at(100));
    let place = plan.creates[0].place;
    state.begin(&plan, at(100));
    let found = ended(running("a"), Phase::Failed, 4000);
    state.created(place, Created::Found(Box::new(found)), at(100));
    assert_eq!(reconcile(&state, at(100)).waiting, Some(Wait::PodBackoff(at(110))));
    assert_eq!(reconcile(&state, at(102)).waiting, Some(Wait::PodBackoff(at(110))), "and not at once");
}
