//! How long an actor rests, so that its thread has time for other Jobs.
//!
//! A tenant that changes its Job decides how much the actor has to do. For example, the actor
//! looks at all pods of the Job again, and compares all indexes in its status. So the actor
//! measures how long it works, and then rests for four times as long. It uses a fifth of the
//! time of its thread at most. A namespace may have many such Jobs. So after a long work, the
//! actor also makes up for the long works of the others, at most 15 s of them. No rest is
//! longer than a minute.
//!
//! While an actor rests, its inputs wait: of the readings of its Job and of a pod, the newest.
//! A rest ends early when others would wait for the actor, or when its inbox is urgent. The
//! actor makes up for that work as well.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::actors::pacing::long_works::{LongWorks, OwedRest, REST};

/// So much work at once needs no rest: no thread is held up by that.
const AT_ONCE: Duration = Duration::from_millis(20);

/// The rest of an actor.
#[derive(Debug, Default)]
pub(super) struct Rest {
    due: OwedRest,
    until: Option<Instant>,
}

impl Rest {
    /// The actor has worked since `began`, to this time, for a Job of this namespace. Begins the rest that is due, if one is.
    pub(super) fn begin(&mut self, began: Instant, now: Instant, works: &LongWorks, namespace: &Arc<str>) {
        let due = self.due.add(began, now).max(works.add(namespace, began, now));
        if due >= AT_ONCE {
            self.until = Some(now + due * REST);
        }
    }

    /// How much of it is left, if it lasts.
    pub(super) fn left(&self) -> Option<Duration> {
        let left = self.until?.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
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
            for rest in rests.iter_mut().filter(|rest| rest.left().is_none()) {
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
            (1, 500 * MS, 0.21),
            (1, 5_000 * MS, 0.21),
            (10, 10 * MS, 0.25),
            (100, 100 * MS, 0.25),
            (1_000, 10 * MS, 0.25),
            (100, MS, 0.25),
        ] {
            let part = part_of_time(actors, work, 2 * MS).await;
            assert!((0.1..most).contains(&part), "{actors} actors, {work:?}: {part}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn many_actors_with_little_to_do_never_rest() {
        let part = part_of_time(200, MS / 2, 100 * MS).await;
        assert!(part > 0.49, "{part}");
    }
}
