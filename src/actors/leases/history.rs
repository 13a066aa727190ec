//! Detects that resource versions have gone back, as after a restore of etcd. Known state then means
//! nothing, so the process ends, and the next start lists everything.
//!
//! A heartbeat shows it first: its write conflicts, and a live read finds an older version than this replica
//! has written.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::actors::supervision::{Downfall, Fatal};

/// The newest version of a Lease. Clones share it.
///
/// All Leases are in one etcd, whose revisions grow with each write. So the answer to a write has a later
/// version than everything shown before the write was sent. A Lease never has an earlier version than
/// before.
#[derive(Clone, Debug)]
pub(super) struct History {
    newest: Arc<AtomicU64>,
    downfall: Downfall,
}

impl History {
    /// A history without versions. If they go back, the replica ends.
    pub(super) fn new(downfall: Downfall) -> Self {
        Self { newest: Arc::default(), downfall }
    }

    /// A Lease was shown in this version.
    pub(super) fn shown(&self, version: u64) {
        self.newest.fetch_max(version, Ordering::Relaxed);
    }

    /// The newest version shown so far.
    pub(super) fn newest(&self) -> u64 {
        self.newest.load(Ordering::Relaxed)
    }

    /// A write was answered with this version. It replaced the version `replaced`, and was sent when `newest` was
    /// the newest shown.
    pub(super) fn written(&self, version: u64, replaced: u64, newest: u64) {
        // A write that changes nothing leaves the version as it was.
        if version <= newest && version != replaced {
            self.downfall.cause(Fatal::VersionsWentBack);
        }
        self.shown(version);
    }

    /// A live read has found a Lease in this version, of which `known` was known.
    pub(super) fn found(&self, version: u64, known: u64) {
        if version < known {
            self.downfall.cause(Fatal::VersionsWentBack);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A history that has shown version 100, and whether it ends the replica.
    fn history() -> (History, impl Fn() -> bool) {
        let downfall = Downfall::default();
        let history = History::new(downfall.clone());
        history.shown(100);
        history.shown(40);
        (history, move || downfall.has_come() == Some(Fatal::VersionsWentBack))
    }

    #[test]
    fn the_replica_ends_if_a_version_goes_back() {
        for (version, replaced, newest, ends) in [
            (101, 90, 100, false),
            // The watch has shown 105 before this answer came, but not before the request left.
            (103, 90, 100, false),
            (100, 100, 100, false),
            (99, 0, 100, true),
            (60, 50, 100, true),
        ] {
            let (history, has_ended) = history();
            history.shown(105);
            history.written(version, replaced, newest);
            assert_eq!(has_ended(), ends, "{version} for {replaced}");
        }
        for (version, known, ends) in [(100, 90, false), (90, 90, false), (89, 90, true), (7, 0, false)] {
            let (history, has_ended) = history();
            history.found(version, known);
            assert_eq!(has_ended(), ends, "{version} after {known}");
        }
        assert_eq!(history().0.newest(), 100);
    }
}
