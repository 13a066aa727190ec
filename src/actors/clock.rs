//! The clocks of a replica. The time of day is read in this one place.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

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

/// The part of the passing time that a steady clock leaves out while the time of day is behind it: a tenth.
const SLOWED: u32 = 10;

/// A time of day that never goes backwards. What waits until a time would else wait for as long again as the clock of
/// the host was set back. A clock that is set ahead is followed at once; after one that was set back, time
/// passes a little slower until the time of day has caught up.
#[derive(Debug)]
pub struct SteadyClock {
    clocks: Clocks,
    /// The time that was shown last, and when.
    shown: Mutex<(Timestamp, Instant)>,
}

impl SteadyClock {
    /// A steady clock that follows these.
    pub fn new(clocks: Clocks) -> Self {
        let shown = Mutex::new((clocks.wall.now(), clocks.boot.now()));
        Self { clocks, shown }
    }
}

impl Clock for SteadyClock {
    fn now(&self) -> Timestamp {
        // A panic leaves the pair whole.
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let (wall, boot) = (self.clocks.wall.now(), self.clocks.boot.now());
        let (last, at) = *shown;
        let passed = boot.saturating_duration_since(at);
        let slowed = SignedDuration::try_from(passed - passed / SLOWED).unwrap_or_default();
        let now = wall.max(last.checked_add(slowed).unwrap_or(last));
        *shown = (now, boot);
        now
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::*;
    use crate::cluster::boot_clock::AwakeClock;

    /// A time of day that is set ahead by so many seconds.
    #[derive(Debug)]
    struct Set(Instant, AtomicI64);

    impl Clock for Set {
        fn now(&self) -> Timestamp {
            let ahead = SignedDuration::from_secs(self.1.load(Ordering::Relaxed));
            Timestamp::UNIX_EPOCH + SignedDuration::try_from(self.0.elapsed()).unwrap_or_default() + ahead
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_is_set_back_stops_nothing() {
        let wall = Arc::new(Set(Instant::now(), AtomicI64::new(7_200)));
        let steady = SteadyClock::new(Clocks { wall: wall.clone(), boot: Arc::new(AwakeClock) });
        let pass = |seconds| tokio::time::advance(Duration::from_secs(seconds));
        pass(10).await;
        assert_eq!(steady.now().as_second(), 7_210);
        wall.1.store(10_800, Ordering::Relaxed);
        assert_eq!(steady.now().as_second(), 10_810, "set ahead by an hour");
        wall.1.store(7_200, Ordering::Relaxed);
        assert_eq!(steady.now().as_second(), 10_810, "set back by an hour");
        pass(100).await;
        assert_eq!(steady.now().as_second(), 10_900, "what takes 90 s takes 100 s");
        for _ in 0..100 {
            pass(360).await;
            steady.now();
        }
        assert_eq!(steady.now(), wall.now(), "after ten hours both are the same");
    }
}
