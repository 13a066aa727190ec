//! Old, late and missing readings of pods.

use super::{Answers, rebuilt, set_of};
use crate::job::pod::{Phase, Place};
use crate::job::pod_set::Source;
use crate::job::spec::Completion;
use crate::job::tests::fixture::{at_index, at_ordinal, but, ended, job, running, uids};
use crate::job::uid::UidSet;

/// The answer to the creation returns a pod that the watch has shown before without its place.
#[test]
fn a_known_pod_is_not_added_twice() {
    let job = job(Completion::Count(3), 3);
    let mut set = set_of(&job, [running("a")]);
    let place = Place { number: 0, attempt: 0 };
    set.create_sent(place);
    set.create_answered(place, Some(running("a")));
    assert_eq!((set.len(), set.active(), set.pending_creates()), (1, 1, 0));
    assert_eq!(Answers::of(&set), Answers::of(&rebuilt(&set, &job)));
    assert_eq!(set.free_places().next(), Some(1), "the name is taken");
}

#[test]
fn old_readings_change_nothing() {
    let job = job(Completion::Count(3), 3);
    let mut set = set_of(&job, []);
    let place = Place { number: 0, attempt: 0 };
    set.create_sent(place);
    let made = at_ordinal("a", 0);
    assert!(set.observe(made.clone(), Source::Watch));
    assert!(!set.observe(made.clone(), Source::Watch));
    let released = but(ended(made.clone(), Phase::Succeeded, 5), |pod| pod.tracked = false);
    set.observe(released.clone(), Source::Answer);
    assert!(!set.observe(made.clone(), Source::Watch), "the answer is newer");
    assert!(!set.observe(released, Source::Watch));
    assert!(set.is_empty(), "the watch has confirmed the end of the pod");
    set.create_answered(place, Some(made));
    assert!(set.is_empty(), "a late answer brings no pod back");
}

/// The shard drops watch events that are older than a live list, so no event would ever remove such a pod.
#[test]
fn a_late_answer_brings_no_pod_that_a_live_list_does_not_show() {
    let job = job(Completion::Count(3), 3);
    for (listed, version, admitted) in [("other", 5, 0), ("a", 5, 1), ("other", 3, 1)] {
        let mut set = set_of(&job, []);
        let [first, second] = [0, 1].map(|number| Place { number, attempt: 0 });
        set.create_sent(first);
        set.create_sent(second);
        set.listed_live(&UidSet::from_iter([listed.into()]), version);
        set.create_answered(first, Some(but(at_ordinal("a", 0), |pod| pod.version = 4)));
        assert_eq!((set.active(), set.pending_creates()), (admitted, 1), "{listed} at {version}");
        set.create_answered(second, None);
        assert!(set.live_list.is_none(), "nothing is under way that it could tell of");
    }
}

#[test]
fn a_pod_that_is_gone_does_not_come_back() {
    let job = job(Completion::Indexed(1), 1);
    let mut set = set_of(&job, [at_index("a", 0, 0)]);
    set.answered_gone(&"a".into());
    assert_eq!(set.free_places().collect::<Vec<_>>(), [0]);
    assert!(!set.observe(but(at_index("a", 0, 0), |pod| pod.version = 7), Source::Watch));
    assert_eq!(set.active(), 0);
    assert!(set.vanished(&"a".into()));
    assert!(set.is_empty());
}

#[test]
fn a_new_list_drops_older_pods_that_are_missing_from_it() {
    let newer = but(running("newer"), |pod| pod.version = 9);
    let mut set = set_of(&job(Completion::Count(3), 3), [running("listed"), running("missing"), newer]);
    set.retain_listed(&UidSet::from_iter(["listed".into()]), 5);
    assert_eq!(uids(set.active_in_removal_order().map(|pod| &pod.uid)), ["listed", "newer"]);
}
