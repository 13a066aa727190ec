//! Where a watch is, and how long it waits.

use std::time::Duration;

use tokio::time::Instant;

/// How long to wait at most for the beginning of an answer, or for more of a list.
pub(super) const LONGEST_PATIENCE: Duration = Duration::from_secs(60);
/// How long to wait for that at first; twice as long after each time in vain. API servers begin a watch at once, and a
/// list once they have read it.
pub(super) const FIRST_PATIENCE: Patience =
    Patience { watch: Duration::from_secs(5), list: Duration::from_secs(15) };

/// How long to wait for the beginning of an answer, or for more of a list.
#[derive(Clone, Copy)]
pub(super) struct Patience {
    pub(super) watch: Duration,
    pub(super) list: Duration,
}

impl Patience {
    pub(super) fn twice(self, longest: Duration) -> Self {
        let twice = |time: Duration| (time * 2).min(longest);
        Self { watch: twice(self.watch), list: twice(self.list) }
    }
}

/// The position to resume from.
#[derive(Default)]
pub(super) struct Position {
    /// The version up to which all changes are known; none before the end of the first list.
    pub(super) version: Option<u64>,
    /// A list is complete, or something of a watch has arrived, since the last failure.
    pub(super) progress: bool,
    /// When the watch was last opened, until it ends.
    pub(super) opened: Option<Instant>,
    /// The watch before was given up, since it was silent.
    pub(super) was_silent: bool,
}
