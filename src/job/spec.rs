//! What a Job asks for: the parts of `batch/v1` Job that its rules look at.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::index_set::IndexSet;
use super::options::Options;
use super::selector::Selector;
use super::status::JobStatus;
use super::template::PodTemplate;
use super::uid::Uid;

/// A Job as last read from the API server.
#[derive(Clone, Debug)]
pub struct Job {
    /// `metadata.namespace`.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
    /// `metadata.uid`.
    pub uid: Uid,
    /// `metadata.creationTimestamp`.
    pub created: Timestamp,
    /// Whether `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// `metadata.annotations` under `yardmaster.dev/`: what a user opted in to.
    pub options: Options,
    /// `spec`.
    pub spec: Arc<JobSpec>,
    /// `status`.
    pub status: JobStatus,
}

impl Job {
    /// Whether counted pods that have failed, or that have succeeded, may have to be deleted ([`retention`](super::retention)).
    pub fn prunes_counted(&self, failed: bool) -> bool {
        if failed {
            self.options.failed_pods_limit.is_some()
        } else {
            self.options.prune_succeeded
                && self.spec.completion.indexes().is_some()
                && self.status.finished().is_none()
        }
    }

    /// Takes in the status that the Job has now. Of one that has finished no pods are made, so it keeps none written out.
    pub fn take_status(&mut self, status: JobStatus) {
        self.status = status;
        if self.status.finished().is_some() {
            let spec = Arc::make_mut(&mut self.spec);
            spec.template = spec.template.unwritten();
        }
    }

    /// Takes the pod template over from another reading of the Job where its text is the same, so that there is one copy
    /// of it: with what was written out for pods, as long as more of them may be made.
    pub fn share_template(&mut self, known: &PodTemplate) {
        let makes_pods = self.status.finished().is_none();
        let spec = Arc::get_mut(&mut self.spec).filter(|spec| spec.template.same_text(known));
        if let Some(spec) = spec {
            spec.template = if makes_pods { known.clone() } else { known.unwritten() };
        }
    }
}

/// `spec` of a Job after the API server's defaulting.
#[derive(Clone, Debug)]
pub struct JobSpec {
    /// `spec.parallelism`: pods wanted at once.
    pub parallelism: u32,
    /// How completions are counted.
    pub completion: Completion,
    /// `spec.suspend`.
    pub suspend: bool,
    /// `spec.backoffLimit`: counted failures of all pods before the Job fails.
    pub backoff_limit: u32,
    /// `spec.backoffLimitPerIndex` and `spec.maxFailedIndexes`.
    pub per_index: Option<PerIndexLimit>,
    /// `spec.activeDeadlineSeconds`.
    pub active_deadline: Option<Duration>,
    /// `spec.ttlSecondsAfterFinished`.
    pub ttl_after_finished: Option<Duration>,
    /// `spec.podFailurePolicy.rules`; `None` without a policy.
    pub pod_failure_policy: Option<Vec<PodFailureRule>>,
    /// `spec.successPolicy.rules`; empty without a policy.
    pub success_policy: Vec<SuccessRule>,
    /// Whether a pod that is being deleted is replaced only once it has failed: `spec.podReplacementPolicy` is `Failed`,
    /// or a pod failure policy is set.
    pub replace_only_failed: bool,
    /// `spec.selector`.
    pub selector: Selector,
    /// `spec.template`.
    pub template: PodTemplate,
}

impl JobSpec {
    /// Whether a Job's pods are a gang: there are several, all run at once, and the template names no group
    /// itself.
    pub fn is_gang(&self) -> bool {
        let all_at_once = self.completion == Completion::Indexed(self.parallelism);
        self.parallelism > 1 && all_at_once && !self.template.names_scheduling_group()
    }
}

/// `spec.completionMode` and `spec.completions`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// `NonIndexed` without completions: any success, once all pods have ended, completes the Job.
    WorkQueue,
    /// `NonIndexed` with completions.
    Count(u32),
    /// `Indexed`: one success for each index below this number.
    Indexed(u32),
}

impl Completion {
    /// `spec.completions`.
    pub fn wanted(self) -> Option<u32> {
        match self {
            Self::WorkQueue => None,
            Self::Count(n) | Self::Indexed(n) => Some(n),
        }
    }

    /// The number of indexes of an Indexed Job.
    pub fn indexes(self) -> Option<u32> {
        match self {
            Self::Indexed(n) => Some(n),
            _ => None,
        }
    }
}

/// `spec.backoffLimitPerIndex` and what depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerIndexLimit {
    /// Counted failures of one index before the index fails.
    pub backoff_limit: u32,
    /// `spec.maxFailedIndexes`: failed indexes before the Job fails.
    pub max_failed_indexes: Option<u32>,
}

/// One rule of `spec.podFailurePolicy`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodFailureRule {
    /// What a match means.
    pub action: PodFailureAction,
    /// What it looks at.
    pub on: PodFailurePattern,
}

/// `action` of a pod failure rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PodFailureAction {
    /// The Job fails.
    FailJob,
    /// The index fails without further retries.
    FailIndex,
    /// The failure counts neither against `backoffLimit` nor against `backoffLimitPerIndex`.
    Ignore,
    /// The failure counts, as without a rule.
    Count,
}

/// The condition of a pod failure rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodFailurePattern {
    /// `onExitCodes`.
    ExitCodes {
        /// Only this container, or any.
        container: Option<Box<str>>,
        /// `In` (true) or `NotIn`.
        inside: bool,
        /// Exit codes, ascending.
        values: Box<[i32]>,
    },
    /// `onPodConditions`: any of these (type, status) pairs.
    PodConditions(Box<[(Box<str>, Box<str>)]>),
}

/// One rule of `spec.successPolicy`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuccessRule {
    /// `succeededIndexes`; `Some(None)` when the text cannot be read: such a rule never matches.
    pub indexes: Option<Option<IndexSet>>,
    /// `succeededCount`.
    pub count: Option<u32>,
}
