//! When a collection that keeps what is no longer needed is tidied, and when a table gives memory back.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};

/// Entries for which a table may always have room.
const SMALL: usize = 1_024;

/// Gives the memory of a table back that has room for eight times as many entries as it has. A table does not do that by itself.
pub fn give_back<K: Eq + Hash, V, S: BuildHasher>(table: &mut HashMap<K, V, S>) {
    if table.capacity() > SMALL && table.capacity() > 8 * table.len() {
        table.shrink_to(2 * table.len());
    }
}

/// A collection is tidied whenever it has doubled since the last time. Tidying costs little for each entry
/// that is added, and the collection has at most twice as many entries as were needed then.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tidying {
    at: usize,
}

impl Tidying {
    /// Whether a collection with so many entries is to be tidied.
    pub fn is_due(self, entries: usize) -> bool {
        entries >= self.at
    }

    /// Records that so many entries are left after a tidying.
    pub fn done(&mut self, left: usize) {
        self.at = (2 * left).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_gives_its_memory_back_as_it_becomes_empty() {
        let mut table: HashMap<u32, ()> = (0..100_000).map(|number| (number, ())).collect();
        for number in 0..100_000 {
            table.remove(&number);
            give_back(&mut table);
            let room = table.capacity();
            assert!(room <= SMALL.max(16 * (table.len() + 1)), "{room} for {}", table.len());
        }
    }

    #[test]
    fn a_collection_is_tidied_once_for_each_doubling_however_often_it_is_asked() {
        let (mut tidying, mut tidied) = (Tidying::default(), Vec::new());
        for entries in (0..100).chain([64; 50]) {
            if tidying.is_due(entries) {
                tidying.done(entries);
                tidied.push(entries);
            }
        }
        assert_eq!(tidied, [0, 1, 2, 4, 8, 16, 32, 64]);
    }
}
