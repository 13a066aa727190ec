//! Changes on their way to the shards: what is ready arrives as one message, and waits while the shard is busy.

use std::collections::BTreeMap;
use std::time::Instant;

use actix::Recipient;
use actix::prelude::SendError;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};

use super::{PodChange, Pods};
use crate::actors::subscription::SubscriptionId;
use crate::sharding::ShardId;

/// Most changes in one message.
const MAX_CHANGES: usize = 256;
/// Most changes in a message that need not be handled before the next one is sent.
const BACKPRESSURE_THRESHOLD: usize = 16;
/// Changes that wait for busy shards before reading pauses.
const ROOM: usize = 4096;

/// Changes on their way to the shards.
#[derive(Default)]
pub(super) struct Outbox {
    queues: BTreeMap<ShardId, Queue>,
    /// The shards that changes have come for since the last [`flush`](Self::flush), or that have become free.
    due: Vec<ShardId>,
    /// Messages that wait until they are handled.
    sending: FuturesUnordered<BoxFuture<'static, (ShardId, SubscriptionId)>>,
    /// Changes in all queues.
    queued: usize,
}

struct Queue {
    from: SubscriptionId,
    to: Recipient<Pods>,
    /// When the first of the changes arrived.
    arrived: Instant,
    changes: Vec<PodChange>,
    /// A message has not been handled yet.
    is_busy: bool,
}

impl Outbox {
    /// Changes of a shard go to this actor from now on.
    pub(super) fn join(&mut self, shard: ShardId, from: SubscriptionId, to: Recipient<Pods>) {
        let queue = Queue { from, to, arrived: Instant::now(), changes: Vec::new(), is_busy: false };
        let before = self.queues.insert(shard, queue);
        self.queued -= before.map_or(0, |before| before.changes.len());
    }

    pub(super) fn leave(&mut self, shard: ShardId, from: SubscriptionId) {
        if self.queues.get(&shard).is_some_and(|queue| queue.from == from) {
            let queue = self.queues.remove(&shard);
            self.queued -= queue.map_or(0, |queue| queue.changes.len());
        }
    }

    /// Forgets all changes.
    pub(super) fn clear(&mut self) {
        self.queues.values_mut().for_each(|queue| queue.changes.clear());
        self.queued = 0;
    }

    pub(super) fn push(&mut self, shard: ShardId, change: PodChange) {
        let Some(queue) = self.queues.get_mut(&shard) else { return };
        if queue.changes.is_empty() {
            queue.arrived = Instant::now();
            self.due.push(shard);
        }
        queue.changes.push(change);
        self.queued += 1;
    }

    /// Whether there are changes to send.
    pub(super) fn is_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Whether more may be read.
    pub(super) fn has_room(&self) -> bool {
        self.queued < ROOM
    }

    /// Whether a message has not been handled yet.
    pub(super) fn is_sending(&self) -> bool {
        !self.sending.is_empty()
    }

    /// Waits until a message has been handled. Its shard is sent what has come meanwhile.
    pub(super) async fn sent(&mut self) {
        let Some((shard, from)) = self.sending.next().await else { return };
        if let Some(queue) = self.queues.get_mut(&shard).filter(|queue| queue.from == from) {
            queue.is_busy = false;
            self.due.push(shard);
        }
    }

    /// Sends what has come to all shards that are not busy. A message of few changes needs only room in the mailbox.
    pub(super) fn flush(&mut self) {
        for shard in self.due.drain(..) {
            let Some(queue) = self.queues.get_mut(&shard) else { continue };
            while !queue.is_busy && !queue.changes.is_empty() {
                let rest = queue.changes.split_off(queue.changes.len().min(MAX_CHANGES));
                let changes = std::mem::replace(&mut queue.changes, rest);
                self.queued -= changes.len();
                let is_small = changes.len() <= BACKPRESSURE_THRESHOLD;
                let (from, arrived) = (queue.from, queue.arrived);
                let message = Pods { from, arrived, changes };
                let sent = if is_small { queue.to.try_send(message) } else { Err(SendError::Full(message)) };
                // An actor that has ended leaves in a moment.
                if let Err(SendError::Full(message)) = sent {
                    queue.is_busy = true;
                    let handled = queue.to.send(message);
                    self.sending.push(handled.map(move |_| (shard, from)).boxed());
                }
            }
        }
    }
}
