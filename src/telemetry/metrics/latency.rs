//! Latencies of Jobs, with exemplars: the trace of a Job that waited this long.

use std::time::{Duration, SystemTime};

pub use opentelemetry::trace::TraceId;
use prometheus_client::metrics::exemplar::HistogramWithExemplars;

use super::labels::TraceLabels;
use super::{Buckets, Group};

/// A histogram with exemplars.
pub type TracedHistogram = HistogramWithExemplars<TraceLabels>;

/// How long Jobs wait for the events that matter to their users.
#[derive(Debug)]
pub struct JobLatencies {
    /// Time from a watch event until the requests that it causes were in the write gate.
    pub event_reaction: Latency,
    /// Time from the creation of a Job to its first pod.
    pub first_pod: Latency,
    /// Time from the end of the last pod to Complete.
    pub completion: Latency,
    /// Time from the failure of a pod to its replacement, back-off included.
    pub replacement: Latency,
}

impl JobLatencies {
    pub(super) fn register(own: &mut Group<'_>) -> Self {
        let mut add = |name, buckets: Buckets, help| Latency(own.add_as(buckets.traced(), name, help));
        Self {
            event_reaction: add(
                "event_reaction_seconds",
                Buckets::REQUEST,
                "The time from a watch event until the writes that answer it were in the write gate",
            ),
            first_pod: add(
                "job_first_pod_seconds",
                Buckets::LATENCY,
                "The time from the creation of a Job that was never suspended to the creation of its first pod",
            ),
            completion: add(
                "job_completion_seconds",
                Buckets::LATENCY,
                "The time from learning that the last pod of a Job has ended to writing Complete",
            ),
            replacement: add(
                "pod_replacement_seconds",
                Buckets::LATENCY,
                "The time from learning that a pod has failed to the creation of its replacement, back-off included",
            ),
        }
    }
}

/// A histogram of one latency.
#[derive(Debug)]
pub struct Latency(TracedHistogram);

impl Latency {
    /// Records a duration, with the trace that shows it if there is one.
    pub fn observe(&self, duration: Duration, trace: Option<TraceId>) {
        let labels = trace.map(|trace| TraceLabels { trace_id: trace.to_string() });
        let now = labels.is_some().then(SystemTime::now);
        self.0.observe(duration.as_secs_f64(), labels, now);
    }
}
