//! Metrics in Prometheus' text format.
//!
//! Metrics named `job_controller_*` and `ttl_after_finished_controller_*` have the names, labels, values and
//! buckets of the controllers built into Kubernetes, so that dashboards and alerts for those keep working.
//! All others are named `yardmaster_*`. No label carries the name of a pod or Job.

pub mod labels;
mod text;

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Metric, Registry};

use labels::{
    ApiCallLabels, ApiRequestLabels, ExternalJobLabels, FinishedIndexLabels, FinishedJobLabels,
    FinishedPodLabels, HandoverLabels, LostEventLabels, PodCreationLabels, PodFailurePolicyLabels,
    QueueLabels, SyncLabels, TrackingFinalizerLabels, WatchEventLabels, WatchLabels,
};

/// A family of histograms of durations.
pub type DurationFamily<L> = Family<L, Histogram, Buckets>;

/// All metrics of one process. There is no global registry: users get a reference.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,

    /// Reconciliations of Jobs.
    pub job_syncs: Family<SyncLabels, Counter>,
    /// Duration of reconciliations.
    pub job_sync_duration: DurationFamily<SyncLabels>,
    /// Jobs that became Complete or Failed.
    pub jobs_finished: Family<FinishedJobLabels, Counter>,
    /// Pods counted in a Job's status.
    pub job_pods_finished: Family<FinishedPodLabels, Counter>,
    /// Observed Jobs that another controller manages.
    pub jobs_by_external_controller: Family<ExternalJobLabels, Counter>,
    /// Failed pods that a pod failure policy's rule matched.
    pub pod_failures_handled_by_failure_policy: Family<PodFailurePolicyLabels, Counter>,
    /// Tracking finalizers added to and removed from ended pods.
    pub terminated_pods_tracking_finalizer: Family<TrackingFinalizerLabels, Counter>,
    /// Indexes that succeeded or finally failed.
    pub job_finished_indexes: Family<FinishedIndexLabels, Counter>,
    /// Pods created, by reason.
    pub job_pods_creation: Family<PodCreationLabels, Counter>,
    /// Time from the end of a finished Job's TTL to its deletion.
    pub ttl_deletion_duration: Histogram,

    /// Shards that this replica owns.
    pub owned_shards: Gauge,
    /// Shards taken over, released, and lost.
    pub handovers: Family<HandoverLabels, Counter>,
    /// Time from the claim on a shard until its caches were synced.
    pub handover_duration: Histogram,
    /// Seconds since this replica last renewed its heartbeat.
    pub heartbeat_age: Gauge<f64, AtomicU64>,
    /// Jobs held in memory.
    pub held_jobs: Gauge,
    /// Pods held in memory.
    pub held_pods: Gauge,
    /// Time from a watch event to the first write in response.
    pub event_reaction: Histogram,

    /// Requests to the API server by outcome.
    pub api_requests: Family<ApiRequestLabels, Counter>,
    /// Duration of requests to the API server, without the time in the queue.
    pub api_request_duration: DurationFamily<ApiCallLabels>,
    /// Writes that wait in the gate.
    pub write_queue_depth: Family<QueueLabels, Gauge>,
    /// Writes that may be in flight at once, as adapted to the API server's answers.
    pub write_window: Gauge,
    /// Writes in flight.
    pub writes_in_flight: Gauge,
    /// Writes refused since the shard was no longer ours.
    pub fenced_writes: Counter,
    /// Watch events received.
    pub watch_events: Family<WatchEventLabels, Counter>,
    /// Bytes of lists and watches received.
    pub watch_bytes: Family<WatchLabels, Counter>,
    /// Full lists begun: the first, and relists after a watch could not be resumed.
    pub watch_lists: Family<WatchLabels, Counter>,
    /// Kubernetes Events that were not sent.
    pub lost_events: Family<LostEventLabels, Counter>,
    /// Spans of traces that did not reach the collector.
    pub dropped_spans: Counter,
}

/// Exponential bucket bounds in seconds.
#[derive(Clone, Copy, Debug)]
pub struct Buckets {
    start: f64,
    count: u16,
}

impl Buckets {
    /// The built-in's buckets for syncs: 4 ms to 65 s.
    const SYNC: Self = Self { start: 0.004, count: 15 };
    /// The built-in's buckets for deletions after the TTL: 0.1 s to 14 min.
    const TTL: Self = Self { start: 0.1, count: 14 };
    /// Buckets for requests: 1 ms to 33 s.
    const REQUEST: Self = Self { start: 0.001, count: 16 };

    fn histogram(self) -> Histogram {
        Histogram::new(exponential_buckets(self.start, 2.0, self.count))
    }
}

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        self.histogram()
    }
}

/// Registers metrics under one prefix.
struct Group<'a> {
    registry: &'a mut Registry,
    prefix: &'static str,
}

