//! A replica on a machine of its own: a runtime whose clock the world drives. It can crash, freeze (it does not
//! run while its clock goes on) and be suspended (its monotonic clock stands still, too).

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use actix::{System, SystemRunner};
use jiff::{SignedDuration, Timestamp};
use tokio::runtime::{Builder, Handle};
use tokio::time::{Instant, advance, sleep, sleep_until};
use yardmaster::actors::clock::{Clock, Clocks};
use yardmaster::actors::{ControllerConfig, Replica, ReplicaContext};
use yardmaster::cluster::boot_clock::BootClock;
use yardmaster::telemetry::metrics::Metrics;

use crate::network::{Outbox, Sent};
use crate::time::{EPOCH, Time};

/// A life of a replica: from its start to its end or crash.
pub(crate) struct Life {
    runner: SystemRunner,
    system: System,
    replica: Option<Replica>,
    outbox: Outbox,
    clock: Arc<MachineClock>,
    /// The monotonic clock at the start.
    origin: Instant,
    /// When it started, plus the time for which its monotonic clock stood still.
    behind: Time,
}

/// The clocks of a machine.
#[derive(Debug)]
pub(crate) struct MachineClock {
    origin: Instant,
    /// Milliseconds between the start of the world and the wall clock at `origin`.
    offset: AtomicI64,
    /// Milliseconds for which the monotonic clock stood still.
    stood_still: AtomicU64,
}

impl Clock for MachineClock {
    fn now(&self) -> Timestamp {
        let offset = SignedDuration::from_millis(self.offset.load(Ordering::Relaxed));
        EPOCH + SignedDuration::try_from(self.origin.elapsed()).unwrap_or_default() + offset
    }
}

impl BootClock for MachineClock {
    fn now(&self) -> Instant {
        Instant::now() + Duration::from_millis(self.stood_still.load(Ordering::Relaxed))
    }
}

impl Life {
    /// Starts a replica at this time. Its wall clock is ahead by `skew` milliseconds.
    pub(crate) fn start(config: ControllerConfig, at: Time, skew: i64) -> std::io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build()?;
        let runner = System::with_tokio_rt(|| runtime);
        let outbox = Outbox::default();
        let transport = Arc::new(outbox.clone());
        let started = runner.block_on(async {
            let origin = Instant::now();
            let clock = Arc::new(MachineClock {
                origin,
                offset: AtomicI64::new(at.millis() as i64 + skew),
                stood_still: AtomicU64::default(),
            });
            let cx = ReplicaContext::new(
                config,
                transport,
                Arc::new(Metrics::new()),
                Handle::current(),
                Clocks { wall: clock.clone(), boot: clock.clone() },
            );
            Replica::start(cx).map(|replica| (System::current(), replica, clock, origin))
        });
        let (system, replica, clock, origin) = started?;
        Ok(Self { runner, system, replica: Some(replica), outbox, clock, origin, behind: at })
    }

    /// Lets it run up to this time, or until it has sent requests: returns the time that it has reached.
    pub(crate) fn run(&self, until: Time) -> Time {
        let target = self.local(until) + TICK;
        System::set_current(self.system.clone());
        let now = self.runner.block_on(async {
            if Instant::now() < target {
                tokio::select! {
                    biased;
                    () = sleep_until(target) => {}
                    // Gathers requests that it sends at the same time.
                    () = self.outbox.news() => sleep(TICK).await,
                }
            }
            Instant::now()
        });
        self.world(now)
    }

    /// The requests that it has sent since the last call, with the time of each.
    pub(crate) fn sent(&self) -> Vec<(Time, Sent)> {
        self.outbox.take().into_iter().map(|sent| (self.world(sent.at), sent)).collect()
    }

    /// Its monotonic clock has stood still for this time, while the others went on.
    pub(crate) fn suspended(&mut self, time: Duration) {
        self.behind += time;
        self.clock.stood_still.fetch_add(time.as_millis() as u64, Ordering::Relaxed);
        self.step_wall_clock(time.as_millis() as i64);
    }

    /// It has not run while its clock went on: every timer that is due fires only now.
    pub(crate) fn catch_up(&self, now: Time) {
        System::set_current(self.system.clone());
        self.runner.block_on(async {
            advance(self.local(now).saturating_duration_since(Instant::now())).await;
        });
    }

    /// Sets the wall clock ahead by this many milliseconds.
    pub(crate) fn step_wall_clock(&self, millis: i64) {
        self.clock.offset.fetch_add(millis, Ordering::Relaxed);
    }

    /// The replica.
    pub(crate) fn with<T>(&self, look: impl FnOnce(&Replica) -> T) -> Option<T> {
        System::set_current(self.system.clone());
        self.runner.block_on(async { self.replica.as_ref().map(look) })
    }

    fn local(&self, time: Time) -> Instant {
        self.origin + time.since(self.behind)
    }

    fn world(&self, now: Instant) -> Time {
        self.behind + (now - self.origin)
    }
}

/// A crash: tasks end wherever they wait.
impl Drop for Life {
    fn drop(&mut self) {
        System::set_current(self.system.clone());
        self.replica = None;
    }
}

/// The resolution of tokio's timers.
const TICK: Duration = Duration::from_millis(1);
