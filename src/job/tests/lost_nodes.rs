//! Pods whose nodes are lost.

use std::time::Duration;

use super::fixture::{at, at_index, but, ended, job, state, uids, with};
use crate::job::lineage::Lineage;
use crate::job::options::JobOptions;
use crate::job::plan::{Plan, Wait};
use crate::job::pod::{Carried, IndexFailures, Phase, Pod};
use crate::job::reconcile::reconcile;
use crate::job::spec::{Completion, Job, PerIndexLimit};
use crate::job::state::Changed;
use crate::job::status::{ConditionKind, ConditionStatus, Uncounted};
use crate::job::verdict::condition;

const TIMEOUT: (&str, &str) = ("yardmaster.dev/lost-node-timeout", "60s");

fn losing(options: &[(&str, &str)]) -> Job {
    let mut job = job(Completion::Indexed(2), 2);
    job.options = JobOptions::read([TIMEOUT].into_iter().chain(options.iter().copied()));
    assert_eq!(job.options.rejected, []);
    job.status.start_time = Some(at(0));
    job.status.uncounted = Some(Uncounted::default());
    with(job, |spec| spec.replace_only_failed = true)
}

/// A pod at index 0 whose node is silent since this second.
fn silent(second: i64) -> Pod {
    let signs = Carried { silent_since: Some(at(second).into()), ..Carried::default() };
    but(at_index("a", 0, 0), |pod| pod.carried = Some(Box::new(signs)))
}

/// The same pod, whose deletion was over at this second.
fn leaving(second: i64) -> Pod {
    but(silent(second), |pod| pod.deleting = true)
}

/// The same pod, deleted by force.
fn forced(pod: Pod) -> Pod {
    but(pod, |pod| (pod.deleting, pod.forced, pod.version) = (true, true, pod.version + 5))
}

fn given_up(plan: &Plan) -> Vec<String> {
    let forced = plan.deletes.iter().filter(|deletion| deletion.grace == Some(Duration::ZERO));
    let forced: Vec<_> = forced.collect();
    assert!(forced.iter().all(|deletion| !deletion.forget), "they count as failed");
    uids(forced.into_iter().map(|deletion| &deletion.pod.uid))
}

#[test]
fn a_pod_is_given_up_once_its_node_has_been_silent_for_the_timeout() {
    let other = || at_index("b", 1, 0);
    let without = with(job(Completion::Indexed(2), 2), |spec| spec.replace_only_failed = true);
    let suspended = with(losing(&[]), |spec| spec.suspend = true);
    for (what, job, pod, now, expected, wakes) in [
        ("not ready, and soon lost", losing(&[]), silent(100), 159, &[][..], Some(160)),
        ("not ready for long", losing(&[]), silent(100), 160, &["a"], None),
        ("in its grace period", losing(&[]), leaving(130), 160, &[], Some(190)),
        ("it should be gone", losing(&[]), leaving(100), 160, &["a"], None),
        ("deleted by force", losing(&[]), forced(leaving(100)), 160, &[], None),
        ("without the option", without, leaving(100), 9_000, &[], None),
        ("removed all the same", suspended.clone(), silent(100), 160, &[], None),
        ("removed before", suspended, but(leaving(100), |pod| pod.tracked = false), 160, &["a"], None),
    ] {
        let state = state(job, [pod, other()]);
        let plan = reconcile(&state, at(now));
        assert_eq!(given_up(&plan), expected, "{what}");
        assert_eq!(plan.events.len(), expected.len(), "{what}");
        assert!(wakes.is_none_or(|second| plan.wake_at.is_some_and(|by| by <= at(second))), "{what}");
    }
    let state = state(losing(&[]), [silent(100), other()]);
    let event = &reconcile(&state, at(160)).events[0];
    assert_eq!((&*event.reason, event.message.ends_with("has not answered for 1m")), ("NodeLost", true));
}

