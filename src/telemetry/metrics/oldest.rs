//! The oldest of many waits.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use slab::Slab;

/// The waits of many parties, each of which waits or does not. To begin and to end a wait costs one store;
/// only a reading looks at all of them. Clones share everything.
#[derive(Clone, Debug)]
pub struct Oldest(Arc<Waits>);

#[derive(Debug)]
struct Waits {
    origin: Instant,
    /// When each party began to wait, in milliseconds after one millisecond before the origin; 0 if it does
    /// not wait.
    since: Mutex<Slab<Arc<AtomicU64>>>,
}

impl Default for Oldest {
    fn default() -> Self {
        Self(Arc::new(Waits { origin: Instant::now(), since: Mutex::default() }))
    }
}

/// Since when one party waits. Dropped, it no longer counts.
#[derive(Debug)]
pub struct Since {
    all: Oldest,
    key: usize,
    since: Arc<AtomicU64>,
}

impl Oldest {
    fn waits(&self) -> MutexGuard<'_, Slab<Arc<AtomicU64>>> {
        // A panic leaves the slab whole.
        self.0.since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A party, which does not wait yet.
    pub fn party(&self) -> Since {
        let since = Arc::new(AtomicU64::new(0));
        let key = self.waits().insert(since.clone());
        Since { all: self.clone(), key, since }
    }

    /// How long the oldest wait has lasted; zero without a wait.
    pub fn age(&self) -> Duration {
        let waits = self.waits();
        let since = waits.iter().map(|(_, since)| since.load(Ordering::Relaxed));
        let Some(first) = since.filter(|since| *since > 0).min() else { return Duration::ZERO };
        self.0.origin.elapsed().saturating_sub(Duration::from_millis(first - 1))
    }
}

impl Since {
    /// The wait begins now, also if the party has waited before.
    pub fn begin(&self) {
        let now = self.all.0.origin.elapsed().as_millis();
        self.since.store(u64::try_from(now).unwrap_or(u64::MAX - 1) + 1, Ordering::Relaxed);
    }

    /// The party does not wait.
    pub fn end(&self) {
        self.since.store(0, Ordering::Relaxed);
    }
}

impl Drop for Since {
    fn drop(&mut self) {
        self.all.waits().try_remove(self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_wait_counts_until_it_ends() {
        let oldest = Oldest::default();
        let (first, second) = (oldest.party(), oldest.party());
        assert_eq!(oldest.age(), Duration::ZERO);
        first.begin();
        std::thread::sleep(Duration::from_millis(20));
        second.begin();
        assert!(oldest.age() >= Duration::from_millis(20));
        first.begin();
        let younger = oldest.age();
        first.end();
        assert!(oldest.age() >= younger);
        drop(second);
        assert_eq!(oldest.age(), Duration::ZERO);
    }
}