impl Group<'_> {
    /// Counters are registered without `_total`, which rendering appends.
    fn add<M: Metric + Clone + Default>(&mut self, name: &str, help: &str) -> M {
        self.add_as(M::default(), name, help)
    }

    fn add_as<M: Metric + Clone>(&mut self, metric: M, name: &str, help: &str) -> M {
        self.registry.register(format!("{}_{name}", self.prefix), help, metric.clone());
        metric
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// All metrics, at zero.
    pub fn new() -> Self {
        let mut registry = Registry::default();
        let mut job = Group { registry: &mut registry, prefix: "job_controller" };
        let job_syncs = job.add("job_syncs", "The number of job syncs");
        let job_sync_duration = job.add_as(
            Family::new_with_constructor(Buckets::SYNC),
            "job_sync_duration_seconds",
            "The time it took to sync a job",
        );
        let jobs_finished = job.add("jobs_finished", "The number of finished jobs");
        let job_pods_finished =
            job.add("job_pods_finished", "The number of finished pods that are fully tracked");
        let jobs_by_external_controller =
            job.add("jobs_by_external_controller", "The number of jobs managed by an external controller");
        let pod_failures_handled_by_failure_policy = job.add(
            "pod_failures_handled_by_failure_policy",
            "The number of failed pods handled by a pod failure policy, by the action of the matched rule",
        );
        let terminated_pods_tracking_finalizer = job.add(
            "terminated_pods_tracking_finalizer",
            "The number of terminated pods that have the tracking finalizer: added and deleted",
        );
        let job_finished_indexes = job.add(
            "job_finished_indexes",
            "The number of finished indexes by status and kind of back-off limit",
        );
        let job_pods_creation =
            job.add("job_pods_creation", "The number of pods created, by reason and outcome");
        let mut ttl = Group { registry: &mut registry, prefix: "ttl_after_finished_controller" };
        let ttl_deletion_duration = ttl.add_as(
            Buckets::TTL.histogram(),
            "job_deletion_duration_seconds",
            "The time from a finished job's end of life to its deletion",
        );

        let mut own = Group { registry: &mut registry, prefix: "yardmaster" };
        Self {
            job_syncs,
            job_sync_duration,
            jobs_finished,
            job_pods_finished,
            jobs_by_external_controller,
            pod_failures_handled_by_failure_policy,
            terminated_pods_tracking_finalizer,
            job_finished_indexes,
            job_pods_creation,
            ttl_deletion_duration,
            owned_shards: own.add("owned_shards", "Shards that this replica owns"),
            handovers: own.add("handovers", "Shards taken over, released and lost"),
            handover_duration: own.add_as(
                Buckets::REQUEST.histogram(),
                "handover_duration_seconds",
                "The time from claiming a shard to having its caches synced",
            ),
            heartbeat_age: own.add("heartbeat_age_seconds", "The time since the heartbeat was last renewed"),
            held_jobs: own.add("held_jobs", "Jobs held in memory"),
            held_pods: own.add("held_pods", "Pods held in memory"),
            event_reaction: own.add_as(
                Buckets::REQUEST.histogram(),
                "event_reaction_seconds",
                "The time from a watch event to the first write that answers it",
            ),
            api_requests: own.add("api_requests", "Requests to the API server by HTTP status"),
            api_request_duration: own.add_as(
                Family::new_with_constructor(Buckets::REQUEST),
                "api_request_duration_seconds",
                "The time that requests to the API server took, without waiting in the queue",
            ),
            write_queue_depth: own.add("write_queue_depth", "Writes that wait to be sent"),
            write_window: own.add("write_window", "Writes that may be in flight at once"),
            writes_in_flight: own.add("writes_in_flight", "Writes in flight"),
            fenced_writes: own.add("fenced_writes", "Writes refused because the shard was no longer owned"),
            watch_events: own.add("watch_events", "Watch events received"),
            watch_bytes: own.add("watch_bytes", "Bytes of lists and watches received"),
            watch_lists: own.add("watch_lists", "Full lists begun"),
            dropped_spans: own.add("spans_dropped", "Spans of traces that did not reach the collector"),
            lost_events: own.add("lost_events", "Kubernetes Events that were not sent"),
            registry,
        }
    }

    /// Counts a request to the API server; `code` is the HTTP status, or 0 without an answer.
    pub fn count_request(&self, call: ApiCallLabels, code: u16, duration: Duration) {
        let ApiCallLabels { verb, resource } = call;
        self.api_requests.get_or_create(&ApiRequestLabels { verb, resource, code }).inc();
        self.api_request_duration.get_or_create(&call).observe(duration.as_secs_f64());
    }

    /// All metrics in Prometheus' text format, version 0.0.4.
    pub fn render(&self) -> String {
        text::render(&self.registry)
    }
}

#[cfg(test)]
mod tests;
