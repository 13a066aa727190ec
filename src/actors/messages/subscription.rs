//! The watches that feed actors.

use std::any::Any;
use std::fmt;

use tokio_util::task::AbortOnDropHandle;

/// Which subscription of a replica sent a message. Messages of one that has ended may still be in an actor's
/// mailbox, and must not be taken for those of the one that follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubscriptionId(pub u64);

/// A watch that feeds an actor. Dropping it ends the watch.
pub struct Subscription {
    id: SubscriptionId,
    _watch: Box<dyn Any + Send>,
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Subscription").field(&self.id).finish()
    }
}

impl Subscription {
    /// The subscription of this number, fed by this task.
    pub fn new(id: SubscriptionId, watch: AbortOnDropHandle<()>) -> Self {
        Self::held(id, watch)
    }

    /// The subscription of this number, which lasts until `watch` is dropped.
    pub fn held(id: SubscriptionId, watch: impl Any + Send) -> Self {
        Self { id, _watch: Box::new(watch) }
    }

    /// Whether it is the one that sent a message.
    pub fn is(&self, id: SubscriptionId) -> bool {
        self.id == id
    }
}
