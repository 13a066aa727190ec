//! The pods of a Job that ends: which are recorded, removed and released.

use super::{bad, count, end_at, exits, good, indexed, per_index, policy, started, succeeds_with};
use crate::job::index_set::IndexSet;
use crate::job::pod::Phase;
use crate::job::reconcile::reconcile;
use crate::job::spec::{Completion, Job};
use crate::job::status::{ConditionKind, ConditionStatus, Uncounted};
use crate::job::tests::fixture::{at, at_index, but, ended, job, pod, running, state, uids, with};

/// A pod that is being deleted is recorded as failed. If it succeeds all the same before it is released, Kubernetes counts it
/// as both until then, and completes its index for good.
#[test]
fn a_pod_that_succeeds_after_it_was_recorded_as_failed_counts_as_both() {
    let recorded = |mut job: Job| {
        job.status.uncounted = Some(Uncounted { failed: vec!["good-0".into()], ..Uncounted::default() });
        job
    };
    let queue = || started(job(Completion::WorkQueue, 1));
    for (name, job, end) in [
        ("the last index", indexed(1), Some("CompletionsReached")),
        ("the index of a success policy", succeeds_with(indexed(3), Some("0"), None), Some("SuccessPolicy")),
        ("an index of several", indexed(3), None),
        ("the last completion", count(1), Some("CompletionsReached")),
        ("a completion of several", count(2), None),
        ("a queue", queue(), Some("CompletionsReached")),
        (
            "a failure is one too many",
            with(count(1), |spec| spec.backoff_limit = 0),
            Some("BackoffLimitExceeded"),
        ),
    ] {
        assert_eq!(end_at(recorded(job), vec![good(0)], 160).as_deref(), end, "{name}");
    }

    let plan = |job, pod| reconcile(&state(job, [pod, at_index("1", 1, 0), at_index("2", 2, 0)]), at(160));
    let first = plan(recorded(indexed(3)), good(0));
    assert!(first.releases.is_empty(), "its index is not recorded yet");
    let status = first.status.unwrap().status;
    assert_eq!((&*status.completed_indexes.to_string(), status.succeeded), ("0", 1));
    let job = Job { status, ..indexed(3) };
    let released = plan(job.clone(), good(0)).releases;
    assert_eq!(uids(released.iter().map(|pod| &pod.uid)), ["good-0"]);
    let status = plan(job, but(good(0), |pod| pod.tracked = false)).status.unwrap().status;
    assert_eq!((status.failed, status.succeeded, status.uncounted), (1, 1, Some(Uncounted::default())));
}

/// Pods that were active when the end was announced are removed by it. Others have ended by themselves, even if the
/// controller sees it later, as after a restart.
#[test]
fn pods_that_the_end_removes_do_not_fail_their_indexes() {
    let job = || per_index(indexed(4), 0, Some(0));
    let active = |index: u32| at_index(&index.to_string(), index, 0);
    let deleted = |index| but(active(index), |pod| pod.deleting = true);
    let failed = |index: u32| ended(active(index), Phase::Failed, 170);

    let mut known = state(job(), [failed(0), active(1), active(2), active(3)]);
    let plan = reconcile(&known, at(160));
    let status = plan.status.clone().unwrap().status;
    let announced = Job { status, ..job() };
    known.begin(&plan, at(160));
    known.observe_pod(failed(1), at(161));
    known.observe_job(announced.clone());
    known.status_written(at(162));
    known.observe_pod(deleted(2), at(163));
    known.observe_pod(failed(3), at(163));
    assert_eq!(known.pods.failed_indexes().to_string(), "0");

    let mut restarted = state(announced, [failed(0), failed(1), deleted(2), active(3)]);
    restarted.observe_pod(failed(3), at(180));
    assert_eq!(restarted.pods.failed_indexes().to_string(), "0-2");
}

/// While a Job or its namespace is being deleted, unfinished pods count if they are being deleted themselves.
#[test]
fn a_deleted_job_counts_failed_pods_and_releases_the_others() {
    let mut deleted = count(9);
    deleted.deleting = true;
    let state = state(deleted, [bad(0), running("a"), but(running("b"), |pod| pod.deleting = true)]);
    let recorded = uids(state.pods.to_record().map(|pod| &pod.uid));
    assert_eq!(recorded, ["bad-0", "b"]);
    let released = uids(state.pods.to_release().map(|pod| &pod.uid));
    assert_eq!(released, ["a"]);
    assert!(reconcile(&state, at(400)).creates.is_empty());
}

/// FailureTarget comes first. Then the pods are recorded as failed, removed and counted. Failed follows.
#[test]
fn a_failing_job_counts_its_pods_before_it_has_failed() {
    let job = with(count(5), |spec| spec.backoff_limit = 0);
    let mut state = state(job, [bad(0), running("b"), pod("c")]);
    let plan = reconcile(&state, at(160));
    let mut announced = plan.status.clone().unwrap().status;
    assert!(plan.deletes.is_empty() && announced.finished().is_none());
    assert!(announced.holding(ConditionKind::FailureTarget).is_some());
    state.begin(&plan, at(160));
    let written = |status| Job { status, ..state.job.clone() };
    let job = written(announced.clone());
    state.observe_job(job);
    state.status_written(at(161));

    let plan = reconcile(&state, at(161));
    let mut deleted = uids(plan.deletes.iter().map(|d| &d.pod.uid));
    deleted.sort_unstable();
    assert_eq!(deleted, ["b", "c"]);
    assert!(plan.deletes.iter().all(|deletion| !deletion.forget), "they must be counted");
    announced = {
        state.begin(&plan, at(161));
        reconcile(&state, at(170)).status.unwrap().status
    };
    assert_eq!(announced.uncounted.unwrap().failed.len() as u32 + announced.failed, 3);
}

