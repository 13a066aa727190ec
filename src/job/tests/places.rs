//! Tables: which places a Job has given, and creations that find what exists already.

use std::collections::BTreeSet;

use super::fixture::{at, at_index, at_ordinal, but, ended, job, placed, pod, running, state};
use crate::job::pod::{Phase, Place, Pod};
use crate::job::reconcile::reconcile;
use crate::job::spec::Completion;
use crate::job::state::{Created, JobState};
use crate::job::uid::UidSet;

/// The next place that the Job would fill.
fn next(state: &JobState) -> Option<(u32, u32)> {
    let places = reconcile(state, at(2_000)).creates.into_iter().map(|new| new.place);
    places.map(|place| (place.number, place.attempt)).next()
}

/// Anybody who may create pods can write the annotation, and derive the name as well.
#[test]
fn places_that_the_job_cannot_have_given_are_ignored() {
    let (indexed, counted) = (Completion::Indexed(2), Completion::Count(2));
    let last = i32::MAX.unsigned_abs();
    for (what, completion, number, attempt, named, expected) in [
        ("of the Job", indexed, 0, 4, true, (0, 5)),
        ("another name", indexed, 0, 4, false, (0, 0)),
        ("the last that is read", indexed, 0, last, true, (0, last + 1)),
        ("more than an index can have had", indexed, 0, last + 1, true, (0, 0)),
        ("without a successor", indexed, 0, u32::MAX, true, (0, 0)),
        ("without a successor, and another name", indexed, 0, u32::MAX, false, (0, 0)),
        ("an ordinal of the Job", counted, 0, 0, true, (1, 0)),
        ("an ordinal, and another name", counted, 0, 0, false, (0, 0)),
        ("a second pod at an ordinal", counted, 0, 1, true, (0, 0)),
        ("more than there are ordinals", counted, u32::MAX, 0, true, (0, 0)),
    ] {
        let found = ended(running("found"), Phase::Failed, 10);
        let found = but(placed(found, completion, number, attempt), |pod| {
            if !named {
                pod.name = "found".into();
            }
        });
        assert_eq!(next(&state(job(completion, 1), [found])), Some(expected), "{what}");
    }
}

/// A pod keeps its name; its annotations may change.
#[test]
fn a_place_that_a_pod_gets_later_is_judged_by_its_name() {
    let mut state = state(job(Completion::Indexed(1), 1), [at_index("a", 0, 2)]);
    let later = but(ended(at_index("a", 0, 2), Phase::Failed, 10), |pod| {
        pod.place = Some(Place { number: 0, attempt: 7 });
    });
    state.observe_pod(later, at(20));
    assert_eq!(next(&state), Some((0, 3)));
}

/// An ended pod, without finalizer: nothing is counted, and no failure delays the next creation.
fn spent(place: Place) -> Pod {
    let pod = ended(pod(&format!("spent-{}", place.number)), Phase::Failed, 10);
    but(placed(pod, Completion::Count(9), place.number, place.attempt), |pod| pod.tracked = false)
}

/// A list shows the pods that a creation may find. If creations go on finding others, the API server says what is not true.
#[test]
fn creations_that_go_on_finding_ended_pods_wait_for_the_back_off() {
    let found = |place| Created::Found(Box::new(spent(place)));
    let mut state = state(job(Completion::Count(9), 1), []);
    let mut now = at(20);
    let mut waits = Vec::new();
    for _ in 0..5 {
        let plan = reconcile(&state, now);
        state.begin(&plan, now);
        let place = plan.creates[0].place;
        assert!(state.outruns_watch(place, &found(place)));
        state.created(place, found(place), now);
        state.listed_live(&UidSet::default(), 30);
        let until = state.create_retry.waits(now);
        waits.push(until.map_or(0, |until| until.as_second() - now.as_second()));
        now = until.unwrap_or(now);
    }
    assert_eq!(waits, [0, 1, 2, 4, 8], "seconds before the next creation");
    let plan = reconcile(&state, now);
    state.begin(&plan, now);
    state.created(plan.creates[0].place, Created::Pod(Box::new(running("new"))), now);
    assert!(state.create_retry.waits(now).is_none());
}

