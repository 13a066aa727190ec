//! The time of day, read in this one place.

use std::fmt::Debug;
use std::time::Duration;

use jiff::Timestamp;

/// A source of the time of day. Rules get the time as a parameter; actors read it here.
pub trait Clock: Debug + Send + Sync + 'static {
    /// The time of day.
    fn now(&self) -> Timestamp;
}

/// The duration of a timer that must not fire before `at`: timers count whole milliseconds, and may fire
/// early by less than one.
pub fn until(at: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(now)).unwrap_or_default() + Duration::from_millis(1)
}

/// The clock of this host.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}
