//! The gate of live reads: how many are in flight, and which has the next turn.
//!
//! No more than [`AT_ONCE`] reads of objects are in flight in a replica, [`SHARE`] of one namespace,
//! and [`LISTS`] lists, [`LISTS_SHARE`] of one namespace. A list keeps its turn as long as its
//! objects are kept, and these take no more than [`SHORT_LIST`]. Two lists at a time may be longer.
//! Waiting reads take turns by namespace, and then by Job.

use std::sync::Arc;

use super::fair_semaphore::{FairSemaphore, Permit};
use crate::job::job_id::JobId;

/// Live reads of a replica that may be in flight at once.
pub(super) const AT_ONCE: usize = 32;
/// Live reads of one namespace that may be in flight.
pub(super) const SHARE: usize = 16;
/// Lists of a replica that may be in flight at once, beside the reads of objects: they take longer.
const LISTS: usize = 16;
/// Lists of one namespace that may be in flight.
const LISTS_SHARE: usize = 4;
/// Most bytes that the objects of such a list may take, unless the replica lists all namespaces.
pub(super) const SHORT_LIST: usize = 4 << 20;
/// Longer lists that may be in flight at once, one of a namespace, beside the others.
const LONG_LISTS: usize = 2;

/// The gate. Clones are the same gate.
#[derive(Clone)]
pub(super) struct ReadGate {
    turns: FairSemaphore,
    lists: FairSemaphore,
    long_lists: FairSemaphore,
}

/// How much memory the objects of a list may take.
#[derive(Clone, Copy, Debug)]
pub(super) enum Length {
    /// [`SHORT_LIST`].
    Short,
    /// Without limit.
    Long,
}

/// The turn of a list, until its objects are dropped.
#[derive(Debug)]
pub(super) struct ListTurn {
    _permit: Permit,
    room: usize,
}

impl ListTurn {
    /// Whether an object of this many bytes has room beside those before it.
    pub(super) fn has_room(&mut self, bytes: usize) -> bool {
        let left = self.room.checked_sub(bytes);
        self.room = left.unwrap_or(0);
        left.is_some()
    }
}

impl Default for ReadGate {
    fn default() -> Self {
        Self {
            turns: FairSemaphore::new(AT_ONCE, SHARE),
            lists: FairSemaphore::new(LISTS, LISTS_SHARE),
            long_lists: FairSemaphore::new(LONG_LISTS, 1),
        }
    }
}

impl ReadGate {
    /// Waits for the turn of a list of this namespace, or of the whole cluster, that a Job asks for.
    pub(super) async fn list_turn(
        &self,
        length: Length,
        namespace: Option<&Arc<str>>,
        asker: Option<&JobId>,
    ) -> ListTurn {
        let (lists, room) = match length {
            Length::Short if namespace.is_some() => (&self.lists, SHORT_LIST),
            Length::Short => (&self.lists, usize::MAX),
            Length::Long => (&self.long_lists, usize::MAX),
        };
        ListTurn { _permit: lists.acquire(namespace, asker).await, room }
    }

    /// Waits for the turn of a read in this namespace, or in the whole cluster, that a Job asks for.
    pub(super) async fn turn(&self, namespace: Option<&Arc<str>>, asker: Option<&JobId>) -> Permit {
        self.turns.acquire(namespace, asker).await
    }
}
