//! The way to the lease manager, for the other parts of the replica.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::{LeaseBoard, View};
use crate::actors::messages::protocol::ProgressSender;

/// Handle of the lease manager: the way to it, and its view. Clones reach the same one.
#[derive(Clone, Debug)]
pub struct LeaseManagerHandle {
    pub(super) progress: ProgressSender,
    pub(super) view: watch::Receiver<View>,
    pub(super) board: LeaseBoard,
    /// When it last decided something; `None` while it begins or ends.
    pub(super) decided: watch::Receiver<Option<Instant>>,
    /// For how long at most it decides nothing while it is well.
    pub(super) longest_wait: Duration,
}

impl LeaseManagerHandle {
    /// Where the replica's actors report.
    pub fn progress(&self) -> &ProgressSender {
        &self.progress
    }

    /// The shards that the replica owns, as they change.
    pub fn view(&self) -> watch::Receiver<View> {
        self.view.clone()
    }

    /// For how long it has decided nothing, beyond the time for which it may wait for the API server.
    pub fn overdue(&self) -> Duration {
        let idle = self.decided.borrow().map(|decided| decided.elapsed()).unwrap_or_default();
        idle.saturating_sub(self.longest_wait)
    }

    /// All replicas and the owners of all shards.
    pub fn board(&self) -> &LeaseBoard {
        &self.board
    }
}
