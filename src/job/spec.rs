//! The parts of a `batch/v1` Job that the rules read.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::index_set::IndexSet;
use super::job_id::JobId;
use super::options::JobOptions;
use super::selector::Selector;
use super::status::JobStatus;
use super::template::PodTemplate;
use super::uid::Uid;
use crate::mutants::{Mutant, is};

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
    /// `metadata.annotations` under `yardmaster.dev/`: options that the user has set.
    pub options: JobOptions,
    /// `spec`.
    pub spec: Arc<JobSpec>,
    /// `status`.
    pub status: JobStatus,
}

impl Job {
    /// Namespace, name and UID.
    pub fn id(&self) -> JobId {
        JobId::new(self.namespace.clone(), self.name.clone(), self.uid.clone())
    }

    /// Whether counted pods that have failed, or that have succeeded, may have to be deleted
    /// ([`retention`](super::retention)).
    pub fn prunes_counted(&self, failed: bool) -> bool {
        let of_phase =
            if failed { self.options.failed_pods_limit.is_some() } else { self.prunes_succeeded() };
        of_phase || self.options.max_finished_pods.is_some()
    }

    /// Whether succeeded pods are deleted, whatever their number. The indexes of the status show which of them are counted.
    pub(super) fn prunes_succeeded(&self) -> bool {
        self.options.prune_succeeded
            && self.spec.completion.indexes().is_some()
            && self.status.finished().is_none()
    }

    /// Whether it may create pods as it is. A Job that is resumed later is read again, with its template.
    pub fn may_create_pods(&self) -> bool {
        let is_leaving = self.deleting && !is(Mutant::DeletedJobGetsPods);
        !is_leaving && !self.spec.suspend && self.status.finished().is_none()
    }

    /// Sets the current status.
    pub fn take_status(&mut self, status: JobStatus) {
        self.status = status;
        if !self.may_create_pods() {
            self.drop_template();
        }
        self.drop_lists_at_end();
    }

    /// Drops the indexes and the UIDs of the status if the Job has finished: nothing is counted any more. If somebody takes the
    /// end back, the Job is read again, with them.
    pub fn drop_lists_at_end(&mut self) {
        if self.status.finished().is_some() {
            self.status.drop_lists();
        }
    }

    fn predecessor_bytes(&self) -> usize {
        self.options.after.as_ref().map_or(0, |after| after.bytes())
    }

    /// The approximate bytes of lists, conditions, policies, the selector and names of other Jobs. Their lengths are chosen
    /// by the authors of the Job and of its status. The pod template does not count.
    pub fn weight(&self) -> usize {
        let of_spec = self.spec.policy_bytes() + self.spec.selector.cost();
        self.status.list_bytes() + self.status.condition_bytes() + of_spec + self.predecessor_bytes()
    }

    /// Whether there is something to drop of it if nobody manages it.
    pub fn is_heavy(&self) -> bool {
        let of_status = self.status.list_bytes() + self.status.condition_bytes();
        of_status + self.spec.policy_bytes() + self.predecessor_bytes() > 0 || self.spec.template.is_kept()
    }

    /// Drops what has a [`weight`](Self::weight), but the selector, of a Job that is not managed. Which conditions it has stays
    /// known.
    pub fn drop_weight(&mut self) {
        self.status.drop_lists();
        self.status.drop_condition_texts();
        self.drop_policies();
    }

    /// Drops the policies and the names of other Jobs, which say nothing about a Job that has finished.
    pub fn drop_policies(&mut self) {
        self.options.drop_predecessors();
        if self.spec.policy_bytes() > 0 {
            let spec = Arc::make_mut(&mut self.spec);
            spec.pod_failure_policy = None;
            spec.success_policy = Vec::new();
        }
    }

    /// Drops the text of the pod template, which nobody needs of a Job that creates no pods.
    pub fn drop_template(&mut self) {
        if self.spec.template.is_kept() {
            let spec = Arc::make_mut(&mut self.spec);
            spec.template = spec.template.dropped();
        }
    }

