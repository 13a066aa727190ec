//! Arithmetic with times whose parts come from an API server: any number is a valid one.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// `at` plus a delay, at most the last time there is.
pub(super) fn after(at: Timestamp, delay: Duration) -> Timestamp {
    let delay = SignedDuration::try_from(delay).unwrap_or(SignedDuration::MAX);
    at.saturating_add(delay).unwrap_or(Timestamp::MAX)
}

/// The end of a wait that began at `since`. A wait that seems to have begun in the future is over: the
/// clock was wrong then, and has been set back.
pub(super) fn end_of_wait(since: Timestamp, delay: Duration, now: Timestamp) -> Timestamp {
    if since > now { now } else { after(since, delay) }
}

/// `at` less so many seconds, between the first and the last time there is.
pub(super) fn seconds_before(at: Timestamp, seconds: i64) -> Timestamp {
    at.saturating_sub(SignedDuration::from_secs(seconds)).unwrap_or(at)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn extremes_saturate() {
        let now = Timestamp::UNIX_EPOCH;
        assert_eq!(after(now, Duration::MAX), Timestamp::MAX);
        assert_eq!(seconds_before(now, i64::MAX), Timestamp::MIN);
        assert_eq!(seconds_before(now, i64::MIN), Timestamp::MAX);
        assert_eq!(seconds_before(now, 5).as_second(), -5);
    }

    #[test]
    fn a_wait_that_began_in_the_future_is_over() {
        let at = |second| Timestamp::from_second(second).unwrap();
        for (since, ends) in [(100, 105), (97, 102), (101, 100), (3_700, 100)] {
            assert_eq!(end_of_wait(at(since), Duration::from_secs(5), at(100)), at(ends), "{since}");
        }
    }
}
