//! How much the correlator remembers, by namespace.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Bytes at which Events are forgotten.
pub(super) const MOST: usize = 16 << 20;

/// Bytes that are remembered.
#[derive(Debug)]
pub(super) struct Memory {
    total: usize,
    namespaces: HashMap<Arc<str>, usize>,
    sweep_at: usize,
}

impl Default for Memory {
    fn default() -> Self {
        Self { total: 0, namespaces: HashMap::new(), sweep_at: MOST }
    }
}

impl Memory {
    #[cfg(test)]
    pub(super) fn total(&self) -> usize {
        self.total
    }

    /// An object of this namespace takes `after` bytes in place of `before`.
    pub(super) fn change(&mut self, namespace: &Arc<str>, before: usize, after: usize) {
        self.total = self.total - before + after;
        let bytes = self.namespaces.entry(namespace.clone()).or_default();
        *bytes = *bytes - before + after;
        if *bytes == 0 {
            self.namespaces.remove(namespace);
        }
    }

    pub(super) fn needs_sweep(&self) -> bool {
        self.total >= self.sweep_at
    }

    /// Events with a write that waits are not forgotten: the next sweep comes when there is something to gain again.
    pub(super) fn swept(&mut self) {
        self.sweep_at = MOST.max(self.total + MOST / 8);
    }

    /// The namespaces that take most, without which half of the memory is free.
    pub(super) fn largest(&self) -> HashSet<Arc<str>> {
        let mut namespaces: Vec<_> = self.namespaces.iter().collect();
        namespaces.sort_unstable_by(|one, other| (other.1, one.0).cmp(&(one.1, other.0)));
        let mut left = self.total;
        let largest = namespaces.into_iter().take_while(|(_, bytes)| {
            let is_too_much = left > MOST / 2;
            left -= *bytes;
            is_too_much
        });
        largest.map(|(namespace, _)| namespace.clone()).collect()
    }
}
