//! A stored object: compact JSON text and the few fields that selectors and deletion use.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use super::labels::Labels;
use super::resources::Resource;

/// The key of an object in its table: `namespace/name`, or `name` for cluster-scoped kinds.
///
/// Kubernetes orders lists by this text, bytewise.
pub(crate) type Key = Arc<str>;

/// Builds the key of an object.
pub(crate) fn key(namespace: Option<&str>, name: &str) -> Key {
    match namespace {
        Some(namespace) => format!("{namespace}/{name}").into(),
        None => name.into(),
    }
}

/// Initial buffer size, in bytes, enough for the text of most objects.
const USUAL_SIZE: usize = 4096;

/// A version of an object. Immutable: a write makes a new version.
#[derive(Debug)]
pub(crate) struct Object {
    /// The revision of the write that made this version; 0 for the result of a dry run.
    pub(crate) revision: u64,
    /// The fields that selectors and controllers use.
    pub(crate) header: Header,
    /// The JSON after `"metadata":{"resourceVersion":"N",`, so that responses are built without decoding.
    pub(crate) tail: Bytes,
}

/// The decoded part of an object.
#[derive(Clone, Debug, Default)]
pub(crate) struct Header {
    /// `metadata.namespace`, empty for cluster-scoped kinds.
    pub(crate) namespace: Box<str>,
    /// `metadata.name`.
    pub(crate) name: Box<str>,
    /// `metadata.uid`.
    pub(crate) uid: Box<str>,
    /// `metadata.labels`.
    pub(crate) labels: Labels,
    /// The values of the kind's selectable fields, in the order of its table.
    pub(crate) fields: Box<[Box<str>]>,
    /// `metadata.ownerReferences`.
    pub(crate) owners: Box<[OwnerReference]>,
    /// Whether `metadata.deletionTimestamp` is set.
    pub(crate) deleting: bool,
    /// Whether a real store would hold the object without defaults that reading adds. Then the next write
    /// makes a new version even if it changes nothing.
    pub(crate) lacks_defaults: bool,
}

/// The part of an owner reference that garbage collection uses.
#[derive(Clone, Debug)]
pub(crate) struct OwnerReference {
    /// The owner's uid.
    pub(crate) uid: Box<str>,
    /// `blockOwnerDeletion`: foreground deletion of the owner waits for this object.
    pub(crate) blocks_deletion: bool,
}

impl Object {
    /// Encodes an object. `kind`, `apiVersion` and `metadata.resourceVersion` of the value are not stored:
    /// the table determines the first two, and the third is `revision`.
    pub(crate) fn encode(resource: &Resource, mut value: Value) -> (Header, Bytes) {
        let header = Header::of(resource, &value);
        let (mut metadata, mut others) = (Value::Null, Map::new());
        if let Some(object) = value.as_object_mut() {
            metadata = object.remove("metadata").unwrap_or_default();
            object.remove("kind");
            object.remove("apiVersion");
            others = std::mem::take(object);
        }
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.remove("resourceVersion");
        }
        let mut text = Vec::with_capacity(USUAL_SIZE);
        write_json(&mut text, &metadata);
        for (field, value) in others {
            text.push(b',');
            write_json(&mut text, &Value::String(field));
            text.push(b':');
            write_json(&mut text, &value);
        }
        text.push(b'}');
        // Without the opening brace of the metadata, and without unused capacity.
        (header, Bytes::copy_from_slice(text.get(1..).unwrap_or_default()))
    }

    /// Appends the object's JSON to `out`. A single object or a watch event has its kind, an item of a list
    /// has none. `revision` is the resourceVersion to show. The revision 0, of a dry run, is not shown.
    pub(crate) fn write(&self, out: &mut BytesMut, kind: Option<&Resource>, revision: u64) {
        out.extend_from_slice(b"{");
        if let Some(resource) = kind {
            out.extend_from_slice(resource.type_meta().as_bytes());
        }
        out.extend_from_slice(b"\"metadata\":");
        self.write_from_metadata(out, revision);
    }

    /// Appends the object's JSON from the metadata on.
    fn write_from_metadata(&self, out: &mut BytesMut, revision: u64) {
        out.extend_from_slice(b"{");
        if revision != 0 {
            out.extend_from_slice(b"\"resourceVersion\":\"");
            out.extend_from_slice(revision.to_string().as_bytes());
            out.extend_from_slice(b"\",");
        }
        out.extend_from_slice(&self.tail);
    }

    /// Appends the JSON of the metadata alone. The metadata come first, so the remaining text is not parsed.
    pub(crate) fn write_metadata(&self, out: &mut BytesMut, revision: u64) {
        let start = out.len();
        self.write_from_metadata(out, revision);
        let mut values = serde_json::Deserializer::from_slice(&out[start..]).into_iter::<IgnoredAny>();
        // `encode` made the text from a value, so it parses.
        let _ = values.next();
        let length = values.byte_offset();
        out.truncate(start + length);
    }

    /// The object's JSON with its kind.
    pub(crate) fn to_bytes(&self, resource: &Resource) -> Bytes {
        let mut out = BytesMut::with_capacity(self.tail.len() + 128);
        self.write(&mut out, Some(resource), self.revision);
        out.freeze()
    }

    /// Decodes the object, with kind, apiVersion and resourceVersion.
    pub(crate) fn decode(&self, resource: &Resource) -> Value {
        // `encode` made the text from a value, so it parses.
        serde_json::from_slice(&self.to_bytes(resource)).unwrap_or(Value::Null)
    }
}

/// Appends the JSON of a value. All keys are strings, so this cannot fail.
fn write_json(text: &mut Vec<u8>, value: &Value) {
    let _ = serde_json::to_writer(text, value);
}

impl Header {
    /// The header of a decoded object.
    pub(crate) fn of(resource: &Resource, value: &Value) -> Self {
        let metadata = &value["metadata"];
        let text = |field: &str| metadata[field].as_str().unwrap_or_default().into();
        let labels = metadata["labels"].as_object().into_iter().flatten();
        let owners = metadata["ownerReferences"].as_array();
        Self {
            namespace: text("namespace"),
            name: text("name"),
            uid: text("uid"),
            labels: labels.map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default())).collect(),
            fields: resource.fields.iter().map(|field| field.value(value).into()).collect(),
            owners: owners
                .into_iter()
                .flatten()
                .filter_map(|owner| {
                    let blocks_deletion = owner["blockOwnerDeletion"] == true;
                    Some(OwnerReference { uid: owner["uid"].as_str()?.into(), blocks_deletion })
                })
                .collect(),
            deleting: metadata.get("deletionTimestamp").is_some_and(|time| !time.is_null()),
            lacks_defaults: false,
        }
    }

    /// The value of a label.
    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key)
    }
}

/// `metadata.finalizers` of a decoded object.
pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    object["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Replaces `metadata.finalizers`; an empty list is omitted.
pub(crate) fn set_finalizers(object: &mut Value, finalizers: &[String]) {
    let Some(metadata) = metadata_mut(object) else { return };
    if finalizers.is_empty() {
        metadata.remove("finalizers");
    } else {
        metadata.insert("finalizers".into(), finalizers.into());
    }
}

/// `metadata` of a decoded object, created if absent; `None` if the object or its metadata is no map.
pub(crate) fn metadata_mut(object: &mut Value) -> Option<&mut Map<String, Value>> {
    let metadata = object.as_object_mut()?.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if metadata.is_null() {
        *metadata = Value::Object(Map::new());
    }
    metadata.as_object_mut()
}

/// A text field of `metadata`, empty if absent.
pub(crate) fn meta<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}
