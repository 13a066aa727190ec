//! Deletion of counted pods.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use super::fixture::{at, at_index, but, ended, job, pod, running, state, uids};
use crate::job::exponential::Exponential;
use crate::job::limits::Pace;
use crate::job::plan::Wait;
use crate::job::pod::{BackoffRecord, Phase, Pod};
use crate::job::reconcile::reconcile;
use crate::job::spec::{Completion, Job};
use crate::job::state::{Changed, Created, JobState};
use crate::job::status::{ConditionKind, ConditionStatus, JobStatus, Uncounted};
use crate::job::uid::{Uid, UidSet};
use crate::job::verdict::condition;

fn limited(completion: Completion, limit: u32) -> Job {
    let mut job = job(completion, 1);
    job.options.failed_pods_limit = Some(limit);
    job
}

fn pruning(completion: Completion) -> Job {
    let mut job = job(completion, 2);
    job.options.prune_succeeded = true;
    job
}

/// A pod that has ended and lost its finalizer.
fn counted(uid: &str, phase: Phase, second: i64) -> Pod {
    but(ended(pod(uid), phase, second), |pod| pod.tracked = false)
}

fn counted_at(uid: &str, index: u32, phase: Phase) -> Pod {
    but(ended(at_index(uid, index, 0), phase, 5), |pod| pod.tracked = false)
}

fn failed(uids: &[(&str, i64)]) -> Vec<Pod> {
    uids.iter().map(|(uid, second)| counted(uid, Phase::Failed, *second)).collect()
}

fn finish(job: &mut Job) {
    let complete =
        condition(ConditionKind::Complete, ConditionStatus::True, "CompletionsReached", "", at(50));
    job.status.conditions.push(complete);
}

fn deleted(state: &JobState, second: i64) -> Vec<Uid> {
    let plan = reconcile(state, at(second));
    assert!(plan.deletes.iter().all(|deletion| !deletion.forget));
    plan.deletes.into_iter().map(|deletion| deletion.pod.uid).collect()
}

#[test]
fn the_newest_failed_pods_stay() {
    let pods = [("c", 30), ("a", 10), ("d", 40), ("b", 20)];
    for (limit, expected) in
        [(0, &["a", "b", "c", "d"][..]), (1, &["a", "b", "c"]), (3, &["a"]), (4, &[]), (u32::MAX, &[])]
    {
        let pods = failed(&pods).into_iter().chain([running("r")]);
        let state = state(limited(Completion::Count(5), limit), pods);
        assert_eq!(uids(&deleted(&state, 1000)), expected, "limit {limit}");
    }
    let unlimited = state(job(Completion::Count(5), 1), failed(&pods));
    assert_eq!(deleted(&unlimited, 1000), []);
    assert_eq!(unlimited.pods.surplus_failed(0).count(), 0, "nothing is kept in memory without the option");
}

#[test]
fn a_counted_pod_that_a_watch_repeats_as_it_was_before_stays_counted() {
    let now = but(counted("a", Phase::Failed, 5), |pod| pod.version = 7);
    let before = but(ended(pod("a"), Phase::Failed, 5), |pod| pod.version = 6);
    let mut state = state(limited(Completion::Count(5), 0), [now.clone(), running("r")]);
    state.observe_pod(before, at(10));
    state.observe_pod(now, at(10));
    assert_eq!(uids(&deleted(&state, 1000)), ["a"]);
}

#[test]
fn uncounted_pods_are_not_deleted() {
    let mut job = limited(Completion::Count(5), 0);
    job.status.uncounted = Some(Uncounted { failed: vec!["recorded".into()], ..Uncounted::default() });
    let tracked = ended(pod("tracked"), Phase::Failed, 5);
    let leaving = but(counted("leaving", Phase::Failed, 7), |pod| pod.deleting = true);
    let pods = failed(&[("recorded", 6), ("counted", 8)]).into_iter().chain([tracked, leaving, running("r")]);
    let mut state = state(job, pods);
    assert_eq!(uids(&deleted(&state, 1000)), ["counted"]);
    let mut job = state.job.clone();
    job.status.uncounted = Some(Uncounted::default());
    job.status.failed = 1;
    state.observe_job(job);
    assert_eq!(uids(&deleted(&state, 1000)), ["recorded", "counted"]);
}

