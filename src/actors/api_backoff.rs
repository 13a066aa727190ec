//! The pauses between attempts of a request that must succeed in the end.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};

/// Pauses that double from the first to the longest, without end.
#[derive(Debug)]
pub struct ApiBackoff {
    delays: ExponentialBackoff,
    max: Duration,
}

impl ApiBackoff {
    /// Pauses from `initial` to `max`.
    pub fn new(initial: Duration, max: Duration) -> Self {
        let delays = ExponentialBuilder::default()
            .with_min_delay(initial)
            .with_max_delay(max)
            .with_factor(2.0)
            .without_max_times()
            .build();
        Self { delays, max }
    }

    /// Waits for the next pause.
    pub async fn pause(&mut self) {
        tokio::time::sleep(self.delays.next().unwrap_or(self.max)).await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_double_up_to_the_longest() {
        let mut backoff = ApiBackoff::new(Duration::from_secs(1), Duration::from_secs(5));
        for seconds in [1, 2, 4, 5, 5, 5] {
            let begun = Instant::now();
            backoff.pause().await;
            assert_eq!(begun.elapsed().as_secs(), seconds);
        }
    }
}
