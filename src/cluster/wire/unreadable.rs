//! Objects that cannot be read: as a newer API server may show them, or after damage.

use std::sync::Arc;

use serde::Deserialize;

use super::intern::Interner;
use super::meta::{Bare, ControllerRef, Meta};
use super::protobuf::Message as _;
use super::text::Text;
use crate::job::uid::Uid;

/// An object that was created, changed or deleted and that cannot be read, by its metadata. Whether it exists only a live
/// read tells: it must not be taken for one that is gone, nor one that is gone be kept.
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
    /// The controller in `metadata.ownerReferences`.
    pub controller: Option<ControllerRef>,
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
    fn of(meta: &Meta<'_>, error: &dyn std::error::Error) -> Option<Self> {
        let interner = Interner::default();
        Some(Self {
            namespace: meta.namespace.as_deref().unwrap_or_default().into(),
            name: meta.name.as_deref()?.into(),
            uid: meta.uid.as_deref()?.into(),
            version: meta.version_order(),
            controller: meta.controller(&interner),
            error: error.to_string().into(),
        })
    }

    /// The object in JSON that could not be read because of this error; `None` if not even its metadata can be.
    pub(crate) fn in_list(object: &[u8], error: &dyn std::error::Error) -> Option<Self> {
        let bare: Bare<'_> = serde_json::from_slice(object).ok()?;
        Self::of(&bare.metadata, error)
    }

    /// The object that this line of a watch says was created, changed or deleted.
    pub(crate) fn in_line(line: &[u8], error: &dyn std::error::Error) -> Option<Self> {
        let line: Line<'_> = serde_json::from_slice(line).ok()?;
        matches!(&*line.kind, "ADDED" | "MODIFIED" | "DELETED")
            .then(|| Self::of(&line.object.metadata, error))?
    }

    /// The object of this message in protobuf.
    pub(crate) fn in_message(message: &[u8], error: &dyn std::error::Error) -> Option<Self> {
        Self::of(&Bare::read(message).ok()?.metadata, error)
    }
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
            "metadata": {"name": "j", "namespace": "n", "uid": "u", "resourceVersion": "7",
                "ownerReferences": [{"apiVersion": "batch/v1", "kind": "CronJob", "name": "c", "uid": "c-uid",
                    "controller": true}]},
            "spec": {"backoffLimit": {}},
        });
        let error = JobDecoder::new().decode(job.to_string().as_bytes()).unwrap_err();
        let unreadable = Unreadable::in_list(job.to_string().as_bytes(), &error).unwrap();
        assert_eq!((&*unreadable.name, &*unreadable.namespace), ("j", "n"));
        assert_eq!(unreadable.uid, "u".into());
        assert_eq!(unreadable.controller.as_ref().map(|c| &*c.name), Some("c"));
        let line = |kind: &str| json!({"type": kind, "object": job}).to_string();
        for kind in ["ADDED", "MODIFIED", "DELETED"] {
            assert_eq!(
                Unreadable::in_line(line(kind).as_bytes(), &error),
                Some(unreadable.clone()),
                "{kind}"
            );
        }
        assert_eq!(Unreadable::in_line(line("BOOKMARK").as_bytes(), &error), None);
        assert_eq!(Unreadable::in_list(br#"{"metadata": 7}"#, &error), None);
    }
}
