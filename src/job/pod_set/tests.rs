//! A set that has followed any sequence of changes answers like one that is built from scratch.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::job::pod::{ContainerExit, IndexFailures, Outcome, Phase};
use crate::job::spec::{Completion, PerIndexLimit, PodFailureAction, PodFailurePattern, PodFailureRule};
use crate::job::status::{ConditionKind, ConditionStatus, JobStatus, Uncounted};
use crate::job::tests::fixture::{
    at, at_index, at_ordinal, but, cases, ended, finished, job, placed, pod, running, uids, with,
};

mod changes;
mod jumps;
mod known;

/// The answers of a set to all queries of the rules.
#[derive(Debug, PartialEq)]
struct Answers {
    numbers: [usize; 12],
    restarts: u64,
    indexes: [String; 2],
    fails_job: Option<Uid>,
    queues: [Vec<Uid>; 5],
    held: Vec<DelayedDeletion>,
    to_remove: Vec<BTreeSet<Uid>>,
    free: Vec<u32>,
    held_at: Vec<Option<DelayedDeletion>>,
}

impl Answers {
    fn of(set: &PodSet) -> Self {
        fn list<'a>(pods: impl Iterator<Item = &'a Pod>) -> Vec<Uid> {
            pods.map(|pod| pod.uid.clone()).collect()
        }
        Self {
            numbers: [
                set.active(),
                set.gauges().active,
                set.gauges().ready,
                set.gauges().terminating,
                set.undecided(),
                set.leaving(),
                set.pending_creates(),
                set.fresh_successes(),
                set.fresh_failures(),
                set.tracked(),
                set.listed_and_tracked(),
                usize::from(set.has_flights()),
            ],
            restarts: set.restarts(),
            indexes: [set.succeeded_indexes(), set.failed_indexes()].map(ToString::to_string),
            fails_job: set.fails_job().map(|pod| pod.uid.clone()),
            queues: [
                list(set.to_record()),
                list(set.unfinished()),
                list(set.to_release()),
                list(set.active_in_removal_order()),
                list(set.pods.iter().map(|(_, e)| &e.pod).filter(|p| set.is_tracked(&p.uid)))
                    .into_iter()
                    .collect::<BTreeSet<_>>()
                    .into_iter()
                    .collect(),
            ],
            held: set.held().cloned().collect(),
            to_remove: (0..=set.active())
                .map(|surplus| set.to_remove(surplus).map(|pod| pod.uid.clone()).collect())
                .collect(),
            free: set.free_places().take(12).collect(),
            held_at: (0..8).map(|index| set.held_at(index).cloned()).collect(),
        }
    }
}

/// The same pods, requests and Job in a set that is built from scratch.
fn rebuilt(set: &PodSet, job: &Job) -> PodSet {
    let mut fresh = PodSet::new(job, set.backoff_limits);
    // The slots must be the same, since they order pods with equal keys.
    fresh.pods = set.pods.clone();
    for entry in fresh.pods.values_mut() {
        (entry.flight, entry.gone, entry.tags) = (PendingRequest::None, false, None);
    }
    fresh.relink_all();
    for (_, entry) in set.pods.iter() {
        fresh.set_flight(&entry.pod.uid, entry.flight);
        if entry.gone {
            fresh.answered_gone(&entry.pod.uid);
        }
    }
    for (number, attempt) in &set.pending {
        fresh.pending.insert(*number, *attempt);
        fresh.refresh_place(*number);
    }
    // The ordinals of what is gone, and of other objects, cannot be derived from the pods.
    fresh.taken = set.taken.clone();
    fresh
}

