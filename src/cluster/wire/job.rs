//! Reads Jobs.

use std::sync::Arc;

use jiff::Timestamp;
use serde::Deserialize;

use super::decode::{DecodeError, Decoder};
use super::intern::Interner;
use super::job_spec::{SpecReading, WireJobSpec};
use super::job_status::WireJobStatus;
use super::meta::Meta;
use super::observed_job::{ObservedJob, Unserved};
use super::text::Pairs;
use super::uids::MOST_UIDS;
use crate::job::index_results;
use crate::job::names::{
    AFTER_MET_ANNOTATION, NAMES_USED_ANNOTATION, RESTARTS_ANNOTATION, RESULTS_ANNOTATION,
    RUNNING_SINCE_ANNOTATION,
};
use crate::job::options::form::JOB_NAMES;
use crate::job::options::{DefaultOption, JobOptions};
use crate::job::predecessors::read_met;
use crate::job::second::Second;
use crate::job::spec::{Job, JobSpec};
use crate::job::status::JobStatus;
use crate::job::template::KEPT_BYTES;
use crate::job::uid::Uid;

/// Most bytes of the names of Jobs that have ended: as many as `after` and `after-any` can have.
const LONGEST_MET: usize = 2 * JOB_NAMES.longest + 1;

/// Reads Jobs.
#[derive(Clone, Debug, Default)]
pub struct JobDecoder {
    interner: Interner,
    /// Leaves out the trace that a Job was created in.
    is_untraced: bool,
    /// Keeps every template, however long it is.
    keeps_templates: bool,
    /// Options of Jobs that do not set them.
    defaults: Arc<[DefaultOption]>,
}

impl JobDecoder {
    /// A decoder without options of its own.
    pub fn new() -> Self {
        Self::default()
    }

    /// A decoder that leaves out the trace that a Job was created in, unless traces are exported: only they
    /// need it.
    pub fn with_traces(self, are_exported: bool) -> Self {
        Self { is_untraced: !are_exported, ..self }
    }

    /// A decoder that keeps the templates of all Jobs, for callers that make pods of them at once.
    pub fn with_templates(self) -> Self {
        Self { keeps_templates: true, ..self }
    }

    /// A decoder that gives Jobs these options unless they set them themselves.
    pub fn with_defaults(self, defaults: Arc<[DefaultOption]>) -> Self {
        Self { defaults, ..self }
    }

    fn options(&self, meta: &Meta<'_>, spec: &JobSpec) -> JobOptions {
        let options = JobOptions::read(
            // The values of the Job come last, and count.
            self.defaults
                .iter()
                .map(|default| (&*default.key, &*default.value))
                .chain(meta.annotations.iter().flat_map(Pairs::iter)),
        );
        let options = if self.is_untraced { options.without_caller() } else { options };
        if spec.per_index.is_some() { options.per_index() } else { options }
    }
}

impl Decoder for JobDecoder {
    type Wire<'a> = WireJob<'a>;
    type Object = Arc<ObservedJob>;

    fn version(seen: &Arc<ObservedJob>) -> u64 {
        seen.version.order()
    }

    fn bytes(seen: &Arc<ObservedJob>) -> usize {
        seen.may_have_pods().map_or(0, |job| job.status.list_bytes())
    }

    fn observe(
        &self,
        WireJob { metadata: meta, spec, status }: WireJob<'_>,
    ) -> Result<Arc<ObservedJob>, DecodeError> {
        let namespace = self.interner.get(meta.namespace.as_deref().unwrap_or_default());
        let name = self.interner.get(meta.name()?);
        let uid = Uid::from(meta.uid()?);
        let managed_by = spec.managed_by.as_deref().map(Box::from);
        let longest = if self.keeps_templates { usize::MAX } else { KEPT_BYTES };
        let SpecReading { spec, skipped } = spec.read(longest);
        let created = meta.created()?;
        let uncounted = status.uncounted();
        let job = spec.map(|spec| {
            let options = self.options(&meta, &spec);
            let results = meta.annotation(RESULTS_ANNOTATION).filter(|_| options.index_results);
            let met = meta.annotation(AFTER_MET_ANNOTATION).filter(|names| names.len() <= LONGEST_MET);
            let after_met = met.and_then(|names| read_met(names, options.after.as_ref()?));
            let mut job = Job {
                namespace: namespace.clone(),
                name: name.clone(),
                uid: uid.clone(),
                created,
                deleting: meta.deletion_timestamp.is_some(),
                options,
                status: JobStatus {
                    names_used: number(&meta, NAMES_USED_ANNOTATION),
                    restarts: number(&meta, RESTARTS_ANNOTATION),
                    running_since: meta
                        .annotation(RUNNING_SINCE_ANNOTATION)
                        .and_then(|time| time.parse::<Timestamp>().ok())
                        .map(Second::from),
                    results: results.map(|text| index_results::bounded(text).into()),
                    after_met,
                    ..status.read()
                },
                spec: Arc::new(spec),
            };
            if !self.keeps_templates && !job.may_create_pods() {
                job.drop_template();
            }
            job.drop_lists_at_end();
            job
        });
        let job = job.and_then(|job| with_few_uids(job, uncounted));
        Ok(Arc::new(ObservedJob {
            namespace,
            name,
            uid,
            version: meta.version(),
            generation: meta.generation.unwrap_or(0),
            managed_by,
            deleting: meta.deletion_timestamp.is_some(),
            job,
            skipped,
        }))
    }
}

/// A number that an owner has written. An invalid number says nothing.
fn number(meta: &Meta<'_>, annotation: &str) -> u32 {
    meta.annotation(annotation).and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Returns the Job, unless its status lists too many UIDs to keep, and those are needed.
fn with_few_uids(mut job: Job, listed: usize) -> Result<Job, Unserved> {
    if listed <= MOST_UIDS || job.status.finished().is_some() {
        return Ok(job);
    }
    job.drop_weight();
    job.drop_template();
    Err(Unserved::ManyUids { listed, job: job.into() })
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
