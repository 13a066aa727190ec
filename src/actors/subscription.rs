//! The watches that feed actors.

use tokio_util::task::AbortOnDropHandle;

/// Which subscription of a replica sent a message. Messages of one that has ended may still be in an actor's
/// mailbox, and must not be taken for those of the one that follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubscriptionId(pub u64);

/// A watch that feeds an actor. Dropping it ends the watch.
#[derive(Debug)]
pub struct Subscription {
    id: SubscriptionId,
    _watch: AbortOnDropHandle<()>,
}

impl Subscription {
    /// The subscription of this number, fed by this task.
    pub fn new(id: SubscriptionId, watch: AbortOnDropHandle<()>) -> Self {
        Self { id, _watch: watch }
    }

    /// Whether it is the one that sent a message.
    pub fn is(&self, id: SubscriptionId) -> bool {
        self.id == id
    }
}
