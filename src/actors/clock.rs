//! What time it is: the one place that asks.

use std::fmt::Debug;
use std::time::Duration;

use jiff::Timestamp;

/// Tells the time. Rules get it as a parameter; actors ask this.
pub trait Clock: Debug + Send + Sync + 'static {
    /// The time of day.
    fn now(&self) -> Timestamp;
}

/// How long a timer is to run that is to end at `at`, and not before: timers count whole milliseconds, and may end early by
/// less than one.
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
