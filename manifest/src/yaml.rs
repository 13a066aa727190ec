//! The syntax of a YAML document.

use std::rc::Rc;

use libyaml_safer::{Encoding, Event, EventData, Parser, ScalarStyle};
use serde_json::Value;

use crate::building::{Anchors, MapBuilder};
use crate::colons::Masked;
use crate::node::{Content, Node};
use crate::scalar::{MERGE, resolve};
use crate::source::offset;
use crate::{DEPTH_MAX, SyntaxError, tags, too_deep, wording};

/// Reads a text with one document. The text lies at `start` of its file.
///
/// # Errors
/// The text is not YAML, or has a second document.
pub(crate) fn read(text: &str, start: usize) -> Result<Rc<Node>, SyntaxError> {
    if let Some((at, letter)) = text.char_indices().find(|(_, letter)| !is_allowed(*letter)) {
        let message = format!("the control character {} is not allowed in YAML", letter.escape_unicode());
        return Err(SyntaxError::new(start + at, message));
    }
    parse(&Masked::plain(text), text.len(), start).or_else(|error| {
        let Some(masked) = Masked::without_colons(text, error.at - start) else { return Err(error) };
        // Of two errors, the later one explains more of the text.
        parse(&masked, text.len(), start).map_err(|later| if later.at > error.at { later } else { error })
    })
}

/// Reads a text that has this length, and lies at `start` of its file.
fn parse(masked: &Masked, length: usize, start: usize) -> Result<Rc<Node>, SyntaxError> {
    let place =
        |error: SyntaxError| SyntaxError { at: start + masked.original(error.at).min(length), ..error };
    tags::check(&masked.text).map_err(place)?;
    let mut parser = Parser::new();
    parser.set_encoding(Encoding::Utf8);
    parser.set_input(masked.text.as_bytes());
    let mut reader =
        Reader { masked, length, start, parser, anchors: Anchors::new(length), open: Vec::new() };
    let document = reader.document()?;
    reader.end()?;
    Ok(document)
}

/// Whether a letter may be in YAML as it is.
fn is_allowed(letter: char) -> bool {
    !letter.is_control() && !matches!(letter, '\u{fffe}' | '\u{ffff}')
        || matches!(letter, '\t' | '\n' | '\r' | '\u{85}')
}

struct Reader<'a> {
    masked: &'a Masked,
    /// Length of the text, in bytes.
    length: usize,
    start: usize,
    parser: Parser<&'a [u8]>,
    anchors: Anchors,
    /// The lists and maps around the next value.
    open: Vec<Open>,
}

/// A list or a map that is not complete.
struct Open {
    at: usize,
    /// Its anchor.
    name: Option<String>,
    parts: Parts,
}

enum Parts {
    List(Vec<Rc<Node>>),
    /// A map, and the key whose value comes next.
    Map(MapBuilder, Option<Key>),
}

enum Key {
    Text(usize, String),
    /// `<<`
    Merge(usize),
}

