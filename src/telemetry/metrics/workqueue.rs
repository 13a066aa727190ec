//! `workqueue_*{name="job"}`: Jobs that wait to be looked at, under the names of client-go.
//!
//! There is no work queue: each Job has an inbox, and its actor is woken by the first input. The metrics keep
//! their meaning all the same. A Job is in the queue from the input that wakes its actor until the actor takes
//! its inputs, however many have come meanwhile. Looks that a timer causes were never in the queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::{Buckets, Group};

/// Threads whose work is shown apart; those beyond share a place with others.
const WORKERS: usize = 64;

/// The queue of Jobs that wait to be looked at.
#[derive(Debug)]
pub struct WorkQueue {
    depth: Gauge,
    adds: Counter,
    queue_duration: Histogram,
    work_duration: Histogram,
    /// Looks at a Job some of whose requests were refused.
    pub retries: Counter,
    unfinished: Gauge<f64, AtomicU64>,
    longest: Gauge<f64, AtomicU64>,
    origin: Instant,
    /// When each thread began its present look, in nanoseconds after one before the origin; 0 if it is idle.
    busy_since: [AtomicU64; WORKERS],
}

impl WorkQueue {
    pub(super) fn register(registry: &mut Registry, name: &'static str) -> Self {
        let registry = registry.sub_registry_with_label(("name".into(), name.into()));
        let mut group = Group { registry, prefix: "workqueue" };
        Self {
            depth: group.add("depth", "Current depth of workqueue"),
            adds: group.add("adds", "Total number of adds handled by workqueue"),
            queue_duration: group.add_as(
                Buckets::WORK_QUEUE.histogram(),
                "queue_duration_seconds",
                "How long in seconds an item stays in workqueue before being requested",
            ),
            work_duration: group.add_as(
                Buckets::WORK_QUEUE.histogram(),
                "work_duration_seconds",
                "How long in seconds processing an item from workqueue takes",
            ),
            retries: group.add("retries", "Total number of retries handled by workqueue"),
            unfinished: group.add(
                "unfinished_work_seconds",
                "How many seconds of work has been done that is in progress and has not been observed by work_duration",
            ),
            longest: group.add(
                "longest_running_processor_seconds",
                "How many seconds has the longest running processor for workqueue been running",
            ),
            origin: Instant::now(),
            busy_since: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// A Job begins to wait for a look.
    pub fn added(&self) {
        self.adds.inc();
        self.depth.inc();
    }

    /// A Job has waited for this long and is looked at.
    pub fn taken(&self, waited: Duration) {
        self.dropped();
        self.queue_duration.observe(waited.as_secs_f64());
    }

    /// A Job that waited is not looked at any more.
    pub fn dropped(&self) {
        self.depth.dec();
    }

    /// A thread begins a look at a Job. It ends when the returned value is dropped.
    pub fn begin(self: &Arc<Self>, thread: usize) -> Work {
        let work = Work { queue: self.clone(), thread: thread % WORKERS, began: Instant::now() };
        let since = u64::try_from(work.began.duration_since(self.origin).as_nanos()).unwrap_or(u64::MAX - 1);
        self.busy_since[work.thread].store(since + 1, Ordering::Relaxed);
        work
    }

    /// Brings the gauges of the work in progress up to date.
    pub(super) fn measure(&self) {
        let now = self.origin.elapsed();
        let since = self.busy_since.iter().map(|since| since.load(Ordering::Relaxed));
        let ages = since
            .filter(|since| *since > 0)
            .map(|since| now.saturating_sub(Duration::from_nanos(since - 1)).as_secs_f64());
        let (sum, longest) = ages.fold((0.0, 0.0_f64), |(sum, longest), age| (sum + age, longest.max(age)));
        self.unfinished.set(sum);
        self.longest.set(longest);
    }
}

/// A look at a Job.
#[derive(Debug)]
pub struct Work {
    queue: Arc<WorkQueue>,
    thread: usize,
    began: Instant,
}

impl Work {
    /// When it began.
    pub fn began(&self) -> Instant {
        self.began
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.queue.work_duration.observe(self.began.elapsed().as_secs_f64());
        self.queue.busy_since[self.thread].store(0, Ordering::Relaxed);
    }
}
