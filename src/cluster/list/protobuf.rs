//! Lists in protobuf: the magic bytes, and a `runtime.Unknown` whose `raw` is the message
//! of the list. The length that precedes `raw` gives the length of the list.

use bytes::{Bytes, BytesMut};

use super::{ListError, version};
use crate::cluster::byte_queue::{ByteQueue, checked};
use crate::cluster::wire::ListMeta;
use crate::cluster::wire::protobuf::{FieldError, MAGIC, Malformed, Message, Value};
use crate::job::protobuf::{WireType, tag, varint};

/// Fields of the envelope and of the list that have a meaning here.
const TYPE_META: u32 = 1;
const RAW: u32 = 2;
const LIST_META: u32 = 1;
const ITEM: u32 = 2;

/// Splits the body of a list into the messages of its objects.
#[derive(Debug, Default)]
pub(crate) struct ProtobufList {
    bytes: ByteQueue,
    expects: Expected,
    /// The beginning of an incomplete number.
    number: Number,
    /// Bytes that are left of the list's message; `None` outside of it.
    left: Option<u64>,
    has_begun: bool,
    /// Whether the envelope says that this is a list. Its fields may come in any order.
    is_list: bool,
    /// `metadata`, which may come before the objects, after them or in parts.
    metadata: BytesMut,
}

/// The next expected part.
#[derive(Clone, Copy, Debug, Default)]
enum Expected {
    #[default]
    Magic,
    /// The tag of a field.
    Tag,
    /// A number that means nothing here.
    Number,
    /// The length of this field.
    Length(u32),
    /// A field of this number and length.
    Value(u32, usize),
    /// This many bytes that mean nothing here.
    Skipped(u64),
}

/// The bytes of a number that have arrived.
#[derive(Debug, Default)]
struct Number {
    bytes: [u8; 10],
    length: usize,
}

impl Number {
    /// Adds a byte. Returns the number if it was the last one.
    fn push(&mut self, byte: u8) -> Result<Option<u64>, Malformed> {
        *self.bytes.get_mut(self.length).ok_or(FieldError::Range)? = byte;
        self.length += 1;
        if byte >= 0x80 {
            return Ok(None);
        }
        let number = varint(&mut &self.bytes[..self.length])?;
        self.length = 0;
        Ok(Some(number))
    }
}

impl ProtobufList {
    pub(super) fn push(&mut self, piece: Bytes) {
        self.bytes.push(piece);
    }

    /// The message of the next object that is complete.
    pub(super) fn next(&mut self) -> Result<Option<Bytes>, ListError> {
        loop {
            self.expects = match self.expects {
                Expected::Magic => match self.bytes.take(MAGIC.len()) {
                    Some(magic) if *magic == *MAGIC => Expected::Tag,
                    Some(_) => return Err(Malformed::Magic.into()),
                    None => return Ok(None),
                },
                Expected::Tag => {
                    // The envelope goes on after the list.
                    self.left = self.left.filter(|left| *left > 0);
                    let Some(number) = self.number()? else { return Ok(None) };
                    match tag(number).map_err(Malformed::from)? {
                        (_, WireType::Number) => Expected::Number,
                        (field, WireType::Bytes) => Expected::Length(field),
                        (_, WireType::Fixed(length)) => self.skipped(length)?,
                    }
                }
                Expected::Number => match self.number()? {
                    Some(_) => Expected::Tag,
                    None => return Ok(None),
                },
                Expected::Length(field) => match self.number()? {
                    Some(length) => self.value(field, length)?,
                    None => return Ok(None),
                },
                Expected::Value(field, length) => {
                    let Some(value) = self.bytes.take(length) else { return Ok(None) };
                    self.expects = Expected::Tag;
                    match (self.left, field) {
                        (Some(_), ITEM) => return Ok(Some(value)),
                        (Some(_), _) => {
                            checked((self.metadata.len() + value.len()) as u64)?;
                            self.metadata.extend_from_slice(&value);
                        }
                        (None, _) => self.is_list = TypeMeta::read(&value)?.is_of_list(),
                    }
                    Expected::Tag
                }
                Expected::Skipped(length) => match length - self.bytes.skip(length) {
                    0 => Expected::Tag,
                    left => {
                        self.expects = Expected::Skipped(left);
                        return Ok(None);
                    }
                },
            };
        }
    }

    pub(super) fn end(self) -> Result<u64, ListError> {
        let is_complete =
            matches!(self.expects, Expected::Tag) && self.number.length == 0 && self.left.unwrap_or(0) == 0;
        if !is_complete {
            return Err(ListError::Cut);
        }
        if !self.is_list || !self.has_begun {
            return Err(ListError::NotAList);
        }
        version(&ListMeta::read(&self.metadata)?)
    }

    /// A number, once it has arrived.
    fn number(&mut self) -> Result<Option<u64>, Malformed> {
        while let Some(byte) = self.bytes.byte() {
            self.spend(1)?;
            if let Some(number) = self.number.push(byte)? {
                return Ok(Some(number));
            }
        }
        Ok(None)
    }

    /// Decides how to read a field of bytes.
    fn value(&mut self, field: u32, length: u64) -> Result<Expected, ListError> {
        match (self.left, field) {
            (None, RAW) if self.has_begun => Err(ListError::NotAList),
            (None, RAW) => {
                (self.has_begun, self.left) = (true, Some(length));
                Ok(Expected::Tag)
            }
            (None, TYPE_META) | (Some(_), LIST_META | ITEM) => {
                self.spend(length)?;
                Ok(Expected::Value(field, checked(length)?))
            }
            _ => Ok(self.skipped(length)?),
        }
    }

    fn skipped(&mut self, length: u64) -> Result<Expected, Malformed> {
        self.spend(length)?;
        Ok(Expected::Skipped(length))
    }

    /// Bytes that belong to the list are about to be read, or were.
    fn spend(&mut self, length: u64) -> Result<(), Malformed> {
        if let Some(left) = &mut self.left {
            *left = left.checked_sub(length).ok_or(FieldError::Cut)?;
        }
        Ok(())
    }
}

/// `runtime.TypeMeta`.
#[derive(Default)]
struct TypeMeta<'a> {
    kind: &'a [u8],
}

impl TypeMeta<'_> {
    /// Whether this is the kind of a list: the message of a `Status` has a text where that of a list has an object.
    fn is_of_list(&self) -> bool {
        self.kind.ends_with(b"List")
    }
}

impl<'a> Message<'a> for TypeMeta<'a> {
    fn take(&mut self, number: u32, value: Value<'a>) -> Result<(), Malformed> {
        if number == 2 {
            self.kind = value.bytes()?;
        }
        Ok(())
    }
}
