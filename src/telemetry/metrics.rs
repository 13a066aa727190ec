//! Metrics in Prometheus' text format and in OpenMetrics.
//!
//! | names | whose they are |
//! |---|---|
//! | `job_controller_*`, `ttl_after_finished_controller_*` | [`job_controller`]: Kubernetes' own Job controller |
//! | `workqueue_*`, `rest_client_*` | [`workqueue`], [`rest_client`]: every controller of Kubernetes |
//! | `process_*` | [`process`]: every Prometheus client |
//! | `yardmaster_*` | ours, below and in [`latency`] |
//!
//! The first three have the names, labels and buckets that existing dashboards and alerts read. No label
//! carries the name of a pod or Job, and every label has a bounded set of values. `docs/metrics.md` lists
//! all.

mod buckets;
pub mod job_controller;
pub mod labels;
pub mod latency;
mod numbered_family;
mod oldest;
mod process;
pub mod rest_client;
mod text;
pub mod workqueue;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
pub use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};

pub use self::buckets::{Buckets, DurationFamily};
use self::job_controller::JobControllerMetrics;
use self::labels::{
    ApiCallLabels, ApiRequestLabels, BuildLabels, Handover, HandoverLabels, LostEvent, LostEventLabels,
    QueueLabels, WaitLabels, WatchEventLabels, WatchLabels, defined_code,
};
use self::latency::JobLatencies;
pub use self::oldest::{Oldest, Since};
use self::rest_client::RestClientMetrics;
pub use self::text::Format;
use self::workqueue::WorkQueue;

/// All metrics of one process. There is no global registry: users get a reference.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,

    /// The metrics of Kubernetes' own Job controller.
    pub job_controller: JobControllerMetrics,
    /// Jobs that wait to be looked at.
    pub workqueue: Arc<WorkQueue>,
    /// All requests to the API server.
    pub rest_client: RestClientMetrics,
    /// How long Jobs wait for the events that matter to their users.
    pub latencies: JobLatencies,

    /// The number of shards of all replicas together.
    pub shards: Gauge,
    /// Shards that this replica owns.
    pub owned_shards: Gauge,
    /// Shards taken over, released, and lost.
    pub handovers: Family<HandoverLabels, Counter>,
    /// Time from the claim on a shard until its caches were synced.
    pub handover_duration: Histogram,
    /// Seconds since this replica last renewed its heartbeat.
    pub heartbeat_age: Gauge<f64, AtomicU64>,
    /// 1 while this replica looks for pods that have lost the labels of their Job, otherwise 0.
    pub orphan_controller_leader: Gauge,
    /// Jobs held in memory.
    pub held_jobs: Gauge,
    /// Pods held in memory.
    pub held_pods: Gauge,
    /// Jobs that are not done although no pod of theirs is created.
    pub waiting_jobs: Family<WaitLabels, Gauge>,
    /// Ended pods that still have the tracking finalizer, without those that are kept until their index has a
    /// successor.
    pub unreleased_pods: Gauge,
    /// Since when Jobs have had such pods, or have released one.
    pub release_stalls: Oldest,
    release_stall: Gauge<f64, AtomicU64>,

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
    /// Namespaces whose writes are held back because those of the same kind fail there.
    pub throttled_namespaces: Gauge,
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
    /// Bytes of the latest traces in memory.
    pub trace_memory: Gauge,
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
        process::register(&mut registry);
        let job_controller = JobControllerMetrics::register(&mut registry);
        let workqueue = Arc::new(WorkQueue::register(&mut registry, "job"));
        let rest_client = RestClientMetrics::register(&mut registry);
        let mut own = Group { registry: &mut registry, prefix: "yardmaster" };
        let build: Family<BuildLabels, Gauge> = own.add("build_info", "The program's version. Always 1");
        build.get_or_create(&BuildLabels { version: env!("CARGO_PKG_VERSION") }).set(1);
        let metrics = Self {
            job_controller,
            workqueue,
            rest_client,
            latencies: JobLatencies::register(&mut own),
            shards: own.add("shards", "Shards of all replicas together"),
            owned_shards: own.add("owned_shards", "Shards that this replica owns"),
            handovers: own.add("handovers", "Shards taken over, released and lost"),
            handover_duration: own.add_as(
                Buckets::REQUEST.histogram(),
                "handover_duration_seconds",
                "The time from claiming a shard to having its caches synced",
            ),
            heartbeat_age: own.add("heartbeat_age_seconds", "The time since the heartbeat was last renewed"),
            orphan_controller_leader: own.add(
                "orphan_controller_leader",
                "Whether this replica looks for pods that have lost the labels of their Job",
            ),
            held_jobs: own.add("held_jobs", "Jobs held in memory"),
            held_pods: own.add("held_pods", "Pods held in memory"),
            waiting_jobs: own.add(
                "waiting_jobs",
                "Jobs that are not done although no pod of theirs is created, by reason",
            ),
            unreleased_pods: own.add(
                "unreleased_pods",
                "Ended pods that still have the tracking finalizer and need it no longer",
            ),
            release_stalls: Oldest::default(),
            release_stall: own.add(
                "release_stall_seconds",
                "The longest time that a Job has had such pods without releasing one",
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
            throttled_namespaces: own
                .add("throttled_namespaces", "Namespaces whose writes are held back because they fail there"),
            fenced_writes: own.add("fenced_writes", "Writes refused because the shard was no longer owned"),
            watch_events: own.add("watch_events", "Watch events received"),
            watch_bytes: own.add("watch_bytes", "Bytes of lists and watches received"),
            watch_lists: own.add("watch_lists", "Full lists begun"),
            dropped_spans: own.add("spans_dropped", "Spans of traces that did not reach the collector"),
            trace_memory: own.add("trace_memory_bytes", "Memory that the latest traces of Jobs take"),
            lost_events: own.add("lost_events", "Kubernetes Events that were not sent"),
            registry,
        };
        metrics.begin_at_zero();
        metrics
    }

    /// Creates the series that alerts watch. The increase of a series that begins with its first event is 0.
    fn begin_at_zero(&self) {
        for reason in LostEvent::ALL {
            drop(self.lost_events.get_or_create(&LostEventLabels { reason: *reason }));
        }
        for direction in Handover::ALL {
            drop(self.handovers.get_or_create(&HandoverLabels { direction: *direction }));
        }
    }

    /// Counts a request to the API server; `code` is the HTTP status, or 0 without an answer.
    pub fn count_request(&self, call: ApiCallLabels, code: u16, duration: Duration) {
        let ApiCallLabels { verb, resource } = call;
        let code = defined_code(code);
        self.api_requests.get_or_create(&ApiRequestLabels { verb, resource, code }).inc();
        self.api_request_duration.get_or_create(&call).observe(duration.as_secs_f64());
    }

    /// All metrics, in a format.
    pub fn render(&self, format: Format) -> String {
        self.workqueue.measure();
        self.release_stall.set(self.release_stalls.age().as_secs_f64());
        text::render(&self.registry, format)
    }
}

#[cfg(test)]
mod tests;
