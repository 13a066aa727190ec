//! Metrics of the work on Jobs, under the names of the controller built into Kubernetes.

use std::time::Instant;

use crate::job::plan::Plan;
use crate::job::pod::Place;
use crate::job::spec::{Completion, Job};
use crate::job::state::{Changed, Created};
use crate::job::status::{ConditionKind, JobStatus};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::metrics::labels::{
    BackoffScope, CompletionMode, CreationReason, FinalizerEvent, FinishedIndexLabels, FinishedJobLabels,
    FinishedPodLabels, Outcome, PodCreationLabels, SyncAction, SyncLabels, SyncResult,
    TrackingFinalizerLabels,
};

/// Times one reconciliation.
#[derive(Debug)]
pub struct SyncMeter(Instant);

impl SyncMeter {
    /// Starts the clock.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Counts the reconciliation and how long it took.
    pub fn finish(self, metrics: &Metrics, job: &Job, plan: &Plan) {
        let action = if !plan.creates.is_empty() {
            SyncAction::PodsCreated
        } else if !plan.deletes.is_empty() {
            SyncAction::PodsDeleted
        } else if !plan.releases.is_empty() || plan.status.is_some() {
            SyncAction::Tracking
        } else {
            SyncAction::Reconciling
        };
        let labels = SyncLabels { completion_mode: mode(job), result: SyncResult::Success, action };
        metrics.job_syncs.get_or_create(&labels).inc();
        metrics.job_sync_duration.get_or_create(&labels).observe(self.0.elapsed().as_secs_f64());
    }
}

fn mode(job: &Job) -> CompletionMode {
    match job.spec.completion {
        Completion::Indexed(_) => CompletionMode::Indexed,
        _ => CompletionMode::NonIndexed,
    }
}

/// Counts a creation that was answered.
pub fn count_creation(metrics: &Metrics, job: &Job, place: Place, answer: &Created) {
    let status = match answer {
        Created::Pod(_) => Outcome::Succeeded,
        Created::Refused => Outcome::Failed,
        Created::NameTaken | Created::NamespaceTerminating => return,
    };
    let reason = match (place.attempt, job.spec.replace_only_failed) {
        (0, _) => CreationReason::New,
        (_, true) => CreationReason::RecreateFailed,
        (_, false) => CreationReason::RecreateTerminatingOrFailed,
    };
    metrics.job_pods_creation.get_or_create(&PodCreationLabels { reason, status }).inc();
}

/// Counts a tracking finalizer that was removed.
pub fn count_release(metrics: &Metrics, answer: &Changed) {
    if !matches!(answer, Changed::Refused) {
        let labels = TrackingFinalizerLabels { event: FinalizerEvent::Delete };
        metrics.terminated_pods_tracking_finalizer.get_or_create(&labels).inc();
    }
}

/// Counts the progress from an older status to the status that was just written.
pub fn count_progress(metrics: &Metrics, job: &Job, old: &JobStatus) {
    let completion_mode = mode(job);
    let now = &job.status;
    for (result, count) in [
        (Outcome::Succeeded, now.succeeded.saturating_sub(old.succeeded)),
        (Outcome::Failed, now.failed.saturating_sub(old.failed)),
    ] {
        let labels = FinishedPodLabels { completion_mode, result };
        metrics.job_pods_finished.get_or_create(&labels).inc_by(u64::from(count));
    }
    if job.spec.completion.indexes().is_some() {
        count_indexes(metrics, job, old);
    }
    if let (None, Some(end)) = (old.finished(), now.finished()) {
        let result = if end.kind == ConditionKind::Complete { Outcome::Succeeded } else { Outcome::Failed };
        let labels = FinishedJobLabels { completion_mode, result, reason: end.reason.to_string().into() };
        metrics.jobs_finished.get_or_create(&labels).inc();
    }
}

fn count_indexes(metrics: &Metrics, job: &Job, old: &JobStatus) {
    let now = &job.status;
    let backoff_limit =
        if job.spec.per_index.is_some() { BackoffScope::PerIndex } else { BackoffScope::Global };
    let failed = |status: &JobStatus| status.failed_indexes.as_ref().map_or(0, |indexes| indexes.len());
    for (status, count) in [
        (Outcome::Succeeded, now.completed_indexes.len().saturating_sub(old.completed_indexes.len())),
        (Outcome::Failed, failed(now).saturating_sub(failed(old))),
    ] {
        metrics
            .job_finished_indexes
            .get_or_create(&FinishedIndexLabels { status, backoff_limit })
            .inc_by(u64::from(count));
    }
}
