//! How long an actor rests, so that its thread has time for other Jobs.
//!
//! Whoever may write a Job or its pods decides how much there is to do: all pods of a Job may mean something else at each of its
//! readings, and all indexes of its status are compared. So the work of an actor is measured. Whatever it is, in the long run it takes
//! no more than a fifth of the time of its thread. While the actor rests, its inputs wait; of the readings of the Job, only the newest does.

use std::time::Duration;

use tokio::time::Instant;

/// For each time that it works, an actor rests for so many times as long.
const REST: u32 = 4;
/// So much work at once needs no rest: no thread is held up by that.
const AT_ONCE: Duration = Duration::from_millis(20);
/// No rest is longer.
const MOST: Duration = Duration::from_secs(1);

/// The rest of an actor.
#[derive(Debug, Default)]
pub(super) struct Rest {
    /// Work that no rest has followed yet.
    due: Duration,
    /// When the last work ended.
    worked: Option<Instant>,
    until: Option<Instant>,
}

impl Rest {
    /// The actor has worked since `began`, to this time. Begins the rest that is due, if one is, and returns how long it lasts.
    pub(super) fn begin(&mut self, began: Instant, now: Instant) -> Option<Duration> {
        let rested = self.worked.map_or(Duration::ZERO, |worked| began.saturating_duration_since(worked));
        self.due = self.due.saturating_sub(rested / REST) + now.saturating_duration_since(began);
        self.worked = Some(now);
        let rest = (self.due >= AT_ONCE).then_some((self.due * REST).min(MOST))?;
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

    /// An actor that has something to do whenever it does not rest. Returns its part of the time.
    async fn part_of_time(work: Duration, pause: Duration) -> f64 {
        let (begun, mut rest, mut worked) = (Instant::now(), Rest::default(), Duration::ZERO);
        while begun.elapsed() < 600_000 * MS {
            let began = Instant::now();
            tokio::time::advance(work).await;
            worked += work;
            let rest = rest.begin(began, Instant::now()).unwrap_or_default();
            tokio::time::advance(rest.max(pause)).await;
        }
        worked.as_secs_f64() / begun.elapsed().as_secs_f64()
    }

    #[tokio::test(start_paused = true)]
    async fn work_takes_a_fifth_of_the_time_at_most() {
        for (work, most) in [(MS, 0.21), (10 * MS, 0.21), (19 * MS, 0.21), (100 * MS, 0.21), (500 * MS, 0.34)]
        {
            let part = part_of_time(work, 2 * MS).await;
            assert!((0.15..most).contains(&part), "{work:?}: {part}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_actor_with_little_to_do_never_rests() {
        let mut rest = Rest::default();
        for _ in 0..1_000 {
            let began = Instant::now();
            tokio::time::advance(2 * MS).await;
            assert_eq!((rest.begin(began, Instant::now()), rest.lasts()), (None, false));
            tokio::time::advance(10 * MS).await;
        }
        let began = Instant::now();
        tokio::time::advance(50 * MS).await;
        let lasts = rest.begin(began, Instant::now()).unwrap_or_default();
        assert!(lasts >= 200 * MS && rest.lasts());
        tokio::time::advance(lasts).await;
        assert!(!rest.lasts());
    }
}
