//! Tables: what a set tells of single pods.

use std::time::Duration;

use super::*;
use crate::job::tests::fixture::{at_index, ended, finished, uids};

#[test]
fn ended_pods_are_recorded_by_ascending_index() {
    let ended_at = |uid, index, phase| ended(at_index(uid, index, 0), phase, 9);
    let pods = [
        ended_at("3", 3, Phase::Failed),
        ended_at("0", 0, Phase::Failed),
        ended_at("2", 2, Phase::Succeeded),
        ended_at("1", 1, Phase::Succeeded),
        at_index("4", 4, 0),
    ];
    let set = set_of(&job(Completion::Indexed(9), 9), pods);
    assert_eq!(uids(set.to_record().map(|pod| &pod.uid)), ["0", "1", "2", "3"]);
    assert_eq!((set.unrecorded(), set.terminated(), set.unreleased()), (4, 4, 4));
}

/// Its successor has yet to carry on its failures.
#[test]
fn a_held_pod_has_ended_and_is_not_released() {
    let per_index = PerIndexLimit { backoff_limit: 2, max_failed_indexes: None };
    let per_index = with(job(Completion::Indexed(2), 2), |spec| {
        spec.per_index = Some(per_index);
        spec.pod_failure_policy = Some(policies());
    });
    let exits = |uid, index, exit_code| {
        let exit = ContainerExit { name: "main".into(), exit_code, out_of_memory: false };
        let outcome = Outcome { containers: vec![exit], ..Outcome::default() };
        but(ended(at_index(uid, index, 0), Phase::Failed, 9), |pod| {
            pod.index_failures = IndexFailures { counted: 1, ignored: 1 };
            pod.outcome = Some(Box::new(outcome));
        })
    };
    let (counts, ignored) = (exits("counts", 0, 44), exits("ignored", 1, 42));
    let released = but(exits("released", 0, 44), |pod| pod.tracked = false);
    let set = set_of(&per_index, [counts, ignored, released, running("runs")]);
    assert_eq!((set.terminated(), set.unreleased(), set.held().count()), (2, 0, 2));
    let successors = [0, 1].map(|index| set.held_at(index).map(|held| held.successor));
    let expected = [(2, 1), (1, 2)].map(|(counted, ignored)| Some(IndexFailures { counted, ignored }));
    assert_eq!(successors, expected, "a failure that a rule ignores lengthens the back-off only");
}

/// A Job may have 100,000 pods, and each may have 8 KiB of failures and conditions.
#[test]
fn of_how_a_pod_has_failed_only_what_decides_is_kept() {
    let exit = |number: i32| ContainerExit {
        name: format!("c-{number}").into(),
        exit_code: number,
        out_of_memory: number == 7,
    };
    let outcome = Outcome {
        containers: (1..60).map(exit).collect(),
        init_containers: (1..30).map(exit).collect(),
        conditions: (0..9).map(|number| (format!("c-{number}").into(), "True".into())).collect(),
        node: Some("node".into()),
    };
    let failed =
        |uid| but(ended(running(uid), Phase::Failed, 9), |pod| pod.outcome = Some(Box::new(outcome.clone())));
    let kept = |policy: Option<Vec<PodFailureRule>>| {
        let job = with(job(Completion::Count(3), 3), |spec| spec.pod_failure_policy = policy);
        let mut set = set_of(&job, [failed("a")]);
        let first = set.get(&"a".into()).unwrap().outcome.clone();
        set.observe(but(failed("a"), |pod| pod.version += 1), Source::Watch);
        assert_eq!(set.get(&"a".into()).unwrap().outcome, first, "a later reading");
        first
    };
    assert_eq!(kept(None), None);
    assert_eq!(kept(Some(Vec::new())), None, "no rule matches");
    let matched = Outcome { containers: vec![exit(42)], ..Outcome::default() };
    let of_code = policies().into_iter().skip(1).collect();
    assert_eq!(kept(Some(of_code)), Some(Box::new(matched)));
}

