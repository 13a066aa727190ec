//! The last failures of the Jobs of a replica: what remains of failed pods when they are gone.
//!
//! Tenants choose how many Jobs fail, and how. So a Job, the Jobs of a namespace and all Jobs together have bounds. A replica
//! that takes a shard over begins with the pods that are still there.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::cluster::wire::ObservedPod;
use crate::job::job_id::JobId;
use crate::job::pod::Phase;
use crate::job::state::JobState;

/// Failures that are kept of a Job.
const KEPT: usize = 8;
/// Bytes of the failures that are kept of a Job.
const BYTES: usize = 2 << 10;
/// Jobs of a namespace.
const NAMESPACE_JOBS: usize = 100;
/// Jobs of all namespaces.
const JOBS: usize = 1_000;

/// A pod that has failed, as its status told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastFailure {
    /// Name of the pod.
    pub pod: Arc<str>,
    /// The completion index.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// The node it ran on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<Arc<str>>,
    /// When its last container ended, or else when that was seen.
    pub ended: Timestamp,
    /// Exit code of the first container that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Why it failed, in one word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Arc<str>>,
    /// The beginning of its termination message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<Arc<str>>,
}

impl LastFailure {
    fn of(seen: &ObservedPod, now: Timestamp) -> Self {
        let run = seen.run.as_deref().cloned().unwrap_or_default();
        Self {
            pod: seen.pod.name.as_ref().into(),
            index: seen.pod.index,
            node: run.node,
            ended: run.ended.unwrap_or(now),
            exit_code: run.exit_code,
            reason: run.reason,
            message: run.message,
        }
    }

    fn bytes(&self) -> usize {
        let texts = [&self.node, &self.reason, &self.message];
        let texts: usize = texts.into_iter().flatten().map(|text| text.len()).sum();
        size_of::<Self>() + self.pod.len() + texts
    }
}

/// The failures of the Jobs of a replica. Clones share one board.
#[derive(Clone, Debug, Default)]
pub struct LastFailures(Arc<Mutex<FailureBoard>>);

#[derive(Debug, Default)]
struct FailureBoard {
    namespaces: BTreeMap<Arc<str>, HashMap<JobId, JobFailures>>,
    /// Number of Jobs.
    jobs: usize,
    /// Number of failures so far.
    count: u64,
}

/// The failures of a Job, the newest first.
#[derive(Debug, Default)]
struct JobFailures {
    last: VecDeque<LastFailure>,
    /// Number of the newest failure.
    number: u64,
}

impl LastFailures {
    fn board(&self) -> MutexGuard<'_, FailureBoard> {
        // A panic while writing leaves the maps whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a reading of a pod of this Job, before `state` does, if the pod has just failed.
    pub fn pod_seen(&self, job: &JobId, seen: &ObservedPod, state: &JobState, now: Timestamp) {
        let pod = &seen.pod;
        // A pod that was not tracked any longer had been recorded.
        let ends_now = || state.pods.get(&pod.uid).map_or(pod.tracked, |known| !known.phase.is_final());
        if pod.phase == Phase::Failed && ends_now() {
            self.board().record(job, LastFailure::of(seen, now));
        }
    }

    /// The failures that are kept of a Job, the newest first.
    pub fn of(&self, job: &JobId) -> Vec<LastFailure> {
        let board = self.board();
        let failures = board.namespaces.get(job.namespace()).and_then(|jobs| jobs.get(job));
        failures.map(|failures| failures.last.iter().cloned().collect()).unwrap_or_default()
    }
}

impl FailureBoard {
    fn record(&mut self, job: &JobId, failure: LastFailure) {
        self.count += 1;
        let jobs = self.namespaces.entry(job.namespace().clone()).or_default();
        let is_new = !jobs.contains_key(job);
        let failures = jobs.entry(job.clone()).or_default();
        failures.number = self.count;
        failures.last.push_front(failure);
        while failures.last.len() > KEPT
            || failures.last.iter().map(LastFailure::bytes).sum::<usize>() > BYTES
        {
            failures.last.pop_back();
        }
        if is_new {
            self.jobs += 1;
            self.make_room(job.namespace());
        }
    }

    /// Drops the Job that failed longest ago: of this namespace if it has too many, else of that with the most.
    fn make_room(&mut self, namespace: &Arc<str>) {
        let is_full = self.namespaces.get(namespace).is_some_and(|jobs| jobs.len() > NAMESPACE_JOBS);
        let largest =
            || self.namespaces.iter().max_by_key(|(_, jobs)| jobs.len()).map(|(name, _)| name.clone());
        let from = match (is_full, self.jobs > JOBS) {
            (true, _) => Some(namespace.clone()),
            (false, true) => largest(),
            (false, false) => None,
        };
        let Some(from) = from else { return };
        let Some(jobs) = self.namespaces.get_mut(&from) else { return };
        let oldest = jobs.iter().min_by_key(|(_, failures)| failures.number).map(|(job, _)| job.clone());
        if let Some(oldest) = oldest {
            jobs.remove(&oldest);
            self.jobs -= 1;
        }
        if jobs.is_empty() {
            self.namespaces.remove(&from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(namespace: &str, name: &str) -> JobId {
        JobId::new(namespace.into(), name.into(), name.into())
    }

    fn failure(pod: &str, message: usize) -> LastFailure {
        LastFailure {
            pod: pod.into(),
            index: Some(3),
            node: Some("gpu-7".into()),
            ended: Timestamp::UNIX_EPOCH,
            exit_code: Some(137),
            reason: Some("OOMKilled".into()),
            message: Some("x".repeat(message).into()),
        }
    }

    fn record(failures: &LastFailures, job: &JobId, failure: LastFailure) {
        failures.board().record(job, failure);
    }

    #[test]
    fn a_job_keeps_its_last_failures_in_two_kilobytes() {
        let (failures, job) = (LastFailures::default(), job("n", "j"));
        for pod in 0..20 {
            record(&failures, &job, failure(&format!("p{pod}"), 10));
        }
        let pods: Vec<_> = failures.of(&job).iter().map(|failure| failure.pod.to_string()).collect();
        assert_eq!(pods, ["p19", "p18", "p17", "p16", "p15", "p14", "p13", "p12"]);
        for pod in 0..8 {
            record(&failures, &job, failure(&format!("big{pod}"), 400));
        }
        let kept = failures.of(&job);
        assert!(kept.len() < KEPT && !kept.is_empty());
        assert!(kept.iter().map(LastFailure::bytes).sum::<usize>() <= BYTES);
    }

    /// A tenant whose Jobs all fail takes no room of others.
    #[test]
    fn jobs_have_bounds_by_namespace_and_in_all() {
        let failures = LastFailures::default();
        let quiet = job("quiet", "the-only-one");
        record(&failures, &quiet, failure("p", 10));
        for namespace in 0..30 {
            for name in 0..NAMESPACE_JOBS + 20 {
                let job = job(&format!("n{namespace}"), &format!("j{namespace}-{name}"));
                record(&failures, &job, failure("p", 10));
            }
        }
        let board = failures.board();
        assert_eq!(board.jobs, board.namespaces.values().map(HashMap::len).sum::<usize>());
        assert!(board.jobs <= JOBS, "{}", board.jobs);
        assert!(board.namespaces.values().all(|jobs| jobs.len() <= NAMESPACE_JOBS && !jobs.is_empty()));
        drop(board);
        assert_eq!(failures.of(&quiet).len(), 1);
        let last = job("n29", &format!("j29-{}", NAMESPACE_JOBS + 19));
        assert_eq!(failures.of(&last).len(), 1);
    }
}
