//! The threads of a controller: half as many as there are cores for the network, and half for the actors,
//! each rounded up. More threads would steal each other's work, and wake each other for it.
//!
//! A parked thread is woken for each small piece of work, and waking costs more than the work. So a
//! thread sleeps for a moment before it parks, and then finds all work that has come meanwhile. If the
//! API server takes long to answer, a longer moment costs little by comparison. It also leaves more of
//! the cores to an API server on the same machine.

use std::time::Duration;

use actix::{Arbiter, ArbiterHandle, System};
use tokio::runtime::{Builder, Runtime};

use crate::cluster::answer_time::AnswerTime;

/// Sleep of a thread that has run out of work, before it parks: at least the first, at most the second. It delays
/// everything that the controller does by up to this time, once for each thread involved.
const PARK_DELAY: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(50));
/// Between these, one in this many parts of the time in which the API server answers.
const OF_ANSWER: u32 = 6;

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
    builder.enable_all().on_thread_park(move || std::thread::sleep(park_delay(answer_time.without_tenants())))
}

fn park_delay(answer_time: Duration) -> Duration {
    (answer_time / OF_ANSWER).clamp(PARK_DELAY.0, PARK_DELAY.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_sleep_longer_where_answers_take_long() {
        for (answer_ms, delay_ms) in [(0, 2), (12, 2), (30, 5), (120, 20), (1_000, 50)] {
            assert_eq!(park_delay(Duration::from_millis(answer_ms)), Duration::from_millis(delay_ms));
        }
    }
}
