//! The turn of a write, and the wait for it.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use super::answer::WriteError;
use super::slots::Slot;
use super::{Order, Priority, Shared, closed};
use crate::job::uid::Uid;

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

/// A turn that was asked for. Dropped, it leaves the queue.
pub struct Reservation {
    shared: Arc<Shared>,
    priority: Priority,
    namespace: Arc<str>,
    flow: Uid,
    turn: oneshot::Receiver<Result<Turn, WriteError>>,
    waits: bool,
}

impl Reservation {
    /// The wait for a turn of this order.
    pub(super) fn of(
        shared: Arc<Shared>,
        order: &Order,
        namespace: Arc<str>,
        turn: oneshot::Receiver<Result<Turn, WriteError>>,
    ) -> Self {
        Self { shared, priority: order.priority, namespace, flow: order.flow.clone(), turn, waits: true }
    }

    /// The turn, if it has come; otherwise the reservation.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn granted(mut self) -> Result<Result<Turn, Self>, WriteError> {
        let came = self.turn.try_recv();
        self.waits = matches!(came, Err(TryRecvError::Empty));
        match came {
            Ok(turn) => turn.map(Ok),
            Err(TryRecvError::Empty) => Ok(Err(self)),
            Err(TryRecvError::Closed) => Err(closed()),
        }
    }

    /// Waits for the turn.
    ///
    /// # Errors
    /// [`WriteError::Fenced`] behind a closed fence, [`WriteError::Unknown`] once the gate is closed.
    pub async fn wait(mut self) -> Result<Turn, WriteError> {
        self.come().await
    }

    /// Waits for the turn, which comes once.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub(super) async fn come(&mut self) -> Result<Turn, WriteError> {
        let came = (&mut self.turn).await;
        self.waits = false;
        came.unwrap_or_else(|_| Err(closed()))
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.waits {
            // From here on, the entry in the queue is unwanted.
            self.turn.close();
            self.shared.forget_unwanted(self.priority, &self.namespace, &self.flow);
        }
    }
}

impl std::fmt::Debug for Reservation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reservation").field("flow", &self.flow).finish_non_exhaustive()
    }
}
