//! The order to end processes: when to ask, and when to stop asking.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// Gives the order.
#[derive(Debug, Default)]
pub(super) struct StopOrder(watch::Sender<Option<Instant>>);

impl StopOrder {
    /// Asks for the end now, and forces it after `grace`. A later order can shorten the time, never lengthen it.
    pub(super) fn request(&self, grace: Duration) {
        self.request_until(Instant::now() + grace);
    }

    /// Asks for the end now, and forces it at `deadline`.
    pub(super) fn request_until(&self, deadline: Instant) {
        self.0.send_if_modified(|current| {
            let earlier = current.is_none_or(|current| deadline < current);
            if earlier {
                *current = Some(deadline);
            }
            earlier
        });
    }

    /// When the end is forced; `None` while nobody asked for it.
    pub(super) fn deadline(&self) -> Option<Instant> {
        *self.0.borrow()
    }

    /// A handle for those who obey.
    pub(super) fn signal(&self) -> StopSignal {
        StopSignal(self.0.subscribe())
    }
}

/// Hears the order.
#[derive(Clone, Debug)]
pub(super) struct StopSignal(watch::Receiver<Option<Instant>>);

impl StopSignal {
    /// Resolves once the end is asked for.
    pub(super) async fn requested(&self) {
        if self.0.clone().wait_for(Option::is_some).await.is_err() {
            // Nobody is left to ask.
            std::future::pending::<()>().await;
        }
    }

    /// Resolves once the end has to be forced.
    pub(super) async fn expired(&self) {
        self.requested().await;
        let mut order = self.0.clone();
        loop {
            let deadline = *order.borrow_and_update();
            let end = async {
                match deadline {
                    Some(deadline) => tokio::time::sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = end => return,
                Ok(()) = order.changed() => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_later_order_only_shortens() {
        let order = StopOrder::default();
        let start = Instant::now();
        order.request(Duration::from_secs(30));
        order.request(Duration::from_secs(60));
        let signal = order.signal();
        let expired = tokio::spawn(async move {
            signal.expired().await;
            start.elapsed()
        });
        tokio::time::sleep(Duration::from_secs(1)).await;
        order.request(Duration::from_secs(4));
        assert_eq!(expired.await.unwrap().as_secs(), 5);
    }
}