/// A change of one of eight pods, or of the Job.
#[derive(Clone, Debug)]
enum Change {
    Observe(Reading, bool),
    Vanish(u8),
    Gone(u8),
    Released(u8),
    Fly(u8, PendingRequest),
    Create(u32),
    Created(u32),
    Refused(u32),
    /// A status write that records ended pods and counts released ones.
    Record(usize),
    /// Somebody else writes `completedIndexes` and `failedIndexes`.
    Jump([&'static str; 2]),
    Fail,
    Succeed,
    Resize(u32),
    ReplaceOnlyFailed(bool),
    Retries(u32),
    Policy,
    Backoff(u64),
    DeleteJob,
}

/// The fields of a pod that a change sets.
#[derive(Clone, Debug)]
struct Reading {
    uid: u8,
    phase: Phase,
    index: Option<u32>,
    attempt: u32,
    failures: (u32, u32),
    flags: [bool; 5],
    restarts: u32,
    second: i64,
    exit_code: Option<i32>,
}

impl Reading {
    fn pod(&self, version: u64, completion: Completion) -> Pod {
        let [deleting, tracked, scheduled, ready, selected] = self.flags;
        let pod = pod(&format!("pod-{}", self.uid));
        let pod = match self.index {
            Some(index) => placed(pod, completion, index, self.attempt),
            None => pod,
        };
        but(pod, |pod| {
            pod.version = version;
            pod.phase = self.phase;
            pod.index = self.index;
            pod.index_failures = IndexFailures { counted: self.failures.0, ignored: self.failures.1 };
            (pod.deleting, pod.tracked, pod.scheduled) = (deleting, tracked, scheduled);
            pod.selected = selected;
            pod.ready_since = (ready && self.phase == Phase::Running).then(|| at(self.second).into());
            pod.restarts = self.restarts;
            pod.max_restarts.containers = self.restarts;
            pod.created = at(i64::from(self.uid)).into();
            pod.finished = at(self.second).into();
            pod.outcome = self.exit_code.filter(|_| self.phase == Phase::Failed).map(|exit_code| {
                let exit = ContainerExit { name: "main".into(), exit_code, out_of_memory: false };
                Box::new(Outcome { containers: vec![exit], ..Outcome::default() })
            });
        })
    }
}

fn reading() -> impl Strategy<Value = Reading> {
    let phase = prop_oneof![
        Just(Phase::Pending),
        Just(Phase::Unknown),
        Just(Phase::Running),
        Just(Phase::Succeeded),
        Just(Phase::Failed),
    ];
    let index = proptest::option::weighted(0.9, 0u32..6);
    let flags = [0.2, 0.85, 0.8, 0.5, 0.9].map(proptest::bool::weighted);
    let exit_code = proptest::option::of(41i32..45);
    (0u8..8, phase, index, 0u32..3, (0u32..3, 0u32..2), flags, 0u32..3, 10i64..20, exit_code).prop_map(
        |(uid, phase, index, attempt, failures, flags, restarts, second, exit_code)| Reading {
            uid,
            phase,
            index,
            attempt,
            failures,
            flags,
            restarts,
            second,
            exit_code,
        },
    )
}

fn change() -> impl Strategy<Value = Change> {
    let flight = prop_oneof![
        2 => Just(PendingRequest::None), 1 => Just(PendingRequest::Delete), 1 => Just(PendingRequest::Forget), 1 => Just(PendingRequest::Release)
    ];
    prop_oneof![
        20 => (reading(), any::<bool>()).prop_map(|(reading, answer)| Change::Observe(reading, answer)),
        3 => (0u8..8).prop_map(Change::Vanish),
        1 => (0u8..8).prop_map(Change::Gone),
        2 => (0u8..8).prop_map(Change::Released),
        5 => (0u8..8, flight).prop_map(|(uid, flight)| Change::Fly(uid, flight)),
        3 => (0u32..6).prop_map(Change::Create),
        2 => (0u32..6).prop_map(Change::Created),
        1 => (0u32..6).prop_map(Change::Refused),
        6 => (0usize..4).prop_map(Change::Record),
        2 => [jump(), jump()].prop_map(Change::Jump),
        1 => Just(Change::Fail),
        1 => Just(Change::Succeed),
        2 => (0u32..7).prop_map(Change::Resize),
        1 => any::<bool>().prop_map(Change::ReplaceOnlyFailed),
        1 => (0u32..3).prop_map(Change::Retries),
        1 => Just(Change::Policy),
        1 => (1u64..4).prop_map(Change::Backoff),
        1 => Just(Change::DeleteJob),
    ]
}

fn jump() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["", "0", "1,3,5", "0,2-9", "4-1000000", "0-2147483646", "3-2147483646"])
}

