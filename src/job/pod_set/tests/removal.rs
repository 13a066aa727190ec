//! The order in which pods are removed, and the index of a removed pod.

use super::set_of;
use crate::job::pod::{Phase, Pod};
use crate::job::pod_set::{PendingRequest, PodSet, Source};
use crate::job::spec::{Completion, PerIndexLimit};
use crate::job::tests::fixture::{at, at_index, but, ended, job, placed, pod, running, uids, with};

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
