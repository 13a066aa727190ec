//! Objects that cannot be read: as a newer API server may show them, or after damage.

use std::sync::Arc;

use serde::Deserialize;

use super::decode::guarded;
use super::meta::{Bare, Meta};
use super::protobuf::Message as _;
use super::text::Text;
use crate::job::job_id::JobId;
use crate::job::names::{CONTROLLER_UID_LABEL, JOB_NAME_LABEL, SHARD_LABEL};
use crate::job::uid::Uid;

/// An object that was created, changed or deleted and that cannot be read, by its metadata.
/// Only a live read, or the deletion that a watch of all objects shows, proves whether it
/// exists. It must not be taken for a gone object, and a gone one must not be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// `metadata.namespace`.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
    /// `metadata.uid`.
    pub uid: Uid,
    /// `metadata.resourceVersion`; 0 if it cannot be read.
    pub version: u64,
    /// The Job that is its controller. Without a controller, the Job that its labels name: it
    /// may have left the object behind, or adopt it once it can be read.
    pub job: Option<JobId>,
    /// The label of its shard, as it is written there.
    pub shard: Option<Box<str>>,
    /// Whether it has any finalizer.
    pub is_held: bool,
    /// The object was deleted, or no longer matches the selection of the watch: that shows it
    /// no more.
    pub has_left: bool,
    /// Why it cannot be read.
    pub error: Box<str>,
}

/// A line of a watch, decoded for the metadata of its object only.
#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
    #[serde(borrow)]
    object: Bare<'a>,
}

impl Unreadable {
    /// The identity of an object that is a Job itself.
    pub fn as_job(&self) -> JobId {
        JobId::new(self.namespace.clone(), self.name.clone(), self.uid.clone())
    }

    fn of(meta: &Meta<'_>, error: &dyn std::error::Error) -> Option<Self> {
        let namespace: Arc<str> = meta.namespace.as_deref().unwrap_or_default().into();
        Some(Self {
            name: meta.name.as_deref()?.into(),
            uid: meta.uid.as_deref()?.into(),
            version: meta.version_order(),
            job: match meta.controller(&namespace, JobId::claimed) {
                Some(controller) => controller.job().cloned(),
                None => job_in_labels(meta, &namespace),
            },
            namespace,
            shard: meta.labels.as_ref().and_then(|labels| labels.get(SHARD_LABEL)).map(Into::into),
            is_held: meta.finalizers.as_ref().is_some_and(|finalizers| !finalizers.is_empty()),
            has_left: false,
            error: error.to_string().into(),
        })
    }

    /// The object in JSON that could not be read because of this error; `None` if not even its metadata can be.
    pub(crate) fn in_list(object: &[u8], error: &dyn std::error::Error) -> Option<Self> {
        or_none(|| {
            let bare: Bare<'_> = serde_json::from_slice(object).ok()?;
            Self::of(&bare.metadata, error)
        })
    }

    /// The object that this line of a watch says was created, changed or deleted.
    pub(crate) fn in_line(line: &[u8], error: &dyn std::error::Error) -> Option<Self> {
        or_none(|| {
            let line: Line<'_> = serde_json::from_slice(line).ok()?;
            let has_left = match &*line.kind {
                "ADDED" | "MODIFIED" => false,
                "DELETED" => true,
                _ => return None,
            };
            Some(Self { has_left, ..Self::of(&line.object.metadata, error)? })
        })
    }

    /// The object of this message in protobuf.
    pub(crate) fn in_message(message: &[u8], error: &dyn std::error::Error) -> Option<Self> {
        or_none(|| Self::of(&Bare::read(message).ok()?.metadata, error))
    }
}

/// Reads the metadata, unless that panics, too.
fn or_none(read: impl FnOnce() -> Option<Unreadable>) -> Option<Unreadable> {
    guarded(|| Ok(read())).unwrap_or(None)
}

/// The Job that the labels of a pod name.
fn job_in_labels(meta: &Meta<'_>, namespace: &Arc<str>) -> Option<JobId> {
    let label = |name: &str| meta.labels.as_ref()?.get(name);
    JobId::claimed(namespace, label(JOB_NAME_LABEL)?, label(CONTROLLER_UID_LABEL)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;
    use crate::cluster::wire::{Decoder as _, JobDecoder};

    #[test]
    fn an_object_that_cannot_be_read_has_a_name_while_its_metadata_can_be() {
        let job = json!({
            "metadata": {"name": "j", "namespace": "n", "uid": "u", "resourceVersion": "7"},
            "spec": {"backoffLimit": {}},
        });
        let error = JobDecoder::new().decode(job.to_string().as_bytes()).unwrap_err();
        let unreadable = Unreadable::in_list(job.to_string().as_bytes(), &error).unwrap();
        assert_eq!((&*unreadable.name, &*unreadable.namespace), ("j", "n"));
        assert_eq!(unreadable.uid, "u".into());
        let line = |kind: &str| json!({"type": kind, "object": job}).to_string();
        for (kind, has_left) in [("ADDED", false), ("MODIFIED", false), ("DELETED", true)] {
            let shown = Unreadable { has_left, ..unreadable.clone() };
            assert_eq!(Unreadable::in_line(line(kind).as_bytes(), &error), Some(shown), "{kind}");
        }
        assert_eq!(Unreadable::in_line(line("BOOKMARK").as_bytes(), &error), None);
        assert_eq!(Unreadable::in_list(br#"{"metadata": 7}"#, &error), None);
    }

    #[test]
    fn the_reason_is_short_however_long_the_value_is_that_cannot_be_read() {
        let job = json!({
            "metadata": {"name": "j", "namespace": "n", "uid": "u"},
            "spec": {"backoffLimit": "x".repeat(1 << 20)},
        });
        let error = JobDecoder::new().decode(job.to_string().as_bytes()).unwrap_err();
        let unreadable = Unreadable::in_list(job.to_string().as_bytes(), &error).unwrap();
        assert!(
            unreadable.error.contains("xxx") && unreadable.error.len() < 2_000,
            "{}",
            unreadable.error.len()
        );
    }

    #[test]
    fn a_pod_that_cannot_be_read_belongs_to_its_controller_or_else_to_the_job_in_its_labels() {
        let labels =
            json!({"batch.kubernetes.io/job-name": "former", "batch.kubernetes.io/controller-uid": "f"});
        let controller = |kind: &str, api_version: &str| json!([{"apiVersion": api_version, "kind": kind, "name": "owner", "uid": "o", "controller": true}]);
        for (owners, labels, job) in [
            (controller("Job", "batch/v1"), labels.clone(), Some("owner")),
            (controller("ReplicaSet", "apps/v1"), labels.clone(), None),
            (json!([]), labels.clone(), Some("former")),
            (json!([]), json!({"batch.kubernetes.io/job-name": "former"}), None),
            (json!([]), json!({}), None),
        ] {
            let pod =
                json!({"metadata": {"name": "p", "uid": "u", "labels": labels, "ownerReferences": owners}});
            let pod = Unreadable::in_list(pod.to_string().as_bytes(), &std::fmt::Error).unwrap();
            assert_eq!(pod.job.as_ref().map(|job| &**job.name()), job, "{owners} {labels}");
        }
    }
}
