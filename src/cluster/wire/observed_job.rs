//! Jobs as the API server shows them.

use std::sync::Arc;

use super::labels::Labels;
use super::meta::ResourceVersion;
use crate::job::job_id::JobId;
use crate::job::spec::Job;
use crate::job::status::JobStatus;
use crate::job::uid::Uid;

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
    /// `metadata.finalizers`.
    pub finalizers: Box<[Box<str>]>,
    /// `metadata.labels`.
    pub labels: Labels,
    /// The part that the rules look at.
    pub job: Result<Job, UnknownCompletionMode>,
    /// Values in the spec that this release does not know, as `FIELD: VALUE`. They are read as if they
    /// matched nothing.
    pub skipped: Vec<String>,
}

impl ObservedJob {
    /// Namespace, name and UID.
    pub fn id(&self) -> JobId {
        JobId::new(self.namespace.clone(), self.name.clone(), self.uid.clone())
    }

    /// The Job as the API server shows it once this status, and nothing else, has been written.
    pub fn with_status(&self, version: ResourceVersion, status: JobStatus) -> Self {
        let mut written = Self { version, ..self.clone() };
        if let Ok(job) = &mut written.job {
            job.take_status(status.stored());
        }
        written
    }
}

/// `spec.completionMode` is neither `NonIndexed` nor `Indexed`: the Job must be left alone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown completion mode {0:?}")]
pub struct UnknownCompletionMode(pub Box<str>);
