//! Tables: when and how a Job ends.

use std::time::Duration;

use super::fixture::{at, at_index, but, ended, job, pod, running, state, template, uids, with};
use crate::job::index_set::IndexSet;
use crate::job::pod::{ContainerExit, Outcome, Phase, Pod};
use crate::job::reconcile::reconcile;
use crate::job::spec::{
    Completion, Job, PerIndexLimit, PodFailureAction, PodFailurePattern, PodFailureRule, SuccessRule,
};
use crate::job::state::JobState;
use crate::job::status::{ConditionKind, ConditionStatus, JobStatus, Uncounted};

/// The reason of the end that the next status announces at a time.
fn end_at(job: Job, pods: Vec<Pod>, second: i64) -> Option<String> {
    let plan = reconcile(&state(job, pods), at(second));
    let status = plan.status?.status;
    let [success, failure] = [ConditionKind::SuccessCriteriaMet, ConditionKind::FailureTarget]
        .map(|kind| status.holding(kind).map(|c| c.reason.to_string()));
    assert!(success.is_none() || failure.is_none(), "{status:?}");
    success.or(failure)
}

fn started(mut job: Job) -> Job {
    job.status.start_time = Some(at(100));
    job.status.uncounted = Some(Uncounted::default());
    job
}

pub(super) fn exits(pod: Pod, exit_code: i32) -> Pod {
    let exit = ContainerExit { name: "main".into(), exit_code, out_of_memory: false };
    let outcome = Outcome { containers: vec![exit], ..Outcome::default() };
    but(ended(pod, Phase::Failed, 150), |pod| pod.outcome = Some(Box::new(outcome)))
}

fn rule(action: PodFailureAction, code: i32) -> PodFailureRule {
    let on = PodFailurePattern::ExitCodes { container: None, inside: true, values: [code].into() };
    PodFailureRule { action, on }
}

fn policy(job: Job) -> Job {
    use PodFailureAction::{FailIndex, FailJob, Ignore};
    with(job, |spec| {
        spec.replace_only_failed = true;
        spec.pod_failure_policy = Some(vec![rule(FailJob, 42), rule(Ignore, 43), rule(FailIndex, 44)]);
    })
}

fn per_index(job: Job, backoff_limit: u32, max_failed_indexes: Option<u32>) -> Job {
    with(job, |spec| {
        spec.backoff_limit = i32::MAX as u32;
        spec.per_index = Some(PerIndexLimit { backoff_limit, max_failed_indexes });
    })
}

fn succeeds_with(job: Job, indexes: Option<&str>, count: Option<u32>) -> Job {
    let rule = SuccessRule { indexes: indexes.map(IndexSet::parse_strict), count };
    with(job, |spec| spec.success_policy = vec![rule])
}

fn count(completions: u32) -> Job {
    started(job(Completion::Count(completions), 3))
}

fn indexed(completions: u32) -> Job {
    started(job(Completion::Indexed(completions), 3))
}

fn good(index: u32) -> Pod {
    ended(at_index(&format!("good-{index}"), index, 0), Phase::Succeeded, 150)
}

fn bad(index: u32) -> Pod {
    ended(at_index(&format!("bad-{index}"), index, 0), Phase::Failed, 150)
}

