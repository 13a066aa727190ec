//! A write that waits for its turn.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::turn_time::PROGRESS_WAIT;
use super::{Order, Priority, Turn, WriteError};
use crate::cluster::fair_queue::FairQueue;
use crate::cluster::fence::Fence;
use crate::job::pod::Behind;
use crate::job::uid::Uid;

/// How long an Event that reports a failure or an end may wait for writes of higher priorities, as progress may for
/// [`PROGRESS_WAIT`].
const REPORT_WAIT: Duration = Duration::from_secs(5);

/// A write that waits for its turn.
pub(super) struct Waiting {
    pub(super) fence: Fence,
    pub(super) turn: oneshot::Sender<Result<Turn, WriteError>>,
    /// When it has waited long enough that it takes turns with writes of higher priorities.
    overdue: Instant,
    behind: Behind,
}

impl Waiting {
    /// The queue entry of a write, and the receiver of its turn.
    pub(super) fn of(order: &Order) -> (Self, oneshot::Receiver<Result<Turn, WriteError>>) {
        let (turn, granted) = oneshot::channel();
        let waits = match order.priority {
            Priority::Progress => PROGRESS_WAIT,
            Priority::Report => REPORT_WAIT,
            _ => Duration::ZERO,
        };
        let (fence, overdue) = (order.fence.clone(), Instant::now() + waits);
        (Self { fence, turn, overdue, behind: order.behind }, granted)
    }

    /// An empty queue of writes.
    pub(super) fn queue() -> FairQueue<Priority, Arc<str>, Uid, Self> {
        let is_unwanted = |waiting: &Self| !waiting.is_wanted();
        FairQueue::new(Self::is_overdue).without(is_unwanted).with_behind(|waiting| waiting.behind)
    }

    /// Whether the caller still waits for it.
    pub(super) fn is_wanted(&self) -> bool {
        !self.turn.is_closed()
    }

    /// Whether it may be passed no longer by those that come first.
    fn is_overdue(priority: Priority, waiting: &Self) -> bool {
        priority != Priority::Event && waiting.overdue <= Instant::now()
    }
}
