//! Detects that the API server shows an earlier history: etcd was restored from a backup, or the control
//! plane was rebuilt. Known versions then mean nothing, or something else than before.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The versions that the Leases of one history have shown. Clones share them.
///
/// All Leases are in one etcd, whose revisions grow with each write. So the answer to a write has a later
/// version than everything shown before the write was sent. A Lease never has an earlier version than
/// before.
#[derive(Clone, Debug, Default)]
pub(super) struct History(Arc<Shown>);

#[derive(Debug, Default)]
struct Shown {
    newest: AtomicU64,
    /// A heartbeat of this replica was stored.
    has_heartbeat: AtomicBool,
    rewound: AtomicBool,
}

impl History {
    /// A Lease was shown in this version.
    pub(super) fn shown(&self, version: u64) {
        self.0.newest.fetch_max(version, Ordering::Relaxed);
    }

    /// The newest version shown so far.
    pub(super) fn newest(&self) -> u64 {
        self.0.newest.load(Ordering::Relaxed)
    }

    /// A write was answered with this version. It replaced the version `replaced`, and was sent when `newest` was
    /// the newest shown.
    pub(super) fn written(&self, version: u64, replaced: u64, newest: u64) {
        // A write that changes nothing leaves the version as it was.
        if version <= newest && version != replaced {
            self.0.rewound.store(true, Ordering::Relaxed);
        }
        self.shown(version);
    }

    /// A live read has found a Lease in this version, of which `known` was known.
    pub(super) fn found(&self, version: u64, known: u64) {
        if version < known {
            self.0.rewound.store(true, Ordering::Relaxed);
        }
    }

    /// A heartbeat of this replica was stored in place of the version `replaced`, or `is_new`. If an earlier
    /// heartbeat is gone, there are two cases. It was tidied away after a long silence, or this is another
    /// history, whose versions may have come as far.
    pub(super) fn heartbeat_stored(&self, is_new: bool, replaced: u64) {
        let was_stored = self.0.has_heartbeat.swap(true, Ordering::Relaxed) || replaced > 0;
        if is_new && was_stored {
            self.0.rewound.store(true, Ordering::Relaxed);
        }
    }

    /// A live read of another object has shown an earlier version than was known.
    pub(super) fn contradicted(&self) {
        self.0.rewound.store(true, Ordering::Relaxed);
    }

    /// Whether another, earlier history was shown.
    pub(super) fn is_rewound(&self) -> bool {
        self.0.rewound.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A history that has shown version 100.
    fn history() -> History {
        let history = History::default();
        history.shown(100);
        history.shown(40);
        history
    }

    #[test]
    fn a_version_that_goes_backwards_is_of_another_history() {
        for (version, replaced, newest, rewound) in [
            (101, 90, 100, false),
            // The watch has shown 105 before this answer came, but not before the request left.
            (103, 90, 100, false),
            (100, 100, 100, false),
            (99, 0, 100, true),
            (60, 50, 100, true),
        ] {
            let history = history();
            history.shown(105);
            history.written(version, replaced, newest);
            assert_eq!(history.is_rewound(), rewound, "{version} for {replaced}");
        }
        for (version, known, rewound) in [(100, 90, false), (90, 90, false), (89, 90, true), (7, 0, false)] {
            let history = history();
            history.found(version, known);
            assert_eq!(history.clone().is_rewound(), rewound, "{version} after {known}");
        }
        assert_eq!(history().newest(), 100);
    }
}
