//! Announces to all watches of a replica that the API server shows another history, in
//! which their known versions mean nothing. The lease manager decides that, and gets
//! notices from other parts.

use std::sync::Arc;

use futures::FutureExt;
use tokio::sync::Notify;
use tokio::sync::broadcast::{self, Receiver, Sender};

use crate::cluster::wire::ObservedJob;

/// The histories that have ended. Clones are the same.
///
/// Wakes waiters in FIFO order, which not every channel of tokio does, so that
/// simulations repeat.
#[derive(Clone, Debug)]
pub struct Rewinds {
    ended: Sender<()>,
    noticed: Arc<Notify>,
}

/// Waits for the next rewind.
#[derive(Debug)]
pub struct NextRewind(Receiver<()>);

impl Default for Rewinds {
    fn default() -> Self {
        Self { ended: broadcast::channel(1).0, noticed: Arc::default() }
    }
}

impl Rewinds {
    /// Everything is of another history from now on.
    pub fn rewound(&self) {
        // Earlier notices concern the history that has ended.
        let _noticed = self.noticed.notified().now_or_never();
        // An error would mean that there are no subscribers.
        drop(self.ended.send(()));
    }

    /// Waits for rewinds from now on.
    pub fn subscribe(&self) -> NextRewind {
        NextRewind(self.ended.subscribe())
    }

    /// Compares a Job as it was known with a live read that was sent afterwards. An older
    /// version is of another history: returns true, and notifies the lease manager.
    pub fn compare(&self, known: &ObservedJob, read: &ObservedJob) -> bool {
        let is_older = known.uid == read.uid && read.version.order() < known.version.order();
        if is_older {
            self.noticed.notify_one();
        }
        is_older
    }

    /// Waits until another history was noticed. Only the lease manager does.
    pub async fn noticed(&self) {
        self.noticed.notified().await;
    }
}

impl NextRewind {
    /// Returns once there has been one, or several, since this last returned.
    pub async fn rewound(&mut self) {
        // Missed rewinds count as one. A closed channel is of a replica that has ended.
        if self.0.recv().await == Err(broadcast::error::RecvError::Closed) {
            std::future::pending().await
        }
        while self.0.try_recv().is_ok() {}
    }
}