#[test]
fn a_deletion_is_sent_again_only_after_a_refusal() {
    let mut job = limited(Completion::Count(5), 0);
    job.status.start_time = Some(at(0));
    let mut state = state(job, failed(&[("a", 1), ("b", 2)]));
    state.observe_pod(running("r"), at(3));
    state.keep_pace(Pace { at_once: 1, status_period: Duration::ZERO, start_period: Duration::ZERO });
    let (a, b) = (Uid::from("a"), Uid::from("b"));
    let send = |state: &mut JobState, second| {
        let plan = reconcile(state, at(second));
        state.begin(&plan, at(second));
        plan.deletes.into_iter().map(|deletion| deletion.pod.uid).collect::<Vec<_>>()
    };
    assert_eq!(send(&mut state, 10), std::slice::from_ref(&a));
    assert_eq!(send(&mut state, 10), [], "the pace allows one at a time");
    state.changed(&a, Changed::Refused, at(10));
    assert_eq!(send(&mut state, 10), std::slice::from_ref(&b), "a refusal holds back its own pod only");
    let leaving = but(counted("b", Phase::Failed, 2), |pod| (pod.deleting, pod.version) = (true, 9));
    state.changed(&b, Changed::Pod(Box::new(leaving.clone())), at(10));
    assert_eq!(send(&mut state, 10), [], "the watch has yet to show what the answer showed");
    state.observe_pod(leaving, at(10));
    let plan = reconcile(&state, at(10));
    assert_eq!((plan.deletes.len(), plan.wake_at), (0, Some(at(11))), "{plan:?}");
    assert_eq!(send(&mut state, 11), std::slice::from_ref(&a));
    state.changed(&a, Changed::Gone, at(11));
    assert_eq!(send(&mut state, 11), []);
}

/// A creation that was sent again may arrive after the pod is gone, and would create it once more.
#[test]
fn a_counted_pod_stays_until_its_creation_is_answered() {
    let mut state = state(pruning(Completion::Indexed(2)), []);
    let plan = reconcile(&state, at(1));
    let place = plan.creates[0].place;
    state.begin(&plan, at(1));
    state.observe_pod(ended(at_index("a", place.number, place.attempt), Phase::Succeeded, 5), at(6));
    let mut job = state.job.clone();
    job.status.completed_indexes.extend([place.number]);
    state.observe_job(job);
    let released = counted_at("a", place.number, Phase::Succeeded);
    state.observe_pod(but(released, |pod| pod.version = 9), at(7));
    assert_eq!(deleted(&state, 8), []);
    state.created(place, Created::Refused, at(9));
    assert_eq!(uids(&deleted(&state, 9)), ["a"]);
}

/// The pod carries the back-off: a replica that takes over has no other source.
#[test]
fn the_newest_failed_pod_stays_while_its_replacement_waits() {
    let carries = but(counted("b", Phase::Failed, 1000), |pod| {
        pod.carried = Some(Box::new(BackoffRecord { failures: 3, last: at(900) }.into()));
    });
    let pods = failed(&[("a", 900)]).into_iter().chain([carries]);
    let mut state = state(limited(Completion::Count(5), 0), pods);
    let plan = reconcile(&state, at(1010));
    assert_eq!(plan.waiting, Some(Wait::PodBackoff(at(1080))));
    assert_eq!(uids(plan.deletes.iter().map(|deletion| &deletion.pod.uid)), ["a"]);
    let plan = reconcile(&state, at(1080));
    assert_eq!(uids(plan.deletes.iter().map(|deletion| &deletion.pod.uid)), ["a"]);
    assert_eq!((plan.creates.len(), &plan.waiting), (1, &None));
    state.begin(&plan, at(1080));
    state.changed(&"a".into(), Changed::Gone, at(1080));
    assert_eq!((deleted(&state, 1080), state.pods.pending_creates()), (vec![], 1), "it is not answered yet");
    state.created(plan.creates[0].place, Created::Refused, at(1080));
    state.observe_pod(running("replacement"), at(1080));
    assert_eq!(uids(&deleted(&state, 1080)), ["b"]);
}

#[test]
fn a_finished_job_keeps_its_failed_pods_within_the_limit_and_its_succeeded_ones() {
    let mut ended_job = limited(Completion::Indexed(2), 1);
    ended_job.options.prune_succeeded = true;
    ended_job.status.completed_indexes.extend([0, 1]);
    finish(&mut ended_job);
    let succeeded = [0, 1].map(|index| counted_at(&format!("s{index}"), index, Phase::Succeeded));
    let state_ = state(ended_job, failed(&[("a", 1), ("b", 2)]).into_iter().chain(succeeded));
    assert_eq!(uids(&deleted(&state_, 1000)), ["a"]);
}