fn jobs() -> impl Strategy<Value = Job> {
    let completion = prop_oneof![
        Just(Completion::WorkQueue),
        Just(Completion::Count(4)),
        (0u32..7).prop_map(Completion::Indexed),
        Just(Completion::Indexed(i32::MAX as u32)),
    ];
    (completion, proptest::option::of(0u32..3), any::<[bool; 2]>()).prop_map(
        |(completion, backoff_limit, [policy, only_failed])| {
            with(job(completion, 4), |spec| {
                let indexed = completion.indexes().is_some();
                spec.per_index = backoff_limit
                    .filter(|_| indexed)
                    .map(|backoff_limit| PerIndexLimit { backoff_limit, max_failed_indexes: None });
                spec.replace_only_failed = policy || only_failed;
                spec.pod_failure_policy = policy.then(policies);
            })
        },
    )
}

fn policies() -> Vec<PodFailureRule> {
    use PodFailureAction::{Count, FailIndex, FailJob, Ignore};
    let rule = |(action, code)| PodFailureRule {
        action,
        on: PodFailurePattern::ExitCodes { container: None, inside: true, values: [code].into() },
    };
    [(FailJob, 41), (Ignore, 42), (FailIndex, 43), (Count, 44)].into_iter().map(rule).collect()
}

fn announce(status: &mut JobStatus, kind: ConditionKind) {
    let none_yet = [ConditionKind::FailureTarget, ConditionKind::SuccessCriteriaMet]
        .into_iter()
        .all(|kind| status.holding(kind).is_none());
    if none_yet {
        status.ensure(crate::job::verdict::condition(kind, ConditionStatus::True, "Reason", "", at(0)));
    }
}

fn record(status: &mut JobStatus, set: &PodSet, room: usize) {
    let mut uncounted = status.uncounted.take().unwrap_or_default();
    uncounted.succeeded.retain(|uid| set.is_tracked(uid));
    uncounted.failed.retain(|uid| set.is_tracked(uid));
    let indexed = set.spec.completion.indexes().is_some();
    for pod in set.to_record().take(room) {
        let Uncounted { succeeded, failed } = &mut uncounted;
        match pod.phase {
            Phase::Succeeded if indexed => {}
            Phase::Succeeded => succeeded.push(pod.uid.clone()),
            _ => failed.push(pod.uid.clone()),
        }
    }
    status.completed_indexes = set.succeeded_indexes().clone();
    status.failed_indexes = set.spec.per_index.map(|_| set.failed_indexes().clone());
    status.uncounted = Some(uncounted);
}

