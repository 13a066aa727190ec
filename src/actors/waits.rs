//! Which Jobs of a shard wait, and why: Job actors write it when it changes, whoever asks reads it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use serde::Serialize;

use crate::job::plan::Wait;
use crate::job::spec::Job;
use crate::job::uid::Uid;

/// Jobs listed of one shard; the others are only counted.
const LISTED: usize = 100;

/// A Job of which no pod is created although it is not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WaitingJob {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// ExitReason, in one word: see [`Wait::reason`].
    pub reason: &'static str,
    /// Until when, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// What the API server said, where it is what stands in the way (such as a quota).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<Box<str>>,
}

/// The waiting Jobs of one shard. Clones are the same board.
#[derive(Clone, Debug, Default)]
pub struct Waits(Arc<Mutex<BTreeMap<Key, WaitingJob>>>);

/// In the order of names; a Job may be followed by another one of its name.
type Key = (Arc<str>, Arc<str>, Uid);

impl Waits {
    fn jobs(&self) -> MutexGuard<'_, BTreeMap<Key, WaitingJob>> {
        // A panic while writing leaves the map whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes down why a Job waits, if it does. `refusal`: what the API server said last.
    pub fn write(&self, job: &Job, wait: Option<&Wait>, refusal: Option<&str>) {
        let key = (job.namespace.clone(), job.name.clone(), job.uid.clone());
        let Some(wait) = wait else {
            self.jobs().remove(&key);
            return;
        };
        let waiting = WaitingJob {
            namespace: job.namespace.clone(),
            name: job.name.clone(),
            reason: wait.reason(),
            until: wait.until(),
            message: refusal.filter(|_| matches!(wait, Wait::Refused(_))).map(Box::from),
        };
        self.jobs().insert(key, waiting);
    }

    /// How many Jobs wait, and the first of them by name.
    pub fn read(&self) -> (usize, Vec<WaitingJob>) {
        let jobs = self.jobs();
        (jobs.len(), jobs.values().take(LISTED).cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::job::spec::Completion;
    use crate::job::tests::fixture::{at, job};

    #[test]
    fn the_board_follows_the_plans() {
        let (waits, job) = (Waits::default(), job(Completion::Count(1), 1));
        let quota = "exceeded quota: pods";
        for (wait, expected) in [
            (Some(Wait::Suspended), Some(("Suspended", None, None))),
            (Some(Wait::PodBackoff(at(10))), Some(("PodBackoff", Some(at(10)), None))),
            (Some(Wait::Refused(at(30))), Some(("Refused", Some(at(30)), Some(quota)))),
            (None, None),
        ] {
            waits.write(&job, wait.as_ref(), Some(quota));
            let (count, listed) = waits.clone().read();
            let seen = listed.first().map(|job| (job.reason, job.until, job.message.as_deref()));
            assert_eq!((count, seen), (usize::from(wait.is_some()), expected));
        }
    }

    #[test]
    fn the_list_is_bounded_and_the_count_is_not() {
        let waits = Waits::default();
        for number in 0..250 {
            let mut job = job(Completion::Count(1), 1);
            job.name = format!("work-{number:03}").into();
            waits.write(&job, Some(&Wait::Suspended), None);
        }
        let (count, listed) = waits.read();
        assert_eq!((count, listed.len(), &*listed[99].name), (250, 100, "work-099"));
    }
}
