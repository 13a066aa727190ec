//! Mark and sweep: a list shows existing objects, never deletions. If a complete list does not show a
//! known object, the object was deleted while the watch was interrupted.

use std::collections::HashSet;
use std::hash::{BuildHasher, Hash};

/// The marks of the list in progress, if there is one. `M` is a set of keys, or sets of keys by owner.
///
/// ```text
///            begin                      finish
///  no list ────────> list in progress ────────> no list
///                      │      ^
///                      └begin─┘  (a list that broke off counts for nothing)
/// ```
#[derive(Debug, Default)]
pub struct Relist<M> {
    marks: Option<M>,
}

impl<M: Default> Relist<M> {
    /// A list begins.
    pub fn begin(&mut self) {
        self.marks = Some(M::default());
    }

    /// The marks, while a list is in progress.
    pub fn marks(&mut self) -> Option<&mut M> {
        self.marks.as_mut()
    }

    /// The list is complete. Its marks, unless none was in progress.
    pub fn finish(&mut self) -> Option<M> {
        self.marks.take()
    }
}

impl<K: Hash + Eq + Clone, S: BuildHasher + Default> Relist<HashSet<K, S>> {
    /// Marks an object as shown by the list in progress. Without one there is nothing to mark.
    pub fn mark(&mut self, key: &K) {
        if let Some(marks) = self.marks() {
            marks.insert(key.clone());
        }
    }

    /// The list is complete: the known objects that it did not show. Empty if no list was in progress.
    pub fn sweep<'a>(&mut self, known: impl IntoIterator<Item = &'a K>) -> Vec<K>
    where
        K: 'a,
    {
        let Some(marks) = self.finish() else { return Vec::new() };
        known.into_iter().filter(|key| !marks.contains(*key)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_complete_list_sweeps_what_it_did_not_show() {
        let mut relist = Relist::<HashSet<u32>>::default();
        let known = [1, 2, 3];
        relist.mark(&9);
        assert!(relist.sweep(&known).is_empty(), "no list was in progress");
        relist.begin();
        relist.mark(&1);
        relist.begin();
        relist.mark(&2);
        assert_eq!(
            relist.sweep(&known),
            [1, 3],
            "the list that broke off showed 1, the complete one did not"
        );
        assert!(relist.sweep(&known).is_empty());
    }
}
