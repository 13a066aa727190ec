//! Objects that cannot be read: as a newer API server may show them, or after damage.

use std::sync::Arc;

use super::decode::DecodeError;
use super::meta::Meta;
use crate::job::job_id::JobId;
use crate::job::uid::Uid;

/// An object that exists or was deleted, and that cannot be read, by its metadata. Only a live read proves whether it
/// exists. It must not be taken for a gone object, and a gone one must not be kept. Of pods the metadata is enough: they
/// are no such objects.
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
    /// Why it cannot be read.
    pub error: Box<str>,
}

impl Unreadable {
    /// The identity of an object that is a Job itself.
    pub fn as_job(&self) -> JobId {
        JobId::new(self.namespace.clone(), self.name.clone(), self.uid.clone())
    }

    pub(super) fn of(meta: &Meta<'_>, error: &DecodeError) -> Option<Self> {
        Some(Self {
            namespace: meta.namespace.as_deref().unwrap_or_default().into(),
            name: meta.name.as_deref()?.into(),
            uid: meta.uid.as_deref()?.into(),
            version: meta.version_order(),
            error: error.to_string().into(),
        })
    }
}

/// An object that was not read.
#[derive(Debug)]
pub struct NotRead {
    /// Why.
    pub error: DecodeError,
    /// The object's metadata, unless even its name is unreadable.
    pub object: Option<Unreadable>,
}

impl From<DecodeError> for NotRead {
    fn from(error: DecodeError) -> Self {
        Self { error, object: None }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;
    use crate::cluster::wire::{JobDecoder, read_json};

    fn unreadable(job: &Value) -> Option<Unreadable> {
        read_json(&JobDecoder::new(), job.to_string().as_bytes()).unwrap_err().object
    }

    #[test]
    fn an_object_that_cannot_be_read_has_a_name_while_its_metadata_can_be() {
        let job = json!({
            "metadata": {"name": "j", "namespace": "n", "uid": "u", "resourceVersion": "7"},
            "spec": {"backoffLimit": {}},
        });
        let found = unreadable(&job).unwrap();
        assert_eq!((&*found.name, &*found.namespace, found.version), ("j", "n", 7));
        assert_eq!(found.uid, "u".into());
        assert_eq!(unreadable(&json!({"metadata": 7})), None);
    }

    #[test]
    fn the_reason_is_short_however_long_the_value_is_that_cannot_be_read() {
        let job = json!({
            "metadata": {"name": "j", "namespace": "n", "uid": "u"},
            "spec": {"backoffLimit": "x".repeat(1 << 20)},
        });
        let error = unreadable(&job).unwrap().error;
        assert!(error.contains("xxx") && error.len() < 2_000, "{}", error.len());
    }
}
