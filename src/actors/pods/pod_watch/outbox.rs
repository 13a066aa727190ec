//! Changes on their way to the shards: ready changes arrive as one message, and wait while the shard is busy.

use std::collections::BTreeMap;
use std::time::Instant;

use actix::Recipient;
use actix::prelude::SendError;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};

use super::{PodChange, Pods};
use crate::actors::messages::subscription::SubscriptionId;
use crate::cluster::watch::Change;
use crate::cluster::wire::{Decoder as _, PodDecoder};
use crate::sharding::ShardId;

/// The most that one message carries. A usual pod takes 600 bytes, so the bytes matter only if pods were made
/// large.
const LARGEST_MESSAGE: Size = Size { changes: 256, bytes: 256 << 10 };
/// The most in a message that need not be handled before the next one is sent.
const BACKPRESSURE_THRESHOLD: Size = Size { changes: 16, bytes: 16 << 10 };
/// Queued changes for busy shards at which reading pauses.
const ROOM: Size = Size { changes: 4096, bytes: 8 << 20 };

/// How much some changes are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Size {
    changes: usize,
    bytes: usize,
}

impl Size {
    fn of(change: &PodChange) -> Self {
        let bytes = match change {
            Change::Listed(pod) | Change::Applied(pod) | Change::Deleted(pod) => PodDecoder::bytes(pod),
            Change::Restarted | Change::Synced { .. } | Change::Unreadable(_) => size_of::<PodChange>(),
        };
        Self { changes: 1, bytes }
    }

    fn fits(self, most: Self) -> bool {
        self.changes <= most.changes && self.bytes <= most.bytes
    }

    fn plus(self, other: Self) -> Self {
        Self { changes: self.changes + other.changes, bytes: self.bytes + other.bytes }
    }

    fn minus(self, other: Self) -> Self {
        Self { changes: self.changes - other.changes, bytes: self.bytes - other.bytes }
    }

    /// The size of all these.
    fn sum(changes: &[PodChange]) -> Self {
        changes.iter().map(Self::of).fold(Self::default(), Self::plus)
    }

    /// The size of the first message of these: at least one change.
    fn of_message(changes: &[PodChange]) -> Self {
        let mut size = Self::default();
        for more in changes.iter().map(Self::of) {
            if size.changes > 0 && !size.plus(more).fits(LARGEST_MESSAGE) {
                break;
            }
            size = size.plus(more);
        }
        size
    }
}

