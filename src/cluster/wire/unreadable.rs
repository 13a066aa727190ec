//! Objects that cannot be read: as a newer API server may show them, or after damage.

use std::sync::Arc;

use super::decode::guarded;
use super::meta::{Bare, Meta};
use super::protobuf::Message as _;
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

    fn of(meta: &Meta<'_>, error: &dyn std::error::Error) -> Option<Self> {
        Some(Self {
            namespace: meta.namespace.as_deref().unwrap_or_default().into(),
            name: meta.name.as_deref()?.into(),
            uid: meta.uid.as_deref()?.into(),
            version: meta.version_order(),
            error: error.to_string().into(),
        })
    }

    /// The object in JSON that could not be read because of this error; `None` if not even its metadata can be.
    pub(crate) fn in_json(object: &[u8], error: &dyn std::error::Error) -> Option<Self> {
        or_none(|| {
            let bare: Bare<'_> = serde_json::from_slice(object).ok()?;
            Self::of(&bare.metadata, error)
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
        let unreadable = Unreadable::in_json(job.to_string().as_bytes(), &error).unwrap();
        assert_eq!((&*unreadable.name, &*unreadable.namespace), ("j", "n"));
        assert_eq!(unreadable.uid, "u".into());
        assert_eq!(Unreadable::in_json(br#"{"metadata": 7}"#, &error), None);
    }

    #[test]
    fn the_reason_is_short_however_long_the_value_is_that_cannot_be_read() {
        let job = json!({
            "metadata": {"name": "j", "namespace": "n", "uid": "u"},
            "spec": {"backoffLimit": "x".repeat(1 << 20)},
        });
        let error = JobDecoder::new().decode(job.to_string().as_bytes()).unwrap_err();
        let unreadable = Unreadable::in_json(job.to_string().as_bytes(), &error).unwrap();
        assert!(
            unreadable.error.contains("xxx") && unreadable.error.len() < 2_000,
            "{}",
            unreadable.error.len()
        );
    }
}