impl Reader<'_> {
    fn event(&mut self) -> Result<(usize, EventData), SyntaxError> {
        // The line end that the text may lack is no place in it.
        let place = |at: usize| self.start + self.masked.original(at).min(self.length);
        match self.parser.parse() {
            Ok(Event { data, start_mark, .. }) => Ok((place(offset(start_mark.index)), data)),
            Err(error) => {
                let error = wording::of_yaml(&self.masked.text, &error);
                Err(SyntaxError { at: place(error.at), ..error })
            }
        }
    }

    /// The root of the document; null if there is none.
    fn document(&mut self) -> Result<Rc<Node>, SyntaxError> {
        loop {
            let (at, event) = self.event()?;
            let done = match event {
                EventData::StreamStart { .. } | EventData::DocumentStart { .. } => None,
                EventData::Alias { anchor } => self.alias(at, &anchor)?,
                EventData::Scalar { anchor, tag, value, plain_implicit, style, .. } => {
                    let text = self.masked.restored(value);
                    let word = Word { tag, is_plain: plain_implicit, style, text };
                    self.scalar(at, anchor, word)?
                }
                EventData::SequenceStart { anchor, .. } => self.open(at, anchor, Parts::List(Vec::new()))?,
                EventData::MappingStart { anchor, .. } => {
                    self.open(at, anchor, Parts::Map(MapBuilder::default(), None))?
                }
                EventData::SequenceEnd | EventData::MappingEnd => self.close()?,
                EventData::DocumentEnd { .. } | EventData::StreamEnd => {
                    Some(Rc::new(Node::new(at, Content::Scalar(Value::Null))))
                }
            };
            if let Some(root) = done {
                return Ok(root);
            }
        }
    }

    /// Nothing but the end of the document and of the text follows its root.
    fn end(&mut self) -> Result<(), SyntaxError> {
        loop {
            match self.event()? {
                (_, EventData::DocumentEnd { .. }) => {}
                (_, EventData::StreamEnd) => return Ok(()),
                (at, _) => {
                    return Err(SyntaxError::new(
                        at,
                        "text after the end of the document: `---` begins the next",
                    ));
                }
            }
        }
    }

    fn open(
        &mut self,
        at: usize,
        name: Option<String>,
        parts: Parts,
    ) -> Result<Option<Rc<Node>>, SyntaxError> {
        if let Some(Open { parts: Parts::Map(_, None), .. }) = self.open.last() {
            return Err(SyntaxError::new(
                at,
                "a key must be a text, not a list or a map: `{ }` and `[ ]` need quotes",
            ));
        }
        if self.open.len() >= DEPTH_MAX {
            return Err(too_deep(at));
        }
        self.anchors.begin(name.as_ref());
        self.open.push(Open { at, name, parts });
        Ok(None)
    }

    fn close(&mut self) -> Result<Option<Rc<Node>>, SyntaxError> {
        let Some(Open { at, name, parts }) = self.open.pop() else { return Ok(None) };
        let node = match parts {
            Parts::List(items) => Node::new(at, Content::List(items)),
            Parts::Map(map, _) => map.finish(at),
        };
        let node = self.anchors.end(name, node)?;
        self.value(node)
    }

    fn alias(&mut self, at: usize, name: &str) -> Result<Option<Rc<Node>>, SyntaxError> {
        let node = self.anchors.alias(at, name)?;
        if let Some(Open { parts: Parts::Map(_, key @ None), .. }) = self.open.last_mut() {
            let Content::Scalar(value) = &node.content else {
                return Err(SyntaxError::new(
                    at,
                    format!("*{name} repeats a list or a map, which cannot be a key"),
                ));
            };
            self.anchors.count_copied(at, &node)?;
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            *key = Some(Key::Text(at, text));
            return Ok(None);
        }
        self.value(node)
    }

    fn scalar(
        &mut self,
        at: usize,
        name: Option<String>,
        word: Word,
    ) -> Result<Option<Rc<Node>>, SyntaxError> {
        let wrong = |message: String| SyntaxError::new(at, message);
        let is_merge = word.is_merge();
        let scalar = resolve(word.tag.as_deref(), word.is_plain, word.text).map_err(wrong)?;
        if let Some(Open { parts: Parts::Map(_, key @ None), .. }) = self.open.last_mut() {
            if let Some(name) = name {
                let node = Node::new(at, Content::Scalar(scalar.clone().into_value().map_err(wrong)?));
                self.anchors.end(Some(name), node)?;
            }
            let text =
                if is_merge { Ok(Key::Merge(at)) } else { scalar.into_key().map(|text| Key::Text(at, text)) };
            *key = Some(text.map_err(wrong)?);
            return Ok(None);
        }
        let node = Node::new(at, Content::Scalar(scalar.into_value().map_err(wrong)?));
        let node = self.anchors.end(name, node)?;
        self.value(node)
    }

    /// Puts a value where it belongs. Returns it if that is the root.
    fn value(&mut self, node: Rc<Node>) -> Result<Option<Rc<Node>>, SyntaxError> {
        match self.open.last_mut().map(|open| &mut open.parts) {
            None => return Ok(Some(node)),
            Some(Parts::List(items)) => items.push(node),
            Some(Parts::Map(map, key)) => match key.take() {
                Some(Key::Text(at, text)) => map.set(text, at, node),
                Some(Key::Merge(at)) => {
                    self.anchors.count_copied(at, &node)?;
                    map.merge(&node)?;
                }
                None => {}
            },
        }
        Ok(None)
    }
}

/// A scalar as it is written.
struct Word {
    tag: Option<String>,
    /// Whether it may be something else than a text.
    is_plain: bool,
    style: ScalarStyle,
    text: String,
}

impl Word {
    /// Whether it is the key that merges maps.
    fn is_merge(&self) -> bool {
        let is_tagged = self.tag.as_deref() == Some(MERGE);
        self.text == "<<" && (is_tagged || self.is_plain && self.style == ScalarStyle::Plain)
    }
}