/// Most cases have several possible ends.
#[test]
fn the_first_end_in_the_order_of_kubernetes_is_announced() {
    let deadline = |job| with(job, |spec| spec.active_deadline = Some(Duration::from_secs(10)));
    let limit = |job, limit| with(job, |spec| spec.backoff_limit = limit);
    let announced = |mut job: Job, kind, reason| {
        let condition = crate::job::verdict::condition(kind, ConditionStatus::True, reason, "", at(120));
        job.status.conditions.push(condition);
        job
    };
    for (name, job, pods, expected) in [
        ("nothing yet", count(3), vec![running("a")], None),
        (
            "FailJob before BackoffLimitExceeded",
            limit(policy(count(3)), 0),
            vec![exits(running("a"), 42), ended(running("b"), Phase::Failed, 140)],
            Some("PodFailurePolicy"),
        ),
        (
            "BackoffLimitExceeded before the deadline",
            deadline(limit(count(3), 0)),
            vec![bad(0)],
            Some("BackoffLimitExceeded"),
        ),
        (
            "the deadline before failed indexes",
            deadline(per_index(indexed(1), 0, None)),
            vec![bad(0)],
            Some("DeadlineExceeded"),
        ),
        (
            "too many failed indexes before all have ended",
            per_index(indexed(2), 0, Some(0)),
            vec![bad(0), good(1)],
            Some("MaxFailedIndexesExceeded"),
        ),
        (
            "failed indexes before the success policy",
            succeeds_with(per_index(indexed(2), 0, None), None, Some(1)),
            vec![bad(0), good(1)],
            Some("FailedIndexes"),
        ),
        (
            "the success policy before completions",
            succeeds_with(indexed(2), None, Some(2)),
            vec![good(0), good(1)],
            Some("SuccessPolicy"),
        ),
        ("completions", indexed(2), vec![good(0), good(1)], Some("CompletionsReached")),
        (
            "failure before success",
            limit(count(1), 0),
            vec![bad(0), ended(running("b"), Phase::Succeeded, 140)],
            Some("BackoffLimitExceeded"),
        ),
        (
            "an announced success stands",
            limit(announced(count(1), ConditionKind::SuccessCriteriaMet, "CompletionsReached"), 0),
            vec![bad(0)],
            Some("CompletionsReached"),
        ),
        (
            "an announced failure stands",
            announced(count(1), ConditionKind::FailureTarget, "DeadlineExceeded"),
            vec![ended(running("b"), Phase::Succeeded, 140)],
            Some("DeadlineExceeded"),
        ),
    ] {
        assert_eq!(end_at(job, pods, 200).as_deref(), expected, "{name}");
    }
}

/// Somebody else has removed the finalizer: the pod does not count, but its exit code ends the Job.
#[test]
fn a_failed_pod_without_finalizer_fails_the_job_as_its_rule_says() {
    let stripped = |code| but(exits(running("cut"), code), |pod| pod.tracked = false);
    for (name, code, expected) in [("FailJob", 42, Some("PodFailurePolicy")), ("counted", 1, None)] {
        let job = || with(policy(count(3)), |spec| (spec.backoff_limit, spec.parallelism) = (0, 1));
        assert_eq!(end_at(job(), vec![stripped(code), running("a")], 160).as_deref(), expected, "{name}");

        for ran in [true, false] {
            let known = ran.then(|| but(running("cut"), |pod| pod.tracked = false));
            let mut seen = state(job(), known.into_iter().chain([running("a")]));
            seen.observe_pod(stripped(code), at(160));
            seen.observe_job(job());
            let status = reconcile(&seen, at(160)).status.unwrap().status;
            let announced = status.holding(ConditionKind::FailureTarget);
            assert_eq!(announced.map(|condition| &*condition.reason), expected, "{name}");
            assert_eq!(status.uncounted, Some(Uncounted::default()), "{name}");

            seen.observe_job(Job { status, ..job() });
            let held = seen.pods.get(&"cut".into()).is_some();
            assert!(!held, "{name}: nothing holds on to it once the end is announced");
        }
    }
}

#[test]
fn failures_count_against_the_limit() {
    let limit = |limit| with(count(10), |spec| spec.backoff_limit = limit);
    let mut counted = limit(2);
    counted.status.failed = 2;
    let mut listed = limit(1);
    listed.status.uncounted = Some(Uncounted { failed: vec!["bad-0".into()], ..Uncounted::default() });
    for (name, job, pods, fails) in [
        ("at the limit", limit(2), vec![bad(0), bad(1)], false),
        ("over the limit", limit(1), vec![bad(0), bad(1)], true),
        ("counted before", counted, vec![bad(0)], true),
        ("listed, and not twice", listed, vec![bad(0)], false),
        ("being deleted", limit(0), vec![but(running("a"), |pod| pod.deleting = true)], true),
        (
            "being deleted, and only failed pods are replaced",
            with(limit(0), |spec| spec.replace_only_failed = true),
            vec![but(running("a"), |pod| pod.deleting = true)],
            false,
        ),
        ("ignored", policy(limit(0)), vec![exits(running("a"), 43)], false),
        ("not ignored", policy(limit(0)), vec![exits(running("a"), 1)], true),
    ] {
        let expected = fails.then_some("BackoffLimitExceeded");
        assert_eq!(end_at(job, pods, 160).as_deref(), expected, "{name}");
    }
}

