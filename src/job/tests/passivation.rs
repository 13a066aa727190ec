//! Passivation of finished Jobs.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use proptest::prelude::*;

use super::fixture::{at, at_index, but, cases, job, pod, with};
use crate::job::limits::Limits;
use crate::job::passivation::{NextLook, can_passivate, concerns, next_look};
use crate::job::pod::{Phase, Pod};
use crate::job::reconcile::reconcile;
use crate::job::spec::{Completion, Job};
use crate::job::state::{Changed, JobState};
use crate::job::status::{ConditionKind, ConditionStatus};
use crate::job::uid::UidSet;
use crate::job::verdict::condition;

/// When the Job finished.
const FINISHED: i64 = 50;
/// The current time.
const NOW: i64 = 100;

fn limits() -> Limits {
    Limits { ttl_controller: true, ..Limits::default() }
}

fn finish(mut job: Job) -> Job {
    let complete =
        condition(ConditionKind::Complete, ConditionStatus::True, "CompletionsReached", "", at(FINISHED));
    job.status.conditions.push(complete);
    job
}

/// A finished Job with various options.
fn finished_job() -> impl Strategy<Value = Job> {
    let completion = prop_oneof![Just(Completion::Count(3)), Just(Completion::Indexed(3))];
    let options = (prop::option::of(0u32..3), any::<bool>());
    let ttl = prop::option::of(prop_oneof![Just(10), Just(NOW.unsigned_abs())]);
    (completion, options, ttl, any::<bool>()).prop_map(|(completion, (limit, prune), ttl, deleting)| {
        let mut job = with(job(completion, 1), |spec| {
            spec.ttl_after_finished = ttl.map(Duration::from_secs);
        });
        (job.options.failed_pods_limit, job.options.prune_succeeded, job.deleting) = (limit, prune, deleting);
        finish(job)
    })
}

fn some_pod() -> impl Strategy<Value = Pod> {
    let phase =
        prop_oneof![Just(Phase::Pending), Just(Phase::Running), Just(Phase::Succeeded), Just(Phase::Failed)];
    (0u32..5, phase, any::<bool>(), any::<bool>()).prop_map(|(number, phase, tracked, deleting)| {
        but(at_index(&format!("pod-{number}"), number, 0), |pod| {
            (pod.phase, pod.tracked, pod.deleting) = (phase, tracked, deleting);
        })
    })
}

/// The state of the Job without known pods.
fn bare(job: &Job) -> JobState {
    let mut state = JobState::new(job.clone(), limits());
    state.pods_listed(&UidSet::default(), 0);
    state
}

proptest! {
    #![proptest_config(cases(7))]

    /// Events that the shard drops for a passivated Job would not have changed its plan.
    #[test]
    fn dropped_pods_make_no_work(job in finished_job(), pods in prop::collection::vec(some_pod(), 0..6)) {
        let mut state = bare(&job);
        for pod in pods.into_iter().filter(|pod| !concerns(&job, pod, true)) {
            state.observe_pod(pod.clone(), at(NOW));
            state.pod_vanished(&pod.uid);
            state.observe_pod(pod, at(NOW));
        }
        prop_assert!(can_passivate(&state, at(NOW)));
        prop_assert_eq!(reconcile(&state, at(NOW)), reconcile(&bare(&job), at(NOW)));
    }

    /// A passivated state holds nothing that an activated one would miss, and its next look is in time.
    #[test]
    fn passivation_loses_no_work(job in finished_job(), pods in prop::collection::vec(some_pod(), 0..6)) {
        let mut state = bare(&job);
        for pod in pods {
            state.observe_pod(pod, at(NOW));
        }
        let plan = reconcile(&state, at(NOW));
        if can_passivate(&state, at(NOW)) {
            prop_assert_eq!(&plan, &reconcile(&bare(&job), at(NOW)));
            let look = match next_look(&job, limits(), at(NOW)) {
                NextLook::Now => (true, None),
                NextLook::At(time) => (false, Some(time)),
                NextLook::Never => (false, None),
            };
            prop_assert_eq!((plan.delete_job, plan.wake_at), look);
        } else {
            prop_assert!(!state.pods.holds_nothing());
        }
    }
}

#[test]
fn a_job_is_active_until_it_is_finished_and_again_when_its_ttl_expires() {
    let with_ttl = |seconds| {
        finish(with(job(Completion::Count(1), 1), |spec| {
            spec.ttl_after_finished = Some(Duration::from_secs(seconds));
        }))
    };
    let unfinished = job(Completion::Count(1), 1);
    let (finished, deleting) = (finish(unfinished.clone()), Job { deleting: true, ..with_ttl(10) });
    let without_ttl = Limits { ttl_controller: false, ..limits() };
    for (job, limits, expected) in [
        (&unfinished, limits(), NextLook::Now),
        (&finished, limits(), NextLook::Never),
        (&with_ttl(60), limits(), NextLook::At(at(FINISHED + 60))),
        (&with_ttl(50), limits(), NextLook::Now),
        (&with_ttl(50), without_ttl, NextLook::Never),
        (&deleting, limits(), NextLook::Never),
    ] {
        assert_eq!(next_look(job, limits, at(NOW)), expected);
        let state = JobState::new(job.clone(), limits);
        assert_eq!(can_passivate(&state, at(NOW)), job.status.finished().is_some());
    }
}

#[test]
fn a_job_is_not_passivated_before_its_requests_are_answered() {
    let job =
        finish(with(job(Completion::Count(1), 1), |spec| spec.ttl_after_finished = Some(Duration::ZERO)));
    let mut state = bare(&job);
    let plan = reconcile(&state, at(NOW));
    assert!(plan.delete_job);
    state.begin(&plan, at(NOW));
    assert!(!can_passivate(&state, at(NOW)), "the Job is being deleted");
    state.deletion_refused(at(NOW));
    assert!(!can_passivate(&state, at(NOW)), "the back-off must be known at the next attempt");

    let mut state = bare(&finish(super::fixture::job(Completion::Count(1), 1)));
    let late = pod("late");
    state.observe_pod(late.clone(), at(NOW));
    let plan = reconcile(&state, at(NOW));
    assert_eq!(plan.releases.len(), 1);
    state.begin(&plan, at(NOW));
    state.changed(&late.uid, Changed::Released, at(NOW));
    assert!(!can_passivate(&state, at(NOW)), "it has not ended");
    let ended = but(late, |pod| (pod.tracked, pod.phase, pod.version) = (false, Phase::Failed, 2));
    state.observe_pod(ended, at(NOW));
    assert!(can_passivate(&state, at(NOW)));
}

#[test]
fn a_pod_concerns_a_finished_job_unless_it_is_counted_and_may_stay() {
    let plain = finish(job(Completion::Indexed(3), 1));
    let mut limited = plain.clone();
    limited.options.failed_pods_limit = Some(3);
    let counted = |phase| but(pod("p"), |pod| (pod.tracked, pod.phase) = (false, phase));
    for (job, pod, selected, expected) in [
        (&plain, counted(Phase::Succeeded), true, false),
        (&plain, counted(Phase::Failed), true, false),
        (&plain, counted(Phase::Failed), false, false),
        (&plain, counted(Phase::Running), true, true),
        (&plain, but(counted(Phase::Failed), |pod| pod.tracked = true), true, true),
        (&limited, counted(Phase::Failed), true, true),
        (&limited, counted(Phase::Failed), false, false),
        (&limited, counted(Phase::Succeeded), true, false),
    ] {
        assert_eq!(concerns(job, &pod, selected), expected, "{pod:?}");
    }
}
