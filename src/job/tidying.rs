//! When a collection that keeps what is no longer needed is tidied.

/// A collection is tidied whenever it has doubled since the last time. That costs little for each entry that is added, and the
/// collection has at most twice as many entries as were needed then.
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
