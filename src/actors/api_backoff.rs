//! The pauses between attempts of a request that must succeed in the end.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// The shortest pause, as a part of the one that is due.
const SHORTEST: f64 = 0.75;

/// Pauses that double from the first to the longest, without end. Each is shortened by up to a quarter, by chance, so
/// that what has failed together is not tried again together.
#[derive(Debug)]
pub struct ApiBackoff {
    delays: ExponentialBackoff,
    max: Duration,
    chance: SmallRng,
}

impl ApiBackoff {
    /// Pauses from `initial` to `max`; `seed` varies them.
    pub fn new(initial: Duration, max: Duration, seed: u64) -> Self {
        let delays = ExponentialBuilder::default()
            .with_min_delay(initial)
            .with_max_delay(max)
            .with_factor(2.0)
            .without_max_times()
            .build();
        Self { delays, max, chance: SmallRng::seed_from_u64(seed) }
    }

    /// Waits for the next pause.
    pub async fn pause(&mut self) {
        let pause = self.delays.next().unwrap_or(self.max);
        tokio::time::sleep(pause.mul_f64(self.chance.random_range(SHORTEST..=1.0))).await;
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
                (0.75 * seconds as f64..seconds as f64 + 0.01).contains(&paused),
                "{paused} of {seconds} s"
            );
            other.pause().await;
            assert_ne!(paused, begun.elapsed().as_secs_f64(), "those of others differ");
        }
    }
}
