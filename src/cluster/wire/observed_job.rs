//! Jobs as the API server shows them.

use std::sync::Arc;

use super::meta::ResourceVersion;
use super::uids::MOST_UIDS;
use crate::job::job_id::JobId;
use crate::job::pod_failure_policy::LONGEST_FAILURE_POLICY;
use crate::job::selector::LONGEST_SELECTOR;
use crate::job::spec::Job;
use crate::job::status::JobStatus;
use crate::job::success_policy::LONGEST_SUCCESS_POLICY;
use crate::job::uid::Uid;

/// Most memory, in bytes, for the parts of a namespace's unfinished Jobs that [`Job::weight`] counts.
/// It may be less.
pub const LONGEST_STATUSES: usize = 8 << 20;

/// A Job as the API server shows it.
#[derive(Clone, Debug)]
pub struct ObservedJob {
    /// `metadata.namespace`.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
    /// `metadata.uid`.
    pub uid: Uid,
    /// `metadata.resourceVersion`.
    pub version: ResourceVersion,
    /// `metadata.generation`: grows with each change of the spec, and when deletion begins.
    pub generation: i64,
    /// `spec.managedBy`; `None` stands for the controller built into Kubernetes.
    pub managed_by: Option<Box<str>>,
    /// Whether `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// The part that the rules look at.
    pub job: Result<Job, Unserved>,
    /// Values in the spec that this release does not know, as `FIELD: VALUE`. They are read as if they
    /// matched nothing.
    pub skipped: Vec<String>,
}

impl ObservedJob {
    /// Namespace, name and UID.
    pub fn id(&self) -> JobId {
        JobId::new(self.namespace.clone(), self.name.clone(), self.uid.clone())
    }

    /// The Job as the API server shows it once only this status has been written.
    pub fn with_status(&self, version: ResourceVersion, status: JobStatus) -> Self {
        let mut written = Self { version, ..self.clone() };
        if let Ok(job) = &mut written.job {
            job.take_status(status.stored());
        }
        written
    }

    /// The Job without its lists, policies and texts, which take this much memory. It is left alone.
    pub fn left_alone(&self, bytes: usize) -> Self {
        let mut left = self.clone();
        left.job = left.job.and_then(|mut job| {
            job.drop_weight();
            job.drop_template();
            Err(Unserved::LongStatus { bytes, job: job.into() })
        });
        left
    }

    /// Drops the lists, policies, texts and the template, of a Job of another controller.
    pub fn lighten(self: &mut Arc<Self>) {
        if !self.job.as_ref().is_ok_and(Job::is_heavy) {
            return;
        }
        if let Ok(job) = &mut Arc::make_mut(self).job {
            job.drop_weight();
            job.drop_template();
        }
    }

    /// The Job, also if only its status keeps it from being served: it may have pods of ours.
    pub fn may_have_pods(&self) -> Option<&Job> {
        match &self.job {
            Ok(job) => Some(job),
            Err(Unserved::LongStatus { job, .. } | Unserved::ManyUids { job, .. }) => Some(job),
            Err(_) => None,
        }
    }
}

/// Why a Job must be left alone.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Unserved {
    /// `spec.completionMode` is neither `NonIndexed` nor `Indexed`.
    #[error("unknown completion mode {0:?}")]
    UnknownCompletionMode(Box<str>),
    /// `spec.selector` costs more than [`LONGEST_SELECTOR`]: it fits into no URL, or comparing every pod with it takes time
    /// from other Jobs.
    #[error(
        "its selector counts as {cost} bytes, 64 for each requirement, 16 for each value and its text, and {LONGEST_SELECTOR} at most are served"
    )]
    LongSelector {
        /// Its [cost](Selector::cost).
        cost: usize,
    },
    /// `spec.successPolicy` names indexes by more than [`LONGEST_SUCCESS_POLICY`] bytes of text.
    #[error(
        "its success policy lists indexes in {bytes} bytes, and {LONGEST_SUCCESS_POLICY} at most are served"
    )]
    LongSuccessPolicy {
        /// The length of all its `succeededIndexes`.
        bytes: usize,
    },
    /// `spec.podFailurePolicy` names containers and conditions by more than [`LONGEST_FAILURE_POLICY`] bytes of text.
    #[error(
        "its pod failure policy names containers and conditions in {bytes} bytes, and {LONGEST_FAILURE_POLICY} at most are served"
    )]
    LongFailurePolicy {
        /// The length of all these names.
        bytes: usize,
    },
    /// The lists, conditions and policies of the namespace's Jobs take too much memory, with those of this one. Unlike the others,
    /// this may change.
    #[error(
        "the lists and conditions of its status and its policies take {bytes} bytes of memory, and those of all unfinished Jobs of \
         a namespace may take {LONGEST_STATUSES}, or less where many namespaces need much. It goes on once other Jobs have \
         finished or are deleted"
    )]
    LongStatus {
        /// The memory that they take.
        bytes: usize,
        /// The Job without them.
        job: Box<Job>,
    },
    /// `status.uncountedTerminatedPods` lists more than [`MOST_UIDS`]. This may change, too.
    #[error(
        "its status lists {listed} UIDs in uncountedTerminatedPods, and Jobs with {MOST_UIDS} at most are served. It goes on \
         once the status lists fewer"
    )]
    ManyUids {
        /// How many.
        listed: usize,
        /// The Job without them, and without the indexes of its status.
        job: Box<Job>,
    },
}

impl Unserved {
    /// Reason and message of the Event about it. The first one is that of Kubernetes.
    pub fn event(&self) -> (&'static str, String) {
        match self {
            Self::UnknownCompletionMode(_) => {
                ("UnknownCompletionMode", "Skipped Job sync because completion mode is unknown".to_owned())
            }
            Self::LongSelector { .. } => ("SelectorTooLong", format!("Skipped Job sync: {self}")),
            Self::LongStatus { .. } | Self::ManyUids { .. } => {
                ("StatusTooLong", format!("Skipped Job sync: {self}"))
            }
            Self::LongFailurePolicy { .. } => ("FailurePolicyTooLong", format!("Skipped Job sync: {self}")),
            Self::LongSuccessPolicy { .. } => ("SuccessPolicyTooLong", format!("Skipped Job sync: {self}")),
        }
    }
}
