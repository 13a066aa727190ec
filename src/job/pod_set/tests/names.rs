//! The names that new pods get.

use super::set_of;
use crate::job::pod::Place;
use crate::job::pod_set::Source;
use crate::job::spec::Completion;
use crate::job::tests::fixture::{at_ordinal, but, job, placed, running};

#[test]
fn an_ordinal_is_taken_as_soon_as_a_pod_shows_it() {
    let mut set = set_of(&job(Completion::Count(3), 3), [but(at_ordinal("a", 0), |pod| pod.place = None)]);
    assert_eq!(set.free_places().next(), Some(0));
    set.observe(but(at_ordinal("a", 0), |pod| pod.version = 5), Source::Watch);
    assert_eq!(set.free_places().next(), Some(1));
}

/// Of two owners, as after a bug in the Leases, one may have known the object as a pod of the Job, and the other not.
#[test]
fn after_a_name_that_another_object_has_all_owners_give_the_same_name() {
    let first = Place { number: 0, attempt: 0 };
    for (completion, next) in [
        (Completion::Count(3), Place { number: 1, attempt: 0 }),
        (Completion::Indexed(1), Place { attempt: 1, ..first }),
    ] {
        let mut knew = set_of(&job(completion, 1), [placed(running("a"), completion, 0, 0)]);
        assert!(knew.vanished(&"a".into()));
        let mut learns = set_of(&job(completion, 1), []);
        learns.create_sent(first);
        learns.name_taken(first);
        for set in [knew, learns] {
            let number = set.free_places().next().unwrap();
            assert_eq!(set.next_at(number), next);
        }
    }
}
