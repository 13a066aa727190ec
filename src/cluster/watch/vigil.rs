//! Notices watches that are dead without a word, as behind a proxy that keeps their connection.
//!
//! API servers send bookmarks only about once a minute, so silence alone says little. A watch that has been
//! silent for a while is opened again from its last version, which is right in any case. It asks for a
//! short time then. API servers send a bookmark before they end a watch, so its version does not grow too
//! old to resume from. The watches of a replica take turns, so that one with many idle watches sends no
//! more than one such request a second. When one turns out to have been dead, or when the replica does not
//! see its own heartbeat, all silent watches are suspected at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex as TurnLock, watch};
use tokio::time::{Instant, sleep, sleep_until};

/// Silence after which a watch is opened again, when its turn has come.
pub(super) const SILENCE: Duration = Duration::from_secs(20);
/// Shortest time between two turns.
const TURN: Duration = Duration::from_secs(1);
/// Silence after which a watch is opened again while all are suspected.
const SUSPECT: Duration = Duration::from_secs(3);
/// Time over which the watches that are suspected open again, and shortest time between two suspicions.
const SPREAD: Duration = Duration::from_secs(1);
const SUSPICIONS_APART: Duration = Duration::from_secs(10);

/// Looks after the watches of one replica. Clones are the same vigil.
#[derive(Clone, Debug)]
pub struct Vigil(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// When the last turn began.
    turn: TurnLock<Option<Instant>>,
    /// When all watches were last suspected.
    suspected: watch::Sender<Option<Instant>>,
    /// The newest version that any watch has shown.
    newest: AtomicU64,
}

/// Why a watch is opened again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doubt {
    /// The watch has been silent for long.
    Silent,
    /// All are suspected.
    Suspected,
}

impl Default for Vigil {
    fn default() -> Self {
        Self(Arc::new(Shared {
            turn: TurnLock::new(None),
            suspected: watch::Sender::new(None),
            newest: AtomicU64::default(),
        }))
    }
}

impl Vigil {
    /// A watch has shown this version.
    pub(super) fn saw(&self, version: u64) {
        self.0.newest.fetch_max(version, Ordering::Relaxed);
    }

    /// The newest version that any watch of this replica has shown. The API server's resources share one
    /// count of versions, so an older version that is shown later has been withheld.
    pub(super) fn newest(&self) -> u64 {
        self.0.newest.load(Ordering::Relaxed)
    }

    /// Something shows that a watch of this replica is dead: all that are silent are opened again.
    pub fn suspect(&self) {
        let now = Instant::now();
        let suspected = self.0.suspected.send_if_modified(|last| {
            let again = last.is_none_or(|last| now >= last + SUSPICIONS_APART);
            if again {
                *last = Some(now);
            }
            again
        });
        if suspected {
            tracing::warn!("a watch was dead without a word; all silent watches are opened again");
        }
    }

    /// Whether watches have ever been suspected.
    #[cfg(test)]
    pub(super) fn has_suspected(&self) -> bool {
        self.0.suspected.borrow().is_some()
    }

    /// Returns once a watch that is silent from now on is to be opened again. `seed` spreads those that are suspected
    /// together.
    pub(super) async fn doubted(&self, seed: u64) -> Doubt {
        tokio::select! {
            biased;
            () = self.turn() => Doubt::Silent,
            () = self.suspicion(seed) => Doubt::Suspected,
        }
    }

    /// Long silence, and then the watch's turn.
    async fn turn(&self) {
        sleep(SILENCE).await;
        // Watches wait in line, and a watch that gets an event meanwhile leaves it.
        let mut last = self.0.turn.lock().await;
        if let Some(last) = *last {
            sleep_until(last + TURN).await;
        }
        *last = Some(Instant::now());
    }

    async fn suspicion(&self, seed: u64) {
        let silent_since = Instant::now();
        let mut suspected = self.0.suspected.subscribe();
        loop {
            // The sender is as old as the vigil.
            let _ = suspected.changed().await;
            if silent_since.elapsed() >= SUSPECT {
                return sleep(spread(seed, SPREAD)).await;
            }
        }
    }
}

/// A part of this time that varies by the seed.
pub(super) fn spread(seed: u64, time: Duration) -> Duration {
    // Seeds are numbers in a row: the golden ratio spreads these evenly.
    let part = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 48;
    time * part as u32 / (1 << 16)
}

#[cfg(test)]
mod tests {
    use futures::future::join_all;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn silent_watches_take_turns() {
        let (vigil, began) = (Vigil::default(), Instant::now());
        let checked = (0..30).map(|seed| {
            let vigil = &vigil;
            async move { (vigil.doubted(seed).await, began.elapsed().as_secs()) }
        });
        let checked = join_all(checked).await;
        assert_eq!(checked, (20..50).map(|second| (Doubt::Silent, second)).collect::<Vec<_>>());
    }

    #[tokio::test(start_paused = true)]
    async fn one_dead_watch_makes_all_silent_ones_suspect() {
        let (vigil, began) = (Vigil::default(), Instant::now());
        let suspected = async {
            sleep(Duration::from_secs(10)).await;
            vigil.suspect();
            vigil.suspect();
        };
        let old = (0..64).map(|seed| vigil.doubted(seed));
        let heard_lately = async {
            sleep(Duration::from_secs(8)).await;
            vigil.doubted(64).await
        };
        let (old, recent, ()) = tokio::join!(
            async { (join_all(old).await, began.elapsed()) },
            async { (heard_lately.await, began.elapsed()) },
            suspected
        );
        assert!(old.0.iter().all(|doubt| *doubt == Doubt::Suspected) && old.1 <= Duration::from_secs(11));
        assert_eq!((recent.0, recent.1.as_secs()), (Doubt::Silent, 28));
        let parts: Vec<u128> = (0..64).map(|seed| spread(seed, SPREAD).as_millis()).collect();
        let early = parts.iter().filter(|part| **part < 500).count();
        assert!(parts.iter().all(|part| *part < 1_000) && (28..=36).contains(&early), "{parts:?}");
    }
}
