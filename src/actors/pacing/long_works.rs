//! Working time of Job actors that they have not yet made up for by resting.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// An actor rests for this many times as long as it works.
pub const REST: u32 = 4;
/// No more work than this is made up for, so no rest is longer than a minute.
pub const MOST: Duration = Duration::from_secs(15);
/// Works from this long on count for the namespace. Many Jobs with little to do each are no reason to rest.
const LONG: Duration = Duration::from_millis(1);
/// With more namespaces than this, namespaces without due work are forgotten.
const NAMESPACES: usize = 64;

/// Working time that no rest has made up for.
#[derive(Clone, Copy, Debug, Default)]
pub struct OwedRest {
    work: Duration,
    /// When the last work ended.
    worked: Option<Instant>,
}

impl OwedRest {
    /// The part of it that is due at this time.
    fn at(self, time: Instant) -> Duration {
        let rested = self.worked.map_or(Duration::ZERO, |worked| time.saturating_duration_since(worked));
        self.work.saturating_sub(rested / REST)
    }

    /// Adds a work. Returns the working time that no rest has made up for, 15 s at most.
    pub fn add(&mut self, began: Instant, now: Instant) -> Duration {
        let work = (self.at(began) + now.saturating_duration_since(began)).min(MOST);
        *self = Self { work, worked: Some(now) };
        work
    }
}

/// The long works of all Jobs of each namespace. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct LongWorks(Arc<Mutex<HashMap<Arc<str>, OwedRest>>>);

impl LongWorks {
    /// A Job of this namespace has worked. Returns the work of the namespace that no rest has followed.
    pub fn add(&self, namespace: &Arc<str>, began: Instant, now: Instant) -> Duration {
        if now.saturating_duration_since(began) < LONG {
            return Duration::ZERO;
        }
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= NAMESPACES {
            all.retain(|_, due| !due.at(now).is_zero());
        }
        all.entry(namespace.clone()).or_default().add(began, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn namespaces_that_have_rested_are_forgotten() {
        let works = LongWorks::default();
        for number in 0..10_000 {
            let began = Instant::now();
            tokio::time::advance(LONG).await;
            works.add(&Arc::from(number.to_string()), began, Instant::now());
        }
        let kept = works.0.lock().map_or(0, |all| all.len());
        assert!(kept <= NAMESPACES, "{kept}");
    }
}