/// The retries that an index has left, and the time of its next pod, follow from the Job as it is.
#[test]
fn pods_that_have_failed_are_judged_anew_when_the_job_changes() {
    let per_index = |backoff_limit, seconds| {
        let mut job = with(job(Completion::Indexed(2), 2), |spec| {
            spec.per_index = Some(PerIndexLimit { backoff_limit, max_failed_indexes: None });
        });
        job.options.backoff_initial = Some(Duration::from_secs(seconds));
        job
    };
    let mut set = set_of(&per_index(1, 10), [ended(at_index("a", 0, 0), Phase::Failed, 9)]);
    for (backoff_limit, seconds, failed, ready) in [
        (1, 10, "", Some(19)),
        (0, 10, "0", None),
        (2, 10, "", Some(19)),
        (2, 30, "", Some(39)),
        (2, 30, "", Some(39)),
        (2, 5, "", Some(14)),
    ] {
        set.follow(&per_index(backoff_limit, seconds));
        let ready_at = set.held_at(0).map(|held| held.ready_at);
        assert_eq!((set.failed_indexes().to_string(), ready_at), (failed.into(), ready.map(at)), "{seconds}");
    }
}

/// A watch by labels says DELETED also for a pod that has lost a label.
#[test]
fn a_pod_with_our_finalizer_exists_until_we_remove_it() {
    type Happens = fn(&mut PodSet);
    let uid = Uid::from("a");
    let cases: [(&str, Happens, bool); 6] = [
        ("nothing is asked for", |_| {}, true),
        ("a refused deletion", |set| set.set_flight(&"a".into(), PendingRequest::None), true),
        ("a deletion", |set| set.set_flight(&"a".into(), PendingRequest::Delete), false),
        ("a release", |set| set.set_flight(&"a".into(), PendingRequest::Release), false),
        ("an answer that it is released", |set| set.answered_released(&"a".into()), false),
        ("an answer that it is gone", |set| set.answered_gone(&"a".into()), false),
    ];
    for (name, change, exists) in cases {
        let mut set = set_of(&job(Completion::Count(3), 3), [running("a")]);
        change(&mut set);
        assert_eq!((set.must_exist(&uid), set.must_exist(&"b".into())), (exists, false), "{name}");
        set.vanished(&uid);
        assert_eq!(set.released_by_others_since(7), exists, "{name}: somebody else has removed it");
    }
    let mut stripped = set_of(&job(Completion::Count(3), 3), [but(running("a"), |pod| pod.tracked = false)]);
    assert!(!stripped.must_exist(&uid));
    stripped.vanished(&uid);
    assert!(!stripped.released_by_others_since(7));
}

#[test]
fn the_newest_reading_and_the_request_under_way_are_known() {
    let mut known = job(Completion::Count(3), 3);
    known.status.uncounted = Some(Uncounted { succeeded: vec!["a".into()], failed: vec!["c".into()] });
    let of_version = |uid, version| but(running(uid), |pod| pod.version = version);
    let mut set = set_of(&known, [of_version("a", 5)]);
    let newer = [4, 5, 6].map(|version| set.knows_newer(&of_version("a", version)));
    assert_eq!((newer, set.knows_newer(&of_version("b", 1))), ([true, false, false], false));
    for flight in [PendingRequest::Delete, PendingRequest::Release, PendingRequest::None] {
        set.set_flight(&"a".into(), flight);
        assert_eq!((set.flight(&"a".into()), set.flight(&"b".into())), (flight, PendingRequest::None));
    }
    assert_eq!(["a", "b", "c"].map(|uid| set.is_uncounted(&uid.into())), [true, false, true]);
    assert_eq!(["a", "b", "c"].map(|uid| set.holds(&uid.into())), [true, false, false]);
}

/// A user who creates and deletes pods may claim ever more places, and the Job keeps them as long as it lives.
#[test]
fn of_places_that_pods_have_claimed_and_left_a_few_are_remembered() {
    const ALL: u32 = 5_000;
    for completion in [Completion::WorkQueue, Completion::Indexed(ALL)] {
        let mut set = set_of(&job(completion, 1), []);
        set.retain_listed(&UidSet::default(), 1);
        let comes_and_goes = |set: &mut PodSet, place: Place| {
            let uid = format!("{}-{}", place.number, place.attempt);
            set.observe(placed(running(&uid), completion, place.number, place.attempt), Source::Watch);
            set.vanished(&uid.as_str().into());
        };
        for number in (1..ALL).step_by(2) {
            let attempt = u32::from(completion.indexes().is_some());
            comes_and_goes(&mut set, Place { number, attempt });
        }
        let is_known = |number: &u32| set.taken.contains(*number) || set.next_at(*number).attempt > 0;
        assert!((100..500).contains(&(0..ALL).filter(is_known).count()));
        // Names of the Job's own pods are used up all the same.
        let mut used = BTreeSet::new();
        for _ in 0..ALL {
            let place = set.next_at(set.free_places().nth(used.len() % 3).unwrap());
            assert!(used.insert(place), "{place:?} is given twice");
            set.create_sent(place);
            comes_and_goes(&mut set, place);
        }
    }
}

