//! The pauses between writes of one kind about a pod, each of which succeeds. If the pod
//! needs the same write again soon, another writer, such as a webhook, has undone it, and
//! may do so forever.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::api_backoff::ApiBackoff;
use crate::job::tidying::Tidying;
use crate::job::uid::{Uid, UidMap};

/// A pod that has needed no write for this long after a pause is like any other.
const CLEAN: Duration = Duration::from_secs(60);

/// The pauses of all pods that were written to. Clones share them.
#[derive(Clone, Default)]
pub struct Pauses(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    pods: UidMap<Pause>,
    tidying: Tidying,
    tidied: Option<Instant>,
}

struct Pause {
    /// When the last write begins.
    begins: Instant,
    /// When the next one may begin.
    until: Instant,
    backoff: ApiBackoff,
}

impl Pause {
    fn is_forgotten(&self, now: Instant) -> bool {
        now > self.until + CLEAN
    }
}

impl Known {
    /// Forgets pods that have stayed clean, once in a while.
    fn tidy(&mut self, now: Instant) {
        let is_time = self.tidied.is_some_and(|tidied| now > tidied + CLEAN);
        if is_time || self.tidying.is_due(self.pods.len()) {
            self.pods.retain(|_, pause| !pause.is_forgotten(now));
            self.pods.shrink_to(2 * self.pods.len());
            self.tidying.done(self.pods.len());
            self.tidied = Some(now);
        }
    }
}

impl Pauses {
    /// Forgets pods that have stayed clean. A timer calls this, as the next write may be long in coming.
    pub fn tidy(&self) {
        self.known().tidy(Instant::now());
    }

    /// When the next write about this pod begins, which it is then expected to do. `backoff`: the pauses of a pod that was never
    /// written to.
    pub fn next(&self, pod: &Uid, backoff: impl FnOnce() -> ApiBackoff) -> Instant {
        let (mut known, now) = (self.known(), Instant::now());
        known.tidy(now);
        let pods = &mut known.pods;
        if pods.get(pod).is_some_and(|pause| pause.is_forgotten(now)) {
            pods.remove(pod);
        }
        let never = || Pause { begins: now, until: now, backoff: backoff() };
        let pause = pods.entry(pod.clone()).or_insert_with(never);
        if pause.begins <= now {
            pause.begins = pause.until.max(now);
            pause.until = pause.begins + pause.backoff.next_pause();
        }
        pause.begins
    }

    /// Whether the last write about this pod still pauses.
    pub fn is_pausing(&self, pod: &Uid) -> bool {
        self.known().pods.get(pod).is_some_and(|pause| pause.begins > Instant::now())
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, sleep_until};

    use super::*;

    fn backoff() -> ApiBackoff {
        ApiBackoff::new(Duration::from_secs(1), Duration::from_secs(60), 7)
    }

    #[tokio::test(start_paused = true)]
    async fn each_write_that_follows_soon_waits_for_longer() {
        let pauses = Pauses::default();
        let pod = "p".into();
        for _ in 0..2 {
            assert_eq!(pauses.next(&pod, backoff), Instant::now(), "the first begins at once");
            for seconds in [1.0, 2.0, 4.0] {
                assert!(!pauses.is_pausing(&pod));
                let begins = pauses.next(&pod, backoff);
                let pause = (begins - Instant::now()).as_secs_f64();
                assert!((seconds / 2.0..=seconds).contains(&pause), "{pause} of {seconds}");
                assert!(pauses.is_pausing(&pod));
                assert_eq!(pauses.next(&pod, backoff), begins, "it is still that one");
                sleep_until(begins).await;
            }
            advance(2 * CLEAN).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn pods_that_stay_clean_are_forgotten() {
        let pauses = Pauses::default();
        for number in 0..1_000 {
            pauses.next(&(&*number.to_string()).into(), backoff);
            advance(Duration::from_secs(1)).await;
        }
        assert!(pauses.known().pods.len() <= 150, "{}", pauses.known().pods.len());
    }

    #[tokio::test(start_paused = true)]
    async fn pods_that_stay_clean_are_forgotten_though_no_other_is_written_to() {
        let pauses = Pauses::default();
        for number in 0..10_000 {
            pauses.next(&(&*number.to_string()).into(), backoff);
        }
        pauses.tidy();
        assert_eq!(pauses.known().pods.len(), 10_000, "they may need the same write again");
        advance(2 * CLEAN).await;
        pauses.tidy();
        let known = pauses.known();
        assert_eq!((known.pods.len(), known.pods.capacity()), (0, 0));
    }
}
