//! What time it is: the one place that asks.

use std::fmt::Debug;

use jiff::Timestamp;

/// Tells the time. Rules get it as a parameter; actors ask this.
pub trait Clock: Debug + Send + Sync + 'static {
    /// The time of day.
    fn now(&self) -> Timestamp;
}

/// The clock of this host.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}
