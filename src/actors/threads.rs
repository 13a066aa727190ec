//! The threads of a controller: half as many as there are cores for the network, and half for the actors,
//! each rounded up. More threads would steal each other's work, and wake each other for it.
//!
//! A parked thread is woken for each small piece of work, and waking costs more than the work. So a
//! thread sleeps for a moment before it parks, and then finds all work that has come meanwhile. If the
//! API server takes long to answer, a longer moment costs little by comparison. It also leaves more of
//! the cores to an API server on the same machine.
//!
//! After a rest, the next pieces of work are those of a single Job, one after the other. No other work would join
//! them, so a thread parks at once then.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use actix::{Arbiter, ArbiterHandle, System};
use tokio::runtime::{Builder, Runtime};

use crate::cluster::answer_time::AnswerTime;

/// Sleep of a thread that has run out of work, before it parks: at least the first, at most the second. It delays
/// everything that the controller does by up to this time, once for each thread involved.
const PARK_DELAY: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(50));
/// Between these, one in this many parts of the time in which the API server answers.
const OF_ANSWER: u32 = 6;

/// A thread that was parked for this long had a rest.
const REST: Duration = Duration::from_millis(10);
/// Parks at once after a rest: twice as many as the events and answers between two steps of a one-pod Job.
const QUICK_PARKS: u32 = 16;

/// Which parks of the threads of a runtime are at once.
#[derive(Debug, Default)]
struct Haste {
    /// How many of the next.
    left: u32,
    /// When a thread last parked.
    parked: Option<Instant>,
}

impl Haste {
    /// Whether the next park is at once.
    fn take(&mut self) -> bool {
        let is_quick = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_quick
    }

    fn parked(&mut self, now: Instant) {
        self.parked = Some(now);
    }

    fn woken(&mut self, now: Instant) {
        if self.parked.is_none_or(|at| now.duration_since(at) >= REST) {
            self.left = QUICK_PARKS;
        }
    }
}

/// The threads for the network.
///
/// # Errors
/// When the operating system gives none.
pub fn network(answer_time: AnswerTime) -> std::io::Result<Runtime> {
    gathering(&mut Builder::new_multi_thread(), answer_time).worker_threads(half_the_cores()).build()
}

/// The runtime of one thread of actors.
///
/// # Errors
/// When the operating system denies it.
pub(super) fn actors(answer_time: AnswerTime) -> std::io::Result<Runtime> {
    gathering(&mut Builder::new_current_thread(), answer_time).build()
}

/// Threads for actors: the system's own, and more up to `count`.
///
/// # Errors
/// When the operating system gives none.
///
/// # Panics
/// Outside an actix system.
pub(super) fn arbiters(count: usize, answer_time: &AnswerTime) -> std::io::Result<Vec<ArbiterHandle>> {
    let more = (1..count).map(|_| {
        let runtime = actors(answer_time.clone())?;
        Ok(Arbiter::with_tokio_rt(move || runtime).handle())
    });
    std::iter::once(Ok(System::current().arbiter().clone())).chain(more).collect()
}

/// Half as many threads as can work at the same time, rounded up.
pub(super) fn half_the_cores() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().div_ceil(2))
}

fn gathering(builder: &mut Builder, answer_time: AnswerTime) -> &mut Builder {
    let haste = Arc::new(Mutex::new(Haste::default()));
    let woken = haste.clone();
    let park = move || {
        let is_quick = lock(&haste).take();
        if !is_quick {
            std::thread::sleep(park_delay(answer_time.without_tenants()));
        }
        lock(&haste).parked(Instant::now());
    };
    builder.enable_all().on_thread_park(park).on_thread_unpark(move || lock(&woken).woken(Instant::now()))
}

fn lock(haste: &Mutex<Haste>) -> MutexGuard<'_, Haste> {
    // Every step leaves a usable state.
    haste.lock().unwrap_or_else(PoisonError::into_inner)
}

fn park_delay(answer_time: Duration) -> Duration {
    (answer_time / OF_ANSWER).clamp(PARK_DELAY.0, PARK_DELAY.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parks_are_at_once_after_a_rest_only() {
        let (mut haste, start) = (Haste::default(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        // A stream: work comes every millisecond.
        haste.parked(at(0));
        (1..100).for_each(|ms| {
            haste.woken(at(ms));
            assert!(!haste.take(), "after {ms} ms of a stream");
            haste.parked(at(ms));
        });
        haste.woken(at(110));
        let quick = (0..2 * QUICK_PARKS).filter(|_| {
            let is_quick = haste.take();
            haste.parked(at(110));
            haste.woken(at(111));
            is_quick
        });
        assert_eq!(quick.count(), QUICK_PARKS as usize);
    }

    #[test]
    fn threads_sleep_longer_where_answers_take_long() {
        for (answer_ms, delay_ms) in [(0, 2), (12, 2), (30, 5), (120, 20), (1_000, 50)] {
            assert_eq!(park_delay(Duration::from_millis(answer_ms)), Duration::from_millis(delay_ms));
        }
    }
}
