//! The turn of a write, and the wait for it.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use super::answer::WriteError;
use super::slots::Slot;
use super::{Shared, closed};

/// The turn of a write. It holds a slot until it is used or dropped.
pub struct Turn {
    pub(super) shared: Arc<Shared>,
    pub(super) slot: Option<Slot>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.shared.end(slot, None, |_| ());
        }
    }
}

impl std::fmt::Debug for Turn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Turn").field("slot", &self.slot).finish_non_exhaustive()
    }
}

/// A turn that was asked for.
#[derive(Debug)]
pub struct Reservation {
    pub(super) turn: oneshot::Receiver<Result<Turn, WriteError>>,
}

impl Reservation {
    /// The turn, if it has come; otherwise the reservation.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn granted(mut self) -> Result<Result<Turn, Self>, WriteError> {
        match self.turn.try_recv() {
            Ok(turn) => turn.map(Ok),
            Err(TryRecvError::Empty) => Ok(Err(self)),
            Err(TryRecvError::Closed) => Err(closed()),
        }
    }

    /// Waits for the turn.
    ///
    /// # Errors
    /// [`WriteError::Fenced`] behind a closed fence, [`WriteError::Unknown`] once the gate is closed.
    pub async fn wait(self) -> Result<Turn, WriteError> {
        self.turn.await.unwrap_or_else(|_| Err(closed()))
    }
}
