//! The clock, times as the API shows them, and arithmetic with seconds that clients send, which may be any
//! number.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// A source of the time of day.
pub trait Clock: Send + Sync {
    /// The time now.
    fn now(&self) -> Timestamp;
}

/// The clock of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// A time that no process lives to see, and that is far from the end of any clock.
const FAR_FUTURE: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// A time as `metav1.Time` shows it: whole seconds, UTC.
pub(crate) fn format_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A time as `metav1.MicroTime` shows it: six digits of a second, UTC.
pub(crate) fn format_micro_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// The time this many seconds later, or earlier if negative, within the years -9999 to 9999.
pub(crate) fn seconds_after(time: Timestamp, seconds: i64) -> Timestamp {
    // The duration has no calendar units, so only the result can be out of range, and that saturates.
    time.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(time)
}

/// Now plus a duration of at most a hundred years.
pub(crate) fn from_now(time: Duration) -> Instant {
    Instant::now() + time.min(FAR_FUTURE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extreme_seconds_saturate() {
        let now = Timestamp::UNIX_EPOCH;
        assert_eq!(seconds_after(now, i64::MAX), Timestamp::MAX);
        assert_eq!(seconds_after(now, i64::MIN), Timestamp::MIN);
        assert_eq!(seconds_after(now, -1).as_second(), -1);
        assert!(from_now(Duration::MAX) > Instant::now());
    }
}
