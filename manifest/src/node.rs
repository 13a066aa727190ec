//! A document as a tree that knows where its parts are written.

use std::rc::Rc;

use serde_json::{Map, Value};

/// A value and its place. Aliases share the nodes that they repeat, so a small text stays small.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Where it begins, in bytes.
    pub at: usize,
    /// The value.
    pub content: Content,
    /// About how many bytes it takes once aliases are written out.
    pub(crate) weight: usize,
    /// How many maps and lists are within each other in it.
    pub(crate) depth: usize,
}

/// The kinds of values.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// A text, a number, true, false or null.
    Scalar(Value),
    /// A list.
    List(Vec<Rc<Node>>),
    /// A map. Each key is there once.
    Map(Vec<Entry>),
}

/// A key of a map, and its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Where the key is written, in bytes.
    pub at: usize,
    /// The value.
    pub node: Rc<Node>,
    /// Where the map had the same key before, with a value that does not count.
    pub earlier: Option<usize>,
}

/// A key that a map has twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repeated {
    /// The path of the field.
    pub field: String,
    /// Where it is written first, in bytes. The last value counts.
    pub earlier: usize,
    /// Where it is written last, in bytes.
    pub at: usize,
}

/// Repeated keys that are told.
const REPEATED_MAX: usize = 100;
/// About how many bytes a value occupies in memory, besides its text.
const WEIGHT: usize = 64;

impl Node {
    pub(crate) fn new(at: usize, content: Content) -> Self {
        let (weight, depth) = match &content {
            Content::Scalar(Value::String(text)) => (text.len(), 0),
            Content::Scalar(_) => (0, 0),
            Content::List(items) => sum(items.iter().map(|item| (item.weight, item.depth))),
            Content::Map(entries) => {
                sum(entries.iter().map(|entry| (entry.key.len() + entry.node.weight, entry.node.depth)))
            }
        };
        Self { at, content, weight: weight.saturating_add(WEIGHT), depth }
    }

    /// Whether nothing is written, or `null`.
    pub fn is_null(&self) -> bool {
        self.content == Content::Scalar(Value::Null)
    }

    /// The document as JSON.
    pub fn to_value(&self) -> Value {
        match &self.content {
            Content::Scalar(value) => value.clone(),
            Content::List(items) => items.iter().map(|item| item.to_value()).collect(),
            Content::Map(entries) => {
                let entry = |entry: &Entry| (entry.key.clone(), entry.node.to_value());
                Value::Object(entries.iter().map(entry).collect::<Map<_, _>>())
            }
        }
    }

    /// A field of a map.
    pub fn get(&self, key: &str) -> Option<&Rc<Self>> {
        let Content::Map(entries) = &self.content else { return None };
        entries.iter().find(|entry| entry.key == key).map(|entry| &entry.node)
    }

    /// The text of a field of a map.
    pub fn text(&self, key: &str) -> Option<&str> {
        match &self.get(key)?.content {
            Content::Scalar(Value::String(text)) => Some(text),
            _ => None,
        }
    }

    /// The elements of a field of a map that is a list.
    pub fn list(&self, key: &str) -> &[Rc<Self>] {
        match self.get(key).map(|node| &node.content) {
            Some(Content::List(items)) => items,
            _ => &[],
        }
    }

    /// Where a field such as `spec.template.spec.containers[0].name` is written, or what is nearest to it of the maps and
    /// lists around it.
    pub fn place(&self, field: &str) -> usize {
        let (mut node, mut rest, mut at) = (self, field, self.at);
        while let Some((place, inner, unread)) = node.step(rest) {
            (node, rest, at) = (inner, unread, place);
        }
        at
    }

    /// The place and the value of the first part of a path, and the rest of the path.
    fn step<'a, 'p>(&'a self, path: &'p str) -> Option<(usize, &'a Self, &'p str)> {
        match &self.content {
            Content::Scalar(_) => None,
            // Kubernetes leaves out the index of some fields. The only element with such a field is the one.
            Content::List(items) if path.starts_with('.') => {
                let mut found = items.iter().filter_map(|item| item.step(path));
                found.next().filter(|_| found.next().is_none())
            }
            Content::List(items) => {
                let (index, rest) = path.strip_prefix('[')?.split_once(']')?;
                let item = items.get(index.parse::<usize>().ok()?)?;
                Some((item.at, item, rest))
            }
            Content::Map(entries) => {
                // A key may contain what separates keys, as `app.kubernetes.io/name` does.
                let found = |entry: &'a Entry| Some((entry, after(path, &entry.key)?));
                let (entry, rest) =
                    entries.iter().filter_map(found).max_by_key(|(entry, _)| entry.key.len())?;
                Some((entry.at, &entry.node, rest))
            }
        }
    }

    /// Keys that a map within has twice, in their order in the text: 100 at most, since the path of each may be long.
    pub fn repeated(&self) -> Vec<Repeated> {
        let mut found = Vec::new();
        self.find_repeated(&mut String::new(), &mut found);
        found.sort_by_key(|repeated| repeated.at);
        found
    }

    fn find_repeated(&self, path: &mut String, found: &mut Vec<Repeated>) {
        if found.len() == REPEATED_MAX {
            return;
        }
        let length = path.len();
        match &self.content {
            Content::Scalar(_) => {}
            Content::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    path.push_str(&format!("[{index}]"));
                    item.find_repeated(path, found);
                    path.truncate(length);
                }
            }
            Content::Map(entries) => {
                for entry in entries {
                    path.push_str(if length > 0 { "." } else { "" });
                    path.push_str(&entry.key);
                    // An aliased map is found several times, at the same place.
                    let is_new =
                        || found.len() < REPEATED_MAX && found.iter().all(|known| known.at != entry.at);
                    if let Some(earlier) = entry.earlier.filter(|_| is_new()) {
                        found.push(Repeated { field: path.clone(), earlier, at: entry.at });
                    }
                    entry.node.find_repeated(path, found);
                    path.truncate(length);
                }
            }
        }
    }
}

/// The weight and the depth of a map or a list with these parts.
fn sum(parts: impl Iterator<Item = (usize, usize)>) -> (usize, usize) {
    let add = |(weight, depth): (usize, usize), part: (usize, usize)| {
        (weight.saturating_add(part.0), depth.max(part.1))
    };
    let (weight, depth) = parts.fold((0, 0), add);
    (weight, depth + 1)
}

/// The rest of a path after a key: `key`, `.key` or `[key]`.
fn after<'p>(path: &'p str, key: &str) -> Option<&'p str> {
    if let Some(rest) = path.strip_prefix('[') {
        return rest.strip_prefix(key)?.strip_prefix(']');
    }
    let rest = path.strip_prefix('.').unwrap_or(path).strip_prefix(key)?;
    (rest.is_empty() || rest.starts_with(['.', '['])).then_some(rest)
}
