//! Tables: whether a list of pods can be complete, by what is known of the Job.

use super::fixture::{at, but, ended, job, placed, pod, running, state};
use crate::job::end;
use crate::job::limits::Limits;
use crate::job::pod::{Phase, Place, Pod};
use crate::job::reconcile::reconcile;
use crate::job::spec::{Completion, Job};
use crate::job::state::{Changed, Created, JobState};
use crate::job::status::{Condition, ConditionKind, ConditionStatus, Uncounted};
use crate::job::uid::UidSet;

fn listed(uids: &[&str]) -> UidSet {
    uids.iter().map(|uid| (*uid).into()).collect()
}

/// A Job whose status tells of active pods and of pods that are not counted.
fn telling(active: u32, uncounted: &[&str]) -> Job {
    let mut job = job(Completion::Count(5), 3);
    job.status.active = active;
    let succeeded = uncounted.iter().map(|uid| (*uid).into()).collect();
    job.status.uncounted = Some(Uncounted { succeeded, failed: Vec::new() });
    job
}

fn released(uid: &str) -> Pod {
    but(ended(running(uid), Phase::Succeeded, 10), |pod| pod.tracked = false)
}

#[test]
fn a_list_that_lacks_what_the_status_tells_of_is_doubted() {
    let tracked = |uid| ended(running(uid), Phase::Succeeded, 10);
    for (what, job, pods, expected) in [
        ("nothing is told of", telling(0, &[]), vec![], false),
        ("all are shown", telling(2, &[]), vec![running("a"), running("b")], false),
        ("one active pod is missing", telling(2, &[]), vec![running("a")], true),
        ("it has ended since", telling(2, &[]), vec![running("a"), tracked("b")], false),
        ("pods that were counted before are no active ones", telling(1, &[]), vec![released("a")], true),
        ("an uncounted pod is shown", telling(0, &["a"]), vec![tracked("a")], false),
        ("it has no finalizer any more", telling(0, &["a"]), vec![released("a")], false),
        ("it is not shown", telling(0, &["a"]), vec![tracked("b")], true),
    ] {
        let mut state = JobState::new(job, Limits::default());
        let uids: Vec<String> = pods.iter().map(|pod: &Pod| pod.uid.to_string()).collect();
        pods.into_iter().for_each(|pod| _ = state.observe_pod(pod, at(20)));
        let uids: Vec<&str> = uids.iter().map(String::as_str).collect();
        assert_eq!(state.lacks_pods(&listed(&uids), 1), expected, "{what}");
    }
}

#[test]
fn a_pod_that_came_by_watch_and_was_released_is_not_missed() {
    let mut state = JobState::new(telling(0, &["a"]), Limits::default());
    state.observe_pod(released("a"), at(20));
    assert!(!state.lacks_pods(&listed(&[]), 1), "the shard keeps no pods that are counted");
}

/// Somebody has removed its finalizer while nobody watched, and may have counted it.
#[test]
fn an_uncounted_pod_that_vanished_with_its_finalizer_is_missed() {
    let tracked = || ended(running("a"), Phase::Succeeded, 10);
    let mut known = JobState::new(telling(0, &["a"]), Limits::default());
    known.observe_pod(tracked(), at(20));
    known.pod_vanished(&"a".into());
    assert!(known.lacks_pods(&listed(&[]), 1));
    let mut recorded_since = JobState::new(telling(0, &[]), Limits::default());
    recorded_since.observe_pod(tracked(), at(20));
    recorded_since.observe_job(telling(0, &["a"]));
    recorded_since.pod_vanished(&"a".into());
    assert!(recorded_since.lacks_pods(&listed(&[]), 1));
}

#[test]
fn a_pod_with_our_finalizer_does_not_vanish_between_two_lists() {
    let mut state = JobState::new(job(Completion::Count(5), 3), Limits::default());
    for uid in ["a", "b"] {
        state.observe_pod(running(uid), at(20));
    }
    state.observe_pod(but(pod("late"), |pod| pod.version = 7), at(20));
    assert!(!state.lacks_pods(&listed(&["a", "b"]), 1), "the other is newer than the list");
    assert!(state.lacks_pods(&listed(&["a"]), 1));
    assert!(state.lacks_pods(&listed(&[]), 9), "an empty list");
    state.pods.answered_released(&"b".into());
    assert!(!state.lacks_pods(&listed(&["a", "late"]), 9), "we have removed its finalizer");
}

#[test]
fn who_decides_nothing_more_misses_nothing() {
    let mut finished = telling(3, &["a"]);
    finished.status.conditions.push(Condition {
        kind: ConditionKind::Complete,
        status: ConditionStatus::True,
        reason: "".into(),
        message: "".into(),
        last_probe_time: None,
        last_transition_time: None,
    });
    assert!(!JobState::new(finished, Limits::default()).lacks_pods(&listed(&[]), 1));
    let mut gone = JobState::new(telling(3, &["a"]), Limits::default());
    gone.job_vanished();
    assert!(!gone.lacks_pods(&listed(&[]), 1));
    gone.observe_pod(running("b"), at(20));
    assert!(gone.lacks_pods(&listed(&[]), 1), "but what it must release");
}