/// Every owner of the Job sees on the pod that it was given up.
#[test]
fn a_pod_that_is_given_up_counts_once_and_is_replaced_before_its_object_has_ended() {
    let mut before = state(losing(&[]), [silent(100), at_index("b", 1, 0)]);
    (0..9).for_each(|_| before.slow_start.accepted());
    let plan = reconcile(&before, at(160));
    before.begin(&plan, at(160));
    let answer = forced(before.pods.get(&"a".into()).unwrap().clone());
    before.changed(&"a".into(), Changed::Pod(Box::new(answer.clone())), at(160));
    let mut next = state(losing(&[]), [answer.clone(), at_index("b", 1, 0)]);
    (0..9).for_each(|_| next.slow_start.accepted());
    for (what, mut state) in [("the owner", before), ("the next one", next)] {
        let plan = reconcile(&state, at(161));
        let created: Vec<u32> = plan.creates.iter().map(|new| new.place.number).collect();
        assert_eq!((created, given_up(&plan)), (vec![0], vec![]), "{what}");
        let status = plan.status.clone().or_else(|| {
            state.begin(&plan, at(161));
            reconcile(&state, at(163)).status
        });
        let uncounted = status.unwrap().status.uncounted.unwrap();
        assert_eq!(uids(&uncounted.failed), ["a"], "{what}");
        let mut job = state.job.clone();
        job.status.uncounted = Some(uncounted);
        state.observe_job(job.clone());
        assert_eq!(uids(reconcile(&state, at(164)).releases.iter().map(|pod| &pod.uid)), ["a"], "{what}");
        // The node comes back, and says that the containers have succeeded.
        state.observe_pod(but(ended(answer.clone(), Phase::Succeeded, 165), |pod| pod.version += 5), at(165));
        let status = reconcile(&state, at(170)).status.map(|write| write.status);
        let failed =
            status.map_or(1, |status| status.failed as usize + status.uncounted.unwrap().failed.len());
        assert_eq!(failed, 1, "{what}: it counts as failed once");
    }
}

/// Its failure is kept for a successor, which must not wait for it.
#[test]
fn a_pod_that_is_given_up_does_not_keep_its_index() {
    let job = with(losing(&[("yardmaster.dev/backoff-initial", "0s")]), |spec| {
        spec.per_index = Some(PerIndexLimit { backoff_limit: 3, max_failed_indexes: None });
    });
    let state = state(job, [forced(leaving(100)), at_index("b", 1, 0)]);
    let plan = reconcile(&state, at(200));
    let carried: Vec<_> = plan.creates.iter().map(|new| new.index_failures).collect();
    assert_eq!(carried, [Some(IndexFailures { counted: 1, ignored: 0 })]);
}

#[test]
fn a_job_that_no_longer_gives_pods_up_waits_for_their_ends() {
    let mut job = with(losing(&[]), |spec| spec.replace_only_failed = true);
    let mut state = state(job.clone(), [forced(leaving(100)), at_index("b", 1, 0)]);
    assert!(state.pods.get(&"a".into()).is_some_and(|pod| pod.forced));
    job.options = JobOptions::default();
    state.observe_job(job);
    assert!(state.pods.get(&"a".into()).is_some_and(|pod| !pod.forced));
}

#[test]
fn a_restart_does_not_wait_for_a_lost_node() {
    let old = |pod: Pod| but(pod, |pod| (pod.deleting, pod.tracked) = (true, false));
    let next = |pod: Pod| {
        let lineage = Lineage { attempt: 1, ..Lineage::default() };
        but(pod, |pod| pod.carried = Some(Box::new(Carried::of(None, &lineage))))
    };
    let mut job = losing(&[("yardmaster.dev/restart-together", "true")]);
    job.status.restarts = 1;
    let waits = state(job.clone(), [old(leaving(100)), next(at_index("b", 1, 1))]);
    assert_eq!(reconcile(&waits, at(159)).waiting, Some(Wait::Restarting));
    assert_eq!(given_up(&reconcile(&waits, at(160))), ["a"]);
    let goes_on = state(job, [forced(old(leaving(100))), next(at_index("b", 1, 1))]);
    assert_eq!(reconcile(&goes_on, at(161)).creates.len(), 1);
}

#[test]
fn a_job_that_ends_does_not_wait_for_a_lost_node() {
    let mut job = losing(&[]);
    let announced = condition(ConditionKind::FailureTarget, ConditionStatus::True, "X", "", at(50));
    job.status.conditions.push(announced);
    let state = state(job, [leaving(100)]);
    assert_eq!(given_up(&reconcile(&state, at(160))), ["a"]);
}

/// A shard shows the pods again to a Job that gets the option.
#[test]
fn a_pod_that_was_deleted_by_force_before_has_not_ended_for_a_job_without_the_option() {
    let without = with(job(Completion::Indexed(2), 2), |spec| spec.replace_only_failed = true);
    let mut state = state(without, [forced(leaving(100)), at_index("b", 1, 0)]);
    assert_eq!(reconcile(&state, at(200)).creates, []);
    assert!(!state.has_failed(&forced(leaving(100))));
    state.observe_job(losing(&[]));
    state.observe_pod(forced(leaving(100)), at(200));
    assert!(state.has_failed(state.pods.get(&"a".into()).unwrap()));
    assert_eq!(reconcile(&state, at(201)).creates.len(), 1);
}
