//! Tables: when and how a Job ends.

mod pods;
mod times;

use std::time::Duration;

use super::fixture::{at, at_index, but, ended, job, pod, running, state, template, with};
use crate::job::index_set::IndexSet;
use crate::job::pod::{ContainerExit, Outcome, Phase, Pod};
use crate::job::reconcile::reconcile;
use crate::job::spec::{
    Completion, Job, PerIndexLimit, PodFailureAction, PodFailurePattern, PodFailureRule, SuccessRule,
};
use crate::job::state::JobState;
use crate::job::status::{ConditionKind, ConditionStatus, Uncounted};

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
