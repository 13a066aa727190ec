//! Deadlines of pods that run.

use std::time::Duration;

use super::fixture::{at, but, ended, finished, job, running, state, with};
use crate::job::options::JobOptions;
use crate::job::plan::Plan;
use crate::job::pod::{Phase, Pod};
use crate::job::reconcile::reconcile;
use crate::job::spec::{Completion, Job};
use crate::job::state::JobState;
use crate::job::status::{ConditionKind, Uncounted};

fn with_options(options: &[(&str, &str)]) -> Job {
    let mut job = job(Completion::Count(3), 2);
    job.options = JobOptions::read(options.iter().copied());
    assert_eq!(job.options.rejected, []);
    job.status.start_time = Some(at(0));
    job.status.uncounted = Some(Uncounted::default());
    job
}

fn running_since(uid: &str, second: i64) -> Pod {
    but(running(uid), |pod| pod.finished = at(second).into())
}

fn late(plan: &Plan) -> Vec<(String, Option<u64>)> {
    assert!(plan.deletes.iter().all(|deletion| !deletion.forget), "they count as failed");
    let seconds = |grace: Duration| grace.as_secs();
    plan.deletes.iter().map(|deletion| (deletion.pod.uid.to_string(), deletion.grace.map(seconds))).collect()
}

#[test]
fn a_pod_that_runs_for_too_long_counts_as_failed() {
    const DEADLINE: (&str, &str) = ("yardmaster.dev/pod-run-deadline", "60s");
    let signal = |before| ("yardmaster.dev/signal-before", before);
    for (options, now, expected, wakes) in [
        (&[DEADLINE][..], 159, &[][..], Some(160)),
        (&[DEADLINE], 160, &[("a", None)], Some(190)),
        (&[DEADLINE], 190, &[("a", None), ("b", None)], None),
        (&[DEADLINE, signal("20s")], 139, &[], Some(140)),
        (&[DEADLINE, signal("20s")], 140, &[("a", Some(20))], Some(170)),
        (&[DEADLINE, signal("2m")], 140, &[], Some(160)),
        (&[signal("20s")], 9_000, &[], None),
    ] {
        let state = state(with_options(options), [running_since("b", 130), running_since("a", 100)]);
        let plan = reconcile(&state, at(now));
        let expected: Vec<_> = expected.iter().map(|(uid, grace)| ((*uid).to_owned(), *grace)).collect();
        assert_eq!(late(&plan), expected, "{options:?} {now}");
        assert_eq!(plan.events.len(), expected.len());
        assert!(wakes.is_none_or(|second| plan.wake_at.is_some_and(|at_latest| at_latest <= at(second))));
    }
}

fn end_reason(state: &JobState, second: i64) -> Option<String> {
    let status = reconcile(state, at(second)).status?.status;
    status.holding(ConditionKind::FailureTarget).map(|condition| condition.reason.to_string())
}

#[test]
fn a_job_fails_some_time_after_its_first_pod_has_begun_to_run() {
    let job = || with_options(&[("yardmaster.dev/run-deadline", "100s")]);
    let exceeded = Some("RunDeadlineExceeded".to_owned());
    let pending = but(running("p"), |pod| (pod.phase, pod.stalled) = (Phase::Pending, true));
    assert_eq!(end_reason(&state(job(), [pending]), 9_000), None, "none has run");
    let mut one = state(job(), [running_since("a", 500)]);
    assert_eq!([599, 600].map(|second| end_reason(&one, second)), [None, exceeded.clone()]);
    one.begin(&reconcile(&one, at(510)), at(510));
    let status = reconcile(&one, at(512)).status.map(|write| write.status.running_since);
    assert_eq!(status, Some(Some(at(500).into())), "the next owner reads it");
    one.observe_pod(ended(running("a"), Phase::Succeeded, 550), at(550));
    one.observe_pod(running_since("b", 555), at(556));
    assert_eq!(end_reason(&one, 600), exceeded.clone(), "the first pod has ended");
    let mut later = job();
    later.status.running_since = Some(at(500).into());
    assert_eq!(end_reason(&state(later.clone(), []), 600), exceeded, "another owner saw it");
    assert_eq!(end_reason(&state(with(later.clone(), |spec| spec.suspend = true), []), 600), None);
    assert!(reconcile(&state(finished(later), []), at(600)).is_idle());
}

#[test]
fn a_suspended_job_begins_its_run_again() {
    let job = with_options(&[("yardmaster.dev/run-deadline", "100s")]);
    let mut state = state(job.clone(), [running_since("a", 500)]);
    state.observe_job(with(job.clone(), |spec| spec.suspend = true));
    let written = reconcile(&state, at(590)).status.map(|write| write.status.running_since);
    assert!(written.is_none_or(|since| since.is_none()));
    state.pod_vanished(&"a".into());
    state.observe_job(job);
    assert_eq!(end_reason(&state, 601), None);
    state.observe_pod(running_since("b", 700), at(700));
    assert_eq!(end_reason(&state, 800).as_deref(), Some("RunDeadlineExceeded"));
}

#[test]
fn pods_of_a_job_that_has_run_too_long_have_until_the_deadline() {
    for (before, ends_at, grace) in [("30s", 570, Some(30)), ("200s", 600, None)] {
        let options = [("yardmaster.dev/run-deadline", "100s"), ("yardmaster.dev/signal-before", before)];
        let mut state = state(with_options(&options), [running_since("a", 500)]);
        assert_eq!(end_reason(&state, ends_at - 1), None, "{before}");
        let plan = reconcile(&state, at(ends_at));
        let status = plan.status.clone().unwrap().status;
        state.begin(&plan, at(ends_at));
        state.observe_job(Job { status, ..state.job.clone() });
        state.status_written(at(ends_at));
        assert_eq!(late(&reconcile(&state, at(ends_at))), [("a".to_owned(), grace)], "{before}");
    }
}

/// Pods run on until their removal is sent, and may change meanwhile.
#[test]
fn pods_of_a_suspended_job_begin_no_run() {
    let job = with_options(&[("yardmaster.dev/run-deadline", "100s")]);
    let mut state = state(job.clone(), [running_since("a", 500)]);
    state.observe_job(with(job.clone(), |spec| spec.suspend = true));
    state.observe_pod(but(running_since("a", 500), |pod| (pod.version, pod.restarts) = (9, 1)), at(510));
    assert_eq!(state.pods.first_run(), None);
    state.pod_vanished(&"a".into());
    state.observe_job(job.clone());
    assert_eq!((state.pods.first_run(), end_reason(&state, 601)), (None, None));
    let mut resumed =
        super::fixture::state(with(job.clone(), |spec| spec.suspend = true), [running_since("a", 500)]);
    resumed.observe_job(job);
    assert_eq!(resumed.pods.first_run(), Some(at(500).into()), "it has run on");
}
