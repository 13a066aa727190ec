//! The active pods at each index.

use std::collections::{BTreeSet, HashMap};

use foldhash::fast::RandomState;

use super::slots::Slot;
use super::step::at_place;

/// Active pods by index. An index usually has at most one, which is found by hashing alone.
#[derive(Clone, Debug, Default)]
pub(super) struct Occupants {
    one: HashMap<u32, Slot, RandomState>,
    /// Further pods of indexes that have more than one.
    others: BTreeSet<(u32, Slot)>,
}

impl Occupants {
    /// Adds a pod.
    pub(super) fn insert(&mut self, index: u32, slot: Slot) {
        if *self.one.entry(index).or_insert(slot) != slot {
            self.others.insert((index, slot));
        }
    }

    /// Removes a pod.
    pub(super) fn remove(&mut self, index: u32, slot: Slot) {
        if self.one.get(&index) != Some(&slot) {
            self.others.remove(&(index, slot));
            return;
        }
        let next = at_place(&self.others, index).next();
        match next {
            Some(next) => {
                self.others.remove(&(index, next));
                self.one.insert(index, next);
            }
            None => _ = self.one.remove(&index),
        }
        if self.one.is_empty() {
            self.one = HashMap::default();
        }
    }

    /// Whether an index has a pod.
    pub(super) fn any(&self, index: u32) -> bool {
        self.one.contains_key(&index)
    }

    /// The pods at an index.
    pub(super) fn at(&self, index: u32) -> impl Iterator<Item = Slot> {
        self.one.get(&index).copied().into_iter().chain(at_place(&self.others, index))
    }

    /// How many pods there are beside one at each index.
    pub(super) fn surplus(&self) -> usize {
        self.others.len()
    }

    /// The indexes that have more than one pod, ascending.
    pub(super) fn crowded(&self) -> impl Iterator<Item = u32> {
        let mut last = None;
        self.others.iter().map(|(index, _)| *index).filter(move |index| last.replace(*index) != Some(*index))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::job::tests::fixture::cases;

    proptest! {
        #![proptest_config(cases(11))]

        #[test]
        fn behaves_as_a_set(changes in prop::collection::vec((any::<bool>(), 0u32..4, 0usize..4), 0..60)) {
            let (mut occupants, mut model) = (Occupants::default(), BTreeSet::new());
            for (enters, index, slot) in changes {
                let slot = Slot::numbered(slot);
                if enters {
                    occupants.insert(index, slot);
                    model.insert((index, slot));
                } else {
                    occupants.remove(index, slot);
                    model.remove(&(index, slot));
                }
                let at = |index| -> BTreeSet<Slot> { at_place(&model, index).collect() };
                for index in 0..4 {
                    prop_assert_eq!(occupants.any(index), !at(index).is_empty());
                    prop_assert_eq!(occupants.at(index).collect::<BTreeSet<_>>(), at(index));
                }
                let crowded: Vec<u32> = (0..4).filter(|index| at(*index).len() > 1).collect();
                let surplus: usize = (0..4).map(|index| at(index).len().saturating_sub(1)).sum();
                prop_assert_eq!(occupants.surplus(), surplus);
                prop_assert_eq!(occupants.crowded().collect::<Vec<_>>(), crowded);
            }
        }
    }
}