#[test]
fn a_status_that_tells_of_pods_that_do_not_exist_is_doubted() {
    let mut state = JobState::new(telling(1, &[]), Limits::default());
    state.listed_live(&listed(&[]), 5);
    assert!(state.doubts_status(9));
    state.reading_job();
    assert!(!state.doubts_status(9), "once");
}

#[test]
fn the_end_of_a_pod_that_a_creation_finds_outruns_the_watch() {
    let place = Place { number: 0, attempt: 0 };
    let placed = |pod| Box::new(placed(pod, Completion::Count(5), 0, 0));
    let succeeded = || placed(ended(running("a"), Phase::Succeeded, 10));
    let deleting = || placed(but(running("a"), |pod| pod.deleting = true));
    for (what, answer, is_shown, expected) in [
        ("created now", Created::Pod(placed(pod("a"))), false, false),
        ("it runs", Created::Found(placed(running("a"))), false, false),
        ("it has ended", Created::Found(succeeded()), false, true),
        ("it counts as failed", Created::Found(deleting()), false, true),
        ("the watch has shown it", Created::Found(succeeded()), true, false),
        ("refused", Created::Refused, false, false),
    ] {
        let mut state = state(job(Completion::Count(5), 1), []);
        let plan = reconcile(&state, at(20));
        assert_eq!(plan.creates.iter().map(|new| new.place).collect::<Vec<_>>(), [place]);
        state.begin(&plan, at(20));
        if is_shown {
            state.observe_pod(*placed(running("a")), at(21));
        }
        assert_eq!(state.outruns_watch(place, &answer), expected, "{what}");
    }
}

/// The pod may have succeeded by the time the Job ends, and would be removed as one too many.
#[test]
fn a_success_is_doubted_while_a_pod_may_exist_whose_creation_was_not_answered() {
    for (what, answer, is_listed, expected) in [
        ("lost", Created::Lost, false, true),
        ("lost, and all pods are listed since", Created::Lost, true, false),
        ("refused", Created::Refused, false, false),
    ] {
        let mut state = state(job(Completion::WorkQueue, 2), [running("a")]);
        let plan = reconcile(&state, at(20));
        let place = plan.creates[0].place;
        state.begin(&plan, at(20));
        state.created(place, answer, at(21));
        assert!(!end::doubts_success(&state), "{what}: a pod is active");
        state.observe_pod(ended(running("a"), Phase::Succeeded, 22), at(22));
        if is_listed {
            state.listed_live(&listed(&["a"]), 30);
        }
        assert_eq!(end::doubts_success(&state), expected, "{what}");
        state.created(place, Created::Lost, at(23));
        state.created(place, Created::NameTaken, at(24));
        assert!(!end::doubts_success(&state), "{what}: it is clear what became of it");
    }
}

/// Somebody has removed the label of a pod that is being deleted, and it gets it again: a watch by labels says that it is
/// gone, and then shows it as it was.
#[test]
fn a_pod_that_was_released_and_has_left_the_watch_is_not_counted_again() {
    let leaving = |version| {
        but(ended(running("a"), Phase::Succeeded, 10), |pod| (pod.deleting, pod.version) = (true, version))
    };
    for (answer, again) in [(Changed::Gone, false), (Changed::Released, false), (Changed::Refused, true)] {
        let mut state = state(telling(0, &["a"]), [leaving(5)]);
        let plan = reconcile(&state, at(20));
        assert_eq!(plan.releases.len(), 1);
        state.begin(&plan, at(20));
        state.changed(&"a".into(), answer, at(20));
        state.pod_vanished(&"a".into());
        state.observe_pod(leaving(7), at(21));
        assert_eq!(state.pods.get(&"a".into()).is_some(), again);
        state.adopted(&"a".into());
        state.observe_pod(leaving(9), at(22));
        assert!(state.pods.get(&"a".into()).is_some(), "it was adopted");
    }
}

#[test]
fn all_pods_that_were_released_and_have_left_the_watch_are_remembered() {
    let uids = ["a", "b", "c"];
    let leaving = |uid, version| {
        but(ended(running(uid), Phase::Succeeded, 10), |pod| (pod.deleting, pod.version) = (true, version))
    };
    let mut state = state(telling(0, &uids), uids.map(|uid| leaving(uid, 5)));
    state.begin(&reconcile(&state, at(20)), at(20));
    for uid in uids {
        state.changed(&uid.into(), Changed::Released, at(20));
        state.pod_vanished(&uid.into());
    }
    for uid in uids {
        state.observe_pod(leaving(uid, 7), at(21));
        assert!(state.pods.get(&uid.into()).is_none(), "{uid}");
    }
}
