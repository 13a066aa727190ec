//! Messages to JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::table::{Kind, MessageId};
use crate::time::{format_micro_time, format_time};

/// Adds the fields of a message to the equivalent JSON object.
pub(super) fn fields(object: &mut Map<String, Value>, id: MessageId, bytes: &[u8]) -> Result<(), String> {
    let message = id.get();
    let mut reader = Reader(bytes);
    while let Some((number, wire)) = reader.field()? {
        let Some((name, field)) = message.numbered(number) else {
            match (message.inlined.get(&number), wire) {
                (Some(inner), Wire::Bytes(bytes)) => fields(object, *inner, bytes)?,
                (_, wire) if wire.is_empty() => {}
                _ => {
                    return Err(format!(
                        "field {number} is not supported in protobuf; send the object as application/json"
                    ));
                }
            }
            continue;
        };
        match (&field.kind, wire) {
            (Kind::Message(inner), Wire::Bytes(bytes)) => {
                in_object(object.entry(name).or_insert(Value::Null), |object| fields(object, *inner, bytes))?;
            }
            (Kind::Map(kind), Wire::Bytes(bytes)) => {
                let (key, value) = entry(kind, bytes)?;
                in_object(object.entry(name).or_insert(Value::Null), |object| {
                    object.insert(key, value);
                    Ok(())
                })?;
            }
            (Kind::List(item), wire) => {
                let item = value(item, wire).ok_or_else(|| wrong_type(name))??;
                match object.entry(name).or_insert(Value::Null) {
                    Value::Array(list) => list.push(item),
                    slot => *slot = Value::Array(vec![item]),
                }
            }
            // Go's zero time.
            (Kind::Time | Kind::MicroTime, Wire::Bytes([])) => {}
            (kind, wire) => {
                let value = value(kind, wire).ok_or_else(|| wrong_type(name))??;
                object.insert(name.to_owned(), value);
            }
        }
    }
    Ok(())
}

/// Adds the metadata and the items of a list to the equivalent JSON object.
pub(super) fn list(
    object: &mut Map<String, Value>,
    of_list: MessageId,
    of_item: MessageId,
    bytes: &[u8],
) -> Result<(), String> {
    let (mut metadata, mut items) = (Map::new(), Vec::new());
    let mut reader = Reader(bytes);
    while let Some(field) = reader.field()? {
        match field {
            (super::LIST_META, Wire::Bytes(bytes)) => fields(&mut metadata, of_list, bytes)?,
            (super::ITEM, Wire::Bytes(bytes)) => {
                let mut item = Map::new();
                fields(&mut item, of_item, bytes)?;
                items.push(Value::Object(item));
            }
            (number, _) => return Err(format!("field {number} is not one of a list")),
        }
    }
    object.insert("metadata".into(), Value::Object(metadata));
    object.insert("items".into(), Value::Array(items));
    Ok(())
}

fn wrong_type(name: &str) -> String {
    format!("proto: wrong wireType for field {name}")
}

/// Changes the object at this key, creating it if absent.
fn in_object(
    slot: &mut Value,
    change: impl FnOnce(&mut Map<String, Value>) -> Result<(), String>,
) -> Result<(), String> {
    let mut object = match slot.take() {
        Value::Object(object) => object,
        _ => Map::new(),
    };
    change(&mut object)?;
    *slot = Value::Object(object);
    Ok(())
}

/// Decodes one value; `None` if its wire type does not fit its kind.
fn value(kind: &Kind, wire: Wire<'_>) -> Option<Result<Value, String>> {
    Some(match (kind, wire) {
        (Kind::Text, Wire::Bytes(bytes)) => text(bytes).map(Value::from),
        (Kind::Bytes, Wire::Bytes(bytes)) => Ok(STANDARD.encode(bytes).into()),
        (Kind::Integer, Wire::Varint(number)) => Ok(number.cast_signed().into()),
        (Kind::Bool, Wire::Varint(number)) => Ok((number != 0).into()),
        (Kind::Time, Wire::Bytes(bytes)) => time(bytes).map(|time| format_time(time).into()),
        (Kind::MicroTime, Wire::Bytes(bytes)) => time(bytes).map(|time| format_micro_time(time).into()),
        (Kind::Items, Wire::Bytes(bytes)) => items(bytes),
        (Kind::Quantity, Wire::Bytes(bytes)) => numbered(bytes, 1).and_then(|wire| of_text(&wire)),
        (Kind::IntOrString, Wire::Bytes(bytes)) => int_or_string(bytes),
        (Kind::Json, Wire::Bytes(bytes)) => json(bytes),
        (Kind::Message(id), Wire::Bytes(bytes)) => {
            let mut object = Map::new();
            fields(&mut object, *id, bytes).map(|()| Value::Object(object))
        }
        _ => return None,
    })
}

