//! The syntax of JSON objects, one after the other.

use std::fmt;
use std::rc::Rc;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::building::MapBuilder;
use crate::node::{Content, Node};
use crate::scalar::number;
use crate::{DEPTH_MAX, SyntaxError, too_deep, wording};

/// The objects at the beginning of a text, which lies at `start` of its file, and what is wrong with the rest.
pub(crate) struct Objects {
    /// The objects that are JSON. They may still be too deep, or have a number that is too large.
    pub(crate) read: Vec<Result<Rc<Node>, SyntaxError>>,
    /// Where the rest begins in the text, and why it is not JSON.
    pub(crate) rest: Option<(usize, SyntaxError)>,
}

/// Reads as many objects as there are.
pub(crate) fn read(text: &str, start: usize) -> Objects {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<&RawValue>();
    let mut objects = Objects { read: Vec::new(), rest: None };
    loop {
        let begin = values.byte_offset();
        match values.next() {
            None => return objects,
            Some(Ok(raw)) => objects.read.push(node(raw, &Place { text, start }, 0).map(Rc::new)),
            Some(Err(error)) => {
                let cut = error.is_eof().then(|| text.trim_end().len());
                let at = cut.unwrap_or_else(|| offset(text, error.line(), error.column()));
                let message = wording::of_json(text, at);
                objects.rest = Some((begin, SyntaxError::new(start + at, message)));
                return objects;
            }
        }
    }
}

/// The byte that a line and a column name. The column counts bytes up to and with the one that is wrong.
fn offset(text: &str, line: usize, column: usize) -> usize {
    let lines = text.split_inclusive('\n').take(line.saturating_sub(1));
    let at = lines.map(str::len).sum::<usize>() + column.saturating_sub(1);
    text.floor_char_boundary(at)
}

/// The text that raw values are parts of, and where it begins in its file.
struct Place<'a> {
    text: &'a str,
    start: usize,
}

impl Place<'_> {
    /// Where a part of the text is in the file.
    fn of(&self, part: &RawValue) -> usize {
        let within = part.get().as_ptr().addr().wrapping_sub(self.text.as_ptr().addr());
        self.start + within.min(self.text.len())
    }
}

fn node(raw: &RawValue, place: &Place<'_>, depth: usize) -> Result<Node, SyntaxError> {
    let at = place.of(raw);
    let wrong = |_| SyntaxError::new(at, "an escape in this text is no character");
    if depth > DEPTH_MAX {
        return Err(too_deep(at));
    }
    let content = match raw.get().as_bytes().first() {
        Some(b'{') => {
            let Fields(fields) = serde_json::from_str(raw.get()).map_err(wrong)?;
            let mut map = MapBuilder::default();
            for (key, value) in fields {
                let text = text(key)
                    .map_err(|_| SyntaxError::new(place.of(key), "an escape in this key is no character"))?;
                map.set(text, place.of(key), Rc::new(node(value, place, depth + 1)?));
            }
            return Ok(map.finish(at));
        }
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_str(raw.get()).map_err(wrong)?;
            let items = items.into_iter().map(|item| node(item, place, depth + 1).map(Rc::new));
            Content::List(items.collect::<Result<_, _>>()?)
        }
        Some(b'"') => Content::Scalar(text(raw).map_err(wrong)?.into()),
        _ => {
            let scalar =
                scalar(raw.get()).ok_or_else(|| SyntaxError::new(at, "a number that is too large"))?;
            Content::Scalar(scalar)
        }
    };
    Ok(Node::new(at, content))
}

/// The text of a string. As for kubectl, an escape that is half a character becomes U+FFFD.
fn text(raw: &RawValue) -> serde_json::Result<String> {
    serde_json::from_str(raw.get()).or_else(|_| serde_json::from_str(&without_halves(raw.get())))
}

/// The string with `\ufffd` for each escape of UTF-16 that lacks its other half.
fn without_halves(text: &str) -> String {
    let unit = |text: &str| u16::from_str_radix(text.strip_prefix("\\u")?.get(..4)?, 16).ok();
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        let second = escape.get(6..).and_then(unit);
        let (kept, length) = match (unit(escape), second) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => (&escape[..12], 12),
            (Some(0xd800..=0xdfff), _) => ("\\ufffd", 6),
            _ => (escape.get(..2).unwrap_or(escape), escape.len().min(2)),
        };
        out.push_str(before);
        out.push_str(kept);
        rest = escape.get(length..).unwrap_or_default();
    }
    out + rest
}

/// A number, true, false or null. A number may be too large.
fn scalar(text: &str) -> Option<Value> {
    let is_number = text.starts_with(|first: char| first == '-' || first.is_ascii_digit());
    if is_number && (text == "-0" || text.contains(['.', 'e', 'E'])) {
        // As kubectl does, which reads `2.0` as a float and writes `2`. The parser of JSON is quicker, and not exact: `-0` is
        // a float for it, too.
        return text.parse().ok().and_then(number).map(Value::Number);
    }
    serde_json::from_str(text).ok()
}

/// All fields of an object in their order, including repeated ones.
struct Fields<'a>(Vec<(&'a RawValue, &'a RawValue)>);

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FieldsVisitor)
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = map.next_entry()? {
            fields.push(field);
        }
        Ok(Fields(fields))
    }
}
