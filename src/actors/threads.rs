//! The threads of a controller: half as many as there are cores for the network, and half for the actors, each rounded up. More
//! would take each other's work, and wake each other for it.
//!
//! At thousands of pods a second a thread that waits is woken for each of many small things, and to wake costs more than
//! what is then done. So before a thread waits it pauses for a moment, and finds together what has come meanwhile.

use std::time::Duration;

use actix::{Arbiter, ArbiterHandle, System};
use tokio::runtime::{Builder, Runtime};

/// How long a thread that has run out of work lets work gather. Everything that the controller does may be so much later, once
/// for each thread that has a part in it.
const GATHER: Duration = Duration::from_millis(2);

/// The threads for the network.
///
/// # Errors
/// When the operating system gives none.
pub fn network() -> std::io::Result<Runtime> {
    gathering(&mut Builder::new_multi_thread()).worker_threads(half_the_cores()).build()
}

/// What one thread of actors runs on.
///
/// # Errors
/// When the operating system denies it.
pub(super) fn actors() -> std::io::Result<Runtime> {
    gathering(&mut Builder::new_current_thread()).build()
}

/// Threads for actors: that of the system itself, and more up to `count`.
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
    builder.enable_all().on_thread_park(|| std::thread::sleep(GATHER))
}