    /// Shares the selector and the pod template with an earlier reading of the Job if they are the same, so that there is
    /// one copy. The parts serialized for pods are shared too. A Job that creates no pods has no template to share.
    pub fn share_parts(&mut self, known: &JobSpec) {
        if !self.may_create_pods() {
            self.drop_template();
        }
        let Some(spec) = Arc::get_mut(&mut self.spec) else { return };
        if spec.selector == known.selector {
            spec.selector = known.selector.clone();
        }
        if spec.template.same_text(&known.template) {
            spec.template = known.template.clone();
        }
    }

    /// Takes the template of an earlier reading in place of its own if they are the same. If not, drops it.
    pub fn take_template(&mut self, known: &JobSpec) {
        if self.spec.template.same_text(&known.template) {
            Arc::make_mut(&mut self.spec).template = known.template.clone();
        } else {
            self.drop_template();
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
    /// Whether a pod being deleted is replaced only once it has failed: `spec.podReplacementPolicy` is
    /// `Failed`, or a pod failure policy is set.
    pub replace_only_failed: bool,
    /// `spec.selector`. It cannot be changed, so readings share it.
    pub selector: Arc<Selector>,
    /// `spec.template`.
    pub template: PodTemplate,
}

impl JobSpec {
    /// The memory of the policies in bytes, about.
    fn policy_bytes(&self) -> usize {
        let rules = self.pod_failure_policy.iter().flatten();
        let successes = self.success_policy.iter();
        rules.map(PodFailureRule::bytes).sum::<usize>() + successes.map(SuccessRule::bytes).sum::<usize>()
    }

    fn has_failure_rule(&self, action: PodFailureAction) -> bool {
        self.pod_failure_policy.iter().flatten().any(|rule| rule.action == action)
    }

    /// Whether a rule of the pod failure policy fails the Job.
    pub fn may_fail_by_policy(&self) -> bool {
        self.has_failure_rule(PodFailureAction::FailJob)
    }

    /// Whether a rule of the pod failure policy fails indexes, whatever retries they have left.
    pub fn may_fail_indexes_by_policy(&self) -> bool {
        self.has_failure_rule(PodFailureAction::FailIndex)
    }

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

/// `spec.backoffLimitPerIndex` and `spec.maxFailedIndexes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerIndexLimit {
    /// Counted failures of one index before the index fails.
    pub backoff_limit: u32,
    /// `spec.maxFailedIndexes`: failed indexes before the Job fails.
    pub max_failed_indexes: Option<u32>,
}

/// A rule of `spec.podFailurePolicy`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodFailureRule {
    /// The consequence of a match.
    pub action: PodFailureAction,
    /// The pattern to match.
    pub on: PodFailurePattern,
}

impl SuccessRule {
    /// The memory of an allocated set besides its intervals.
    const SET: usize = 160;

    fn bytes(&self) -> usize {
        let indexes = self.indexes.iter().flatten();
        size_of::<Self>() + indexes.map(|indexes| Self::SET + indexes.bytes()).sum::<usize>()
    }
}

impl PodFailureRule {
    fn bytes(&self) -> usize {
        size_of::<Self>()
            + match &self.on {
                PodFailurePattern::ExitCodes { container, values, .. } => {
                    container.as_ref().map_or(0, |name| name.len()) + size_of_val(&**values)
                }
                PodFailurePattern::PodConditions(conditions) => {
                    let texts = conditions.iter().map(|(kind, status)| kind.len() + status.len());
                    size_of_val(&**conditions) + texts.sum::<usize>()
                }
            }
    }
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

/// A rule of `spec.successPolicy`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuccessRule {
    /// `succeededIndexes`; `Some(None)` if the text is malformed: such a rule never matches.
    pub indexes: Option<Option<IndexSet>>,
    /// `succeededCount`.
    pub count: Option<u32>,
}
