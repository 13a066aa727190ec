//! The pauses between attempts of a request that must succeed in the end.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};

/// Pauses that double from the first to the longest, without end. Each is longer by chance, so that requests that were refused
/// together do not come again together.
#[derive(Debug)]
pub struct ApiBackoff {
    delays: ExponentialBackoff,
    max: Duration,
}

impl ApiBackoff {
    /// Pauses from `initial` to `max`. The same `seed` makes the same pauses.
    pub fn new(initial: Duration, max: Duration, seed: u64) -> Self {
        let delays = ExponentialBuilder::default()
            .with_min_delay(initial)
            .with_max_delay(max)
            .with_factor(2.0)
            .without_max_times()
            .with_jitter()
            .with_jitter_seed(seed)
            .build();
        Self { delays, max }
    }

    /// Waits for the next pause.
    pub async fn pause(&mut self) {
        let pause = self.delays.next().unwrap_or(self.max);
        tokio::time::sleep(pause.min(self.max)).await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    async fn pauses(seed: u64) -> Vec<Duration> {
        let mut backoff = ApiBackoff::new(Duration::from_secs(1), Duration::from_secs(5), seed);
        let mut pauses = Vec::new();
        for _ in 0..6 {
            let begun = Instant::now();
            backoff.pause().await;
            pauses.push(begun.elapsed());
        }
        pauses
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_double_up_to_the_longest_and_differ_by_chance() {
        for seed in 0..10 {
            let found = pauses(seed).await;
            for (pause, (least, most)) in found.iter().zip([(1, 2), (2, 4), (4, 5), (5, 5), (5, 5), (5, 5)]) {
                // Timers count whole milliseconds.
                let most = Duration::from_secs(most) + Duration::from_millis(1);
                assert!((Duration::from_secs(least)..=most).contains(pause), "{seed}: {found:?}");
            }
            assert_eq!(found, pauses(seed).await, "{seed}");
            assert_ne!(found, pauses(seed + 1).await, "{seed}");
        }
    }
}
