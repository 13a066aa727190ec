//! Lists in JSON: the objects in `items`, and the bytes around them.

use bytes::{Buf as _, Bytes, BytesMut};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny};

use super::{ListError, version};
use crate::cluster::byte_queue::checked;
use crate::cluster::wire::ListMeta;

/// Most bytes around the objects.
const SHELL_BYTES: usize = 1 << 20;

/// Splits the body of a list into its objects.
#[derive(Debug, Default)]
pub(crate) struct JsonList {
    /// Bytes that have not been looked at.
    unread: Bytes,
    /// The list without its objects.
    shell: Vec<u8>,
    /// Where the shell ends so far.
    shell_nesting: Nesting,
    /// The beginning of an incomplete object.
    partial: BytesMut,
    /// Where that ends.
    nesting: Nesting,
    place: Place,
}

/// The place of the next byte.
#[derive(Clone, Copy, Debug, Default)]
enum Place {
    /// The bytes around the objects.
    #[default]
    Shell,
    /// The place of the first object, if there is one.
    First,
    /// An object, the next after a comma.
    Object,
    /// The comma after an object, or the end of them.
    After,
}

/// How deep a byte is within objects and arrays. Whether those match is left to the decoder.
#[derive(Debug, Default)]
struct Nesting {
    depth: usize,
    in_text: bool,
    is_escaped: bool,
}

impl Nesting {
    fn step(&mut self, byte: u8) {
        match byte {
            _ if self.is_escaped => self.is_escaped = false,
            b'\\' if self.in_text => self.is_escaped = true,
            b'"' => self.in_text = !self.in_text,
            _ if self.in_text => {}
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
    }

    /// The length up to the end of an object that these bytes are a part of; `None` if it goes on.
    fn end(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        while let Some(byte) = bytes.get(at) {
            self.step(*byte);
            at += 1;
            if self.in_text && !self.is_escaped {
                let plain = bytes.get(at..).unwrap_or_default();
                at += memchr::memchr2(b'"', b'\\', plain).unwrap_or(plain.len());
            } else if self.depth == 0 {
                return Some(at);
            }
        }
        None
    }
}

impl JsonList {
    /// Adds the next piece. The piece before must hold no complete object any more.
    pub(crate) fn push(&mut self, piece: Bytes) {
        self.unread = piece;
    }

    /// The JSON of the next object that is complete.
    ///
    /// # Errors
    /// When the bytes are not those of a list, or an object is longer than any.
    pub(crate) fn next(&mut self) -> Result<Option<Bytes>, ListError> {
        loop {
            if let (Place::First | Place::Object, Some(b'{')) = (self.place, self.unread.first())
                && self.partial.is_empty()
            {
                self.place = Place::Object;
                return self.object();
            }
            if !self.partial.is_empty() {
                return self.object();
            }
            let Some(byte) = self.unread.has_remaining().then(|| self.unread.get_u8()) else {
                return Ok(None);
            };
            self.place = match (self.place, byte) {
                (Place::Shell, _) => self.surround(byte)?,
                (_, b' ' | b'\t' | b'\r' | b'\n') => self.place,
                (Place::First | Place::After, b']') => {
                    self.shell.push(byte);
                    Place::Shell
                }
                (Place::After, b',') => Place::Object,
                _ => return Err(ListError::NotAList),
            };
        }
    }

    /// Reads a byte around the objects.
    fn surround(&mut self, byte: u8) -> Result<Place, ListError> {
        if self.shell.len() == SHELL_BYTES {
            return Err(ListError::NotAList);
        }
        let begins = byte == b'['
            && self.shell_nesting.depth == 1
            && !self.shell_nesting.in_text
            && self.is_at_items();
        self.shell.push(byte);
        if begins {
            return Ok(Place::First);
        }
        self.shell_nesting.step(byte);
        Ok(Place::Shell)
    }

    /// Whether the value of `items` comes next.
    fn is_at_items(&self) -> bool {
        let before = self.shell.trim_ascii_end().strip_suffix(b":");
        let before = before.and_then(|before| before.trim_ascii_end().strip_suffix(b"\"items\""));
        before.is_some_and(|before| !before.ends_with(b"\\"))
    }

    /// Reads a part of an object.
    fn object(&mut self) -> Result<Option<Bytes>, ListError> {
        let end = self.nesting.end(&self.unread);
        let part = self.unread.split_to(end.unwrap_or(self.unread.len()));
        checked((self.partial.len() + part.len()) as u64)?;
        if end.is_none() {
            self.partial.extend_from_slice(&part);
            return Ok(None);
        }
        self.place = Place::After;
        if self.partial.is_empty() {
            return Ok(Some(part));
        }
        self.partial.extend_from_slice(&part);
        Ok(Some(self.partial.split().freeze()))
    }

    /// The version of the list, after its last piece.
    ///
    /// # Errors
    /// When the list is not complete.
    pub(crate) fn end(self) -> Result<u64, ListError> {
        if !matches!(self.place, Place::Shell) || self.shell.is_empty() || self.shell_nesting.depth > 0 {
            return Err(ListError::Cut);
        }
        let Shell { metadata, items } = serde_json::from_slice(&self.shell)?;
        match items.unwrap_or_default()[..] {
            [] => version(&metadata),
            // The name of `items` is written in another way: its objects were not seen.
            _ => Err(ListError::NotAList),
        }
    }
}

/// A list without its objects.
#[derive(Deserialize)]
struct Shell<'a> {
    #[serde(borrow)]
    metadata: ListMeta<'a>,
    /// Go writes `null` for none.
    #[serde(deserialize_with = "required")]
    items: Option<Vec<IgnoredAny>>,
}

/// A field that may be null, and not missing.
fn required<'de, J: Deserializer<'de>>(json: J) -> Result<Option<Vec<IgnoredAny>>, J::Error> {
    Option::deserialize(json)
}
