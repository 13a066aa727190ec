//! Metrics of the work on one Job. Metrics of the built-in controller move here at the same events as there.

mod latencies;

use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;

use self::latencies::JobClock;
use super::requests::Requests;
use crate::actors::messages::job_input::JobInput;
use crate::job::end::Tally;
use crate::job::gang_state::GangAnswer;
use crate::job::index_set::IndexSet;
use crate::job::plan::{Plan, Wait};
use crate::job::pod::{Phase, Pod};
use crate::job::pod_failure_policy::judge;
use crate::job::spec::{Completion, Job, PodFailureAction};
use crate::job::state::{Changed, Created, JobState};
use crate::job::status::{ConditionKind, JobStatus};
use crate::job::tidying::Tidying;
use crate::job::uid::{Uid, UidMap};
use crate::telemetry::metrics::labels::{
    BackoffScope, CompletionMode, CreationReason, FinalizerEvent, FinishReason, FinishedIndexLabels,
    FinishedJobLabels, Outcome, PodFailurePolicyLabels, PolicyAction, SyncAction, SyncLabels, SyncResult,
};
use crate::telemetry::metrics::workqueue::Work;
use crate::telemetry::metrics::{Metrics, Since};

/// The metrics of one Job's actor. Its part of the gauges is subtracted when it is dropped.
pub struct JobMeter {
    requests: Arc<Requests>,
    clock: JobClock,
    /// Ended pods with the tracking finalizer.
    terminated: usize,
    /// Ended pods that no longer need the finalizer.
    unreleased: usize,
    stall: Since,
    /// Why the last planned pods are created.
    creation: CreationReason,
    /// A request that the present look learns of was refused.
    refused: bool,
    /// When the first watch event arrived that the present look applies.
    event: Option<Instant>,
    /// Pods that are being released, and the rule of the pod failure policy that each has matched.
    matched: UidMap<PodFailureAction>,
    tidying: Tidying,
}

impl JobMeter {
    /// The meter of a Job's new actor.
    pub fn new(requests: Arc<Requests>) -> Self {
        Self {
            clock: JobClock::new(requests.cx.clock.now()),
            terminated: 0,
            unreleased: 0,
            stall: requests.cx.metrics.release_stalls.party(),
            creation: CreationReason::New,
            refused: false,
            event: None,
            matched: UidMap::default(),
            tidying: Tidying::default(),
            requests,
        }
    }

    fn metrics(&self) -> &Metrics {
        &self.requests.cx.metrics
    }

    fn now(&self) -> Timestamp {
        self.requests.cx.clock.now()
    }

    /// A look at the Job begins, with a watch event that arrived at `event`. It ends when the returned value
    /// is dropped.
    pub fn begin(&mut self, event: Option<Instant>) -> Work {
        self.event = event;
        self.refused = false;
        let cx = &self.requests.cx;
        cx.metrics.workqueue.begin(self.requests.shard.0 as usize % cx.config.arbiter_count().max(1))
    }

    /// An input is about to change the state.
    pub fn input(&mut self, input: &JobInput, state: &JobState) {
        self.refused |= is_refusal(input);
        match input {
            JobInput::Created { place, answer, .. } => {
                self.count_creation(answer);
                if matches!(answer, Created::Pod(_) | Created::Found(_)) {
                    self.clock.pod_created(&self.requests, &state.job, place.number);
                }
            }
            JobInput::Released { pod, answer } if !matches!(answer, Changed::Refused) => {
                self.released(pod);
            }
            JobInput::Pod(observed) if state.has_failed(&observed.pod) => {
                let known = state.pods.get(&observed.pod.uid);
                if known.is_some_and(|known| !state.has_failed(known)) {
                    self.clock.pod_failed(&state.job, &observed.pod, self.now());
                }
            }
            JobInput::PodsListed { .. } => self.clock.pods_listed(state),
            _ => {}
        }
    }

    /// An input has changed the state.
    pub fn follow(&mut self, state: &JobState) {
        let (terminated, unreleased) = (state.pods.terminated(), state.pods.unreleased());
        if terminated != self.terminated {
            if terminated > self.terminated {
                self.clock.pod_ended(self.now());
            }
            self.count_terminated(terminated);
        }
        if unreleased != self.unreleased {
            match unreleased {
                0 => self.stall.end(),
                // A further pod to release is no progress.
                _ if unreleased < self.unreleased || self.unreleased == 0 => self.stall.begin(),
                _ => {}
            }
            self.metrics().unreleased_pods.inc_by(unreleased as i64 - self.unreleased as i64);
            self.unreleased = unreleased;
        }
    }

    fn count_terminated(&mut self, terminated: usize) {
        let metrics = &self.metrics().job_controller;
        if let Some(more) = terminated.checked_sub(self.terminated) {
            metrics.count_terminated(FinalizerEvent::Add, more);
        } else {
            metrics.count_terminated(FinalizerEvent::Delete, self.terminated - terminated);
        }
        self.terminated = terminated;
    }

