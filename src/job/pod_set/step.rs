//! How a change of what one pod is moves it between the queues, and between them alone that it concerns.

use std::collections::BTreeSet;

use super::classify::Tags;
use crate::job::uid::Uid;

/// Pods in the order of a key, and of their UIDs where that is the same.
pub(super) type Queue<K> = BTreeSet<(K, Uid)>;

/// What a pod was and what it is; `None` is a pod that all queues leave out.
pub(super) struct Step<'a> {
    pub(super) uid: &'a Uid,
    pub(super) before: Option<Tags>,
    pub(super) after: Option<Tags>,
}

impl Step<'_> {
    /// Moves the pod within a queue in which it stands under `key`, if under any.
    pub(super) fn shift<K: Ord>(&self, queue: &mut Queue<K>, key: impl Fn(Tags) -> Option<K>) {
        let [before, after] = [self.before, self.after].map(|tags| tags.and_then(&key));
        if before == after {
            return;
        }
        if let Some(key) = before {
            queue.remove(&(key, self.uid.clone()));
        }
        if let Some(key) = after {
            queue.insert((key, self.uid.clone()));
        }
    }

    /// Counts the pods of which `is` is true.
    pub(super) fn count(&self, pods: &mut usize, is: impl Fn(Tags) -> bool) {
        let [before, after] = [self.before, self.after].map(|tags| usize::from(tags.is_some_and(&is)));
        *pods = *pods + after - before;
    }
}

/// The pods of a queue that stand at a place.
pub(super) fn at_place(queue: &Queue<u32>, place: u32) -> impl Iterator<Item = &Uid> {
    queue.range((place, Uid::LOWEST)..).take_while(move |(p, _)| *p == place).map(|(_, uid)| uid)
}
