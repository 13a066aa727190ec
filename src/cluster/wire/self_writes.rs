//! A cache of Jobs after our own writes. The watch event of such a write need not be decoded.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Deserialize;

use super::observed_job::ObservedJob;
use super::text::Text;

/// Capacity of the cache. Some Jobs in it are never looked up, since their event came before the write's
/// answer.
const CAPACITY: usize = 64;
/// Most memory, in bytes, for the indexes and UIDs of their statuses: authors of statuses choose them.
const LONGEST_LISTS: usize = 4 << 20;
/// Longest event that is looked up, in bytes. A longer one would be read once more only to find out its UID.
const LONGEST_EVENT: usize = 64 << 10;
/// The beginning of an event for a changed Job.
const MODIFIED: &[u8] = br#"{"type":"MODIFIED","#;

/// The object and version of an event, which suffice to look it up.
#[derive(Deserialize)]
struct About<'a> {
    #[serde(borrow)]
    object: Object<'a>,
}

#[derive(Deserialize)]
struct Object<'a> {
    #[serde(borrow)]
    metadata: Identity<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Identity<'a> {
    #[serde(borrow)]
    uid: Text<'a>,
    #[serde(borrow)]
    resource_version: Text<'a>,
}

/// Jobs after our own answered writes, kept until their watch event comes. Clones share the Jobs.
#[derive(Clone, Debug, Default)]
pub struct SelfWriteCache(Arc<Mutex<Writes>>);

#[derive(Debug, Default)]
struct Writes {
    by_version: BTreeMap<u64, Arc<ObservedJob>>,
    /// The memory for the indexes and UIDs of their statuses.
    list_bytes: usize,
    newest: Option<Arc<ObservedJob>>,
}

impl Writes {
    fn insert(&mut self, job: Arc<ObservedJob>) {
        let version = job.version.order();
        self.remove(version);
        self.list_bytes += list_bytes(&job);
        self.by_version.insert(version, job);
        while self.by_version.len() > CAPACITY || self.list_bytes > LONGEST_LISTS {
            let Some(oldest) = self.by_version.keys().next() else { return };
            self.remove(*oldest);
        }
    }

    fn remove(&mut self, version: u64) -> Option<Arc<ObservedJob>> {
        let job = self.by_version.remove(&version)?;
        self.list_bytes -= list_bytes(&job);
        Some(job)
    }
}

fn list_bytes(job: &ObservedJob) -> usize {
    job.job.as_ref().map_or(0, |job| job.status.list_bytes())
}

impl SelfWriteCache {
    fn lock(&self) -> MutexGuard<'_, Writes> {
        // Poisoning is ignored: a panic while it is locked leaves the map intact.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets all writes: their versions may be given to others.
    pub fn clear(&self) {
        *self.lock() = Writes::default();
    }

    /// Adds a Job as it is after a write.
    pub fn note(&self, job: Arc<ObservedJob>) {
        let mut writes = self.lock();
        let version = job.version.order();
        if writes.newest.as_ref().is_none_or(|newest| newest.version.order() < version) {
            writes.newest = Some(job.clone());
        }
        writes.insert(job);
    }

    /// The Job of the latest write, also after its watch event has come.
    pub fn newest(&self) -> Option<Arc<ObservedJob>> {
        self.lock().newest.clone()
    }