    /// A plan was made and begun. Like the built-in controller, it counts no looks at finished Jobs.
    pub fn planned(&mut self, state: &JobState, plan: &Plan, work: &Work) {
        if !replaces_failures(state, plan) {
            self.clock.forget_failures();
        }
        if !plan.creates.is_empty() {
            self.creation = creation_reason(state);
        }
        self.note_matched(state, plan);
        let metrics = self.metrics();
        if let Some(event) = self.event.filter(|_| !plan.is_idle() || plan.status_queued.is_some()) {
            metrics.latencies.event_reaction.observe(event.elapsed(), self.clock.trace(&self.requests));
        }
        if self.refused {
            metrics.workqueue.retries.inc();
        }
        if state.job.status.finished().is_some() || state.is_gone() {
            return;
        }
        let result = if self.refused { SyncResult::Error } else { SyncResult::Success };
        let labels = SyncLabels { completion_mode: mode(&state.job), result, action: action(state, plan) };
        metrics.job_controller.count_sync(&labels, work.began().elapsed());
    }

    /// Counts the progress from an older status to the status that was just written.
    pub fn progressed(&mut self, job: &Job, old: &JobStatus) {
        let completion_mode = mode(job);
        let now = &job.status;
        let metrics = &self.metrics().job_controller;
        let succeeded = match job.spec.completion {
            Completion::Indexed(end) => self.count_indexes(job, old, end),
            Completion::Count(_) | Completion::WorkQueue => now.succeeded.saturating_sub(old.succeeded),
        };
        metrics.count_finished(completion_mode, Outcome::Succeeded, succeeded);
        metrics.count_finished(completion_mode, Outcome::Failed, now.failed.saturating_sub(old.failed));
        if let (None, Some(end)) = (old.finished(), now.finished()) {
            let complete = end.kind == ConditionKind::Complete;
            let result = if complete { Outcome::Succeeded } else { Outcome::Failed };
            let known = FinishReason::ALL.iter().copied().find(|reason| reason.as_str() == &*end.reason);
            let reason = known.unwrap_or(FinishReason::Other);
            let labels = FinishedJobLabels { completion_mode, result, reason };
            metrics.jobs_finished.get_or_create(&labels).inc();
            if complete {
                self.clock.completed(&self.requests, self.now());
            }
        }
    }

    /// Counts the indexes below `end` that have ended since the older status. Returns how many have succeeded: indexes that an
    /// elastic Job has lost do not hide those that it has gained.
    fn count_indexes(&self, job: &Job, old: &JobStatus, end: u32) -> u32 {
        let now = &job.status;
        let backoff_limit =
            if job.spec.per_index.is_some() { BackoffScope::PerIndex } else { BackoffScope::Global };
        let in_range = |indexes: &IndexSet| {
            let mut indexes = indexes.clone();
            indexes.truncate(end);
            indexes.len()
        };
        let completed = |status: &JobStatus| in_range(&status.completed_indexes);
        let failed = |status: &JobStatus| status.failed_indexes.as_ref().map_or(0, in_range);
        let succeeded = completed(now).saturating_sub(completed(old));
        for (status, count) in
            [(Outcome::Succeeded, succeeded), (Outcome::Failed, failed(now).saturating_sub(failed(old)))]
        {
            self.metrics()
                .job_controller
                .finished_indexes
                .get_or_create(&FinishedIndexLabels { status, backoff_limit })
                .inc_by(u64::from(count));
        }
        succeeded
    }

    fn count_creation(&self, answer: &Created) {
        let status = match answer {
            Created::Pod(_) | Created::Found(_) => Outcome::Succeeded,
            Created::Refused | Created::Lost => Outcome::Failed,
            Created::NameTaken | Created::Withdrawn | Created::NamespaceTerminating => return,
        };
        self.metrics().job_controller.count_creation(self.creation, status);
    }

    /// Notes the rules of the pod failure policy that pods have matched which are to be released.
    fn note_matched(&mut self, state: &JobState, plan: &Plan) {
        for released in &plan.releases {
            let action = state.pods.get(&released.uid).and_then(|pod| handled(state, pod));
            action.into_iter().for_each(|action| _ = self.matched.insert(released.uid.clone(), action));
        }
        // Another writer may have released them.
        if self.tidying.is_due(self.matched.len()) {
            self.matched.retain(|pod, _| state.pods.holds(pod));
            self.tidying.done(self.matched.len());
        }
    }

