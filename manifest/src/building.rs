//! Maps and documents while they are read: keys that come again, merge keys, anchors, and what aliases may add.

use std::collections::HashMap;
use std::rc::Rc;

use crate::node::{Content, Entry, Node};
use crate::{DEPTH_MAX, SyntaxError, too_deep};

/// The entries of a map. A key that comes again replaces the first, as in kubectl.
#[derive(Debug, Default)]
pub(crate) struct MapBuilder {
    entries: Vec<Entry>,
    /// Where an entry is in `entries`, and whether a merge has set it.
    known: HashMap<String, (usize, bool)>,
}

impl MapBuilder {
    /// Sets a key that is written in this map.
    pub(crate) fn set(&mut self, key: String, at: usize, node: Rc<Node>) {
        self.insert(Entry { key, at, node, earlier: None }, false);
    }

    /// Sets the keys of the maps that the merge key names. Of several maps, the first counts. As in kubectl, a merge
    /// key replaces what is written before it.
    ///
    /// # Errors
    /// The value is neither a map nor a list of maps.
    pub(crate) fn merge(&mut self, value: &Node) -> Result<(), SyntaxError> {
        match &value.content {
            Content::Map(entries) => {
                for entry in entries {
                    self.insert(Entry { earlier: None, ..entry.clone() }, true);
                }
                Ok(())
            }
            Content::List(maps) if maps.iter().all(|map| matches!(map.content, Content::Map(_))) => {
                maps.iter().rev().try_for_each(|map| self.merge(map))
            }
            _ => Err(SyntaxError::new(value.at, "the value of `<<` must be a map, or a list of maps")),
        }
    }

    fn insert(&mut self, mut entry: Entry, merged: bool) {
        match self.known.get_mut(&entry.key) {
            Some((index, by_merge)) => {
                let earlier = &mut self.entries[*index];
                entry.earlier = (!merged && !*by_merge).then_some(earlier.at);
                *earlier = entry;
                *by_merge = merged;
            }
            None => {
                self.known.insert(entry.key.clone(), (self.entries.len(), merged));
                self.entries.push(entry);
            }
        }
    }

    /// The map that begins here.
    pub(crate) fn finish(self, at: usize) -> Node {
        Node::new(at, Content::Map(self.entries))
    }
}

/// Bytes that aliases and merge keys may add to a document of any size. kubectl allows about a million repeated values.
const ALIASES_MAX: usize = 128 << 20;
/// Bytes of a value in memory for each byte of text, at most. Without aliases no document takes more.
const PER_BYTE: usize = 64;

/// The anchors of a document so far, and the size of their aliases.
#[derive(Debug)]
pub(crate) struct Anchors {
    /// Values by name. A value that is being read has none yet.
    named: HashMap<String, Option<Rc<Node>>>,
    /// Bytes that merge keys and aliased keys have copied, about.
    copied: usize,
    weight_max: usize,
}

impl Anchors {
    /// Starts without anchors, for a document of this many bytes.
    pub(crate) fn new(length: usize) -> Self {
        let weight_max = ALIASES_MAX.saturating_add(length.saturating_mul(PER_BYTE));
        Self { named: HashMap::new(), copied: 0, weight_max }
    }

    /// A value with this name begins.
    pub(crate) fn begin(&mut self, name: Option<&String>) {
        if let Some(name) = name {
            self.named.insert(name.clone(), None);
        }
    }

    /// A value is complete.
    ///
    /// # Errors
    /// It is nested too deeply, or too large because of its aliases.
    pub(crate) fn end(&mut self, name: Option<String>, node: Node) -> Result<Rc<Node>, SyntaxError> {
        if node.depth > DEPTH_MAX {
            return Err(too_deep(node.at));
        }
        self.check(node.at, node.weight)?;
        let node = Rc::new(node);
        if let Some(name) = name {
            self.named.insert(name, Some(node.clone()));
        }
        Ok(node)
    }

    /// The value that an alias repeats.
    ///
    /// # Errors
    /// Nothing has that name, or only a value that the alias is a part of.
    pub(crate) fn alias(&self, at: usize, name: &str) -> Result<Rc<Node>, SyntaxError> {
        match self.named.get(name) {
            Some(Some(node)) => Ok(node.clone()),
            Some(None) => {
                Err(SyntaxError::new(at, format!("the alias *{name} is a part of what it repeats")))
            }
            None => {
                let hint =
                    format!("nothing before it is named &{name}; a text that begins with * needs quotes");
                Err(SyntaxError::new(at, format!("unknown alias *{name}: {hint}")))
            }
        }
    }

    /// Counts a value before it is copied. Its weight is known, so a refusal costs nothing. Copies count also if later keys
    /// replace them, since they take time.
    ///
    /// # Errors
    /// The copies are too large.
    pub(crate) fn count_copied(&mut self, at: usize, node: &Node) -> Result<(), SyntaxError> {
        self.copied = self.copied.saturating_add(node.weight);
        self.check(at, self.copied)
    }

    fn check(&self, at: usize, weight: usize) -> Result<(), SyntaxError> {
        if weight <= self.weight_max {
            return Ok(());
        }
        let limit = self.weight_max >> 20;
        Err(SyntaxError::new(
            at,
            format!("aliases and merge keys make more than {limit} MiB of this document"),
        ))
    }
}
