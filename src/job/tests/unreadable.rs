//! Pods of which only the metadata can be read: they keep their places, and nothing is done with them.

use super::fixture::{at, at_index, but, ended, job, running, state, uids, with};
use crate::job::passivation::concerns;
use crate::job::plan::{Plan, Wait};
use crate::job::pod::{Phase, Pod};
use crate::job::reconcile::reconcile;
use crate::job::spec::{Completion, Job};
use crate::job::state::JobState;
use crate::job::status::{ConditionKind, ConditionStatus};
use crate::job::uid::UidSet;
use crate::job::verdict::condition;

/// The pod in its next version, as the decoder makes it of the metadata.
fn unreadable(pod: &Pod) -> Pod {
    but(super::fixture::pod(&pod.uid.to_string()), |shown| {
        shown.phase = Phase::Unreadable;
        (shown.version, shown.index, shown.place) = (pod.version + 1, pod.index, pod.place);
        (shown.name, shown.tracked) = (pod.name.clone(), pod.tracked);
    })
}

fn succeeded(pod: Pod, version: u64) -> Pod {
    but(ended(pod, Phase::Succeeded, 50), |pod| pod.version = version)
}

fn to_record(state: &JobState) -> Vec<String> {
    uids(state.pods.to_record().map(|pod| &pod.uid))
}

/// The numbers of pods that a plan creates, deletes and releases.
fn acts(plan: &Plan) -> [usize; 3] {
    [plan.creates.len(), plan.deletes.len(), plan.releases.len()]
}

#[test]
fn a_pod_that_was_never_readable_keeps_its_place_and_is_counted_once_when_it_is() {
    for (job, pod) in [
        (job(Completion::Count(2), 2), running("a")),
        (job(Completion::Indexed(2), 2), at_index("a", 0, 0)),
        (with(job(Completion::Count(2), 2), |spec| spec.replace_only_failed = true), running("a")),
    ] {
        let mut state = state(job, [unreadable(&pod)]);
        assert_eq!(acts(&reconcile(&state, at(100))), [1, 0, 0], "the other pod only");
        assert_eq!((state.pods.gauges().active, to_record(&state).len()), (1, 0));
        state.observe_pod(succeeded(pod.clone(), 3), at(100));
        assert_eq!((state.pods.gauges().active, to_record(&state)), (0, vec!["a".to_owned()]));
        // It cannot be read again, and then it can.
        state.observe_pod(unreadable(&succeeded(pod.clone(), 3)), at(100));
        assert_eq!((state.pods.gauges().active, to_record(&state)), (0, vec!["a".to_owned()]));
        state.observe_pod(succeeded(pod, 5), at(100));
        assert_eq!((state.pods.gauges().active, to_record(&state)), (0, vec!["a".to_owned()]));
    }
}

#[test]
fn an_end_or_a_deletion_that_was_known_stays_known() {
    let deleting = but(running("a"), |pod| pod.deleting = true);
    for (known, recorded, active) in [
        (running("a"), 0, 1),
        (succeeded(running("a"), 2), 1, 0),
        (ended(running("a"), Phase::Failed, 50), 1, 0),
        (deleting, 1, 0),
    ] {
        let mut state = state(job(Completion::Count(9), 1), [known.clone()]);
        state.observe_pod(unreadable(&known), at(100));
        assert_eq!((to_record(&state).len(), state.pods.gauges().active), (recorded, active), "{known:?}");
    }
}

/// It may have succeeded. Once the Job is deleted or finished, it counts nothing any more.
#[test]
fn nothing_is_done_with_an_unreadable_pod_before_its_job_leaves() {
    let count = |wanted| job(Completion::Count(9), wanted);
    let has = |mut job: Job, kind| {
        job.status.ensure(condition(kind, ConditionStatus::True, "", "", at(90)));
        job
    };
    for (what, job, released) in [
        ("it is one pod too many", count(0), 0),
        ("the Job is suspended", with(count(1), |spec| spec.suspend = true), 0),
        ("the Job fails", has(count(1), ConditionKind::FailureTarget), 0),
        ("the Job succeeds", has(count(1), ConditionKind::SuccessCriteriaMet), 0),
        ("the Job has failed", has(count(1), ConditionKind::Failed), 1),
        ("the Job is deleted", Job { deleting: true, ..count(1) }, 1),
    ] {
        for before in [false, true] {
            let known = before.then(|| running("a"));
            let state = state(job.clone(), known.into_iter().chain([unreadable(&running("a"))]));
            assert_eq!(acts(&reconcile(&state, at(100))), [0, 0, released], "{what}");
            assert_eq!(to_record(&state).len(), 0, "{what}");
        }
    }
}

#[test]
fn a_job_waits_for_an_unreadable_pod_at_the_end_and_says_so() {
    let last = running("b");
    let mut state = state(job(Completion::WorkQueue, 2), [succeeded(running("a"), 2), unreadable(&last)]);
    let plan = reconcile(&state, at(100));
    assert!(acts(&plan) == [0, 0, 0] && !plan.status.is_some_and(|write| write.status.announces_end()));
    state.observe_pod(succeeded(last, 3), at(100));
    let plan = reconcile(&state, at(100));
    assert!(plan.status.is_some_and(|write| write.status.announces_end()));
    let held = super::fixture::state(job(Completion::Count(1), 1), [unreadable(&running("b"))]);
    assert_eq!(reconcile(&held, at(100)).waiting, Some(Wait::PodsUnknown));
}

/// The Job has dropped it, and no reading tells that it has ended.
#[test]
fn a_counted_pod_that_cannot_be_read_takes_no_place() {
    let released = but(succeeded(running("a"), 3), |pod| pod.tracked = false);
    let mut state = state(job(Completion::Count(9), 1), [succeeded(running("a"), 2)]);
    state.pods_listing();
    state.observe_pod(succeeded(running("a"), 2), at(100));
    state.pods_listed(&UidSet::from_iter(["a".into()]), 2);
    state.observe_pod(released.clone(), at(100));
    assert!(!state.observe_pod(unreadable(&released), at(100)));
    assert_eq!(state.pods.gauges().active, 0);
}

#[test]
fn only_a_tracked_unreadable_pod_concerns_a_finished_job() {
    let job = super::fixture::finished(job(Completion::Count(1), 1));
    for tracked in [true, false] {
        let pod = but(unreadable(&running("a")), |pod| pod.tracked = tracked);
        assert_eq!(concerns(&job, &pod, true), tracked);
    }
}
