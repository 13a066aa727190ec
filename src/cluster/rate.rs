//! Token buckets on the tokio runtime's clock, which tests and simulations control.

use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::Clock;
use governor::middleware::NoOpMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use tokio::time::Instant;

/// A token bucket.
#[derive(Debug)]
pub(crate) struct Rate {
    bucket: RateLimiter<NotKeyed, InMemoryState, RuntimeClock, NoOpMiddleware<Duration>>,
    clock: RuntimeClock,
}

impl Rate {
    /// `qps` tokens per second, and `burst` at once after a pause: as many as per second if that is 0. If
    /// `qps` is 0, returns `None`: no limit.
    pub(crate) fn per_second(qps: u32, burst: u32) -> Option<Self> {
        let qps = NonZeroU32::new(qps)?;
        Some(Self::new(Quota::per_second(qps).allow_burst(NonZeroU32::new(burst).unwrap_or(qps))))
    }

    /// A token per `period`, and `burst` at once after a pause. If `period` is 0, returns `None`: no limit.
    pub(crate) fn per_period(period: Duration, burst: NonZeroU32) -> Option<Self> {
        Some(Self::new(Quota::with_period(period)?.allow_burst(burst)))
    }

    fn new(quota: Quota) -> Self {
        let clock = RuntimeClock { start: Instant::now() };
        Self { bucket: RateLimiter::direct_with_clock(quota, clock.clone()), clock }
    }

    /// Takes a token if there is one.
    pub(crate) fn try_take(&self) -> bool {
        self.bucket.check().is_ok()
    }

    /// Waits for a token and takes it.
    pub(crate) async fn take(&self) {
        while let Err(not_yet) = self.bucket.check() {
            tokio::time::sleep(not_yet.wait_time_from(self.clock.now())).await;
        }
    }
}

#[derive(Clone, Debug)]
struct RuntimeClock {
    start: Instant,
}

impl Clock for RuntimeClock {
    type Instant = Duration;

    fn now(&self) -> Duration {
        self.start.elapsed()
    }
}
