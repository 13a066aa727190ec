//! Storage of the pods of a set. Each pod has a number that is small enough to be kept in every queue.

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use slab::Slab;
use std::hash::BuildHasher as _;

use super::Entry;
use crate::job::uid::Uid;

/// The number of a pod while it is in the set. Afterwards another pod may get it, so data that outlives a pod
/// refers to it by UID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Slot(u32);

impl Slot {
    /// The lowest slot.
    pub(super) const LOWEST: Self = Self(0);

    /// The slot at a position. A cluster holds fewer than 2^32 pods, so positions fit.
    pub(super) fn numbered(position: usize) -> Self {
        Self(position as u32)
    }

    fn position(self) -> usize {
        self.0 as usize
    }
}

/// Pods by number and by UID. An empty set allocates no memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Slots {
    entries: Slab<Entry>,
    /// Slots by UID; the UIDs themselves are in the entries.
    by_uid: HashTable<Slot>,
    hasher: RandomState,
}

impl Slots {
    /// Number of pods.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no pods.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The slot of a pod.
    pub(super) fn find(&self, uid: &Uid) -> Option<Slot> {
        let is_it = |slot: &Slot| self.get(*slot).is_some_and(|entry| entry.pod.uid == *uid);
        self.by_uid.find(self.hasher.hash_one(uid), is_it).copied()
    }

    /// The pod in a slot.
    pub(super) fn get(&self, slot: Slot) -> Option<&Entry> {
        self.entries.get(slot.position())
    }

    /// The pod in a slot.
    pub(super) fn get_mut(&mut self, slot: Slot) -> Option<&mut Entry> {
        self.entries.get_mut(slot.position())
    }

    /// A pod by its UID.
    pub(super) fn of(&self, uid: &Uid) -> Option<&Entry> {
        self.find(uid).and_then(|slot| self.get(slot))
    }

    /// All pods with their slots.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Slot, &Entry)> {
        self.entries.iter().map(|(position, entry)| (Slot::numbered(position), entry))
    }

    /// All pods.
    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.entries.iter_mut().map(|(_, entry)| entry)
    }

    /// Adds a pod that is not in the set.
    pub(super) fn insert(&mut self, entry: Entry) -> Slot {
        let Self { entries, by_uid, hasher } = self;
        let hash = hasher.hash_one(&entry.pod.uid);
        if entries.is_empty() {
            // Most Jobs have one pod at a time.
            entries.reserve_exact(1);
        }
        let slot = Slot::numbered(entries.insert(entry));
        let hash_of =
            |slot: &Slot| entries.get(slot.position()).map_or(0, |entry| hasher.hash_one(&entry.pod.uid));
        by_uid.insert_unique(hash, slot, hash_of);
        slot
    }

    /// Removes the pod in a slot.
    pub(super) fn remove(&mut self, slot: Slot) -> Option<Entry> {
        let entry = self.entries.try_remove(slot.position())?;
        let hash = self.hasher.hash_one(&entry.pod.uid);
        if let Ok(known) = self.by_uid.find_entry(hash, |known| *known == slot) {
            known.remove();
        }
        if self.entries.is_empty() {
            *self = Self::default();
        }
        Some(entry)
    }
}

const WORD_BITS: u32 = u64::BITS;

/// Pods in no particular order: one bit for each slot, so that 100,000 pods fit the fastest cache.
#[derive(Clone, Debug, Default)]
pub(super) struct SlotSet {
    words: Vec<u64>,
}

impl SlotSet {
    /// Adds or removes a pod.
    pub(super) fn set(&mut self, slot: Slot, member: bool) {
        let word = (slot.0 / WORD_BITS) as usize;
        let bit = 1 << (slot.0 % WORD_BITS);
        if self.words.len() <= word && member {
            self.words.resize(word + 1, 0);
        }
        match self.words.get_mut(word) {
            Some(word) if member => *word |= bit,
            Some(word) => *word &= !bit,
            None => {}
        }
    }

    /// The pods.
    pub(super) fn iter(&self) -> impl Iterator<Item = Slot> {
        (0..).zip(&self.words).filter(|(_, word)| **word != 0).flat_map(|(number, word)| {
            (0..WORD_BITS)
                .filter(move |bit| word >> bit & 1 == 1)
                .map(move |bit| Slot(number * WORD_BITS + bit))
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;
    use crate::job::tests::fixture::pod;

    #[test]
    fn pods_are_found_until_they_are_removed() {
        let mut slots = Slots::default();
        let names: Vec<String> = (0..100).map(|number| format!("pod-{number}")).collect();
        let uid = |name: &String| Uid::from(name.as_str());
        let inserted: Vec<Slot> = names.iter().map(|name| slots.insert(Entry::of(pod(name)))).collect();
        for (name, slot) in names.iter().zip(&inserted) {
            assert_eq!(slots.find(&uid(name)), Some(*slot));
        }
        for (name, slot) in names.iter().zip(&inserted).step_by(2) {
            assert_eq!(slots.remove(*slot).unwrap().pod.uid, uid(name));
            assert!(slots.of(&uid(name)).is_none() && slots.remove(*slot).is_none());
        }
        assert_eq!(slots.len(), 50);
        assert!(names.iter().skip(1).step_by(2).all(|name| slots.of(&uid(name)).is_some()));
    }

    #[test]
    fn memory_cost_of_an_empty_set_is_zero() {
        let mut slots = Slots::default();
        let first = slots.insert(Entry::of(pod("a")));
        assert_eq!(slots.entries.capacity(), 1, "most Jobs have one pod");
        let second = slots.insert(Entry::of(pod("b")));
        for slot in [first, second] {
            slots.remove(slot);
        }
        assert_eq!((slots.entries.capacity(), slots.by_uid.capacity()), (0, 0));
    }

    /// 192 bytes are three cache lines.
    #[test]
    fn memory_cost_of_a_pod_is_at_most_three_cache_lines() {
        assert!(size_of::<Entry>() <= 192, "{}", size_of::<Entry>());
    }

    #[test]
    fn a_slot_set_holds_the_slots_that_were_set() {
        let (mut set, slots) = (SlotSet::default(), [0, 63, 64, 200].map(Slot));
        slots.iter().for_each(|slot| set.set(*slot, true));
        assert_eq!(set.iter().collect::<Vec<_>>(), slots);
        set.set(Slot(63), false);
        set.set(Slot(1_000), false);
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 64, 200].map(Slot));
        set.set(Slot(5), true);
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 5, 64, 200].map(Slot));
    }
}
