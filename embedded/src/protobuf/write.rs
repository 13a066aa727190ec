//! JSON to messages, in one pass over the text.

use std::convert::Infallible;
use std::fmt;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{BufMut as _, BytesMut};
use jiff::Timestamp;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Unexpected, Visitor};
use serde_json::value::RawValue;

use super::table::{Field, Kind, Message, MessageId};

/// Wire types.
const VARINT: u32 = 0;
const BYTES: u32 = 2;

/// Appends the fields of the message that is equivalent to the JSON object.
pub(super) fn fields(out: &mut BytesMut, id: MessageId, json: &[u8]) -> Result<(), serde_json::Error> {
    let mut json = serde_json::Deserializer::from_slice(json);
    json.deserialize_map(Fields { out, message: id.get() })?;
    json.end()
}

/// Appends a length-delimited field with the contents that `write` appends.
pub(super) fn nested<E>(
    out: &mut BytesMut,
    number: u32,
    write: impl FnOnce(&mut BytesMut) -> Result<(), E>,
) -> Result<(), E> {
    tag(out, number, BYTES);
    let start = out.len();
    write(out)?;
    // The length precedes the contents but is known only after them, so it is appended and then rotated to
    // the front.
    let end = out.len();
    varint(out, (end - start) as u64);
    let length = out.len() - end;
    out[start..].rotate_right(length);
    Ok(())
}

/// Appends a field of bytes or text.
pub(super) fn bytes(out: &mut BytesMut, number: u32, bytes: &[u8]) {
    tag(out, number, BYTES);
    varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn integer(out: &mut BytesMut, number: u32, value: i64) {
    tag(out, number, VARINT);
    varint(out, value.cast_unsigned());
}

fn tag(out: &mut BytesMut, number: u32, wire: u32) {
    varint(out, u64::from(number << 3 | wire));
}

fn varint(out: &mut BytesMut, mut number: u64) {
    while number >= 0x80 {
        out.put_u8((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.put_u8(number as u8);
}

/// Appends a message whose contents cannot fail.
fn small(out: &mut BytesMut, number: u32, write: impl FnOnce(&mut BytesMut)) {
    let Ok(()) = nested(out, number, |out| {
        write(out);
        Ok::<_, Infallible>(())
    });
}

/// Seconds since 1970 and nanoseconds of the second, which are never negative.
fn since_epoch(time: Timestamp) -> (i64, i64) {
    let (seconds, nanos) = (time.as_second(), i64::from(time.subsec_nanosecond()));
    if nanos < 0 { (seconds - 1, nanos + 1_000_000_000) } else { (seconds, nanos) }
}

/// The list within [`Kind::Items`].
static ITEMS: LazyLock<Kind> = LazyLock::new(|| Kind::List(Box::new(Kind::Text)));

/// Writes the fields of an object.
struct Fields<'o> {
    out: &'o mut BytesMut,
    message: &'static Message,
}

impl<'de> Visitor<'de> for Fields<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { out, message } = self;
        // The fields of inlined messages, by the message's number.
        let mut inlined: Vec<(u32, BytesMut)> = Vec::new();
        while let Some(Field { number, within, kind }) = map.next_key_seed(FieldOf(message))? {
            let out = match within {
                None => &mut *out,
                Some(inner) => room_for(&mut inlined, *inner),
            };
            map.next_value_seed(Value { out, number: *number, kind })?;
        }
        for (number, fields) in inlined {
            bytes(out, number, &fields);
        }
        Ok(())
    }
}

fn room_for(inlined: &mut Vec<(u32, BytesMut)>, number: u32) -> &mut BytesMut {
    let at = inlined.iter().position(|(known, _)| *known == number).unwrap_or_else(|| {
        inlined.push((number, BytesMut::new()));
        inlined.len() - 1
    });
    &mut inlined[at].1
}

/// Looks up a field by the next JSON key.
struct FieldOf(&'static Message);

impl<'de> DeserializeSeed<'de> for FieldOf {
    type Value = &'static Field;

    fn deserialize<D: Deserializer<'de>>(self, name: D) -> Result<&'static Field, D::Error> {
        name.deserialize_str(self)
    }
}

impl Visitor<'_> for FieldOf {
    type Value = &'static Field;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<&'static Field, E> {
        self.0.fields.get(name).ok_or_else(|| E::custom(format_args!("no number of field {name:?} is known")))
    }
}

/// Writes one value as a field.
struct Value<'o> {
    out: &'o mut BytesMut,
    number: u32,
    kind: &'static Kind,
}

