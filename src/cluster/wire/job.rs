//! Jobs as the API server shows them.

use std::sync::Arc;

use serde::Deserialize;

use super::intern::Interner;
use super::job_spec::{SpecReading, WireJobSpec};
use super::job_status::WireJobStatus;
use super::labels::Labels;
use super::meta::{ControllerRef, Meta, ResourceVersion};
use super::self_writes::SelfWriteCache;
use super::text::{Pairs, Text};
use super::{DecodeError, Decoder};
use crate::job::options::Options;
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
    /// The controller in `metadata.ownerReferences`, such as a CronJob.
    pub controller: Option<ControllerRef>,
    /// The part that the rules look at.
    pub job: Result<Job, UnknownCompletionMode>,
    /// Values in the spec that this release does not know, as `FIELD: VALUE`. They are read as if they
    /// matched nothing.
    pub skipped: Vec<String>,
}

impl ObservedJob {
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

/// Reads Jobs.
#[derive(Clone, Debug, Default)]
pub struct JobDecoder {
    interner: Interner,
    own: SelfWriteCache,
}

impl JobDecoder {
    /// A decoder that decodes every object it is given.
    pub fn new() -> Self {
        Self::default()
    }

    /// A decoder that skips watch events for these own writes, and returns the cached Job instead.
    pub fn knowing(own: SelfWriteCache) -> Self {
        Self { own, ..Self::default() }
    }
}

impl Decoder for JobDecoder {
    type Wire<'a> = WireJob<'a>;
    type Object = Arc<ObservedJob>;

    fn version(seen: &Arc<ObservedJob>) -> u64 {
        seen.version.order()
    }

    fn recall(&self, event: &[u8]) -> Option<Arc<ObservedJob>> {
        self.own.recall(event)
    }

    fn observe(
        &self,
        WireJob { metadata: meta, spec, status }: WireJob<'_>,
    ) -> Result<Arc<ObservedJob>, DecodeError> {
        let namespace = self.interner.get(meta.namespace.as_deref().unwrap_or_default());
        let name = self.interner.get(meta.name()?);
        let uid = Uid::from(meta.uid()?);
        let managed_by = spec.managed_by.as_deref().map(Box::from);
        let SpecReading { spec, skipped } = spec.read();
        let created = meta.created()?;
        let job = spec.map(|spec| Job {
            namespace: namespace.clone(),
            name: name.clone(),
            uid: uid.clone(),
            created,
            deleting: meta.deletion_timestamp.is_some(),
            options: options(&meta),
            status: status.read(),
            spec: Arc::new(spec),
        });
        Ok(Arc::new(ObservedJob {
            namespace,
            name,
            uid,
            version: meta.version(),
            generation: meta.generation.unwrap_or(0),
            managed_by,
            finalizers: meta.finalizers.iter().flatten().map(|f: &Text<'_>| (**f).into()).collect(),
            controller: meta.controller(&self.interner),
            labels: meta.labels.map(Labels::from).unwrap_or_default(),
            job,
            skipped,
        }))
    }
}

fn options(meta: &Meta<'_>) -> Options {
    Options::read(meta.annotations.iter().flat_map(Pairs::iter))
}

/// JSON of a Job.
#[derive(Debug, Deserialize)]
pub struct WireJob<'a> {
    #[serde(borrow)]
    metadata: Meta<'a>,
    #[serde(borrow)]
    spec: WireJobSpec<'a>,
    #[serde(borrow, default)]
    status: WireJobStatus<'a>,
}

#[cfg(test)]
mod tests;
