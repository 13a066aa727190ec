//! Many pods at one index, and changes of the back-off.

use super::*;
use crate::job::tests::fixture::{at_index, ended};

/// Which pod stays at an index follows from the pods alone, however they became known.
#[test]
fn of_many_pods_at_one_index_all_owners_keep_the_same() {
    let pods: Vec<Pod> = (0..50).map(|number| at_index(&format!("pod-{number}"), 0, number)).collect();
    let job = job(Completion::Indexed(1), 1);
    let [one, other] = [set_of(&job, pods.iter().cloned()), set_of(&job, pods.iter().rev().cloned())];
    let removed = |set: &PodSet| -> BTreeSet<Uid> { set.to_remove(0).map(|pod| pod.uid.clone()).collect() };
    assert_eq!((removed(&one).len(), removed(&one)), (49, removed(&other)));
    let last = one.active_in_removal_order().last().unwrap();
    assert!(!removed(&one).contains(&last.uid));
}

/// Failed pods of other indexes are not classified again when the annotation changes.
#[test]
fn a_changed_back_off_moves_the_ends_of_waits() {
    let per_index = PerIndexLimit { backoff_limit: 3, max_failed_indexes: None };
    let mut job = with(job(Completion::Indexed(3), 3), |spec| spec.per_index = Some(per_index));
    let mut set = set_of(&job, [ended(at_index("a", 0, 0), Phase::Failed, 50), at_index("b", 1, 0)]);
    for seconds in [7, 3, 90] {
        job.options.backoff_initial = Some(Duration::from_secs(seconds));
        set.follow(&job);
        let ready_at = set.held_at(0).map(|held| held.ready_at);
        assert_eq!(ready_at, Some(at(50 + i64::try_from(seconds).unwrap())));
        assert_eq!(Answers::of(&set), Answers::of(&rebuilt(&set, &job)), "{seconds}");
    }
}
