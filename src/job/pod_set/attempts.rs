//! The number of names that each index has used.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::job::index_set::IndexSet;
use crate::job::pod::Place;
use crate::job::status::NamesUsed;

/// Attempts from this one on are believed only in a row: no index has had so many pods. The author of a pod chooses the
/// attempt that it claims, and the last one would leave no name for the next pod.
const IMPLAUSIBLE: u32 = 1 << 31;

/// The names that have been used, including those of pods that are gone. Nearly all indexes use only their
/// first name, and adjacent ones form intervals, so a Job of any size costs little memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Attempts {
    /// What earlier owners have used. It counts for indexes of which no pod is known: owners that know one, or that know that
    /// an index has had none, have to derive the same name.
    before: NamesUsed,
    /// Indexes of which the first name has been used.
    first: IndexSet,
    /// The next attempt at indexes that have used a later name.
    next: HashMap<u32, u32, RandomState>,
    /// The end of the attempts and of the indexes that have been used.
    used: NamesUsed,
}

impl Attempts {
    /// Those of a Job whose earlier owners have used these.
    pub(super) fn after(before: NamesUsed) -> Self {
        Self { before, used: before, ..Self::default() }
    }

    /// Records that a name has been used, unless the attempt is one that no pod can have had.
    pub(super) fn note(&mut self, place: Place) {
        if place.attempt >= IMPLAUSIBLE && place.attempt != self.next_at(place.number) {
            return;
        }
        let after = place.attempt.saturating_add(1);
        if place.attempt == 0 {
            self.first.insert(place.number);
        } else {
            let next = self.next.entry(place.number).or_insert(0);
            *next = (*next).max(after);
        }
        self.used.places = self.used.places.max(place.number.saturating_add(1));
        self.used.attempts = self.used.attempts.max(after);
    }

    /// The next attempt at an index; 0 at an ordinal.
    pub(super) fn next_at(&self, number: u32) -> u32 {
        let unknown = || if number < self.before.places { self.before.attempts } else { 0 };
        let after_first = || if self.first.contains(number) { 1 } else { unknown() };
        self.next.get(&number).copied().unwrap_or_else(after_first)
    }

    /// The names that have been used. Those that are `unanswered` have to be asked for again by the next owner, so no attempt
    /// from the lowest of them on counts.
    pub(super) fn used(&self, unanswered: impl Iterator<Item = u32>) -> NamesUsed {
        if self.used == self.before {
            return self.before;
        }
        let lowest = unanswered.min().unwrap_or(u32::MAX).max(self.before.attempts);
        NamesUsed { attempts: self.used.attempts.min(lowest), ..self.used }
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
    fn an_index_without_known_pod_has_used_what_earlier_owners_have() {
        let mut attempts = Attempts::after(NamesUsed { places: 4, attempts: 3 });
        for (number, attempt) in [(0, 0), (1, 1), (5, 0)] {
            attempts.note(Place { number, attempt });
        }
        assert_eq!([0, 1, 2, 3, 4, 5].map(|number| attempts.next_at(number)), [1, 2, 3, 3, 0, 1]);
        attempts.note(Place { number: 3, attempt: 3 });
        assert_eq!(attempts.next_at(3), 4);
    }

    /// The next owner may have to ask for the same pod again.
    #[test]
    fn attempts_that_are_not_answered_do_not_count_as_used() {
        let mut attempts = Attempts::after(NamesUsed { places: 1, attempts: 1 });
        (0..5).for_each(|attempt| attempts.note(Place { number: 7, attempt }));
        for (unanswered, used) in [(&[][..], 5), (&[0], 1), (&[3], 3), (&[4, 3], 3), (&[5], 5)] {
            let used = NamesUsed { places: 8, attempts: used };
            assert_eq!(attempts.used(unanswered.iter().copied()), used, "{unanswered:?}");
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