fn apply(change: &Change, set: &mut PodSet, job: &mut Job, version: u64) {
    let uid = |number: &u8| Uid::from(format!("pod-{number}"));
    match change {
        Change::Observe(reading, answer) => {
            let source = if *answer { Source::Answer } else { Source::Watch };
            set.observe(reading.pod(version, job.spec.completion), source);
        }
        Change::Vanish(number) => _ = set.vanished(&uid(number)),
        Change::Gone(number) => set.answered_gone(&uid(number)),
        Change::Released(number) => set.answered_released(&uid(number)),
        Change::Fly(number, flight) => set.set_flight(&uid(number), *flight),
        Change::Create(number) => set.create_sent(set.next_at(*number)),
        Change::Created(number) => {
            if let Some(attempt) = set.pending.get(number).copied() {
                let made = running(&format!("made-{number}-{attempt}"));
                let made =
                    but(placed(made, job.spec.completion, *number, attempt), |pod| pod.index = Some(*number));
                set.create_answered(Place { number: *number, attempt }, Some(made));
            }
        }
        Change::Refused(number) => {
            if let Some(attempt) = set.pending.get(number).copied() {
                set.create_answered(Place { number: *number, attempt }, None);
            }
        }
        Change::Record(room) => record(&mut job.status, set, *room),
        Change::Jump([completed, failed]) => jumps::write(&mut job.status, completed, failed),
        Change::Fail => announce(&mut job.status, ConditionKind::FailureTarget),
        Change::Succeed => announce(&mut job.status, ConditionKind::SuccessCriteriaMet),
        Change::Resize(size) if job.spec.completion.indexes().is_some() => {
            *job = with(job.clone(), |spec| spec.completion = Completion::Indexed(*size));
        }
        Change::Resize(_) => {}
        Change::ReplaceOnlyFailed(only) => {
            *job = with(job.clone(), |spec| {
                spec.replace_only_failed = *only || spec.pod_failure_policy.is_some();
            });
        }
        Change::Retries(retries) => {
            *job = with(job.clone(), |spec| {
                spec.per_index.iter_mut().for_each(|limit| limit.backoff_limit = *retries);
            });
        }
        Change::Policy => {
            *job = with(job.clone(), |spec| {
                spec.pod_failure_policy.iter_mut().for_each(|rules| rules.rotate_left(1));
                spec.pod_failure_policy.iter_mut().for_each(|rules| rules.truncate(3));
            });
        }
        Change::Backoff(seconds) => job.options.backoff_initial = Some(Duration::from_secs(*seconds)),
        Change::DeleteJob => job.deleting = true,
    }
    set.follow(job);
}

proptest! {
    #![proptest_config(cases(2))]

    #[test]
    fn answers_match_a_rebuilt_set(job in jobs(), changes in prop::collection::vec(change(), 0..120)) {
        let mut job = job;
        let mut set = PodSet::new(&job, PodBackoff::default());
        for (step, change) in changes.iter().enumerate() {
            apply(change, &mut set, &mut job, step as u64 + 1);
            prop_assert_eq!(Answers::of(&set), Answers::of(&rebuilt(&set, &job)), "after {} {:?}", step, change);
        }
    }
}

fn set_of(job: &Job, pods: impl IntoIterator<Item = Pod>) -> PodSet {
    let mut set = PodSet::new(job, PodBackoff::default());
    for pod in pods {
        set.observe(pod, Source::Watch);
    }
    set
}

/// Each pod is removed before the next one in the list.
#[test]
fn active_pods_are_removed_in_the_order_of_kubernetes() {
    let made = |uid: &str, scheduled, phase| {
        but(placed(pod(uid), Completion::Count(20), 0, 0), |pod| {
            (pod.scheduled, pod.phase) = (scheduled, phase);
        })
    };
    let ready = |uid: &str, since, restarts, created| {
        but(made(uid, true, Phase::Running), |pod| {
            pod.ready_since = Some(at(since).into());
            pod.max_restarts.containers = restarts;
            pod.created = at(created).into();
        })
    };
    let order = [
        made("unscheduled", false, Phase::Pending),
        made("pending", true, Phase::Pending),
        made("unknown", true, Phase::Unknown),
        made("not ready", true, Phase::Running),
        ready("ready for a short time", 90, 0, 5),
        ready("ready for a second longer", 89, 0, 8),
        ready("restarted often", 50, 7, 5),
        ready("restarted once", 50, 1, 5),
        but(ready("with a sidecar that restarted often", 50, 0, 5), |pod| pod.max_restarts.sidecars = 7),
        but(ready("with a sidecar that restarted once", 50, 0, 5), |pod| pod.max_restarts.sidecars = 1),
        ready("new", 50, 0, 8),
        but(ready("somebody else's", 50, 0, 5), |pod| pod.place = None),
        ready("old", 50, 0, 5),
    ];
    let set = set_of(&job(Completion::Count(20), 20), order.iter().rev().cloned());
    let removed = uids(set.active_in_removal_order().map(|pod| &pod.uid));
    assert_eq!(removed, uids(order.iter().map(|pod| &pod.uid)));
    assert_eq!(uids(set.to_remove(2).map(|pod| &pod.uid)), ["unscheduled", "pending"]);
}

