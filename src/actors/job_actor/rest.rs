//! How long an actor rests, so that its thread has time for other Jobs.
//!
//! Whoever may write a Job or its pods decides how much there is to do: all pods of a Job may mean something else at each of its
//! readings, and all indexes of its status are compared. So the work of an actor is measured. Whatever it is, in the long run it takes
//! no more than a fifth of the time of its thread, and long works of all Jobs of a namespace together take no more than that. While
//! the actor rests, its inputs wait; of the readings of the Job, only the newest does.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use foldhash::fast::RandomState;
use tokio::time::Instant;

/// For each time that it works, an actor rests for so many times as long.
const REST: u32 = 4;
/// So much work at once needs no rest: no thread is held up by that.
const AT_ONCE: Duration = Duration::from_millis(20);
/// No rest is longer, and no more work than this is made up for.
const MOST: Duration = Duration::from_secs(1);
/// Works from this long on count for the namespace. Many Jobs with little to do each are no reason to rest.
const LONG: Duration = Duration::from_millis(5);
/// With more namespaces than this, those whose work is made up for are forgotten.
const NAMESPACES: usize = 64;

/// Work that no rest has followed yet.
#[derive(Clone, Copy, Debug, Default)]
struct Due {
    work: Duration,
    /// When the last work ended.
    worked: Option<Instant>,
}

impl Due {
    /// What is due of it at this time.
    fn at(self, time: Instant) -> Duration {
        let rested = self.worked.map_or(Duration::ZERO, |worked| time.saturating_duration_since(worked));
        self.work.saturating_sub(rested / REST)
    }

    fn add(&mut self, began: Instant, now: Instant) -> Duration {
        let work = (self.at(began) + now.saturating_duration_since(began)).min(MOST);
        *self = Self { work, worked: Some(now) };
        work
    }
}

/// The long works of all Jobs of each namespace. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct LongWorks(Arc<Mutex<HashMap<Arc<str>, Due, RandomState>>>);

impl LongWorks {
    /// A Job of this namespace has worked. Returns the work of the namespace that no rest has followed.
    fn add(&self, namespace: &Arc<str>, began: Instant, now: Instant) -> Duration {
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

/// The rest of an actor.
#[derive(Debug, Default)]
pub(super) struct Rest {
    due: Due,
    until: Option<Instant>,
}

impl Rest {
    /// The actor has worked since `began`, to this time, for a Job of this namespace. Begins the rest that is due, if one is, and
    /// returns how long it lasts.
    pub(super) fn begin(
        &mut self,
        began: Instant,
        now: Instant,
        works: &LongWorks,
        namespace: &Arc<str>,
    ) -> Option<Duration> {
        let due = self.due.add(began, now).max(works.add(namespace, began, now));
        let rest = (due >= AT_ONCE).then_some((due * REST).min(MOST))?;
        self.until = Some(now + rest);
        Some(rest)
    }

    /// Whether it lasts.
    pub(super) fn lasts(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Actors of a namespace that have something to do whenever they do not rest. Returns their part of the time.
    async fn part_of_time(actors: usize, work: Duration, pause: Duration) -> f64 {
        let (works, namespace) = (LongWorks::default(), Arc::from("n"));
        let mut rests: Vec<_> = (0..actors).map(|_| Rest::default()).collect();
        let (begun, mut worked) = (Instant::now(), Duration::ZERO);
        while begun.elapsed() < 600_000 * MS {
            for rest in rests.iter_mut().filter(|rest| !rest.lasts()) {
                let began = Instant::now();
                tokio::time::advance(work).await;
                worked += work;
                rest.begin(began, Instant::now(), &works, &namespace);
            }
            tokio::time::advance(pause).await;
        }
        worked.as_secs_f64() / begun.elapsed().as_secs_f64()
    }

    #[tokio::test(start_paused = true)]
    async fn work_takes_a_fifth_of_the_time_at_most() {
        for (actors, work, most) in [
            (1, MS, 0.21),
            (1, 10 * MS, 0.21),
            (1, 19 * MS, 0.21),
            (1, 100 * MS, 0.21),
            (1, 500 * MS, 0.34),
            (10, 10 * MS, 0.25),
        ] {
            let part = part_of_time(actors, work, 2 * MS).await;
            assert!((0.1..most).contains(&part), "{actors} actors, {work:?}: {part}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn many_actors_with_little_to_do_never_rest() {
        let part = part_of_time(100, MS, 100 * MS).await;
        assert!(part > 0.49, "{part}");
    }

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
