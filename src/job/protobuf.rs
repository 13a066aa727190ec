//! Protobuf, as far as pods and Events need it: a writer of messages, and the fields of a message that is read.

use bytes::Bytes;

/// Numbers of fields of `k8s.io/api/core/v1` and `k8s.io/apimachinery/pkg/apis/meta/v1`.
pub mod field {
    /// `ObjectMeta.labels`.
    pub const LABELS: u32 = 11;
    /// `ObjectMeta.annotations`.
    pub const ANNOTATIONS: u32 = 12;
    /// `PodSpec.containers`.
    pub const CONTAINERS: u32 = 2;
    /// `PodSpec.hostname`.
    pub const HOSTNAME: u32 = 16;
    /// `PodSpec.initContainers`.
    pub const INIT_CONTAINERS: u32 = 20;
    /// `Container.env`.
    pub const ENV: u32 = 7;
    /// `Container.resources`.
    pub const RESOURCES: u32 = 8;
    /// `PodSpec.affinity`.
    pub const AFFINITY: u32 = 18;
}

/// Why a field cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    /// A field reaches beyond the end of its message.
    #[error("a field is cut off")]
    Cut,
    /// A number, length or tag is longer than 64 bits, or a tag or value is out of its range.
    #[error("a number is out of range")]
    Range,
    /// A field holds a value of another type than Kubernetes gives it.
    #[error("a field is of another type")]
    Type,
}

/// The encoded value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// An integer or boolean.
    Number(u64),
    /// Text, bytes or a message.
    Bytes(&'a [u8]),
    /// A fixed-width number, such as a floating-point one: no known field has this type.
    Other,
}

impl<'a> Value<'a> {
    /// Text, bytes or a message.
    pub(crate) fn bytes(self) -> Result<&'a [u8], FieldError> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Number(_) | Self::Other => Err(FieldError::Type),
        }
    }
}

/// The first field of these bytes, by number. The bytes behind it are left.
#[inline]
pub fn next_field<'a>(bytes: &mut &'a [u8]) -> Result<(u32, Value<'a>), FieldError> {
    let (number, wire_type) = tag(varint(bytes)?)?;
    let value = match wire_type {
        WireType::Number => Value::Number(varint(bytes)?),
        WireType::Bytes => {
            let length = varint(bytes)?;
            Value::Bytes(split(bytes, length)?)
        }
        WireType::Fixed(length) => split(bytes, length).map(|_| Value::Other)?,
    };
    Ok((number, value))
}

/// How the value of a field is encoded.
#[derive(Clone, Copy, Debug)]
pub enum WireType {
    /// As a number of up to ten bytes.
    Number,
    /// As its length and that many bytes.
    Bytes,
    /// In this many bytes.
    Fixed(u64),
}

/// The number of a field, from 1 on, and how its value is encoded.
#[inline]
pub fn tag(tag: u64) -> Result<(u32, WireType), FieldError> {
    let number = u32::try_from(tag >> 3).ok().filter(|number| *number > 0).ok_or(FieldError::Range)?;
    let wire_type = match tag & 7 {
        0 => WireType::Number,
        1 => WireType::Fixed(8),
        2 => WireType::Bytes,
        5 => WireType::Fixed(4),
        _ => return Err(FieldError::Type),
    };
    Ok((number, wire_type))
}

#[inline]
fn split<'a>(bytes: &mut &'a [u8], length: u64) -> Result<&'a [u8], FieldError> {
    let length = usize::try_from(length).map_err(|_| FieldError::Range)?;
    let (taken, remaining) = bytes.split_at_checked(length).ok_or(FieldError::Cut)?;
    *bytes = remaining;
    Ok(taken)
}

/// The number at the beginning of these bytes. Inlined for the common case: tags and lengths of one byte.
#[inline]
pub fn varint(bytes: &mut &[u8]) -> Result<u64, FieldError> {
    match bytes.split_first() {
        Some((byte, remaining)) if *byte < 0x80 => {
            *bytes = remaining;
            Ok(u64::from(*byte))
        }
        _ => long_varint(bytes),
    }
}

fn long_varint(bytes: &mut &[u8]) -> Result<u64, FieldError> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, remaining) = bytes.split_first().ok_or(FieldError::Cut)?;
        *bytes = remaining;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(FieldError::Range)
}

/// The first bytes of an object in protobuf.
const PREFIX: &[u8] = b"k8s\0";

/// An object of the core API group (`v1`) of about so many bytes, in the envelope of all objects.
pub fn core_object(kind: &str, length: usize, content: impl FnOnce(&mut Writer)) -> Bytes {
    let mut envelope = Writer(Vec::with_capacity(length));
    envelope.append(PREFIX);
    envelope.message(1, |type_meta| {
        type_meta.bytes(1, b"v1");
        type_meta.bytes(2, kind.as_bytes());
    });
    envelope.message(2, content);
    envelope.0.into()
}

/// A message in the making.
#[derive(Debug, Default)]
pub struct Writer(Vec<u8>);

/// Wire types.
const VARINT: u64 = 0;
const LENGTH_DELIMITED: u64 = 2;

impl Writer {
    /// A field with text, bytes or an encoded message.
    pub fn bytes(&mut self, number: u32, value: &[u8]) {
        self.varint(u64::from(number) << 3 | LENGTH_DELIMITED);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
    }

    /// A field with a number or flag.
    pub fn number(&mut self, number: u32, value: u64) {
        self.varint(u64::from(number) << 3 | VARINT);
        self.varint(value);
    }

    /// A field with a message. Its length stands before it, and is known once it is written.
    pub fn message(&mut self, number: u32, content: impl FnOnce(&mut Self)) {
        self.varint(u64::from(number) << 3 | LENGTH_DELIMITED);
        let begin = self.0.len();
        content(self);
        let end = self.0.len();
        self.varint((end - begin) as u64);
        let length = self.0.len() - end;
        self.0[begin..].rotate_right(length);
    }

    /// An entry of a field that is a map of texts.
    pub fn entry(&mut self, number: u32, key: &str, value: &str) {
        self.message(number, |entry| {
            entry.bytes(1, key.as_bytes());
            entry.bytes(2, value.as_bytes());
        });
    }

    /// Fields that are encoded already.
    pub fn append(&mut self, fields: &[u8]) {
        self.0.extend_from_slice(fields);
    }

    /// The encoded message.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_encoded_as_protobuf_wants_them() {
        let mut writer = Writer::default();
        writer.number(6, 1);
        writer.number(20, 300);
        writer.entry(11, "k", "v");
        writer.append(b"\x0a\x00");
        assert_eq!(writer.into_bytes(), b"\x30\x01\xa0\x01\xac\x02\x5a\x06\x0a\x01k\x12\x01v\x0a\x00");
    }
}