#[test]
fn all_owners_remove_equal_pods_in_the_same_order() {
    let pods: Vec<Pod> = (0..50).map(|number| running(&format!("pod-{number}"))).collect();
    let job = job(Completion::Count(50), 50);
    let [one, other] = [set_of(&job, pods.iter().cloned()), set_of(&job, pods.iter().rev().cloned())];
    let order = |set: &PodSet| uids(set.active_in_removal_order().map(|pod| &pod.uid));
    assert_eq!(order(&one), order(&other));
}

#[test]
fn misplaced_pods_are_removed_first() {
    let set = set_of(
        &job(Completion::Indexed(3), 3),
        [
            but(at_index("ready at 0", 0, 0), |pod| pod.ready_since = Some(at(5).into())),
            at_index("not ready at 0", 0, 1),
            at_index("at 1", 1, 0),
            at_index("out of range", 3, 0),
            running("without an index"),
        ],
    );
    let removed = |surplus| {
        let mut removed = uids(set.to_remove(surplus).map(|pod| &pod.uid));
        removed.sort_unstable();
        removed
    };
    let misplaced = ["not ready at 0", "out of range", "without an index"];
    assert_eq!(removed(0), misplaced);
    assert_eq!(removed(3), misplaced);
    assert_eq!(removed(4).len(), 4);
    assert!(removed(4).contains(&"at 1".to_owned()));
}

