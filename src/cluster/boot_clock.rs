//! The clock by which rights end. The monotonic clock of a process stands still while its
//! machine is suspended, and the clocks of others go on. By that clock, a replica that wakes up
//! would believe in Leases that have expired meanwhile. This clock goes on.
//!
//! Timers still run by the monotonic clock, so a task that waits for an instant of this clock
//! looks at it again and again.

use std::fmt::Debug;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::time::{Instant, sleep};

/// How late a sleeper may notice, at most, that the machine was suspended.
const LOOK: Duration = Duration::from_millis(500);

/// The boot clock of [`SystemBootClock`].
#[cfg(any(target_os = "linux", target_os = "android"))]
const BOOT: ClockId = ClockId::Boottime;
/// Elsewhere the monotonic clock of POSIX goes on, and only that of Rust stands still.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const BOOT: ClockId = ClockId::Monotonic;

/// A clock that never goes backwards, is never set, and goes on while the machine is suspended.
pub trait BootClock: Debug + Send + Sync + 'static {
    /// The instant of this clock. Only instants of the same clock can be compared.
    fn now(&self) -> Instant;
}

/// The clock of this machine.
#[derive(Clone, Copy, Debug)]
pub struct SystemBootClock {
    origin: Instant,
    booted: Duration,
}

impl Default for SystemBootClock {
    fn default() -> Self {
        Self { origin: Instant::now(), booted: since_boot() }
    }
}

impl BootClock for SystemBootClock {
    fn now(&self) -> Instant {
        self.origin + since_boot().saturating_sub(self.booted)
    }
}

/// The time since the machine was started.
fn since_boot() -> Duration {
    // No system has a negative time here.
    Duration::try_from(clock_gettime(BOOT)).unwrap_or_default()
}

/// The monotonic clock: of machines that are never suspended, as in tests.
#[derive(Clone, Copy, Debug, Default)]
pub struct AwakeClock;

impl BootClock for AwakeClock {
    fn now(&self) -> Instant {
        Instant::now()
    }
}

/// Returns once a clock has reached an instant; after a suspension, within half a second.
pub async fn sleep_until(clock: &dyn BootClock, at: Instant) {
    loop {
        let left = at.saturating_duration_since(clock.now());
        if left.is_zero() {
            return;
        }
        sleep(left.min(LOOK)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// The clock of a machine that has been suspended for this many seconds.
    #[derive(Clone, Debug, Default)]
    struct Suspended(Arc<AtomicU64>);

    impl BootClock for Suspended {
        fn now(&self) -> Instant {
            Instant::now() + Duration::from_secs(self.0.load(Ordering::Relaxed))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_sleeps_notices_a_suspension_within_a_second() {
        let (clock, began) = (Suspended::default(), Instant::now());
        let at = clock.now() + Duration::from_secs(300);
        let sleeper = clock.clone();
        let slept = tokio::spawn(async move { sleep_until(&sleeper, at).await });
        sleep(Duration::from_secs(2)).await;
        assert!(!slept.is_finished());
        clock.0.store(300, Ordering::Relaxed);
        assert!(slept.await.is_ok());
        assert!(began.elapsed() <= Duration::from_secs(3), "{:?}", began.elapsed());
        sleep_until(&AwakeClock, began + Duration::from_secs(4)).await;
        assert_eq!(began.elapsed().as_secs(), 4);
    }

    #[test]
    fn the_clock_of_this_machine_goes_on() {
        let clock = SystemBootClock::default();
        let before = clock.now();
        std::thread::sleep(Duration::from_millis(5));
        assert!(clock.now() >= before + Duration::from_millis(5));
    }
}
