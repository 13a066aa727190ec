//! A signal that many tasks wait for. Tasks wake up in the order in which they began to wait.
//!
//! tokio's `watch` wakes its receivers in a random order, so no run of a simulated cluster would repeat
//! another.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// The side that raises the signal.
#[derive(Default)]
pub(crate) struct Signal(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// How often the signal has been raised.
    raised: AtomicU64,
    notify: Notify,
}

impl Signal {
    /// Wakes up all subscribers.
    pub(crate) fn raise(&self) {
        self.0.raised.fetch_add(1, Ordering::SeqCst);
        self.0.notify.notify_waiters();
    }

    /// How often the signal has been raised.
    pub(crate) fn raised(&self) -> u64 {
        self.0.raised.load(Ordering::SeqCst)
    }

    /// A subscriber that has seen everything so far.
    pub(crate) fn subscribe(&self) -> Subscriber {
        Subscriber { shared: Arc::clone(&self.0), seen: self.raised() }
    }

    /// The number of subscribers.
    pub(crate) fn subscribers(&self) -> usize {
        Arc::strong_count(&self.0) - 1
    }
}

/// The side that waits for the signal.
pub(crate) struct Subscriber {
    shared: Arc<Shared>,
    seen: u64,
}

impl Subscriber {
    /// Whether the signal has been raised since the last look at it.
    pub(crate) fn is_raised(&self) -> bool {
        self.shared.raised.load(Ordering::SeqCst) != self.seen
    }

    /// Looks at the signal without waiting.
    pub(crate) fn mark_seen(&mut self) {
        self.seen = self.shared.raised.load(Ordering::SeqCst);
    }

    /// Resolves once the signal has been raised since the last look at it.
    pub(crate) async fn changed(&mut self) {
        while !self.is_raised() {
            // Made before another look, so that a signal in between is not missed.
            let notified = self.shared.notify.notified();
            if !self.is_raised() {
                notified.await;
            }
        }
        self.mark_seen();
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    #[tokio::test]
    async fn subscribers_wake_up_in_the_order_in_which_they_waited() {
        let (signal, woken) = (Signal::default(), Arc::new(Mutex::new(Vec::new())));
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..100 {
            let (mut subscriber, woken) = (signal.subscribe(), Arc::clone(&woken));
            tasks.spawn(async move {
                subscriber.changed().await;
                woken.lock().push(number);
            });
        }
        // All tasks must wait first, and a single yield does not run all of them.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(signal.subscribers(), 100);
        signal.raise();
        tasks.join_all().await;
        assert_eq!(*woken.lock(), (0..100).collect::<Vec<_>>());
        assert_eq!(signal.subscribers(), 0);
    }

    #[tokio::test]
    async fn a_signal_that_was_raised_before_the_wait_is_not_missed() {
        let signal = Signal::default();
        let mut subscriber = signal.subscribe();
        assert!(!subscriber.is_raised());
        signal.raise();
        signal.raise();
        assert!(subscriber.is_raised());
        subscriber.changed().await;
        assert!(!subscriber.is_raised());
        signal.raise();
        subscriber.mark_seen();
        assert!(futures::FutureExt::now_or_never(subscriber.changed()).is_none());
    }
}
