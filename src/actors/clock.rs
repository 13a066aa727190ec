//! The clocks of a replica. The time of day is read in this one place.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::cluster::boot_clock::{BootClock, SystemBootClock};

/// A source of the time of day. Rules get the time as a parameter; actors read it here.
pub trait Clock: Debug + Send + Sync + 'static {
    /// The time of day.
    fn now(&self) -> Timestamp;
}

/// The clocks of the machine that a replica runs on.
#[derive(Clone, Debug)]
pub struct Clocks {
    /// The time of day.
    pub wall: Arc<dyn Clock>,
    /// The clock by which rights end.
    pub boot: Arc<dyn BootClock>,
}

impl Clocks {
    /// Those of this host.
    pub fn of_this_host() -> Self {
        Self { wall: Arc::new(SystemClock), boot: Arc::new(SystemBootClock::default()) }
    }
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