fn entry(kind: &Kind, bytes: &[u8]) -> Result<(String, Value), String> {
    let key = numbered(bytes, 1)?.map_or(Ok(String::new()), |wire| wire.text())?;
    let value = match numbered(bytes, 2)? {
        Some(wire) => value(kind, wire).ok_or_else(|| wrong_type(&key))??,
        None => Value::from(""),
    };
    Ok((key, value))
}

fn time(bytes: &[u8]) -> Result<Timestamp, String> {
    let [seconds, nanos] = [1, 2].map(|number| numbered(bytes, number));
    let [seconds, nanos] = [seconds?, nanos?].map(|wire| wire.map_or(0, |wire| wire.integer()));
    let nanos = i32::try_from(nanos).map_err(|error| error.to_string())?;
    Timestamp::new(seconds, nanos).map_err(|error| error.to_string())
}

fn items(bytes: &[u8]) -> Result<Value, String> {
    let (mut reader, mut items) = (Reader(bytes), Vec::new());
    while let Some((_, wire)) = reader.field()? {
        items.push(wire.text()?.into());
    }
    Ok(Value::Array(items))
}

fn int_or_string(bytes: &[u8]) -> Result<Value, String> {
    let is_text = numbered(bytes, 1)?.is_some_and(|wire| wire.integer() != 0);
    if is_text {
        of_text(&numbered(bytes, 3)?)
    } else {
        Ok(numbered(bytes, 2)?.map_or(0, |wire| wire.integer()).into())
    }
}

fn json(bytes: &[u8]) -> Result<Value, String> {
    match numbered(bytes, 1)? {
        Some(Wire::Bytes(json)) => serde_json::from_slice(json).map_err(|error| error.to_string()),
        _ => Ok(Value::Null),
    }
}

fn of_text(wire: &Option<Wire<'_>>) -> Result<Value, String> {
    wire.as_ref().map_or(Ok(String::new()), |wire| wire.text()).map(Value::from)
}

fn text(bytes: &[u8]) -> Result<String, String> {
    String::from_utf8(bytes.to_vec()).map_err(|_| "proto: invalid UTF-8".to_owned())
}

/// The last field with this number.
pub(super) fn numbered(bytes: &[u8], wanted: u32) -> Result<Option<Wire<'_>>, String> {
    let (mut reader, mut found) = (Reader(bytes), None);
    while let Some((number, wire)) = reader.field()? {
        if number == wanted {
            found = Some(wire);
        }
    }
    Ok(found)
}

/// The encoded value of a field.
pub(super) enum Wire<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
}

impl Wire<'_> {
    /// Whether it is Go's encoding of an unset field.
    fn is_empty(&self) -> bool {
        matches!(self, Self::Varint(0) | Self::Bytes([]))
    }

    fn integer(&self) -> i64 {
        match self {
            Self::Varint(number) => number.cast_signed(),
            Self::Bytes(_) => 0,
        }
    }

    /// The value as text.
    pub(super) fn text(&self) -> Result<String, String> {
        match self {
            Self::Bytes(bytes) => text(bytes),
            Self::Varint(_) => Err("proto: wrong wireType for a text".into()),
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// The next field, with its number.
    fn field(&mut self) -> Result<Option<(u32, Wire<'a>)>, String> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).map_err(|_| "proto: illegal tag")?;
        let wire = match tag & 7 {
            0 => Wire::Varint(self.varint()?),
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|error| error.to_string())?;
                let (bytes, tail) = self.0.split_at_checked(length).ok_or("unexpected EOF")?;
                self.0 = tail;
                Wire::Bytes(bytes)
            }
            other => return Err(format!("proto: illegal wireType {other}")),
        };
        Ok(Some((number, wire)))
    }

    fn varint(&mut self) -> Result<u64, String> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (byte, tail) = self.0.split_first().ok_or("unexpected EOF")?;
            self.0 = tail;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err("proto: integer overflow".into())
    }
}
