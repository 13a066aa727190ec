//! The lineages of the places of a Job, bounded in bytes. Pods carry them in an annotation, which other clients may write, too.

use std::collections::BTreeMap;

use crate::job::lineage::Lineage;

/// Bytes that the lessons of a Job may always take. The fullest lineage takes three quarters of them.
const LEAST: usize = 16 << 10;
/// Bytes that they may take besides for each pod that the Job has.
const OF_POD: usize = 1 << 10;

/// The lessons of the predecessors of the next pod at each place.
#[derive(Clone, Debug, Default)]
pub(super) struct Lessons {
    /// By index. Pods without an index share one lineage: any of them may be the retry of any other.
    places: BTreeMap<u32, Lineage>,
    /// The sum of [`Lineage::bytes`].
    bytes: usize,
}

impl Lessons {
    /// The most bytes of a Job with this number of pods.
    pub(super) fn most(pods: usize) -> usize {
        LEAST + pods * OF_POD
    }

    /// Adds what is taught at a place.
    pub(super) fn add(&mut self, place: u32, taught: &Lineage) {
        if taught.is_empty() {
            return;
        }
        let known = self.places.entry(place).or_default();
        let before = known.bytes();
        known.join(taught);
        self.bytes = self.bytes + known.bytes() - before;
    }

    /// The lessons at a place.
    pub(super) fn at(&self, place: u32) -> Option<&Lineage> {
        self.places.get(&place)
    }

    /// Forgets lessons if they take more than `most` bytes. Places that want no pod go first, and then the last ones, which
    /// get pods last. A quarter is left free, so that the places are not looked through for each new lesson.
    pub(super) fn bound(&mut self, most: usize, wants_pod: impl Fn(u32) -> bool) {
        let Self { places, bytes } = self;
        if *bytes <= most {
            return;
        }
        places.retain(|place, lineage| {
            let is_kept = wants_pod(*place);
            *bytes -= if is_kept { 0 } else { lineage.bytes() };
            is_kept
        });
        while *bytes > most - most / 4
            && let Some((_, last)) = places.pop_last()
        {
            *bytes -= last.bytes();
        }
    }

    /// The number of places with lessons, and their bytes.
    #[cfg(test)]
    pub(super) fn size(&self) -> (usize, usize) {
        assert_eq!(self.places.values().map(Lineage::bytes).sum::<usize>(), self.bytes);
        (self.places.len(), self.bytes)
    }
}
