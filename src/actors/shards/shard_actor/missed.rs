//! Pods that a live list shows and the shard's own watch has not shown. Usually the watch is only behind. If it still does not show
//! such a pod after a while, the shard's list was not complete, and the shard lists its pods again.
//!
//! All Jobs of the shard wait for that new list. A tenant can create pods just before each live
//! list. So a new pod alone is no reason for one, and new lists follow each other with growing
//! pauses.

use std::time::Duration;

use tokio::time::Instant;

use crate::job::job_id::{JobId, JobMap};
use crate::job::uid::Uid;

/// Pause before pods are listed again after a list that did not show all of them.
pub(super) const LIVE_LIST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause before the shard's pods are listed again.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The pods that the watch of a shard seems to have missed, and the new list that shows them.
#[derive(Debug, Default)]
pub(super) struct Missed {
    /// By Job: one such pod, and when a live list first showed it.
    pods: JobMap<(Uid, Instant)>,
    /// A list of the shard's pods is due.
    is_due: bool,
    /// When the last one was asked for, and the pause before it.
    last: Option<(Instant, Duration)>,
}

impl Missed {
    /// Records the pods of a Job that a live list shows and the watch has not shown. Returns
    /// whether one of them has been missed for so long that the watch would have shown it.
    pub(super) fn is_overdue(&mut self, job: &JobId, unshown: &[Uid], now: Instant) -> bool {
        let Some(first) = unshown.first() else { return false };
        let missed = self.pods.entry(job.clone()).or_insert_with(|| (first.clone(), now));
        if !unshown.contains(&missed.0) {
            *missed = (first.clone(), now);
        }
        now.saturating_duration_since(missed.1) >= LIVE_LIST_PAUSE
    }

    /// Records that the watch has shown all pods of a Job.
    pub(super) fn forget(&mut self, job: &JobId) {
        self.pods.remove(job);
    }

    /// Records that the shard must list its pods again. Returns the pause before that list, or
    /// `None` if one is due already. If the last one was not long ago, the pause is twice as long
    /// as the one before.
    pub(super) fn must_relist(&mut self, now: Instant) -> Option<Duration> {
        if std::mem::replace(&mut self.is_due, true) {
            return None;
        }
        let is_recent = |(at, pause): &(Instant, Duration)| {
            now.saturating_duration_since(*at) < (*pause * 2).max(LONGEST_PAUSE)
        };
        let pause =
            self.last.filter(is_recent).map_or(LIVE_LIST_PAUSE, |(_, pause)| LONGEST_PAUSE.min(pause * 2));
        self.last = Some((now, pause));
        Some(pause)
    }

    /// Records that the shard lists its pods again.
    pub(super) fn relisted(&mut self) {
        self.is_due = false;
        self.pods.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn only_a_pod_that_stays_missed_is_overdue() {
        let (mut missed, job, begun) = (Missed::default(), JobId::from("j"), Instant::now());
        let pods = |names: &[&str]| names.iter().map(|name| Uid::from(*name)).collect::<Vec<_>>();
        assert!(!missed.is_overdue(&job, &pods(&["a", "b"]), begun));
        assert!(!missed.is_overdue(&job, &pods(&["b", "a"]), begun + SECOND / 2));
        // The watch has shown the first, and there is always another that is new.
        assert!(!missed.is_overdue(&job, &pods(&["b", "c"]), begun + SECOND));
        assert!(!missed.is_overdue(&job, &pods(&["d"]), begun + 2 * SECOND));
        assert!(missed.is_overdue(&job, &pods(&["e", "d"]), begun + 3 * SECOND));
        missed.forget(&job);
        assert!(!missed.is_overdue(&job, &pods(&["d"]), begun + 4 * SECOND));
        assert!(!missed.is_overdue(&job, &[], begun + 9 * SECOND));
    }

    #[tokio::test(start_paused = true)]
    async fn lists_of_a_shard_follow_each_other_more_and_more_slowly() {
        let (mut missed, mut now, mut pauses) = (Missed::default(), Instant::now(), Vec::new());
        for _ in 0..9 {
            let pause = missed.must_relist(now).unwrap_or_default();
            assert_eq!(missed.must_relist(now), None, "one is due already");
            pauses.push(pause.as_secs());
            now += pause;
            missed.relisted();
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(missed.must_relist(now + 2 * LONGEST_PAUSE), Some(SECOND), "once all is quiet");
    }
}
