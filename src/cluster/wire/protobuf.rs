//! Decodes protobuf into borrowed structs. Known fields are read from the bytes, others are skipped.
//!
//! `prost` cannot borrow, and its structs would duplicate those that JSON is read into.

use std::borrow::Cow;

use http::{HeaderMap, HeaderValue, header};
use jiff::Timestamp;

use super::lenient::{count_of, time_at};
use super::text::Text;
pub(crate) use crate::job::protobuf::{FieldError, Value, next_field};

/// The prefix of every encoded object.
pub(crate) const MAGIC: &[u8] = b"k8s\0";

/// Why a message cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Malformed {
    /// A field is damaged.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// An object does not begin with the magic bytes.
    #[error("an object does not begin with k8s\\0")]
    Magic,
    /// A watch has no events of this type.
    #[error("unknown type {0:?} of a watch event")]
    EventType(Box<str>),
}

/// Whether an answer is in protobuf. Without a content type it counts as JSON.
pub(crate) fn is_in_protobuf(headers: &HeaderMap) -> bool {
    let content_type = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    content_type.is_some_and(|name| name.starts_with(b"application/vnd.kubernetes.protobuf"))
}

/// The message of an object, without its envelope: magic bytes and `runtime.Unknown`.
pub(crate) fn object(bytes: &[u8]) -> Result<&[u8], Malformed> {
    Ok(Unknown::read(bytes.strip_prefix(MAGIC).ok_or(Malformed::Magic)?)?.raw)
}

/// A message type that reads some of its fields.
pub(crate) trait Message<'a>: Default {
    /// Stores a field if its number is known.
    fn take(&mut self, number: u32, value: Value<'a>) -> Result<(), Malformed>;

    /// Reads a whole message.
    fn read(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut message = Self::default();
        message.merge(bytes)?;
        Ok(message)
    }

    /// Stores all known fields of these bytes.
    fn merge(&mut self, mut bytes: &'a [u8]) -> Result<(), Malformed> {
        while !bytes.is_empty() {
            let (number, value) = next_field(&mut bytes)?;
            self.take(number, value)?;
        }
        Ok(())
    }
}

/// A message of which nothing is read.
impl Message<'_> for () {
    fn take(&mut self, _: u32, _: Value<'_>) -> Result<(), Malformed> {
        Ok(())
    }
}

impl<'a> Value<'a> {
    /// Text. API servers store invalid UTF-8 as it was sent in protobuf, and show it in JSON with
    /// replacement characters: so it is read here. An invalid text must not make its whole object
    /// unreadable.
    pub(crate) fn text(self) -> Result<Text<'a>, Malformed> {
        let bytes = self.bytes()?;
        // Nearly all texts are UTF-8, which is quicker to check than to repair.
        Ok(str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed).into())
    }

    /// Text, or `None` if it is empty: Go writes unset text as empty text.
    pub(crate) fn set_text(self) -> Result<Option<Text<'a>>, Malformed> {
        Ok(Some(self.text()?).filter(|text| !text.is_empty()))
    }

    /// An integer that fits its type.
    pub(crate) fn integer<N: TryFrom<i64>>(self) -> Result<N, Malformed> {
        match self {
            Self::Number(number) => number.cast_signed().try_into().map_err(|_| FieldError::Range.into()),
            Self::Bytes(_) | Self::Other => Err(FieldError::Type.into()),
        }
    }

    /// A number of pods or restarts.
    pub(crate) fn count(self) -> Result<u32, Malformed> {
        self.integer().map(count_of)
    }

    pub(crate) fn flag(self) -> Result<bool, Malformed> {
        match self {
            Self::Number(number) => Ok(number != 0),
            Self::Bytes(_) | Self::Other => Err(FieldError::Type.into()),
        }
    }

    /// A time; an empty message is Go's zero time and means none.
    pub(crate) fn time(self) -> Result<Option<Timestamp>, Malformed> {
        let bytes = self.bytes()?;
        if bytes.is_empty() {
            return Ok(None);
        }
        let Seconds(seconds) = Seconds::read(bytes)?;
        Ok(Some(time_at(seconds)))
    }

    /// A message that occurs once.
    pub(crate) fn message<M: Message<'a>>(self) -> Result<M, Malformed> {
        M::read(self.bytes()?)
    }

    /// An entry of a map of texts. The texts are not validated.
    pub(crate) fn pair(self) -> Result<(&'a [u8], &'a [u8]), Malformed> {
        let Pair(key, value) = self.message()?;
        Ok((key, value))
    }
}