    /// A pod has lost its finalizer: now the rule counts that it has matched.
    fn released(&mut self, pod: &Uid) {
        let Some(action) = self.matched.remove(pod) else { return };
        let action = match action {
            PodFailureAction::FailJob => PolicyAction::FailJob,
            PodFailureAction::FailIndex => PolicyAction::FailIndex,
            PodFailureAction::Ignore => PolicyAction::Ignore,
            PodFailureAction::Count => PolicyAction::Count,
        };
        let handled = &self.metrics().job_controller.pod_failures_handled_by_failure_policy;
        handled.get_or_create(&PodFailurePolicyLabels { action }).inc();
    }
}

impl Drop for JobMeter {
    fn drop(&mut self) {
        self.metrics().unreleased_pods.dec_by(self.unreleased as i64);
    }
}

/// The metrics of one pod that has no Job and is to be released.
pub struct OrphanMeter {
    metrics: Arc<Metrics>,
    /// The pod has ended with the tracking finalizer.
    terminated: bool,
    _stall: Since,
}

impl OrphanMeter {
    /// The release of a pod begins. It ends when the meter is dropped.
    pub fn new(metrics: Arc<Metrics>, terminated: bool) -> Self {
        let stall = metrics.release_stalls.party();
        if terminated {
            metrics.job_controller.count_terminated(FinalizerEvent::Add, 1);
            metrics.unreleased_pods.inc();
            stall.begin();
        }
        Self { metrics, terminated, _stall: stall }
    }

    /// The pod has lost the finalizer.
    pub fn released(self) {
        if self.terminated {
            self.metrics.job_controller.count_terminated(FinalizerEvent::Delete, 1);
        }
    }
}

impl Drop for OrphanMeter {
    fn drop(&mut self) {
        self.metrics.unreleased_pods.dec_by(self.terminated.into());
    }
}

fn mode(job: &Job) -> CompletionMode {
    match job.spec.completion {
        Completion::Indexed(_) => CompletionMode::Indexed,
        _ => CompletionMode::NonIndexed,
    }
}

/// The rule of the pod failure policy that applies to a pod that is being released. The pod has failed, or
/// counts as failed because its Job fails.
fn handled(state: &JobState, pod: &Pod) -> Option<PodFailureAction> {
    let (spec, status) = (&state.job.spec, &state.job.status);
    let fails = status.holding(ConditionKind::FailureTarget).is_some() && pod.phase != Phase::Succeeded;
    let in_range = spec.completion.indexes().is_none_or(|end| pod.index.is_some_and(|index| index < end));
    let counts =
        (fails || pod.is_failed(spec.replace_only_failed)) && in_range && status.finished().is_none();
    let outcome = pod.outcome.as_ref().filter(|_| counts && !state.is_gone())?;
    judge(spec.pod_failure_policy.as_ref()?, outcome).map(|matched| matched.action)
}

/// The built-in controller's name for this look. The built-in manages no pods while it waits for its own
/// requests. Nor does it if a Job ends or is being deleted, although it may delete its pods then. A back-off
/// is part of the creation.
fn action(state: &JobState, plan: &Plan) -> SyncAction {
    match plan.waiting {
        Some(Wait::Finishing | Wait::Deleting) => SyncAction::Reconciling,
        Some(Wait::Suspended) => SyncAction::PodsDeleted,
        Some(Wait::PodBackoff(_) | Wait::IndexBackoff(_)) => SyncAction::PodsCreated,
        _ if !plan.deletes.is_empty() => SyncAction::PodsDeleted,
        _ if !plan.creates.is_empty() => SyncAction::PodsCreated,
        _ if state.pods.has_flights() => SyncAction::Reconciling,
        _ => SyncAction::Tracking,
    }
}

/// Whether pods that have failed may still be replaced. They are not if the Job is suspended or about to end,
/// or has as many pods as it wants, as with a lowered parallelism.
fn replaces_failures(state: &JobState, plan: &Plan) -> bool {
    match plan.waiting {
        Some(Wait::Suspended | Wait::Finishing | Wait::Deleting) => false,
        Some(_) => true,
        None => !plan.creates.is_empty() || state.pods.pending_creates() > 0,
    }
}

/// The reason that the built-in controller gives for all pods that it creates at once.
fn creation_reason(state: &JobState) -> CreationReason {
    let failed = Tally::of(state).failed > 0;
    if failed && state.job.spec.replace_only_failed {
        CreationReason::RecreateFailed
    } else if failed || state.pods.gauges().terminating > 0 {
        CreationReason::RecreateTerminatingOrFailed
    } else {
        CreationReason::New
    }
}

/// Whether the built-in controller would end its look with an error.
fn is_refusal(input: &JobInput) -> bool {
    match input {
        JobInput::Created { answer, .. } => matches!(answer, Created::Refused | Created::Lost),
        JobInput::Deleted { answer, .. } | JobInput::Released { answer, .. } => *answer == Changed::Refused,
        JobInput::Gang { answer, .. } => *answer == GangAnswer::Refused,
        JobInput::StatusWritten(None) | JobInput::StatusConflict { .. } | JobInput::DeletionRefused => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