    /// The Job of this watch event, if the event is that of a cached write.
    pub(super) fn recall(&self, event: &[u8]) -> Option<Arc<ObservedJob>> {
        if !event.starts_with(MODIFIED) || event.len() > LONGEST_EVENT || self.lock().by_version.is_empty() {
            return None;
        }
        let About { object: Object { metadata } } = serde_json::from_slice(event).ok()?;
        let job = self.lock().remove(metadata.resource_version.parse().ok()?)?;
        (job.uid == (*metadata.uid).into()).then_some(job)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;
    use crate::cluster::watch::{Event, read_event};
    use crate::cluster::wire::{Decoder, JobDecoder};

    /// A Job whose annotations and template hold a second `resourceVersion` and `uid`, partly before the real
    /// ones.
    fn job(uid: &str, version: u64) -> Value {
        json!({
            "metadata": {
                "annotations": {"resourceVersion": "7", "uid": "uid-1"},
                "name": "j", "namespace": "n", "uid": uid, "resourceVersion": version.to_string(),
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": {
                "parallelism": 1, "completions": 1, "completionMode": "NonIndexed", "selector": {},
                "template": {"metadata": {"resourceVersion": "12"}, "spec": {}},
            },
            "status": {"active": 1},
        })
    }

    fn line(kind: &str, job: &Value) -> Vec<u8> {
        format!(r#"{{"type":"{kind}","object":{job}}}"#).into_bytes()
    }

    /// Caches a write of a Job whose status counts one failure, unlike the events.
    fn cache(own: &SelfWriteCache, uid: &str, version: u64) {
        let read = JobDecoder::new().decode(job(uid, 1).to_string().as_bytes()).unwrap();
        let status = crate::job::status::JobStatus { failed: 1, ..read.job.as_ref().unwrap().status.clone() };
        own.note(Arc::new(read.with_status(version.to_string().as_str().into(), status)));
    }

    fn failed(own: &SelfWriteCache, line: &[u8]) -> u32 {
        match read_event(&JobDecoder::new().knowing(own.clone()), line).unwrap() {
            Event::Applied { object, .. } | Event::Deleted(object) => {
                object.job.as_ref().unwrap().status.failed
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn only_the_event_of_a_cached_write_is_not_decoded() {
        let own = SelfWriteCache::default();
        for (kind, uid, version, failures) in [
            ("MODIFIED", "uid-1", 8, 0),
            ("ADDED", "uid-1", 7, 0),
            ("DELETED", "uid-1", 7, 0),
            ("MODIFIED", "uid-2", 12, 0),
            ("MODIFIED", "uid-1", 7, 1),
        ] {
            cache(&own, "uid-1", 7);
            assert_eq!(failed(&own, &line(kind, &job(uid, version))), failures, "{kind} {uid} {version}");
        }
        assert_eq!(failed(&own, &line("MODIFIED", &job("uid-1", 7))), 0, "it is used once");
        cache(&own, "uid-1", 7);
        assert_eq!(failed(&own, &line("MODIFIED", &job("uid-2", 7))), 0, "a version of another Job");
    }

    #[test]
    fn the_latest_writes_are_kept() {
        let own = SelfWriteCache::default();
        (1..=CAPACITY as u64 + 1).for_each(|version| cache(&own, "uid-1", version));
        for (version, failures) in [(1, 0), (2, 1), (CAPACITY as u64 + 1, 1)] {
            assert_eq!(failed(&own, &line("MODIFIED", &job("uid-1", version))), failures, "{version}");
        }
    }

    #[test]
    fn of_long_statuses_only_the_latest_are_kept() {
        let own = SelfWriteCache::default();
        let read = JobDecoder::new().decode(job("uid-1", 1).to_string().as_bytes()).unwrap();
        let status = crate::job::status::JobStatus {
            completed_indexes: (0..200_000).step_by(2).collect(),
            ..read.job.as_ref().unwrap().status.clone()
        };
        let note = |version: u64| {
            own.note(Arc::new(read.with_status(version.to_string().as_str().into(), status.clone())));
        };
        (1..=10).for_each(note);
        let knows = |version| own.recall(&line("MODIFIED", &job("uid-1", version))).is_some();
        assert_eq!([6, 7, 8, 9, 10].map(knows), [false, false, true, true, true]);
        assert_eq!(own.lock().list_bytes, 0, "all that is known is recalled");
        [11, 11].into_iter().for_each(note);
        assert!(knows(11) && own.lock().list_bytes == 0);
    }
}
