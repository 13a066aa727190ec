//! Which Jobs of a shard wait, and why: Job actors record changes, `/debug/shards` reads them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use serde::Serialize;

use crate::job::plan::Wait;
use crate::job::spec::Job;
use crate::job::uid::{Uid, UidMap};

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
    /// The API server's message, if it refuses the pods (as with an exceeded quota).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<Box<str>>,
}

/// The waiting Jobs of one shard. Clones share one board.
#[derive(Clone, Debug, Default)]
pub struct Waits(Arc<Mutex<BTreeMap<Key, WaitingJob>>>);

/// Ordered by name. The UID is part of the key, since a new Job may take the name of an old one.
type Key = (Arc<str>, Arc<str>, Uid);

impl Waits {
    fn jobs(&self) -> MutexGuard<'_, BTreeMap<Key, WaitingJob>> {
        // A panic while writing leaves the map whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records why a Job waits, if it does. `refusal`: the API server's last refusal of a pod.
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

    /// All of them.
    pub fn by_job(&self) -> UidMap<WaitingJob> {
        self.jobs().iter().map(|((.., uid), waiting)| (uid.clone(), waiting.clone())).collect()
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
