//! The order to stop processes: first a request (SIGTERM), then force (SIGKILL).

use std::convert::Infallible;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::time::from_now;

/// The sender of the order.
#[derive(Debug, Default)]
pub(super) struct StopOrder(watch::Sender<Option<Instant>>);

impl StopOrder {
    /// Requests the stop now and forces it after `grace`. A later order can shorten the time but never
    /// lengthen it.
    pub(super) fn request(&self, grace: Duration) {
        self.request_until(from_now(grace));
    }

    /// Requests the stop now and forces it at `deadline`.
    pub(super) fn request_until(&self, deadline: Instant) {
        self.0.send_if_modified(|current| {
            let earlier = current.is_none_or(|current| deadline < current);
            if earlier {
                *current = Some(deadline);
            }
            earlier
        });
    }

    /// Passes this order on, as soon as it is given and whenever it becomes earlier.
    pub(super) async fn forward_to(&self, to: &Self) -> Infallible {
        let mut order = self.0.subscribe();
        loop {
            if let Some(deadline) = *order.borrow_and_update() {
                to.request_until(deadline);
            }
            if order.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// When the stop is forced; `None` before the first request.
    pub(super) fn deadline(&self) -> Option<Instant> {
        *self.0.borrow()
    }

    /// A receiver of the order.
    pub(super) fn signal(&self) -> StopSignal {
        StopSignal(self.0.subscribe())
    }
}

/// The receiver of the order.
#[derive(Clone, Debug)]
pub(super) struct StopSignal(watch::Receiver<Option<Instant>>);

impl StopSignal {
    /// Resolves once the stop is requested.
    pub(super) async fn requested(&self) {
        if self.0.clone().wait_for(Option::is_some).await.is_err() {
            // The sender is gone, so there will be no request.
            std::future::pending::<()>().await;
        }
    }

    /// Resolves once the stop must be forced.
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
    async fn a_later_order_only_shortens_the_grace() {
        let order = StopOrder::default();
        let start = Instant::now();
        order.request(Duration::MAX);
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

    #[tokio::test(start_paused = true)]
    async fn an_order_is_passed_on_and_so_is_an_earlier_one() {
        let (first, second) = (StopOrder::default(), StopOrder::default());
        let start = Instant::now();
        let orders = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            first.request(Duration::from_secs(60));
            tokio::time::sleep(Duration::from_secs(1)).await;
            first.request(Duration::from_secs(3));
            second.signal().expired().await;
        };
        tokio::select! {
            never = first.forward_to(&second) => match never {},
            () = orders => assert_eq!(start.elapsed().as_secs(), 5),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_grace_may_be_endless() {
        let order = StopOrder::default();
        order.request(Duration::MAX);
        let signal = order.signal();
        signal.requested().await;
        assert!(tokio::time::timeout(Duration::from_secs(1 << 20), signal.expired()).await.is_err());
    }
}
