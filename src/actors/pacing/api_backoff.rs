//! The pauses between attempts of a request that must succeed in the end.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};

/// Pauses that double from the first to the longest, without end. Each is shortened by up
/// to a half, by chance, so that requests that failed together are not tried again
/// together.
#[derive(Debug)]
pub struct ApiBackoff {
    delays: ExponentialBackoff,
    max: Duration,
}

impl ApiBackoff {
    /// Pauses from `initial` to `max`; `seed` varies them.
    pub fn new(initial: Duration, max: Duration, seed: u64) -> Self {
        let delays = ExponentialBuilder::default()
            .with_min_delay(initial / 2)
            .with_max_delay(max / 2)
            .with_factor(2.0)
            // Adds up to as much again.
            .with_jitter()
            .with_jitter_seed(seed)
            .without_max_times()
            .build();
        Self { delays, max }
    }

    /// Waits for the next pause.
    pub async fn pause(&mut self) {
        tokio::time::sleep(self.next_pause()).await;
    }

    /// The length of the next pause.
    pub fn next_pause(&mut self) -> Duration {
        self.delays.next().unwrap_or(self.max)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_double_up_to_the_longest() {
        let of_seed = |seed| ApiBackoff::new(Duration::from_secs(1), Duration::from_secs(5), seed);
        let (mut backoff, mut other) = (of_seed(1), of_seed(2));
        for seconds in [1, 2, 4, 5, 5, 5] {
            let begun = Instant::now();
            backoff.pause().await;
            let (paused, begun) = (begun.elapsed().as_secs_f64(), Instant::now());
            assert!(
                (0.5 * seconds as f64..seconds as f64 + 0.01).contains(&paused),
                "{paused} of {seconds} s"
            );
            other.pause().await;
            assert_ne!(paused, begun.elapsed().as_secs_f64(), "those of others differ");
        }
    }
}