#[derive(Default)]
struct Unknown<'a> {
    raw: &'a [u8],
}

impl<'a> Message<'a> for Unknown<'a> {
    fn take(&mut self, number: u32, value: Value<'a>) -> Result<(), Malformed> {
        if number == 2 {
            self.raw = value.bytes()?;
        }
        Ok(())
    }
}

/// `meta.v1.Time` is exact to the second.
#[derive(Default)]
struct Seconds(i64);

impl<'a> Message<'a> for Seconds {
    fn take(&mut self, number: u32, value: Value<'a>) -> Result<(), Malformed> {
        if number == 1 {
            self.0 = value.integer()?;
        }
        Ok(())
    }
}

#[derive(Default)]
struct Pair<'a>(&'a [u8], &'a [u8]);

impl<'a> Message<'a> for Pair<'a> {
    fn take(&mut self, number: u32, value: Value<'a>) -> Result<(), Malformed> {
        match number {
            1 => self.0 = value.bytes()?,
            2 => self.1 = value.bytes()?,
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::cluster::wire::meta::Meta;

    /// A length-delimited field of fewer than 128 bytes.
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, u8::try_from(bytes.len()).unwrap()][..], bytes].concat()
    }

    fn metadata() -> Vec<u8> {
        [
            field(1, b"p"),
            field(3, b""),
            vec![7 << 3, 0x80, 1],
            field(8, b"\x08\x80\x01\x10\x00"),
            field(9, b""),
            field(11, &[field(1, b"k"), field(2, b"v")].concat()),
            field(11, &field(1, b"only")),
            // Unknown fields of each wire type.
            field(15, b"\xff\xff"),
            vec![0xf9, 1, 1, 2, 3, 4, 5, 6, 7, 8],
            vec![0xfd, 1, 1, 2, 3, 4],
            vec![0xf8, 1, 9],
        ]
        .concat()
    }

    #[test]
    fn known_fields_are_read_and_unknown_ones_skipped() {
        let bytes = metadata();
        let meta = Meta::read(&bytes).unwrap();
        assert_eq!((meta.name().unwrap(), &meta.namespace, meta.generation), ("p", &None, Some(128)));
        assert_eq!(meta.created().unwrap(), Timestamp::from_second(128).unwrap());
        assert_eq!(meta.deletion_timestamp, None);
        let labels = meta.labels.unwrap();
        assert_eq!((labels.get("k"), labels.get("only")), (Some("v"), Some("")));
    }

    /// An API server stores it as it was sent in protobuf. An object with such a text must not make a list
    /// unreadable.
    #[test]
    fn a_text_that_is_no_utf_8_makes_no_object_unreadable() {
        let owner = [field(1, b"X\xff"), field(3, b"a"), field(4, b"\xfe"), field(5, b"v1")].concat();
        let bytes = [field(1, b"p"), field(5, b"u"), field(13, &owner), field(14, b"\xff")].concat();
        let meta = Meta::read(&bytes).unwrap();
        assert_eq!((meta.name().unwrap(), meta.uid().unwrap()), ("p", "u"));
        assert!(meta.has_finalizer("\u{fffd}"));
    }

    #[test]
    fn cut_off_or_malformed_messages_are_refused() {
        let whole = metadata();
        let ends = |length| Meta::read(&whole[..length]).is_ok();
        assert_eq!((0..=whole.len()).filter(|length| ends(*length)).count(), 12, "between fields only");
        for (bytes, why) in [
            (&[1 << 3, 1][..], "another type"),
            (&[1 << 3 | 3], "another type"),
            (&[0xff; 11], "out of range"),
            (&[1 << 3 | 2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f], "cut off"),
        ] {
            let error = Meta::read(bytes).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        assert!(matches!(object(&whole), Err(Malformed::Magic)));
    }
}
