//! Which Jobs of a shard wait, and why: Job actors record changes, `/debug/shards` reads them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use serde::Serialize;

use crate::job::plan::Wait;
use crate::job::spec::Job;
use crate::job::uid::Uid;
use crate::telemetry::metrics::labels::WaitLabels;
use crate::telemetry::metrics::{Gauge, Metrics};

/// Most Jobs of one shard that are listed; the others are only counted.
const MAX_LISTED: usize = 100;

/// A Job that is not done although no pod of it is created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WaitingJob {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// The reason, in one word: see [`Wait::reason`].
    pub reason: &'static str,
    /// Until when, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// The API server's message, if it refuses the pods (as with an exceeded quota), or another detail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<Arc<str>>,
}

/// The waiting Jobs of one shard. Clones share one board.
#[derive(Clone, Debug)]
pub struct WaitingJobs(Arc<Board>);

#[derive(Debug)]
struct Board {
    jobs: Mutex<BTreeMap<Key, WaitingJob>>,
    /// How many Jobs of the replica wait, for each of [`Wait::REASONS`].
    gauges: [Gauge; Wait::REASONS.len()],
}

/// Ordered by name. The UID is part of the key, since a new Job may take the name of an old one.
type Key = (Arc<str>, Arc<str>, Uid);

impl Board {
    fn count(&self, job: &WaitingJob, change: i64) {
        let gauge = Wait::REASONS.iter().zip(&self.gauges).find(|(reason, _)| **reason == job.reason);
        gauge.into_iter().for_each(|(_, gauge)| _ = gauge.inc_by(change));
    }
}

/// The Jobs of a shard that is given up wait elsewhere.
impl Drop for Board {
    fn drop(&mut self) {
        let jobs = std::mem::take(self.jobs.get_mut().unwrap_or_else(PoisonError::into_inner));
        jobs.values().for_each(|job| self.count(job, -1));
    }
}

impl WaitingJobs {
    /// The board of a shard on which no Job waits yet.
    pub fn new(metrics: &Metrics) -> Self {
        let gauges =
            Wait::REASONS.map(|reason| metrics.waiting_jobs.get_or_create_owned(&WaitLabels { reason }));
        Self(Arc::new(Board { jobs: Mutex::default(), gauges }))
    }

    fn jobs(&self) -> MutexGuard<'_, BTreeMap<Key, WaitingJob>> {
        // A panic while writing leaves the map whole.
        self.0.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records why a Job waits, if it does. `refusal`: the API server's last refusal of a pod.
    pub fn write(&self, job: &Job, wait: Option<&Wait>, refusal: Option<&Arc<str>>) {
        let key = (job.namespace.clone(), job.name.clone(), job.uid.clone());
        let Some(wait) = wait else {
            let before = self.jobs().remove(&key);
            return before.into_iter().for_each(|job| self.0.count(&job, -1));
        };
        let waiting = WaitingJob {
            namespace: job.namespace.clone(),
            name: job.name.clone(),
            reason: wait.reason(),
            until: wait.until(),
            message: wait
                .detail()
                .map(Arc::from)
                .or_else(|| refusal.filter(|_| matches!(wait, Wait::Refused(_))).cloned()),
        };
        self.0.count(&waiting, 1);
        let before = self.jobs().insert(key, waiting);
        before.into_iter().for_each(|job| self.0.count(&job, -1));
    }

    /// Why a Job waits, if it does.
    pub fn of(&self, job: &Job) -> Option<WaitingJob> {
        let key = (job.namespace.clone(), job.name.clone(), job.uid.clone());
        self.jobs().get(&key).cloned()
    }

    /// How many Jobs wait, and the first of them by name.
    pub fn read(&self) -> (usize, Vec<WaitingJob>) {
        let jobs = self.jobs();
        (jobs.len(), jobs.values().take(MAX_LISTED).cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::job::predecessors::{Hindrance, Obstacle};
    use crate::job::spec::Completion;
    use crate::job::tests::fixture::{at, job};

    #[test]
    fn the_board_follows_the_plans() {
        let metrics = Metrics::new();
        let (waits, job) = (WaitingJobs::new(&metrics), job(Completion::Count(1), 1));
        let counted = || {
            let of = |reason: &&str| (**reason).to_owned();
            let gauge = |reason| metrics.waiting_jobs.get_or_create(&WaitLabels { reason }).get();
            let waiting = Wait::REASONS.into_iter().filter(|reason| gauge(reason) != 0);
            waiting.map(|reason| (of(&reason), gauge(reason))).collect::<Vec<_>>()
        };
        let quota = "exceeded quota: pods";
        for (wait, expected) in [
            (Some(Wait::Suspended), Some(("Suspended", None, None))),
            (Some(Wait::PodBackoff(at(10))), Some(("PodBackoff", Some(at(10)), None))),
            (Some(Wait::Refused(at(30))), Some(("Refused", Some(at(30)), Some(quota)))),
            (None, None),
        ] {
            waits.write(&job, wait.as_ref(), Some(&quota.into()));
            let (count, listed) = waits.clone().read();
            let seen = listed.first().map(|job| (job.reason, job.until, job.message.as_deref()));
            assert_eq!((count, seen), (usize::from(wait.is_some()), expected));
            let gauges: Vec<_> = expected.iter().map(|(reason, ..)| ((*reason).to_owned(), 1)).collect();
            assert_eq!(counted(), gauges);
        }
        waits.write(&job, Some(&Wait::Gang), None);
        let another = waits.clone();
        drop(waits);
        assert_eq!(counted(), [("GangScheduling".to_owned(), 1)]);
        drop(another);
        assert_eq!(counted(), [], "the shard is gone");
    }

    #[test]
    fn every_reason_has_a_series() {
        for wait in [
            Wait::Suspended,
            Wait::After(Obstacle { cause: Hindrance::Failed, job: "before".into() }),
            Wait::Deleting,
            Wait::PodBackoff(at(1)),
            Wait::IndexBackoff(at(1)),
            Wait::Refused(at(1)),
            Wait::Gang,
            Wait::Adopting,
            Wait::PodsUnknown,
            Wait::Terminating,
            Wait::FailureDebounce(at(1)),
            Wait::Restarting,
            Wait::Finishing,
        ] {
            assert!(Wait::REASONS.contains(&wait.reason()), "{wait:?}");
        }
    }

    #[test]
    fn the_list_is_bounded_and_the_count_is_not() {
        let waits = WaitingJobs::new(&Metrics::new());
        for number in 0..250 {
            let mut job = job(Completion::Count(1), 1);
            job.name = format!("work-{number:03}").into();
            waits.write(&job, Some(&Wait::Suspended), None);
        }
        let (count, listed) = waits.read();
        assert_eq!((count, listed.len(), &*listed[99].name), (250, 100, "work-099"));
    }
}
