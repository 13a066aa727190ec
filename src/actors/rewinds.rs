//! Tells all watches of a replica that the API server shows another history: what they know means nothing there.

use tokio::sync::broadcast::{self, Receiver, Sender};

/// The histories that have ended. Clones are the same.
///
/// Those who wait are told in the order in which they began to, as not by every channel of tokio: a simulated replica
/// does the same in each run.
#[derive(Clone, Debug)]
pub struct Rewinds(Sender<()>);

/// Waits for the next rewind.
#[derive(Debug)]
pub struct NextRewind(Receiver<()>);

impl Default for Rewinds {
    fn default() -> Self {
        Self(broadcast::channel(1).0)
    }
}

impl Rewinds {
    /// Everything is of another history from now on.
    pub fn rewound(&self) {
        // An error would mean that nobody watches.
        drop(self.0.send(()));
    }

    /// Waits for rewinds from now on.
    pub fn subscribe(&self) -> NextRewind {
        NextRewind(self.0.subscribe())
    }
}

impl NextRewind {
    /// Returns once there has been one, or several, since this last returned.
    pub async fn rewound(&mut self) {
        // One that was missed is one. A closed channel is of a replica that has ended.
        if self.0.recv().await == Err(broadcast::error::RecvError::Closed) {
            std::future::pending().await
        }
        while self.0.try_recv().is_ok() {}
    }
}
