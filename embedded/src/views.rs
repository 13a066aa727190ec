//! The form of an object in one of its API versions.
//!
//! Every kind except events is stored as it is served. Two groups serve events, with different names for the
//! same fields. Events are stored in the form of core/v1, and converted on the way in and out.

use bytes::{Bytes, BytesMut};
use serde_json::{Map, Value};

use super::object::Object;
use super::protobuf;
use super::resources::Resource;
use super::rules;

/// core/v1 and events.k8s.io/v1 names of event fields.
const EVENT_FIELDS: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// Whether a resource's field names differ from the stored ones.
fn renamed(resource: &Resource) -> bool {
    resource.group == "events.k8s.io"
}

/// Converts an object from the client's form to the stored form.
pub(crate) fn to_stored(resource: &Resource, object: Value) -> Value {
    if !renamed(resource) {
        return object;
    }
    canonical("v1", rename(object, |(core, new)| (new, core)))
}

/// Converts an object from the stored form to the resource's form.
fn from_stored(resource: &Resource, object: Value) -> Value {
    if !renamed(resource) {
        return object;
    }
    canonical(&resource.api_version(), rename(object, |(core, new)| (core, new)))
}

/// An event with exactly the empty fields that its version shows.
fn canonical(api_version: &str, mut event: Value) -> Value {
    event["apiVersion"] = api_version.into();
    match rules::decode::from_value(api_version, "Event", event.clone()) {
        Ok(decoded) => decoded.object,
        // A stored or validated event decodes. If one did not, showing it would be better than losing it.
        Err(_) => event,
    }
}

fn rename(
    object: Value,
    direction: impl Fn((&'static str, &'static str)) -> (&'static str, &'static str),
) -> Value {
    let Value::Object(fields) = object else { return object };
    let renamed: Map<String, Value> = fields
        .into_iter()
        .map(|(name, value)| {
            let new = EVENT_FIELDS.iter().map(|pair| direction(*pair)).find(|(from, _)| *from == name);
            (new.map_or(name, |(_, to)| to.to_owned()), value)
        })
        .collect();
    Value::Object(renamed)
}

/// Decodes an object to the resource's form, with kind, apiVersion and resourceVersion.
pub(crate) fn decode(resource: &Resource, object: &Object) -> Value {
    from_stored(resource, object.decode(resource))
}

/// The JSON of an object with its kind.
pub(crate) fn to_bytes(resource: &Resource, object: &Object) -> Bytes {
    if renamed(resource) {
        Bytes::from(decode(resource, object).to_string())
    } else {
        object.to_bytes(resource)
    }
}

/// Appends the JSON of an object with its kind, under the given resourceVersion.
pub(crate) fn write_with_kind(out: &mut BytesMut, resource: &Resource, object: &Object, revision: u64) {
    if renamed(resource) {
        let mut value = decode(resource, object);
        value["metadata"]["resourceVersion"] = revision.to_string().into();
        out.extend_from_slice(value.to_string().as_bytes());
    } else {
        object.write(out, Some(resource), revision);
    }
}

/// Appends the JSON of an object without its kind, as in the items of a list, under the given
/// resourceVersion.
pub(crate) fn write_item(out: &mut BytesMut, resource: &Resource, object: &Object, revision: u64) {
    if renamed(resource) {
        let mut value = decode(resource, object);
        value["metadata"]["resourceVersion"] = revision.to_string().into();
        if let Some(fields) = value.as_object_mut() {
            fields.remove("kind");
            fields.remove("apiVersion");
        }
        out.extend_from_slice(value.to_string().as_bytes());
    } else {
        object.write(out, None, revision);
    }
}

/// Appends the JSON of an object's `PartialObjectMetadata`, under the given resourceVersion.
pub(crate) fn write_partial(out: &mut BytesMut, object: &Object, revision: u64) {
    out.extend_from_slice(br#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":"#);
    object.write_metadata(out, revision);
    out.extend_from_slice(b"}");
}

/// Appends the JSON of an object's `PartialObjectMetadata` without its kind, under the given resourceVersion.
pub(crate) fn write_partial_item(out: &mut BytesMut, object: &Object, revision: u64) {
    out.extend_from_slice(br#"{"metadata":"#);
    object.write_metadata(out, revision);
    out.extend_from_slice(b"}");
}

/// The JSON of an object's `PartialObjectMetadata`.
pub(crate) fn partial(object: &Object) -> Bytes {
    let mut out = BytesMut::with_capacity(object.tail.len() + 128);
    write_partial(&mut out, object, object.revision);
    out.freeze()
}

/// An object's `PartialObjectMetadata` in protobuf.
///
/// # Errors
/// If the metadata contain a field that has no number in protobuf.
pub(crate) fn partial_in_protobuf(object: &Object) -> Result<Bytes, serde_json::Error> {
    let mut json = BytesMut::with_capacity(object.tail.len() + 128);
    write_partial_item(&mut json, object, object.revision);
    let mut out = BytesMut::with_capacity(json.len());
    protobuf::write_object(&mut out, "meta.k8s.io/v1", "PartialObjectMetadata", &json)?;
    Ok(out.freeze())
}

/// An object in protobuf.
///
/// # Errors
/// If it has a field that has no number in protobuf.
pub(crate) fn in_protobuf(resource: &Resource, object: &Object) -> Result<Bytes, serde_json::Error> {
    let mut json = BytesMut::with_capacity(object.tail.len() + 128);
    write_item(&mut json, resource, object, object.revision);
    let mut out = BytesMut::with_capacity(json.len());
    protobuf::write_object(&mut out, &resource.api_version(), resource.kind, &json)?;
    Ok(out.freeze())
}

/// The `PartialObjectMetadata` of a decoded object.
pub(crate) fn partial_value(object: &Value) -> Value {
    serde_json::json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"],
    })
}
