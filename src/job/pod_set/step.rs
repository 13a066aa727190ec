//! How a change of what one pod is moves it between the queues, and between them alone that it concerns.

use std::collections::BTreeSet;

use super::classify::Tags;
use super::slots::{Slot, SlotSet};

/// Pods in the order of a key, and in no particular order where that is the same.
pub(super) type Queue<K> = BTreeSet<(K, Slot)>;

/// What a pod was and what it is; `None` is a pod that all queues leave out.
#[derive(Clone, Copy)]
pub(super) struct Step<'a> {
    pub(super) slot: Slot,
    pub(super) before: Option<&'a Tags>,
    pub(super) after: Option<&'a Tags>,
}

impl<'a> Step<'a> {
    /// What follows from the tags, before and after.
    pub(super) fn both<T>(&self, of: impl Fn(&'a Tags) -> Option<T>) -> [Option<T>; 2] {
        [self.before, self.after].map(|tags| tags.and_then(&of))
    }

    /// Moves the pod within a queue in which it stands under `key`, if under any.
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

    /// Counts the pods of which `is` is true.
    pub(super) fn count(&self, pods: &mut usize, is: impl Fn(&Tags) -> bool) {
        let [before, after] = [self.before, self.after].map(|tags| usize::from(tags.is_some_and(&is)));
        *pods = *pods + after - before;
    }
}

/// The pods of a queue that stand at a place.
pub(super) fn at_place(queue: &Queue<u32>, place: u32) -> impl Iterator<Item = Slot> {
    queue.range((place, Slot::LOWEST)..).take_while(move |(p, _)| *p == place).map(|(_, slot)| *slot)
}
