//! A change of one pod's tags, which moves the pod between the queues that it affects.

use std::collections::BTreeSet;

use super::classify::Tags;
use super::slots::{Slot, SlotSet};

/// Pods ordered by a key; pods with equal keys have no particular order.
pub(super) type Queue<K> = BTreeSet<(K, Slot)>;

/// The tags of a pod before and after a change; `None` if the pod is in no queue.
#[derive(Clone, Copy)]
pub(super) struct Step<'a> {
    pub(super) slot: Slot,
    pub(super) before: Option<&'a Tags>,
    pub(super) after: Option<&'a Tags>,
}

impl<'a> Step<'a> {
    /// A value derived from the tags, before and after.
    pub(super) fn both<T>(&self, of: impl Fn(&'a Tags) -> Option<T>) -> [Option<T>; 2] {
        [self.before, self.after].map(|tags| tags.and_then(&of))
    }

    /// Moves the pod within a queue ordered by `key`. Pods without a key are not in the queue.
    pub(super) fn shift<K: Ord>(&self, queue: &mut Queue<K>, key: impl Fn(&'a Tags) -> Option<K>) {
        let [before, after] = self.both(key);
        if before == after {
            return;
        }
        if let Some(key) = before {
            queue.remove(&(key, self.slot));
        }
        if let Some(key) = after {
            queue.insert((key, self.slot));
        }
    }

    /// Keeps the pod in a set while `is` is true.
    pub(super) fn keep(&self, set: &mut SlotSet, is: impl Fn(&Tags) -> bool) {
        let [before, after] = [self.before, self.after].map(|tags| tags.is_some_and(&is));
        if before != after {
            set.set(self.slot, after);
        }
    }

    /// Updates the number of pods for which `is` is true.
    pub(super) fn count(&self, pods: &mut usize, is: impl Fn(&Tags) -> bool) {
        let [before, after] = [self.before, self.after].map(|tags| usize::from(tags.is_some_and(&is)));
        *pods = *pods + after - before;
    }
}

/// The pods of a queue at a place.
pub(super) fn at_place(queue: &Queue<u32>, place: u32) -> impl Iterator<Item = Slot> {
    queue.range((place, Slot::LOWEST)..).take_while(move |(p, _)| *p == place).map(|(_, slot)| *slot)
}
