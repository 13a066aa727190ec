//! The number of names that each index has used.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::job::index_set::IndexSet;
use crate::job::pod::Place;

/// Attempts from this one on are believed only in a row: no index has had so many pods. The author of a pod chooses the
/// attempt that it claims, and the last one would leave no name for the next pod.
const IMPLAUSIBLE: u32 = 1 << 31;

/// The names that have been used, including those of pods that are gone. Nearly all indexes use only their
/// first name, and adjacent ones form intervals, so a Job of any size costs little memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Attempts {
    /// Indexes of which the first name has been used.
    first: IndexSet,
    /// The next attempt at indexes that have used a later name.
    next: HashMap<u32, u32, RandomState>,
}

impl Attempts {
    /// Records that a name has been used, unless the attempt is one that no pod can have had.
    pub(super) fn note(&mut self, place: Place) {
        if place.attempt >= IMPLAUSIBLE && place.attempt != self.next_at(place.number) {
            return;
        }
        if place.attempt == 0 {
            self.first.insert(place.number);
        } else {
            let next = self.next.entry(place.number).or_insert(0);
            *next = (*next).max(place.attempt.saturating_add(1));
        }
    }

    /// The next attempt at an index; 0 at an ordinal.
    pub(super) fn next_at(&self, number: u32) -> u32 {
        let after_first = || u32::from(self.first.contains(number));
        self.next.get(&number).copied().unwrap_or_else(after_first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_attempt_follows_the_latest_used() {
        let mut attempts = Attempts::default();
        for (number, attempt) in [(3, 0), (4, 2), (4, 0), (4, 1)] {
            attempts.note(Place { number, attempt });
        }
        assert_eq!([2, 3, 4].map(|number| attempts.next_at(number)), [0, 1, 3]);
    }

    #[test]
    fn an_attempt_that_no_pod_can_have_had_leaves_names_for_the_next() {
        let mut attempts = Attempts::default();
        for attempt in [u32::MAX, u32::MAX - 1, IMPLAUSIBLE] {
            attempts.note(Place { number: 0, attempt });
        }
        assert_eq!(attempts.next_at(0), 0);
        for attempt in [IMPLAUSIBLE - 1, IMPLAUSIBLE, IMPLAUSIBLE + 1, u32::MAX] {
            attempts.note(Place { number: 0, attempt });
        }
        assert_eq!(attempts.next_at(0), IMPLAUSIBLE + 2);
    }
}