/// An API server may create a pod, and answer that it did not.
#[test]
fn places_of_own_pods_are_remembered_though_their_creations_were_refused() {
    const ALL: u32 = 1_000;
    for completion in [Completion::WorkQueue, Completion::Indexed(ALL)] {
        let mut set = set_of(&job(completion, 1), []);
        set.retain_listed(&UidSet::default(), 1);
        for number in 0..ALL {
            let place = Place { number, attempt: 0 };
            set.create_sent(place);
            set.create_answered(place, None);
            let uid = number.to_string();
            let pod = placed(running(&uid), completion, place.number, place.attempt);
            set.observe(ended(pod, Phase::Succeeded, 9), Source::Watch);
            set.answered_released(&uid.as_str().into());
            set.vanished(&uid.as_str().into());
        }
        let is_known = |number: &u32| set.taken.contains(*number) || set.next_at(*number).attempt > 0;
        assert_eq!((0..ALL).filter(is_known).count(), 1_000);
    }
}

/// A finished Job is kept until it is deleted, and may get pods meanwhile.
#[test]
fn ends_of_pods_after_the_end_of_the_job_lengthen_nothing() {
    let count = |job: &Job| {
        let pods = (0..100).map(|number: u32| ended(running(&number.to_string()), Phase::Failed, 9));
        set_of(job, pods).newly_ended().len()
    };
    let running = job(Completion::Count(3), 3);
    assert_eq!((count(&running), count(&finished(running.clone()))), (100, 0));
}

/// A Job that is being deleted keeps such a pod, so that its finalizer goes. In Kubernetes, it is none of the Job's any more.
#[test]
fn a_pod_that_is_not_selected_is_released_and_nothing_else() {
    let per_index = |spec: &mut JobSpec| {
        let none = PerIndexLimit { backoff_limit: 0, max_failed_indexes: None };
        (spec.per_index, spec.pod_failure_policy) = (Some(none), Some(policies()));
    };
    for completion in [Completion::Count(3), Completion::Indexed(3)] {
        for phase in [Phase::Running, Phase::Succeeded, Phase::Failed] {
            let kept = ended(placed(running("a"), completion, 0, 0), phase, 5);
            let kept = but(kept, |pod| pod.selected = false);
            let mut leaving = Job { deleting: true, ..with(job(completion, 1), per_index) };
            let mut set = set_of(&leaving, [kept.clone()]);
            let released: Vec<&Pod> = set.to_release().collect();
            assert_eq!(released, [&kept], "{completion:?} {phase:?}");
            assert_eq!((set.tracked(), set.listed_and_tracked()), (1, 0), "{completion:?} {phase:?}");
            leaving.status.uncounted = Some(Uncounted { failed: vec!["a".into()], ..Uncounted::default() });
            let recorded = set_of(&leaving, [kept.clone()]);
            assert_eq!(
                (recorded.tracked(), recorded.listed_and_tracked()),
                (1, 1),
                "{completion:?} {phase:?}"
            );
            assert_eq!([&set, &recorded].map(|set| set.is_uncounted(&"a".into())), [false, true]);
            let counts =
                (set.fresh_successes(), set.fresh_failures(), set.failed_indexes().len(), set.active());
            assert_eq!(counts, (0, 0, 0, 0), "{completion:?} {phase:?}");
            assert_eq!(set.fails_job(), None);
            set.observe(but(kept.clone(), |pod| (pod.version, pod.selected) = (2, true)), Source::Answer);
            assert_eq!(set.unselected().count(), 1, "an answer says nothing of labels");
        }
    }
}