#[test]
fn a_removed_pod_does_not_fail_its_index() {
    let per_index = PerIndexLimit { backoff_limit: 0, max_failed_indexes: None };
    let job = with(job(Completion::Indexed(2), 2), |spec| spec.per_index = Some(per_index));
    let mut set = set_of(&job, [at_index("a", 0, 0)]);
    set.set_flight(&"a".into(), PendingRequest::Forget);
    let leaving = but(at_index("a", 0, 0), |pod| {
        (pod.deleting, pod.tracked, pod.version) = (true, false, 2);
    });
    set.observe(leaving.clone(), Source::Answer);
    set.set_flight(&"a".into(), PendingRequest::None);
    assert!(set.failed_indexes().is_empty());
    set.observe(but(ended(leaving, Phase::Failed, 9), |pod| pod.version = 3), Source::Watch);
    assert!(set.failed_indexes().is_empty());
    assert_eq!(set.free_places().collect::<Vec<_>>(), [0, 1]);
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

#[test]
fn an_ordinal_is_taken_as_soon_as_a_pod_shows_it() {
    let mut set = set_of(&job(Completion::Count(3), 3), [but(at_ordinal("a", 0), |pod| pod.place = None)]);
    assert_eq!(set.free_places().next(), Some(0));
    set.observe(but(at_ordinal("a", 0), |pod| pod.version = 5), Source::Watch);
    assert_eq!(set.free_places().next(), Some(1));
}

/// Of two owners, as after a bug in the Leases, one may have known the object as a pod of the Job, and the other not.
#[test]
fn after_a_name_that_another_object_has_all_owners_give_the_same_name() {
    let first = Place { number: 0, attempt: 0 };
    for (completion, next) in [
        (Completion::Count(3), Place { number: 1, attempt: 0 }),
        (Completion::Indexed(1), Place { attempt: 1, ..first }),
    ] {
        let mut knew = set_of(&job(completion, 1), [placed(running("a"), completion, 0, 0)]);
        assert!(knew.vanished(&"a".into()));
        let mut learns = set_of(&job(completion, 1), []);
        learns.create_sent(first);
        learns.name_taken(first);
        for set in [knew, learns] {
            let number = set.free_places().next().unwrap();
            assert_eq!(set.next_at(number), next);
        }
    }
}

/// The answer to the creation returns a pod that the watch has shown before without its place.
#[test]
fn a_known_pod_is_not_added_twice() {
    let job = job(Completion::Count(3), 3);
    let mut set = set_of(&job, [running("a")]);
    let place = Place { number: 0, attempt: 0 };
    set.create_sent(place);
    set.create_answered(place, Some(running("a")));
    assert_eq!((set.len(), set.active(), set.pending_creates()), (1, 1, 0));
    assert_eq!(Answers::of(&set), Answers::of(&rebuilt(&set, &job)));
    assert_eq!(set.free_places().next(), Some(1), "the name is taken");
}

#[test]
fn old_readings_change_nothing() {
    let job = job(Completion::Count(3), 3);
    let mut set = set_of(&job, []);
    let place = Place { number: 0, attempt: 0 };
    set.create_sent(place);
    let made = at_ordinal("a", 0);
    assert!(set.observe(made.clone(), Source::Watch));
    assert!(!set.observe(made.clone(), Source::Watch));
    let released = but(ended(made.clone(), Phase::Succeeded, 5), |pod| pod.tracked = false);
    set.observe(released.clone(), Source::Answer);
    assert!(!set.observe(made.clone(), Source::Watch), "the answer is newer");
    assert!(!set.observe(released, Source::Watch));
    assert!(set.is_empty(), "the watch has confirmed the end of the pod");
    set.create_answered(place, Some(made));
    assert!(set.is_empty(), "a late answer brings no pod back");
}

/// The shard drops watch events that are older than a live list, so no event would ever remove such a pod.
#[test]
fn a_late_answer_brings_no_pod_that_a_live_list_does_not_show() {
    let job = job(Completion::Count(3), 3);
    for (listed, version, admitted) in [("other", 5, 0), ("a", 5, 1), ("other", 3, 1)] {
        let mut set = set_of(&job, []);
        let [first, second] = [0, 1].map(|number| Place { number, attempt: 0 });
        set.create_sent(first);
        set.create_sent(second);
        set.listed_live(&UidSet::from_iter([listed.into()]), version);
        set.create_answered(first, Some(but(at_ordinal("a", 0), |pod| pod.version = 4)));
        assert_eq!((set.active(), set.pending_creates()), (admitted, 1), "{listed} at {version}");
        set.create_answered(second, None);
        assert!(set.live_list.is_none(), "nothing is under way that it could tell of");
    }
}

#[test]
fn a_pod_that_is_gone_does_not_come_back() {
    let job = job(Completion::Indexed(1), 1);
    let mut set = set_of(&job, [at_index("a", 0, 0)]);
    set.answered_gone(&"a".into());
    assert_eq!(set.free_places().collect::<Vec<_>>(), [0]);
    assert!(!set.observe(but(at_index("a", 0, 0), |pod| pod.version = 7), Source::Watch));
    assert_eq!(set.active(), 0);
    assert!(set.vanished(&"a".into()));
    assert!(set.is_empty());
}

#[test]
fn a_new_list_drops_older_pods_that_are_missing_from_it() {
    let newer = but(running("newer"), |pod| pod.version = 9);
    let mut set = set_of(&job(Completion::Count(3), 3), [running("listed"), running("missing"), newer]);
    set.retain_listed(&UidSet::from_iter(["listed".into()]), 5);
    assert_eq!(uids(set.active_in_removal_order().map(|pod| &pod.uid)), ["listed", "newer"]);
}