/// The answers to many creations were lost, and their pods have ended meanwhile.
#[test]
fn creations_under_way_together_find_ended_pods_without_back_off() {
    let mut state = state(job(Completion::Count(9), 4), []);
    (0..20).for_each(|_| state.slow_start.accepted());
    let plan = reconcile(&state, at(20));
    assert_eq!(plan.creates.len(), 4);
    state.begin(&plan, at(20));
    for new in &plan.creates {
        state.created(new.place, Created::Found(Box::new(spent(new.place))), at(21));
    }
    assert!(state.create_retry.waits(at(21)).is_none());
}

/// Which pods earlier owners have had, and lost, only the status tells.
#[test]
fn an_ordinal_that_an_earlier_owner_has_used_is_not_given_again() {
    let mut earlier = job(Completion::Count(9), 3);
    (earlier.status.start_time, earlier.status.names_used) = (Some(at(100)), 5);
    let mut state = state(earlier, [at_ordinal("p", 1)]);
    (0..20).for_each(|_| state.slow_start.accepted());
    let plan = reconcile(&state, at(160));
    assert_eq!(plan.creates.iter().map(|new| new.place.number).collect::<Vec<_>>(), [5, 6]);
    state.begin(&plan, at(160));
    assert_eq!(
        state.pods.names_used(false, &BTreeSet::new()),
        5,
        "a creation that is under way may be asked for again by the next owner"
    );
    state.created(plan.creates[0].place, Created::Pod(Box::new(at_ordinal("q", 5))), at(161));
    assert_eq!(state.pods.names_used(false, &BTreeSet::new()), 6);
    state.pod_vanished(&"q".into());
    assert_eq!(state.pods.names_used(false, &BTreeSet::new()), 6);
}

/// A Job is suspended, which removes its pods; its controller starts anew; it is resumed.
#[test]
fn names_of_pods_that_are_gone_do_not_come_back_after_a_suspension() {
    let used = |state: &JobState, suspended| state.pods.names_used(suspended, &state.lost_creations);
    let mut earlier = state(job(Completion::Indexed(9), 3), [at_index("a", 0, 0), at_index("b", 1, 2)]);
    (0..20).for_each(|_| earlier.slow_start.accepted());
    let plan = reconcile(&earlier, at(20));
    earlier.begin(&plan, at(20));
    let third = plan.creates[0].place;
    assert_eq!((third.number, used(&earlier, true)), (2, 0), "the creation is not answered");
    earlier.created(third, Created::Lost, at(21));
    assert_eq!(used(&earlier, true), 0, "its answer was lost");
    let plan = reconcile(&earlier, at(60));
    earlier.begin(&plan, at(60));
    earlier.created(third, Created::Pod(Box::new(at_index("c", 2, 0))), at(61));
    assert_eq!(
        (used(&earlier, false), used(&earlier, true)),
        (0, 3),
        "others may create pods until it rests"
    );

    let mut resumed = job(Completion::Indexed(9), 4);
    resumed.status.names_used = 3;
    let mut next = state(resumed.clone(), []);
    earlier.observe_job(resumed);
    (0..20).for_each(|_| next.slow_start.accepted());
    let places =
        reconcile(&next, at(160)).creates.into_iter().map(|new| (new.place.number, new.place.attempt));
    assert_eq!(places.collect::<Vec<_>>(), [(0, 3), (1, 3), (2, 3), (3, 3)]);
    let of_both =
        [&earlier, &next].map(|state| (0..9).map(|index| state.pods.next_at(index)).collect::<Vec<_>>());
    assert_eq!(of_both[0], of_both[1], "the former owner derives the same names");
}

/// An error of the API server does not say whether the pod was created.
#[test]
fn a_creation_that_may_have_been_carried_out_holds_back_the_names_above_it() {
    let mut state = state(job(Completion::Count(9), 3), []);
    (0..20).for_each(|_| state.slow_start.accepted());
    let plan = reconcile(&state, at(20));
    state.begin(&plan, at(20));
    let [refused, second, third] = [0, 1, 2].map(|number| plan.creates[number].place);
    state.created(refused, Created::Refused, at(21));
    for place in [second, third] {
        let pod = at_ordinal(&format!("p{}", place.number), place.number);
        state.created(place, Created::Pod(Box::new(pod)), at(21));
    }
    let used = |state: &JobState, rests| state.pods.names_used(rests, &BTreeSet::new());
    assert_eq!((used(&state, false), used(&state, true)), (0, 0));
    state.observe_pod(at_ordinal("p0", 0), at(22));
    assert_eq!((used(&state, false), used(&state, true)), (3, 3), "it was");
}