#[test]
fn succeeded_pods_are_deleted_once_their_index_is_counted() {
    let mut indexed = pruning(Completion::Indexed(5));
    indexed.status.completed_indexes.extend([0, 1, 3]);
    let pods = || {
        [
            counted_at("at 0", 0, Phase::Succeeded),
            counted_at("failed at 0", 0, Phase::Failed),
            ended(at_index("tracked at 1", 1, 0), Phase::Succeeded, 5),
            counted_at("stripped at 2", 2, Phase::Succeeded),
            counted_at("at 3", 3, Phase::Succeeded),
            at_index("runs at 4", 4, 0),
        ]
    };
    assert_eq!(uids(&deleted(&state(indexed.clone(), pods()), 1000)), ["at 0", "at 3"]);
    let mut deleting = indexed.clone();
    deleting.deleting = true;
    assert_eq!(deleted(&state(deleting, pods()), 1000), []);
    let by_number = pruning(Completion::Count(5));
    assert_eq!(deleted(&state(by_number, pods().into_iter().take(1)), 1000), [], "only Indexed Jobs");
}

#[test]
fn the_limit_of_failed_pods_may_change() {
    let mut state = state(limited(Completion::Count(5), 2), failed(&[("a", 1), ("b", 2), ("c", 3)]));
    state.observe_pod(running("r"), at(4));
    assert_eq!(uids(&deleted(&state, 1000)), ["a"]);
    let with_limit = |limit| {
        let mut job = job(Completion::Count(5), 1);
        job.options.failed_pods_limit = limit;
        job
    };
    state.observe_job(with_limit(Some(1)));
    assert_eq!(uids(&deleted(&state, 1000)), ["a", "b"]);
    state.observe_job(with_limit(None));
    assert_eq!(deleted(&state, 1000), []);
    state.observe_job(with_limit(Some(0)));
    assert_eq!(deleted(&state, 1000), [], "dropped pods return with the next list");
    state.observe_pod(counted("a", Phase::Failed, 1), at(5));
    assert_eq!(uids(&deleted(&state, 1000)), ["a"]);
}

#[test]
fn annotations_set_the_back_off_of_the_job() {
    let mut own = job(Completion::Count(5), 1);
    own.options.backoff_initial = Some(Duration::from_secs(1));
    own.options.backoff_max = Some(Duration::from_secs(3));
    let waits = |state: &JobState| reconcile(state, at(100)).waiting.and_then(|wait| wait.until());
    let own_delay = |seconds: i64| at(100 + seconds);
    let failures = [("a", 100), ("b", 100), ("c", 100)];
    for (count, seconds) in [(1, 1), (2, 2), (3, 3)] {
        let state = state(own.clone(), failed(&failures[..count]));
        assert_eq!(waits(&state), Some(own_delay(seconds)), "{count}");
    }
    let mut state = state(job(Completion::Count(5), 1), failed(&failures[..1]));
    assert_eq!(waits(&state), Some(Exponential::POD_FAILURE.after(at(100), 1)));
    state.observe_job(own);
    assert_eq!(waits(&state), Some(own_delay(1)), "an annotation applies as soon as it is set");
}

/// Somebody else has removed the pod's finalizer: it will not be counted, and its work is run again.
#[test]
fn an_uncounted_pod_without_finalizer_is_not_deleted() {
    let mut indexed = pruning(Completion::Indexed(2));
    indexed.options.failed_pods_limit = Some(0);
    let mut state = state(indexed, [at_index("a", 0, 0), at_index("b", 1, 0)]);
    for (uid, index, phase) in [("a", 0, Phase::Succeeded), ("b", 1, Phase::Failed)] {
        state.observe_pod(but(counted_at(uid, index, phase), |pod| pod.version = 7), at(6));
    }
    state.observe_job(Job { status: counted_indexes(&state.job, [0]), ..state.job.clone() });
    assert_eq!(deleted(&state, 1000), []);

    let mut while_it_runs = limited(Completion::Count(5), 0);
    while_it_runs.status.failed = 1;
    let mut state = self::state(while_it_runs, [running("a")]);
    state.observe_pod(but(running("a"), |pod| (pod.tracked, pod.version) = (false, 5)), at(6));
    state.observe_pod(but(counted("a", Phase::Failed, 7), |pod| pod.version = 7), at(7));
    state.observe_pod(running("r"), at(7));
    assert_eq!(deleted(&state, 1000), []);
}

#[test]
fn counted_pods_that_a_complete_list_does_not_show_are_gone() {
    let mut state = state(limited(Completion::Count(5), 0), failed(&[("a", 1), ("b", 2), ("c", 3)]));
    state.observe_pod(but(counted("newer", Phase::Failed, 4), |pod| pod.version = 9), at(4));
    state.observe_pod(running("r"), at(4));
    state.pods_listing();
    state.pods_listed(&UidSet::from_iter(["b".into(), "r".into()]), 5);
    assert_eq!(uids(&deleted(&state, 1000)), ["b", "newer"]);
    assert_eq!(sorted(state.pods.counted_uids()), ["b", "newer"]);
    let holds = ["a", "b", "newer", "r"].map(|uid| state.pods.holds(&uid.into()));
    assert_eq!(holds, [false, true, true, true]);
}

