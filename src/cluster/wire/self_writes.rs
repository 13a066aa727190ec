//! Jobs as our own writes have left them: a watch that tells of such a write tells nothing new.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Deserialize;

use super::observed_job::ObservedJob;
use super::text::Text;

/// Most Jobs that are kept: some are never asked for, since the watch has told of them before the write was answered.
const MOST: usize = 64;
/// How an event of a Job begins that was changed.
const MODIFIED: &[u8] = br#"{"type":"MODIFIED","#;

/// Which state of which object an event is about: all that is read of an event that may be of an own write.
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

/// Jobs as answered writes of ours have left them, until the watch tells of them. Clones share the Jobs.
#[derive(Clone, Debug, Default)]
pub struct SelfWriteCache {
    by_version: Arc<Mutex<BTreeMap<u64, Arc<ObservedJob>>>>,
}

impl SelfWriteCache {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<ObservedJob>>> {
        // A panic while it is locked leaves the map whole.
        self.by_version.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in how a write has left a Job.
    pub fn note(&self, job: Arc<ObservedJob>) {
        let mut known = self.lock();
        known.insert(job.version.order(), job);
        while known.len() > MOST {
            known.pop_first();
        }
    }

    /// The Job of this event of a watch, if the event tells of a write that is known.
    pub(super) fn recall(&self, event: &[u8]) -> Option<Arc<ObservedJob>> {
        if !event.starts_with(MODIFIED) || self.lock().is_empty() {
            return None;
        }
        let About { object: Object { metadata } } = serde_json::from_slice(event).ok()?;
        let job = self.lock().remove(&metadata.resource_version.parse().ok()?)?;
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

    /// With what looks like a version, and stands before it.
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

    /// Of a Job that we have written, and that is known to have failed once, whatever the event says.
    fn known(own: &SelfWriteCache, uid: &str, version: u64) {
        let read = JobDecoder::new().decode(job(uid, 1).to_string().as_bytes()).unwrap();
        let status = crate::job::status::JobStatus { failed: 1, ..read.job.as_ref().unwrap().status.clone() };
        own.note(Arc::new(read.with_status(version.to_string().as_str().into(), status)));
    }

    fn failed(own: &SelfWriteCache, line: &[u8]) -> u32 {
        match read_event(&JobDecoder::knowing(own.clone()), line).unwrap() {
            Event::Applied { object, .. } | Event::Deleted(object) => {
                object.job.as_ref().unwrap().status.failed
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn only_the_event_of_the_very_write_is_not_read() {
        let own = SelfWriteCache::default();
        for (kind, uid, version, failures) in [
            ("MODIFIED", "uid-1", 8, 0),
            ("ADDED", "uid-1", 7, 0),
            ("DELETED", "uid-1", 7, 0),
            ("MODIFIED", "uid-2", 12, 0),
            ("MODIFIED", "uid-1", 7, 1),
        ] {
            known(&own, "uid-1", 7);
            assert_eq!(failed(&own, &line(kind, &job(uid, version))), failures, "{kind} {uid} {version}");
        }
        assert_eq!(failed(&own, &line("MODIFIED", &job("uid-1", 7))), 0, "it is told once");
        known(&own, "uid-1", 7);
        assert_eq!(failed(&own, &line("MODIFIED", &job("uid-2", 7))), 0, "a version of another Job");
    }

    #[test]
    fn the_latest_writes_are_kept() {
        let own = SelfWriteCache::default();
        (1..=MOST as u64 + 1).for_each(|version| known(&own, "uid-1", version));
        for (version, failures) in [(1, 0), (2, 1), (MOST as u64 + 1, 1)] {
            assert_eq!(failed(&own, &line("MODIFIED", &job("uid-1", version))), failures, "{version}");
        }
    }
}
