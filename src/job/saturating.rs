//! Arithmetic with times whose parts come from an API server: any number is a valid one.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// `at` plus a delay, at most the last time there is.
pub(super) fn after(at: Timestamp, delay: Duration) -> Timestamp {
    let delay = SignedDuration::try_from(delay).unwrap_or(SignedDuration::MAX);
    at.saturating_add(delay).unwrap_or(Timestamp::MAX)
}

/// `at` less so many seconds, between the first and the last time there is.
pub(super) fn seconds_before(at: Timestamp, seconds: i64) -> Timestamp {
    at.saturating_sub(SignedDuration::from_secs(seconds)).unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extremes_saturate() {
        let now = Timestamp::UNIX_EPOCH;
        assert_eq!(after(now, Duration::MAX), Timestamp::MAX);
        assert_eq!(seconds_before(now, i64::MAX), Timestamp::MIN);
        assert_eq!(seconds_before(now, i64::MIN), Timestamp::MAX);
        assert_eq!(seconds_before(now, 5).as_second(), -5);
    }
}