impl<'de> DeserializeSeed<'de> for Value<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        if *self.kind != Kind::Json {
            return json.deserialize_any(self);
        }
        let raw: &RawValue = serde::Deserialize::deserialize(json)?;
        small(self.out, self.number, |out| bytes(out, 1, raw.get().as_bytes()));
        Ok(())
    }
}

impl<'de> Visitor<'de> for Value<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.kind)
    }

    /// A null value is an unset field.
    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        match self.kind {
            Kind::Bool => integer(self.out, self.number, value.into()),
            _ => return Err(E::invalid_type(Unexpected::Bool(value), &self)),
        }
        Ok(())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        match self.kind {
            Kind::Integer => integer(self.out, self.number, value),
            Kind::IntOrString => small(self.out, self.number, |out| {
                integer(out, 1, 0);
                integer(out, 2, value);
            }),
            Kind::Quantity => small(self.out, self.number, |out| bytes(out, 1, value.to_string().as_bytes())),
            _ => return Err(E::invalid_type(Unexpected::Signed(value), &self)),
        }
        Ok(())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        match i64::try_from(value) {
            Ok(value) => self.visit_i64(value),
            Err(_) => Err(E::invalid_value(Unexpected::Unsigned(value), &self)),
        }
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        let Self { out, number, kind } = self;
        let text = |out: &mut BytesMut, number| bytes(out, number, value.as_bytes());
        match kind {
            Kind::Text => text(out, number),
            Kind::Bytes => bytes(out, number, &STANDARD.decode(value).map_err(E::custom)?),
            Kind::Time | Kind::MicroTime => {
                let time: Timestamp = value.parse().map_err(E::custom)?;
                let (seconds, nanos) = since_epoch(time);
                small(out, number, |out| {
                    integer(out, 1, seconds);
                    integer(out, 2, nanos);
                });
            }
            Kind::Quantity => small(out, number, |out| text(out, 1)),
            Kind::IntOrString => small(out, number, |out| {
                integer(out, 1, 1);
                text(out, 3);
            }),
            _ => return Err(E::invalid_type(Unexpected::Str(value), &Self { out, number, kind })),
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let Self { out, number, kind } = self;
        let kind = match kind {
            Kind::List(kind) => kind,
            Kind::Items => {
                return nested(out, number, |out| Value { out, number: 1, kind: &ITEMS }.visit_seq(items));
            }
            _ => return Err(A::Error::invalid_type(Unexpected::Seq, &Self { out, number, kind })),
        };
        let mut written = out.len();
        while items.next_element_seed(Value { out, number, kind })?.is_some() {
            if out.len() == written {
                return Err(A::Error::custom("null in a list"));
            }
            written = out.len();
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { out, number, kind } = self;
        match kind {
            Kind::Message(id) => nested(out, number, |out| Fields { out, message: id.get() }.visit_map(map)),
            Kind::Map(kind) => loop {
                let start = out.len();
                let mut more = false;
                nested(out, number, |out| {
                    more = map.next_key_seed(Value { out, number: 1, kind: &Kind::Text })?.is_some();
                    if more { map.next_value_seed(Value { out, number: 2, kind }) } else { Ok(()) }
                })?;
                if !more {
                    out.truncate(start);
                    return Ok(());
                }
            },
            _ => Err(A::Error::invalid_type(Unexpected::Map, &Self { out, number, kind })),
        }
    }
}
