//! The number of names that each index has used.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::job::index_set::IndexSet;
use crate::job::pod::Place;

/// Attempts from this one on are believed only in a row: no index has had so many pods. The author of a pod chooses the
/// attempt that it claims, and the last one would leave no name for the next pod.
const IMPLAUSIBLE: u32 = 1 << 31;

/// The names that have been used, including those of pods that are gone. Nearly all indexes use only the
/// first name that is left to them, and adjacent ones form intervals. So a Job of any size costs little
/// memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Attempts {
    /// The first attempt that is left to each index, as the Job says.
    base: u32,
    /// Indexes that have used the attempt `base`.
    first: IndexSet,
    /// The next attempt at indexes that have used a later one.
    next: HashMap<u32, u32, RandomState>,
    /// The highest attempt of any index, plus one.
    end: u32,
}

impl Attempts {
    /// Records that a name has been used, unless the attempt is one that no pod can have had.
    pub(super) fn note(&mut self, place: Place) {
        if place.attempt >= IMPLAUSIBLE && place.attempt != self.next_at(place.number) {
            return;
        }
        let after = place.attempt.saturating_add(1);
        self.end = self.end.max(after);
        if place.attempt == self.base {
            self.first.insert(place.number);
        } else if place.attempt > self.base {
            let next = self.next.entry(place.number).or_insert(0);
            *next = (*next).max(after);
        }
    }

    /// Leaves no index an attempt below this one.
    pub(super) fn raise(&mut self, base: u32) {
        if base <= self.base {
            return;
        }
        let after_first = base.saturating_add(1);
        let used_first = self.next.iter().filter(|(_, next)| **next == after_first);
        (self.base, self.first) = (base, used_first.map(|(number, _)| *number).collect());
        self.next.retain(|_, next| *next > after_first);
    }

    /// The first attempt that no index has used.
    pub(super) fn end(&self) -> u32 {
        self.end.max(self.base)
    }

    /// The next attempt at an index; 0 at an ordinal.
    pub(super) fn next_at(&self, number: u32) -> u32 {
        let after_first = || self.base + u32::from(self.first.contains(number));
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
    fn no_index_is_left_an_attempt_below_the_base() {
        for (base, next, end) in [
            (0, [0, 1, 2, 5], 5),
            (1, [1, 1, 2, 5], 5),
            (2, [2, 2, 2, 5], 5),
            (4, [4, 4, 4, 5], 5),
            (7, [7; 4], 7),
        ] {
            let mut attempts = Attempts::default();
            for (number, attempt) in [(1, 0), (2, 1), (3, 4)] {
                attempts.note(Place { number, attempt });
            }
            attempts.raise(base);
            attempts.raise(base.saturating_sub(1));
            assert_eq!([0, 1, 2, 3].map(|number| attempts.next_at(number)), next, "{base}");
            assert_eq!(attempts.end(), end, "{base}");
            attempts.note(Place { number: 1, attempt: next[1] });
            assert_eq!(attempts.next_at(1), next[1] + 1, "{base}");
        }
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
