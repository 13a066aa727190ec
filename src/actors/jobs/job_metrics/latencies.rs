//! When things happened to a Job, as far as its latencies need it.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use jiff::Timestamp;

use crate::actors::jobs::requests::Requests;
use crate::job::pod::Pod;
use crate::job::spec::{Completion, Job};
use crate::job::state::JobState;
use crate::job::status::ConditionKind;
use crate::telemetry::metrics::latency::TraceId;

/// Creation times of objects are whole seconds.
const RESOLUTION: Duration = Duration::from_secs(1);
/// Most failures that wait for a replacement and are remembered.
const MAX_FAILURES: usize = 1_000;

/// When things happened to a Job.
#[derive(Debug)]
pub(super) struct JobClock {
    /// When its actor began.
    began: Timestamp,
    /// Whether it has never had a pod; unknown until its pods are listed.
    is_new: Option<bool>,
    /// When we learnt of the end of its last pod.
    last_end: Option<Timestamp>,
    failures: Failures,
}

/// When pods failed that have no replacement yet.
#[derive(Debug, Default)]
struct Failures {
    /// By index (Indexed).
    at: BTreeMap<u32, Timestamp>,
    /// In order (not Indexed).
    queue: VecDeque<Timestamp>,
}

impl JobClock {
    pub(super) fn new(now: Timestamp) -> Self {
        Self { began: now, is_new: None, last_end: None, failures: Failures::default() }
    }

    /// The trace of the Job, if it is exported.
    pub(super) fn trace(&self, requests: &Requests) -> Option<TraceId> {
        requests.trace.id()
    }

    pub(super) fn pods_listed(&mut self, state: &JobState) {
        let counted = state.job.status.succeeded + state.job.status.failed;
        self.is_new.get_or_insert(state.pods.is_empty() && counted == 0);
    }

    /// A pod was created at an index or ordinal.
    pub(super) fn pod_created(&mut self, requests: &Requests, job: &Job, number: u32) {
        let failed = match job.spec.completion {
            Completion::Indexed(_) => self.failures.at.remove(&number),
            _ => self.failures.queue.pop_front(),
        };
        let first = self.is_new.replace(false) == Some(true)
            && job.status.condition(ConditionKind::Suspended).is_none();
        if failed.is_none() && !first {
            return;
        }
        let (now, latencies) = (requests.cx.clock.now(), &requests.cx.metrics.latencies);
        if let Some(failed) = failed {
            latencies.replacement.observe(between(failed, now), self.trace(requests));
        }
        if first {
            // The watch may have shown the Job late. When it was created is known only to the second.
            let late = between(job.created, now).saturating_sub(RESOLUTION);
            latencies.first_pod.observe(between(self.began, now).max(late), self.trace(requests));
        }
    }

    /// Failures up to now are not replaced.
    pub(super) fn forget_failures(&mut self) {
        self.failures = Failures::default();
    }

    pub(super) fn pod_failed(&mut self, job: &Job, pod: &Pod, now: Timestamp) {
        match (&job.spec.completion, pod.index) {
            (Completion::Indexed(_), Some(index)) if self.failures.at.len() < MAX_FAILURES => {
                self.failures.at.insert(index, now);
            }
            (Completion::Indexed(_), _) => {}
            _ if self.failures.queue.len() < MAX_FAILURES => self.failures.queue.push_back(now),
            _ => {}
        }
    }

    pub(super) fn pod_ended(&mut self, now: Timestamp) {
        self.last_end = Some(now);
    }

    /// Complete was written.
    pub(super) fn completed(&mut self, requests: &Requests, now: Timestamp) {
        if let Some(end) = self.last_end {
            requests.cx.metrics.latencies.completion.observe(between(end, now), self.trace(requests));
        }
    }
}

/// The time from one moment to another; zero if the clock was set back between them.
fn between(from: Timestamp, to: Timestamp) -> Duration {
    to.duration_since(from).try_into().unwrap_or_default()
}
