//! The Jobs of a CronJob, as they were read last.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;

use super::Uid;
use crate::object::{Object, meta};

/// The condition of a Job that has succeeded.
pub(super) const COMPLETE: &str = "Complete";
/// The condition of a Job that has failed.
pub(super) const FAILED: &str = "Failed";

/// The Jobs of a CronJob, in the order of their names. A look decodes only those that have changed: templates may be
/// large, and kept Jobs many.
#[derive(Debug, Default)]
pub(super) struct DecodedJobs(Vec<DecodedJob>);

#[derive(Debug)]
struct DecodedJob {
    version: Arc<Object>,
    /// Absent if the CronJob is an owner of the Job, and not its controller.
    controlled: Option<ControlledJob>,
}

impl DecodedJobs {
    /// Replaces the Jobs by these versions. Only versions that are new are decoded.
    ///
    /// # Errors
    /// If one cannot be decoded. Then none is known.
    pub(super) fn update(
        &mut self,
        versions: Vec<Arc<Object>>,
        mut decode: impl FnMut(&Object) -> Result<Option<ControlledJob>, serde_json::Error>,
    ) -> Result<(), serde_json::Error> {
        let mut before: HashMap<Uid, DecodedJob> =
            self.0.drain(..).map(|known| (known.version.header.uid.clone(), known)).collect();
        let known = versions.into_iter().map(|version| match before.remove(&version.header.uid) {
            Some(known) if Arc::ptr_eq(&known.version, &version) => Ok(known),
            _ => decode(&version).map(|controlled| DecodedJob { version, controlled }),
        });
        self.0 = known.collect::<Result<_, _>>()?;
        Ok(())
    }

    /// The Jobs that the CronJob controls.
    pub(super) fn controlled(&self) -> impl Iterator<Item = &ControlledJob> {
        self.0.iter().filter_map(|known| known.controlled.as_ref())
    }
}

/// A Job, as far as its CronJob is concerned.
#[derive(Debug)]
pub(super) struct ControlledJob {
    /// The Job, as a status names it.
    pub(super) reference: ObjectReference,
    /// Whether its deletion was requested.
    pub(super) is_deleting: bool,
    /// The condition with which it has ended.
    pub(super) end: Option<&'static str>,
    /// `status.startTime`.
    pub(super) start: Option<Time>,
    /// `status.completionTime`.
    pub(super) completion: Option<Time>,
}

impl ControlledJob {
    /// Reads a Job.
    ///
    /// # Errors
    /// If a field has another type than that of a Job.
    pub(super) fn of(job: Value) -> Result<Self, serde_json::Error> {
        let reference = reference("Job", &job);
        let job: Job = serde_json::from_value(job)?;
        let status = job.status.unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default();
        let has_ended = |end: &&str| conditions.iter().any(|one| one.type_ == **end && one.status == "True");
        Ok(Self {
            reference,
            is_deleting: job.metadata.deletion_timestamp.is_some(),
            end: [COMPLETE, FAILED].into_iter().find(has_ended),
            start: status.start_time,
            completion: status.completion_time,
        })
    }

    /// The name of the Job.
    pub(super) fn name(&self) -> &str {
        self.reference.name.as_deref().unwrap_or_default()
    }

    /// The order from old to new. A Job that never started comes last.
    pub(super) fn age(&self) -> (bool, Option<&Time>, &str) {
        (self.start.is_none(), self.start.as_ref(), self.name())
    }
}

/// A reference to an object of `batch/v1`.
pub(super) fn reference(kind: &str, object: &Value) -> ObjectReference {
    let text = |field: &str| Some(meta(object, field).to_owned());
    ObjectReference {
        api_version: Some("batch/v1".to_owned()),
        kind: Some(kind.to_owned()),
        namespace: text("namespace"),
        name: text("name"),
        uid: text("uid"),
        resource_version: text("resourceVersion"),
        field_path: None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;
    use crate::resources;

    #[test]
    fn each_version_of_a_job_is_decoded_once() {
        let kind = resources::stored("jobs").unwrap();
        let version = |name: &str, revision| {
            let (header, tail) = Object::encode(kind, json!({"metadata": {"name": name, "uid": name}}));
            Arc::new(Object { revision, header, tail })
        };
        let mut jobs = DecodedJobs::default();
        let mut decoded = |versions: &[&Arc<Object>]| {
            let mut names = Vec::new();
            let decode = |version: &Object| {
                names.push(version.header.name.to_string());
                ControlledJob::of(version.decode(kind))
                    .map(|job| Some(job).filter(|job| job.name() != "other"))
            };
            jobs.update(versions.iter().copied().cloned().collect(), decode).unwrap();
            (names, jobs.controlled().map(|job| job.name().to_owned()).collect::<Vec<_>>().join(","))
        };
        let expected = |names: &[&str], controlled: &str| {
            (names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>(), controlled.to_owned())
        };
        let (a, b, other) = (version("a", 1), version("b", 2), version("other", 3));
        assert_eq!(decoded(&[&a, &b, &other]), expected(&["a", "b", "other"], "a,b"));
        assert_eq!(decoded(&[&a, &b, &other]), expected(&[], "a,b"));
        // As after a change, and after a restore of the store, which gives revisions once more.
        let changed = version("a", 1);
        assert_eq!(decoded(&[&changed, &b]), expected(&["a"], "a,b"));
        assert_eq!(decoded(&[&b]), expected(&[], "b"));
        assert_eq!(decoded(&[&changed, &b]), expected(&["a"], "a,b"));
    }
}