/// Changes on their way to the shards.
#[derive(Default)]
pub(super) struct Outbox {
    queues: BTreeMap<ShardId, Queue>,
    /// The shards that changes have come for since the last [`flush`](Self::flush), or that have become free.
    due: Vec<ShardId>,
    /// Messages that wait until they are handled.
    sending: FuturesUnordered<BoxFuture<'static, (ShardId, SubscriptionId)>>,
    /// The size of all queues.
    queued: Size,
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
        self.dropped(before);
    }

    pub(super) fn leave(&mut self, shard: ShardId, from: SubscriptionId) {
        if self.queues.get(&shard).is_some_and(|queue| queue.from == from) {
            let queue = self.queues.remove(&shard);
            self.dropped(queue);
        }
    }

    fn dropped(&mut self, queue: Option<Queue>) {
        self.queued = self.queued.minus(queue.map_or_else(Size::default, |queue| Size::sum(&queue.changes)));
    }

    /// Forgets all changes.
    pub(super) fn clear(&mut self) {
        self.queues.values_mut().for_each(|queue| queue.changes.clear());
        self.queued = Size::default();
    }

    pub(super) fn push(&mut self, shard: ShardId, change: PodChange) {
        let Some(queue) = self.queues.get_mut(&shard) else { return };
        if queue.changes.is_empty() {
            queue.arrived = Instant::now();
            self.due.push(shard);
        }
        self.queued = self.queued.plus(Size::of(&change));
        queue.changes.push(change);
    }

    /// Whether there are changes to send.
    pub(super) fn is_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Whether more may be read.
    pub(super) fn has_room(&self) -> bool {
        self.queued.changes < ROOM.changes && self.queued.bytes < ROOM.bytes
    }

    /// Whether a message has not been handled yet.
    pub(super) fn is_sending(&self) -> bool {
        !self.sending.is_empty()
    }

    /// Waits until a message has been handled. Its shard is sent the changes that have come meanwhile.
    pub(super) async fn sent(&mut self) {
        let Some((shard, from)) = self.sending.next().await else { return };
        if let Some(queue) = self.queues.get_mut(&shard).filter(|queue| queue.from == from) {
            queue.is_busy = false;
            self.due.push(shard);
        }
    }

    /// Sends the queued changes to all shards that are not busy. A message of few changes needs only room in
    /// the mailbox.
    pub(super) fn flush(&mut self) {
        for shard in self.due.drain(..) {
            let Some(queue) = self.queues.get_mut(&shard) else { continue };
            while !queue.is_busy && !queue.changes.is_empty() {
                let size = Size::of_message(&queue.changes);
                let rest = queue.changes.split_off(size.changes);
                let changes = std::mem::replace(&mut queue.changes, rest);
                self.queued = self.queued.minus(size);
                let is_small = size.fits(BACKPRESSURE_THRESHOLD);
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use actix::{Actor, Context, Handler};
    use serde_json::json;

    use super::*;
    use crate::actors::test_api::run;

    /// A shard that keeps the numbers of changes that each message carries.
    #[derive(Default)]
    struct Shard(Vec<usize>);

    impl Actor for Shard {
        type Context = Context<Self>;
    }

    impl Handler<Pods> for Shard {
        type Result = ();

        fn handle(&mut self, Pods { changes, .. }: Pods, _: &mut Self::Context) {
            assert!(changes.len() == 1 || Size::sum(&changes).fits(LARGEST_MESSAGE));
            self.0.push(changes.len());
        }
    }

    #[derive(actix::Message)]
    #[rtype(result = "Vec<usize>")]
    struct Seen;

    impl Handler<Seen> for Shard {
        type Result = Vec<usize>;

        fn handle(&mut self, _: Seen, _: &mut Self::Context) -> Vec<usize> {
            std::mem::take(&mut self.0)
        }
    }

    fn pod(label: usize) -> PodChange {
        let json = json!({"metadata": {
            "name": "p", "namespace": "n", "uid": "u", "labels": {"l": "x".repeat(label)},
            "creationTimestamp": "2026-01-01T00:00:00Z",
        }});
        Change::Applied(PodDecoder::new("f").decode(json.to_string().as_bytes()).unwrap())
    }

    #[test]
    fn usual_pods_are_sent_by_number_and_large_ones_by_bytes() {
        run(async {
            let (shard, from) = (Shard::default().start(), SubscriptionId(1));
            for (label, pushed, messages, why) in [
                (200, 16, vec![16], "few at once"),
                (200, 5_000, vec![256, 256], "many in parts, with a pause after each"),
                (8_000, 5_000, vec![31, 31], "large ones in small parts"),
            ] {
                let mut outbox = Outbox::default();
                outbox.join(ShardId(1), from, shard.clone().recipient());
                let room = (0..pushed).take_while(|_| {
                    outbox.push(ShardId(1), pod(label));
                    outbox.has_room()
                });
                let number = room.count();
                let most = if label > 1_000 { ROOM.bytes / label } else { ROOM.changes };
                assert!(number == pushed || (most * 9 / 10..=most).contains(&number), "{number}: {why}");
                outbox.flush();
                if outbox.is_sending() {
                    outbox.sent().await;
                    outbox.flush();
                    outbox.sent().await;
                }
                let seen = shard.send(Seen).await.unwrap();
                assert_eq!(seen[..messages.len()], messages, "{why}");
                outbox.leave(ShardId(1), from);
                assert_eq!(outbox.queued, Size::default(), "{why}");
            }
        });
    }
}