/// With `restartPolicy: OnFailure`, a Job fails when it has as many restarts as the limit; limit 0 needs one
/// restart.
#[test]
fn restarts_count_while_a_pod_is_pending_or_running() {
    let restarted = |phase, restarts| {
        vec![but(running("a"), |pod| {
            pod.phase = phase;
            pod.restarts = restarts;
        })]
    };
    for (limit, phase, restarts, fails) in [
        (0, Phase::Running, 0, false),
        (0, Phase::Running, 1, true),
        (3, Phase::Running, 2, false),
        (3, Phase::Running, 3, true),
        (3, Phase::Pending, 3, true),
        (3, Phase::Succeeded, 9, false),
        (3, Phase::Unknown, 9, false),
    ] {
        for on_failure in [true, false] {
            let job = with(count(10), |spec| {
                spec.backoff_limit = limit;
                spec.template = template(if on_failure { "OnFailure" } else { "Never" });
            });
            let end = end_at(job, restarted(phase, restarts), 160);
            assert_eq!(end.is_some(), fails && on_failure, "{limit} {phase:?} {restarts} {on_failure}");
        }
    }
}

#[test]
fn the_deadline_counts_from_the_start_and_not_while_suspended() {
    let limited = with(count(1), |spec| spec.active_deadline = Some(Duration::from_secs(30)));
    let pods = || vec![running("a")];
    assert_eq!(end_at(limited.clone(), pods(), 129), None);
    assert_eq!(end_at(limited.clone(), pods(), 130).as_deref(), Some("DeadlineExceeded"));
    let wake = reconcile(&state(limited.clone(), pods()), at(120)).wake_at;
    assert_eq!(wake, Some(at(130)));
    let suspended = with(limited.clone(), |spec| spec.suspend = true);
    assert_eq!(end_at(suspended, pods(), 500), None);
    let mut not_yet_started = limited;
    not_yet_started.status.start_time = None;
    assert_eq!(end_at(not_yet_started, pods(), 500), None);
}

/// The deadline counts from the start, which is now.
#[test]
fn a_deadline_of_0_passes_before_any_pod_is_created() {
    let limited = with(job(Completion::Count(2), 2), |spec| spec.active_deadline = Some(Duration::ZERO));
    let plan = reconcile(&state(limited.clone(), []), at(100));
    assert_eq!(plan.creates, []);
    let status = plan.status.unwrap().status;
    assert!(status.holding(ConditionKind::FailureTarget).is_some(), "{status:?}");
    assert_eq!(status.start_time, Some(at(100)));
    let suspended = with(limited, |spec| spec.suspend = true);
    assert_eq!(end_at(suspended, vec![], 100), None);
}

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

