//! How fast a Job succeeds, and how long the rest takes at this pace.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// Successes that are older than this say little about the pace of now.
const WINDOW: Duration = Duration::from_secs(30);
/// The shortest time between two samples.
const STEP: Duration = Duration::from_secs(1);

/// The numbers of successes at some times of the last half minute.
#[derive(Clone, Debug, Default)]
pub(super) struct SuccessPace(VecDeque<(Instant, u64)>);

impl SuccessPace {
    /// Records how many have succeeded.
    pub(super) fn record(&mut self, succeeded: u64, now: Instant) {
        // The last number of each step counts.
        let samples = &mut self.0;
        let repeats = samples.len() > 1
            && samples.iter().rev().nth(1).is_some_and(|(before, _)| now.duration_since(*before) < STEP);
        if repeats {
            samples.pop_back();
        }
        samples.push_back((now, succeeded));
        while samples.len() > 2 && samples.get(1).is_some_and(|(time, _)| now.duration_since(*time) >= WINDOW)
        {
            samples.pop_front();
        }
    }

    /// Successes per second; `None` while too little is known.
    pub(super) fn rate(&self, now: Instant) -> Option<f64> {
        let ((first, before), (_, after)) = (self.0.front()?, self.0.back()?);
        let time = now.duration_since(*first);
        let succeeded = after.saturating_sub(*before);
        (time >= STEP && succeeded > 0).then(|| succeeded as f64 / time.as_secs_f64())
    }

    /// The time that the missing successes take.
    pub(super) fn left(&self, missing: u64, now: Instant) -> Option<Duration> {
        Duration::try_from_secs_f64(missing as f64 / self.rate(now)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_pace_is_that_of_the_last_half_minute() {
        let start = Instant::now();
        let mut pace = SuccessPace::default();
        pace.record(0, start);
        assert_eq!(pace.rate(start), None);
        for second in 1..=10 {
            pace.record(20 * second, start + seconds(second));
        }
        assert_eq!(pace.rate(start + seconds(10)), Some(20.0));
        assert_eq!(pace.left(100, start + seconds(10)), Some(seconds(5)));
        // Without news it falls.
        assert_eq!(pace.rate(start + seconds(20)), Some(10.0));
        // Successes of long ago do not count.
        for second in 11..=100 {
            pace.record(200 + 2 * (second - 10), start + seconds(second));
        }
        assert_eq!(pace.rate(start + seconds(100)), Some(2.0));
    }

    #[test]
    fn news_in_quick_succession_take_no_room() {
        let start = Instant::now();
        let mut pace = SuccessPace::default();
        for milli in 0..60_000 {
            pace.record(milli, start + Duration::from_millis(milli));
        }
        assert!(pace.0.len() <= 33, "{}", pace.0.len());
        let rate = pace.rate(start + seconds(60)).unwrap_or_default();
        assert!((rate - 1_000.0).abs() < 10.0, "{rate}");
    }
}