fn sorted(counted: impl Iterator<Item = Uid>) -> Vec<String> {
    let mut sorted = uids(&counted.collect::<Vec<_>>());
    sorted.sort_unstable();
    sorted
}

fn counted_indexes(job: &Job, indexes: impl IntoIterator<Item = u32>) -> JobStatus {
    let mut status = job.status.clone();
    status.completed_indexes.extend(indexes);
    status
}

/// The pods of a Job that fails lose their finalizer while they run, and they end under the next owner.
#[test]
fn a_pod_that_was_counted_before_it_ended_is_known_as_counted() {
    let mut failing = limited(Completion::Count(5), 0);
    let announced =
        condition(ConditionKind::FailureTarget, ConditionStatus::True, "BackoffLimitExceeded", "", at(20));
    failing.status.conditions.push(announced);
    failing.status.failed = 1;
    let runs = but(running("r"), |pod| pod.tracked = false);
    let mut state = state(failing, [runs]);
    state.observe_pod(counted("r", Phase::Failed, 30), at(30));
    let mut failed = state.job.clone();
    failed.status.conditions.push(condition(
        ConditionKind::Failed,
        ConditionStatus::True,
        "BackoffLimitExceeded",
        "",
        at(31),
    ));
    state.observe_job(failed);
    assert_eq!(uids(&deleted(&state, 40)), ["r"]);
}

#[test]
fn a_succeeded_pod_stays_for_a_while_if_the_job_says_so() {
    let mut job = pruning(Completion::Indexed(3));
    job.options.prune_after = Some(Duration::from_secs(60));
    job.status.completed_indexes.extend([0, 1]);
    let pods = [("a", 0, 100), ("b", 1, 130), ("c", 2, 100)];
    let pods = pods.map(|(uid, index, second)| {
        but(ended(at_index(uid, index, 0), Phase::Succeeded, second), |pod| pod.tracked = false)
    });
    let state = state(job, pods);
    for (second, expected, wakes) in
        [(159, &[][..], Some(160)), (160, &["a"], Some(190)), (190, &["a", "b"], None)]
    {
        assert_eq!(uids(&deleted(&state, second)), expected, "{second}");
        let wake_at = reconcile(&state, at(second)).wake_at;
        assert!(wakes.is_none_or(|second| wake_at.is_some_and(|by| by <= at(second))), "{wake_at:?}");
    }
}

fn with_limit(completion: Completion, limit: u32) -> Job {
    let mut job = job(completion, 1);
    job.options.max_finished_pods = Some(limit);
    job
}

#[test]
fn the_newest_finished_pods_stay_whether_they_have_failed_or_succeeded() {
    let pods = || {
        let all = [("a", Phase::Failed, 10), ("b", Phase::Succeeded, 20), ("c", Phase::Failed, 30)];
        all.map(|(uid, phase, second)| counted(uid, phase, second)).into_iter().chain([running("r")])
    };
    for completion in [Completion::Count(5), Completion::WorkQueue] {
        for (limit, expected) in [(0, &["a", "b", "c"][..]), (1, &["a", "b"]), (2, &["a"]), (3, &[])] {
            let state = state(with_limit(completion, limit), pods());
            assert_eq!(uids(&deleted(&state, 1000)), expected, "{completion:?} {limit}");
        }
    }
    let mut both = with_limit(Completion::Count(5), 1);
    both.options.failed_pods_limit = Some(0);
    assert_eq!(uids(&deleted(&state(both, pods()), 1000)), ["a", "c", "b"], "each is deleted once");
    let mut over = with_limit(Completion::Count(1), 1);
    finish(&mut over);
    assert_eq!(uids(&deleted(&state(over, pods()), 1000)), ["a", "b"], "the Job has ended");
}

#[test]
fn a_finished_pod_stays_until_it_is_counted_and_while_a_new_owner_needs_it() {
    let mut recorded = with_limit(Completion::Count(5), 0);
    recorded.status.uncounted = Some(Uncounted { succeeded: vec!["b".into()], ..Uncounted::default() });
    let pods = [counted("a", Phase::Succeeded, 10), counted("b", Phase::Succeeded, 20), running("r")];
    assert_eq!(uids(&deleted(&state(recorded, pods), 1000)), ["a"]);
    let waits = state(with_limit(Completion::Count(5), 0), failed(&[("a", 990), ("b", 1000)]));
    assert_eq!(reconcile(&waits, at(1001)).waiting, Some(Wait::PodBackoff(at(1020))));
    assert_eq!(uids(&deleted(&waits, 1001)), ["a"], "the newest tells how long to wait");
}
