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
    /// The clocks of this host.
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

/// The part of the passing time by which a steady clock comes nearer to a time of day that it is ahead of: a tenth.
const SLOWED: u32 = 10;
/// Smaller differences between the two clocks are no steps: they are not read at the same instant.
const STEP: SignedDuration = SignedDuration::from_secs(1);
/// A good clock is not set back by more than this: the time before was wrong.
const LONGEST: SignedDuration = SignedDuration::from_hours(1);

/// Wall clock for deadlines and for API timestamps. Its time does not jump back on small corrections.
///
/// - A clock that is set ahead is followed at once.
/// - A step ahead that is taken back was a mistake, so its gain is given back at once. A step back of
///   more than an hour is followed at once, as after a start with a clock that was wrong by a year.
/// - After another step back, time passes a tenth slower until the time of day has caught up. Otherwise
///   a wait until a time would last longer by as much as the clock was set back.
///
/// So the time that is shown is ahead of the time of day by the last steps back at most. It goes
/// backwards only to leave a time that was wrong. A wait that began before the wrong step ends when it
/// should. A wait that began after it would end too late: if its beginning is in the future, treat it as
/// over ([`Retry::waits`](crate::job::retry::Retry::waits)).
#[derive(Debug)]
pub struct SteadyClock {
    clocks: Clocks,
    last: Mutex<Reading>,
}

/// The last reading of a steady clock, and the time it showed.
#[derive(Debug)]
struct Reading {
    wall: Timestamp,
    boot: Instant,
    /// By how much the time shown is ahead of the time of day; never negative.
    ahead: SignedDuration,
    /// Gain of the shown time by steps ahead that were not taken back.
    gained: SignedDuration,
}

impl Reading {
    fn follow(&mut self, wall: Timestamp, boot: Instant) {
        let passed = boot.saturating_duration_since(self.boot);
        let caught_up = SignedDuration::try_from(passed / SLOWED).unwrap_or_default();
        let passed = SignedDuration::try_from(passed).unwrap_or_default();
        let step = wall.duration_since(self.wall).saturating_sub(passed);
        (self.wall, self.boot) = (wall, boot);
        if step > SignedDuration::ZERO {
            let gain = step.saturating_sub(self.ahead);
            if gain > STEP {
                self.gained = self.gained.saturating_add(gain);
            }
            self.ahead = self.ahead.saturating_sub(step);
        } else {
            let is_step = step < -STEP;
            let back = SignedDuration::ZERO.saturating_sub(step);
            let given = if is_step { back.min(self.gained) } else { SignedDuration::ZERO };
            self.gained = self.gained.saturating_sub(given);
            let left = back.saturating_sub(given);
            self.ahead = if left > LONGEST { SignedDuration::ZERO } else { self.ahead.saturating_add(left) };
        }
        self.ahead = self.ahead.saturating_sub(caught_up).max(SignedDuration::ZERO);
    }
}

impl SteadyClock {
    /// A steady clock that follows these.
    pub fn new(clocks: Clocks) -> Self {
        let (wall, boot) = (clocks.wall.now(), clocks.boot.now());
        let none = SignedDuration::ZERO;
        Self { clocks, last: Mutex::new(Reading { wall, boot, ahead: none, gained: none }) }
    }
}

impl Clock for SteadyClock {
    fn now(&self) -> Timestamp {
        // A panic leaves the reading whole.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.follow(self.clocks.wall.now(), self.clocks.boot.now());
        last.wall.saturating_add(last.ahead).unwrap_or(last.wall)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::*;
    use crate::cluster::boot_clock::AwakeClock;

    /// A time of day that is set ahead by this many seconds.
    #[derive(Debug)]
    struct Set(Instant, AtomicI64);

    impl Clock for Set {
        fn now(&self) -> Timestamp {
            let ahead = SignedDuration::from_secs(self.1.load(Ordering::Relaxed));
            Timestamp::UNIX_EPOCH + SignedDuration::try_from(self.0.elapsed()).unwrap_or_default() + ahead
        }
    }

    /// A steady clock over a host clock that is ahead by this many seconds, and the way to set that.
    fn steady(ahead: i64) -> (SteadyClock, Arc<Set>) {
        let wall = Arc::new(Set(Instant::now(), AtomicI64::new(ahead)));
        (SteadyClock::new(Clocks { wall: wall.clone(), boot: Arc::new(AwakeClock) }), wall)
    }

    async fn pass(seconds: u64) {
        tokio::time::advance(Duration::from_secs(seconds)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_is_set_back_stops_nothing() {
        let (steady, wall) = steady(7_200);
        pass(10).await;
        assert_eq!(steady.now().as_second(), 7_210);
        wall.1.store(3_600, Ordering::Relaxed);
        assert_eq!(steady.now().as_second(), 7_210, "set back by an hour");
        pass(100).await;
        assert_eq!(steady.now().as_second(), 7_300, "what takes 90 s takes 100 s");
        for _ in 0..100 {
            pass(360).await;
            steady.now();
        }
        assert_eq!(steady.now(), wall.now(), "after ten hours both are the same");
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_gained_by_a_mistake_is_given_back_at_once() {
        const YEAR: i64 = 365 * 86_400;
        for (at_start, steps, expected) in [
            (0, vec![3_600, 0], 0),
            (0, vec![YEAR, 0], 0),
            (0, vec![3_600, 1_800, 0], 0),
            (YEAR, vec![0], 0),
            // A small error from the start looks like a mistake.
            (60, vec![0], 60),
            // Only the gain is given back: the rest stays for a while.
            (0, vec![3_600, -60], 0),
            // A step ahead that takes back a step back gains nothing.
            (3_600, vec![0, 3_600, 0], 3_600),
            (3_600, vec![0, 3_660, 0], 3_600),
        ] {
            let (steady, wall) = steady(at_start);
            steady.now();
            for step in &steps {
                wall.1.store(*step, Ordering::Relaxed);
                steady.now();
            }
            assert_eq!(steady.now().as_second(), expected, "{at_start} {steps:?}");
        }
    }
}
