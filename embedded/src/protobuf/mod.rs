//! The format `application/vnd.kubernetes.protobuf`, for bodies sent by typed clients such as
//! kube-controller-manager, watch events, and responses about new objects.
//!
//! A [`table`] of messages has all fields of every kind that clients write. An object with any other field,
//! which a later version may have stored, is refused, never partly read or written.

mod read;
mod table;
mod write;

use bytes::{BufMut as _, BytesMut};
use serde_json::{Map, Value};

use self::read::Wire;
use self::table::MessageId;

/// The fields of every list.
const LIST_META: u32 = 1;
const ITEM: u32 = 2;
const LIST_META_MESSAGE: &str = "meta.v1.ListMeta";

/// The prefix of every encoded object.
const MAGIC: &[u8] = b"k8s\0";

/// Whether a body is an object in Kubernetes' protobuf.
pub fn is_encoded(body: &[u8]) -> bool {
    body.starts_with(MAGIC)
}

/// Decodes an object or a list in Kubernetes' protobuf to the equivalent JSON.
///
/// # Errors
/// If it is not valid or has an unknown kind or field. The error is the message for the client.
pub fn decode(body: &[u8]) -> Result<Value, String> {
    let body = body.strip_prefix(MAGIC).ok_or("provided data does not appear to be a protobuf message")?;
    let type_meta = read::numbered(body, 1)?;
    let [api_version, kind] = [1, 2].map(|number| match &type_meta {
        Some(Wire::Bytes(bytes)) => {
            read::numbered(bytes, number)?.map_or(Ok(String::new()), |wire| wire.text())
        }
        _ => Ok(String::new()),
    });
    let (api_version, kind) = (api_version?, kind?);
    let mut object = Map::new();
    let raw = match read::numbered(body, 2)? {
        Some(Wire::Bytes(raw)) => raw,
        _ => &[],
    };
    let of_item = || kind.strip_suffix("List").and_then(|kind| message(&api_version, kind));
    if let Some(message) = message(&api_version, &kind) {
        read::fields(&mut object, message, raw)?;
    } else if let (Some(of_list), Some(of_item)) = (MessageId::named(LIST_META_MESSAGE), of_item()) {
        read::list(&mut object, of_list, of_item, raw)?;
    } else {
        return Err(format!("kind {kind:?} is not supported in protobuf; send it as application/json"));
    }
    object.insert("apiVersion".into(), api_version.into());
    object.insert("kind".into(), kind.into());
    Ok(Value::Object(object))
}

/// Decodes an event of a watch, without the length that precedes it, to its type and the equivalent JSON of
/// its object.
///
/// # Errors
/// If it is not valid, or its object has an unknown kind or field.
pub fn decode_event(event: &[u8]) -> Result<(String, Value), String> {
    let kind = read::numbered(event, 1)?.ok_or("the event has no type")?.text()?;
    let Some(Wire::Bytes(object)) = read::numbered(event, 2)? else {
        return Err("the event has no object".into());
    };
    match read::numbered(object, 1)? {
        Some(Wire::Bytes(raw)) => Ok((kind, decode(raw)?)),
        _ => Err("the object of the event is empty".into()),
    }
}

/// Whether objects of this kind can be written, provided that all their fields are in the table.
pub(crate) fn knows(api_version: &str, kind: &str) -> bool {
    message(api_version, kind).is_some()
}

/// Appends an event of a watch: its length in four bytes, then a `WatchEvent` about the object. The given
/// JSON of the object is without its kind.
///
/// # Errors
/// If the object has a field that is not in the table. Then nothing is appended.
pub fn write_event(
    out: &mut BytesMut,
    event: &str,
    api_version: &str,
    kind: &str,
    json: &[u8],
) -> Result<(), serde_json::Error> {
    let start = out.len();
    out.put_u32(0);
    write::bytes(out, 1, event.as_bytes());
    let object = |out: &mut BytesMut| write_object(out, api_version, kind, json);
    let written = write::nested(out, 2, |out| write::nested(out, 1, object));
    let frame = out.len() - start - size_of::<u32>();
    match (written, u32::try_from(frame)) {
        (Ok(()), Ok(length)) => {
            out[start..start + size_of::<u32>()].copy_from_slice(&length.to_be_bytes());
            Ok(())
        }
        (written, _) => {
            out.truncate(start);
            written.and(Err(serde::de::Error::custom("too long for a frame")))
        }
    }
}

/// Appends an object in the envelope of all objects. The given JSON is without its kind.
///
/// # Errors
/// If the object has a field that is not in the table. Then the appended bytes are useless.
pub(crate) fn write_object(
    out: &mut BytesMut,
    api_version: &str,
    kind: &str,
    json: &[u8],
) -> Result<(), serde_json::Error> {
    enveloped(out, api_version, kind, |out| write::fields(out, known(api_version, kind)?, json))
}

/// Appends a list of objects of this version and kind, in the envelope of all objects. `json` appends the
/// JSON of one, without its kind.
///
/// # Errors
/// If an object has a field that is not in the table. Then the appended bytes are useless.
pub fn write_list<T>(
    out: &mut BytesMut,
    (api_version, kind): (&str, &str),
    metadata: &[u8],
    items: &[T],
    mut json: impl FnMut(&mut BytesMut, &T),
) -> Result<(), serde_json::Error> {
    let of_item = known(api_version, kind)?;
    let mut text = BytesMut::new();
    enveloped(out, api_version, &format!("{kind}List"), |out| {
        write::nested(out, LIST_META, |out| match MessageId::named(LIST_META_MESSAGE) {
            Some(of_list) => write::fields(out, of_list, metadata),
            None => Ok(()),
        })?;
        items.iter().try_for_each(|item| {
            text.clear();
            json(&mut text, item);
            write::nested(out, ITEM, |out| write::fields(out, of_item, &text))
        })
    })
}

/// Appends the envelope of all objects, round the message that `raw` appends.
fn enveloped(
    out: &mut BytesMut,
    api_version: &str,
    kind: &str,
    raw: impl FnOnce(&mut BytesMut) -> Result<(), serde_json::Error>,
) -> Result<(), serde_json::Error> {
    out.extend_from_slice(MAGIC);
    write::nested(out, 1, |out| {
        write::bytes(out, 1, api_version.as_bytes());
        write::bytes(out, 2, kind.as_bytes());
        Ok::<_, serde_json::Error>(())
    })?;
    write::nested(out, 2, raw)?;
    // Content encoding and content type, both empty because they are the defaults.
    write::bytes(out, 3, b"");
    write::bytes(out, 4, b"");
    Ok(())
}

fn known(api_version: &str, kind: &str) -> Result<MessageId, serde_json::Error> {
    let unknown = || serde::de::Error::custom(format_args!("no message of kind {kind:?} is known"));
    message(api_version, kind).ok_or_else(unknown)
}

fn message(api_version: &str, kind: &str) -> Option<MessageId> {
    let (group, version) = api_version.split_once('/').unwrap_or(("core", api_version));
    let package = match (group.split('.').next(), kind) {
        // These kinds belong to every group.
        (_, "DeleteOptions") | (Some("core"), "Status") => {
            return MessageId::named(&format!("meta.v1.{kind}"));
        }
        (package, _) => package.unwrap_or_default(),
    };
    MessageId::named(&format!("{package}.{version}.{kind}"))
}

#[cfg(test)]
pub(crate) mod tests;