/// It would not count them either if it went on.
#[test]
fn a_failing_job_counts_neither_pods_out_of_range_nor_those_that_a_rule_ignores() {
    let mut failing = policy(started(job(Completion::Indexed(3), 3)));
    failing.status.ensure(crate::job::verdict::condition(
        ConditionKind::FailureTarget,
        ConditionStatus::True,
        "BackoffLimitExceeded",
        "",
        at(150),
    ));
    let exited = |uid, index, code| {
        let outcome = exits(at_index(uid, index, 0), code).outcome;
        but(at_index(uid, index, 0), |pod| pod.outcome = outcome)
    };
    let pods = [
        exited("counts", 0, 1),
        exited("out of range", 3, 1),
        exited("ignored", 1, 43),
        exited("both", 7, 43),
    ];
    let state = state(failing, pods);
    let mut released = uids(state.pods.to_release().map(|pod| &pod.uid));
    released.sort_unstable();
    assert_eq!(released, ["both", "ignored", "out of range"]);
    assert_eq!(uids(state.pods.to_record().map(|pod| &pod.uid)), ["counts"]);
}

/// Nothing will ever be created that it could be held for.
#[test]
fn a_job_that_is_gone_releases_pods_that_are_held_for_a_successor() {
    let mut gone = state(per_index(indexed(3), 5, None), [bad(0), running("b")]);
    assert_eq!((gone.pods.held().count(), reconcile(&gone, at(151)).releases), (1, vec![]));
    gone.job_vanished();
    let mut released = uids(reconcile(&gone, at(151)).releases.iter().map(|pod| &pod.uid));
    released.sort_unstable();
    assert_eq!(released, ["b", "bad-0"]);
}

/// Pods that remain when a Job succeeds do not count.
#[test]
fn a_succeeding_job_removes_its_pods_uncounted() {
    let only_failed = with(indexed(3), |spec| spec.replace_only_failed = true);
    let mut done = succeeds_with(only_failed, None, Some(1));
    done.status.completed_indexes = IndexSet::below(1);
    done.status.succeeded = 1;
    done.status.ensure(crate::job::verdict::condition(
        ConditionKind::SuccessCriteriaMet,
        ConditionStatus::True,
        "SuccessPolicy",
        "Matched rules at index 0",
        at(150),
    ));
    let goes = but(at_index("goes", 1, 1), |pod| pod.deleting = true);
    let plan = reconcile(&state(done, [at_index("b", 1, 0), at_index("c", 2, 0), goes]), at(160));
    assert_eq!(
        (plan.deletes.len(), uids(plan.releases.iter().map(|pod| &pod.uid))),
        (2, vec!["goes".into()])
    );
    assert!(plan.deletes.iter().all(|deletion| deletion.forget));
    assert!(plan.creates.is_empty());
}

/// Only the pod that fails the Job shows why. It keeps its finalizer until the end is announced, even if it
/// has been recorded.
#[test]
fn nothing_is_released_between_the_decision_and_the_announcement_of_an_end() {
    let mut job = policy(started(job(Completion::Count(5), 5)));
    job.status.uncounted = Some(Uncounted { succeeded: vec![], failed: vec!["x".into()] });
    let witness = exits(pod("x"), 42);
    let mut state = state(job, vec![witness, running("y")]);
    let plan = reconcile(&state, at(200));
    assert!(plan.status.is_some() && plan.releases.is_empty() && plan.deletes.is_empty(), "{plan:?}");
    state.begin(&plan, at(200));
    state.status_refused(true, at(201));
    let again = reconcile(&state, at(201));
    assert_eq!(
        again.status.map(|write| write.status.holding(ConditionKind::FailureTarget).is_some()),
        Some(true)
    );
    assert!(again.releases.is_empty());
}

/// An index that fails keeps its last pod for a successor, and a Job that ends creates none.
#[test]
fn a_failure_that_is_held_for_a_successor_is_recorded_with_the_end_it_brings_about() {
    let job = with(per_index(indexed(3), 1, None), |spec| spec.backoff_limit = 0);
    let plan = reconcile(&state(job, [bad(0)]), at(160));
    let status = plan.status.unwrap().status;
    let reason = status.holding(ConditionKind::FailureTarget).map(|condition| condition.reason.to_string());
    assert_eq!(reason.as_deref(), Some("BackoffLimitExceeded"));
    assert_eq!(uids(&status.uncounted.unwrap().failed), ["bad-0"]);
    assert_eq!(plan.releases, [], "not before the record is acknowledged");
}
