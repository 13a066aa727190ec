//! `job_controller_*` and `ttl_after_finished_controller_*`, as the controllers built into Kubernetes serve
//! them.
//!
//! `job_controller_stale_sync_skips_total` is missing: it counts syncs that the built-in controller puts off
//! because its cache is behind its own writes. Here no look at a Job is put off, since the answers to writes
//! are part of the known state.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::labels::{
    CompletionMode, CreationReason, ExternalJobLabels, FinalizerEvent, FinishedIndexLabels,
    FinishedJobLabels, FinishedPodLabels, Outcome, PodCreationLabels, PodFailurePolicyLabels, SyncLabels,
    TrackingFinalizerLabels,
};
use super::numbered_family::NumberedFamily;
use super::{Buckets, DurationFamily, Group};

/// Names of other controllers that are distinguished. Users choose them.
const MAX_CONTROLLERS: usize = 32;
/// The label of all further controllers.
const OTHER_CONTROLLERS: &str = "other";

/// The metrics of Kubernetes' own Job controller.
#[derive(Debug)]
pub struct JobControllerMetrics {
    syncs: NumberedFamily<SyncLabels, Counter, { SyncLabels::COUNT }>,
    sync_duration: NumberedFamily<SyncLabels, Histogram, { SyncLabels::COUNT }, Buckets>,
    /// Jobs that became Complete or Failed.
    pub jobs_finished: Family<FinishedJobLabels, Counter>,
    pods_finished: NumberedFamily<FinishedPodLabels, Counter, { FinishedPodLabels::COUNT }>,
    external_jobs: Family<ExternalJobLabels, Counter>,
    /// The names of controllers that have a series.
    controllers: Mutex<HashSet<String>>,
    /// Failed pods that a pod failure policy's rule matched.
    pub pod_failures_handled_by_failure_policy: Family<PodFailurePolicyLabels, Counter>,
    terminated_pods: NumberedFamily<TrackingFinalizerLabels, Counter, { TrackingFinalizerLabels::COUNT }>,
    /// Indexes that succeeded or finally failed.
    pub finished_indexes: Family<FinishedIndexLabels, Counter>,
    pods_creation: NumberedFamily<PodCreationLabels, Counter, { PodCreationLabels::COUNT }>,
    /// Time from the end of a finished Job's TTL to its deletion.
    pub ttl_deletion_duration: Histogram,
}

impl JobControllerMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let mut job = Group { registry, prefix: "job_controller" };
        let sync_duration: DurationFamily<SyncLabels> = job.add_as(
            Family::new_with_constructor(Buckets::SYNC),
            "job_sync_duration_seconds",
            "The time it took to sync a job",
        );
        let metrics = Self {
            syncs: NumberedFamily::new(job.add("job_syncs", "The number of job syncs")),
            sync_duration: NumberedFamily::new(sync_duration),
            jobs_finished: job.add("jobs_finished", "The number of finished jobs"),
            pods_finished: NumberedFamily::new(
                job.add("job_pods_finished", "The number of finished pods that are fully tracked"),
            ),
            external_jobs: job.add(
                "jobs_by_external_controller",
                "The number of jobs managed by an external controller",
            ),
            controllers: Mutex::default(),
            pod_failures_handled_by_failure_policy: job.add(
                "pod_failures_handled_by_failure_policy",
                "The number of failed pods handled by a pod failure policy, by the action of the matched rule",
            ),
            terminated_pods: NumberedFamily::new(job.add(
                "terminated_pods_tracking_finalizer",
                "The number of terminated pods that have the tracking finalizer: added and deleted",
            )),
            finished_indexes: job.add(
                "job_finished_indexes",
                "The number of finished indexes by status and kind of back-off limit",
            ),
            pods_creation: NumberedFamily::new(
                job.add("job_pods_creation", "The number of pods created, by reason and outcome"),
            ),
            ttl_deletion_duration: Group { registry: job.registry, prefix: "ttl_after_finished_controller" }
                .add_as(
                    Buckets::TTL.histogram(),
                    "job_deletion_duration_seconds",
                    "The time from a finished job's end of life to its deletion",
                ),
        };
        for event in FinalizerEvent::ALL {
            metrics.count_terminated(*event, 0);
        }
        metrics
    }

    /// Counts a look at a Job, and how long it took.
    pub fn count_sync(&self, labels: &SyncLabels, duration: Duration) {
        self.syncs.of(labels).inc();
        self.sync_duration.of(labels).observe(duration.as_secs_f64());
    }

    /// Counts pods that are in the status of their Job.
    pub fn count_finished(&self, completion_mode: CompletionMode, result: Outcome, pods: u32) {
        self.pods_finished.of(&FinishedPodLabels { completion_mode, result }).inc_by(u64::from(pods));
    }

    /// Counts a creation that was answered.
    pub fn count_creation(&self, reason: CreationReason, status: Outcome) {
        self.pods_creation.of(&PodCreationLabels { reason, status }).inc();
    }

    /// Counts terminated pods that got or lost the tracking finalizer.
    pub fn count_terminated(&self, event: FinalizerEvent, pods: usize) {
        self.terminated_pods.of(&TrackingFinalizerLabels { event }).inc_by(pods as u64);
    }

    /// Counts a Job that names another controller in `spec.managedBy`.
    pub fn count_external(&self, controller: &str) {
        let controller_name = {
            // A panic leaves the set whole.
            let mut known = self.controllers.lock().unwrap_or_else(PoisonError::into_inner);
            let counts = known.contains(controller)
                || known.len() < MAX_CONTROLLERS && known.insert(controller.to_owned());
            if counts { Cow::Owned(controller.to_owned()) } else { Cow::Borrowed(OTHER_CONTROLLERS) }
        };
        self.external_jobs.get_or_create(&ExternalJobLabels { controller_name }).inc();
    }
}
