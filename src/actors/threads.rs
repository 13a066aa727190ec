//! The threads of a controller: half as many as there are cores for the network, and half for the actors,
//! each rounded up. More threads would steal each other's work, and wake each other for it.
//!
//! At thousands of pods a second a parked thread is woken for each small piece of work, and waking costs more
//! than the work. So a thread sleeps for a moment before it parks, and then finds all work that has come
//! meanwhile.

use std::time::Duration;

use actix::{Arbiter, ArbiterHandle, System};
use tokio::runtime::{Builder, Runtime};

/// Sleep of a thread that has run out of work, before it parks. It delays everything that the controller does
/// by up to this time, once for each thread involved.
const PARK_DELAY: Duration = Duration::from_millis(2);

/// The threads for the network.
///
/// # Errors
/// When the operating system gives none.
pub fn network() -> std::io::Result<Runtime> {
    gathering(&mut Builder::new_multi_thread()).worker_threads(half_the_cores()).build()
}

/// The runtime of one thread of actors.
///
/// # Errors
/// When the operating system denies it.
pub(super) fn actors() -> std::io::Result<Runtime> {
    gathering(&mut Builder::new_current_thread()).build()
}

/// Threads for actors: the system's own, and more up to `count`.
///
/// # Errors
/// When the operating system gives none.
///
/// # Panics
/// Outside an actix system.
pub(super) fn arbiters(count: usize) -> std::io::Result<Vec<ArbiterHandle>> {
    let more = (1..count).map(|_| Ok(Arbiter::try_with_tokio_rt(actors)?.handle()));
    std::iter::once(Ok(System::current().arbiter().clone())).chain(more).collect()
}

/// Half as many threads as can work at the same time, rounded up.
pub(super) fn half_the_cores() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().div_ceil(2))
}

fn gathering(builder: &mut Builder) -> &mut Builder {
    builder.enable_all().on_thread_park(|| std::thread::sleep(PARK_DELAY))
}
