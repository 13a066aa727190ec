//! A set that has followed any sequence of changes answers like one that is built from scratch.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::job::pod::{ContainerExit, IndexFailures, Outcome, Phase};
use crate::job::spec::{Completion, PerIndexLimit, PodFailureAction, PodFailurePattern, PodFailureRule};
use crate::job::status::{ConditionKind, ConditionStatus, JobStatus, Uncounted};
use crate::job::tests::fixture::{at, but, cases, job, placed, pod, running, with};

mod changes;
mod jumps;
mod known;
mod names;
mod readings;
mod removal;

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