/// Suspending also drops a start time that was never written.
#[test]
fn resuming_restarts_the_deadline() {
    let limited =
        with(job(Completion::Count(1), 0), |spec| spec.active_deadline = Some(Duration::from_secs(30)));
    let suspended = with(limited.clone(), |spec| spec.suspend = true);
    let mut state = state(limited.clone(), []);
    state.begin(&reconcile(&state, at(100)), at(100));
    state.status_refused(true, at(100));
    state.observe_job(suspended);
    let plan = reconcile(&state, at(110));
    state.begin(&plan, at(110));
    let written = Job { status: plan.status.unwrap().status, ..limited };
    state.observe_job(written);
    state.status_written(at(110));
    let status = reconcile(&state, at(200)).status.unwrap().status;
    assert_eq!(status.start_time, Some(at(200)));
    assert!(status.holding(ConditionKind::FailureTarget).is_none());
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

#[test]
fn an_index_fails_without_retries_and_the_job_by_its_failed_indexes() {
    let after = |index: u32, failures, code| {
        but(exits(at_index(&format!("{index}"), index, failures), code), |pod| {
            pod.index_failures.counted = failures;
        })
    };
    let job = |max| policy(per_index(indexed(3), 1, max));
    for (name, max, pods, failed, end) in [
        ("a retry is left", None, vec![after(0, 0, 1)], "", None),
        ("no retry is left", None, vec![after(0, 1, 1)], "0", None),
        ("failed by a rule", None, vec![after(0, 0, 44)], "0", None),
        ("ignored", None, vec![after(0, 1, 43)], "", None),
        ("as many as allowed", Some(1), vec![after(1, 1, 1)], "1", None),
        (
            "more than allowed",
            Some(1),
            vec![after(0, 1, 1), after(2, 1, 1)],
            "0,2",
            Some("MaxFailedIndexesExceeded"),
        ),
        ("all have ended", None, vec![after(0, 1, 1), good(1), good(2)], "0", Some("FailedIndexes")),
    ] {
        let state = state(job(max), pods.clone());
        assert_eq!(state.pods.failed_indexes().to_string(), failed, "{name}");
        assert_eq!(end_at(job(max), pods, 160).as_deref(), end, "{name}");
    }
}

#[test]
fn completions_are_reached_when_no_pod_is_left() {
    let with_status = |mut job: Job, succeeded| {
        job.status.succeeded = succeeded;
        job
    };
    let queue = || started(job(Completion::WorkQueue, 3));
    let suspended = |job| with(job, |spec| spec.suspend = true);
    let success = || ended(running("a"), Phase::Succeeded, 150);
    for (name, job, pods, reached) in [
        ("some are missing", with_status(count(3), 1), vec![success()], false),
        ("the last", with_status(count(2), 1), vec![success()], true),
        ("more than wanted", with_status(count(2), 5), vec![], true),
        ("nothing wanted", count(0), vec![], true),
        ("nothing wanted, suspended", suspended(count(0)), vec![], true),
        ("no index", indexed(0), vec![], true),
        ("a queue without a success", queue(), vec![], false),
        ("a queue with a pod left", queue(), vec![success(), running("b")], false),
        ("a queue", queue(), vec![success()], true),
        ("a suspended queue", suspended(queue()), vec![success()], true),
        ("suspended and not done", suspended(count(2)), vec![success()], false),
    ] {
        let end = end_at(job, pods, 160);
        assert_eq!(end.as_deref(), reached.then_some("CompletionsReached"), "{name}");
    }
}

/// Completions and parallelism were lowered together.
#[test]
fn an_elastic_job_ends_once_its_remaining_indexes_have_succeeded() {
    let mut small = indexed(2);
    small.status.completed_indexes = IndexSet::parse_lenient("0,1,3", 9);
    small.status.succeeded = 3;
    let small = with(small, |spec| spec.parallelism = 2);
    let plan = reconcile(&state(small, []), at(160));
    let status = plan.status.unwrap().status;
    assert_eq!((status.succeeded, status.completed_indexes.to_string().as_str()), (2, "0,1"));
    assert!(status.holding(ConditionKind::Complete).is_some());
}

/// A suspended Job with completions 0 needs no start time.
#[test]
fn a_finished_job_has_a_start_time_unless_it_was_suspended_with_nothing_to_do() {
    let finished = |job: Job| -> JobStatus { reconcile(&state(job, []), at(160)).status.unwrap().status };
    let suspended = finished(with(job(Completion::Count(0), 1), |spec| spec.suspend = true));
    assert_eq!((suspended.start_time, suspended.completion_time), (None, Some(at(160))));
    let status = finished(job(Completion::Count(0), 1));
    assert_eq!((status.start_time, status.completion_time), (Some(at(160)), Some(at(160))));
    let mut shrunk = with(job(Completion::Indexed(1), 1), |spec| spec.suspend = true);
    shrunk.status.completed_indexes = IndexSet::below(1);
    shrunk.status.succeeded = 1;
    assert_eq!(finished(shrunk).start_time, Some(at(160)));
}

/// The start may have been written by a replica whose clock is ahead of ours.
#[test]
fn no_job_is_complete_before_it_started() {
    let mut job = count(0);
    job.status.start_time = Some(at(170));
    let status = reconcile(&state(job, []), at(160)).status.unwrap().status;
    assert_eq!(status.completion_time, Some(at(170)));
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

/// A pod that is being adopted may have succeeded as well. A pod that cannot be adopted for now must not
/// hold the Job forever.
#[test]
fn success_waits_for_the_first_answers_to_adoptions() {
    let pods = || vec![ended(pod("a"), Phase::Succeeded, 150)];
    let announces = |state: &JobState| {
        let status = reconcile(state, at(200)).status.map(|write| write.status);
        status.is_some_and(|status| status.holding(ConditionKind::SuccessCriteriaMet).is_some())
    };
    for completion in [Completion::WorkQueue, Completion::Count(1)] {
        let mut state = state(started(job(completion, 2)), pods());
        state.adoption_begun();
        assert!(!announces(&state), "{completion:?}");
        state.adoption_answered();
        assert!(announces(&state), "{completion:?}");
    }
}
