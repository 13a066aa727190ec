//! The messages of the Kubernetes API: numbers and types of their fields.

use std::sync::LazyLock;

use fnv::FnvHashMap;

/// The messages that the server reads and writes, with all their fields. A message is a line with its name,
/// then a line per field with number, JSON name and type. The numbers are those in the `generated.proto`
/// files of Kubernetes. The name `-` means that JSON inlines the fields of the inner message into the outer
/// one.
static MESSAGES: &str = include_str!("messages.txt");

static TABLE: LazyLock<Table> = LazyLock::new(|| Table::parse(MESSAGES));

/// The type of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    /// Base64 in JSON.
    Bytes,
    Bool,
    Integer,
    /// RFC 3339 in JSON, in whole seconds.
    Time,
    /// RFC 3339 in JSON, with six digits of a second.
    MicroTime,
    Quantity,
    IntOrString,
    /// Raw JSON.
    Json,
    Message(MessageId),
    List(Box<Kind>),
    /// A list of strings in JSON, and a message that contains such a list in protobuf.
    Items,
    /// A map with string keys.
    Map(Box<Kind>),
}

/// The index of a message in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MessageId(usize);

/// A field.
#[derive(Debug)]
pub(super) struct Field {
    /// Its number.
    pub(super) number: u32,
    /// The number of the inner message that contains the field, if JSON inlines that message.
    pub(super) within: Option<u32>,
    /// Its type.
    pub(super) kind: Kind,
}

/// A message.
#[derive(Debug, Default)]
pub(super) struct Message {
    /// Fields by JSON name, including those of inlined messages.
    pub(super) fields: FnvHashMap<&'static str, Field>,
    /// JSON names by number.
    by_number: FnvHashMap<u32, &'static str>,
    /// Messages that JSON inlines into this one, by their number.
    pub(super) inlined: FnvHashMap<u32, MessageId>,
}

impl Message {
    /// The field with this number, and its JSON name.
    pub(super) fn numbered(&self, number: u32) -> Option<(&'static str, &Field)> {
        let name = *self.by_number.get(&number)?;
        Some((name, self.fields.get(name)?))
    }
}

#[derive(Debug)]
struct Table {
    messages: Vec<Message>,
    by_name: FnvHashMap<&'static str, MessageId>,
}

impl MessageId {
    /// The message with this name, such as `core.v1.Pod`.
    pub(super) fn named(name: &str) -> Option<Self> {
        TABLE.by_name.get(name).copied()
    }

    /// The message.
    pub(super) fn get(self) -> &'static Message {
        &TABLE.messages[self.0]
    }
}

impl Table {
    /// Parses the table. It skips malformed lines; a test checks that there are none.
    fn parse(text: &'static str) -> Self {
        let words: Vec<Vec<&'static str>> = text.lines().map(|line| line.split(' ').collect()).collect();
        let names = words.iter().filter_map(|line| match line.as_slice() {
            [name] => Some(*name),
            _ => None,
        });
        let by_name: FnvHashMap<_, _> = names.enumerate().map(|(at, name)| (name, MessageId(at))).collect();
        let mut messages: Vec<Message> = Vec::new();
        for line in &words {
            match (line.as_slice(), messages.last_mut()) {
                ([number, name, kind], Some(message)) => {
                    if let (Ok(number), Some(kind)) = (number.parse(), Kind::parse(&by_name, kind)) {
                        message.add(number, name, kind);
                    }
                }
                _ => messages.push(Message::default()),
            }
        }
        Self::with_inlined_fields(Self { messages, by_name })
    }

    fn with_inlined_fields(mut self) -> Self {
        for at in 0..self.messages.len() {
            for (number, MessageId(inner)) in self.messages[at].inlined.clone() {
                let inlined: Vec<_> = self.messages[inner]
                    .fields
                    .iter()
                    .map(|(name, field)| {
                        (*name, Field { within: Some(number), kind: field.kind.clone(), ..*field })
                    })
                    .collect();
                self.messages[at].fields.extend(inlined);
            }
        }
        self
    }
}

impl Message {
    fn add(&mut self, number: u32, name: &'static str, kind: Kind) {
        match (name, kind) {
            ("-", Kind::Message(inner)) => drop(self.inlined.insert(number, inner)),
            (_, kind) => {
                self.fields.insert(name, Field { number, within: None, kind });
                self.by_number.insert(number, name);
            }
        }
    }
}

impl Kind {
    fn parse(by_name: &FnvHashMap<&'static str, MessageId>, text: &str) -> Option<Self> {
        if let Some(item) = text.strip_prefix("[]") {
            return Some(Self::List(Box::new(Self::parse(by_name, item)?)));
        }
        if let Some(value) = text.strip_prefix("{}") {
            return Some(Self::Map(Box::new(Self::parse(by_name, value)?)));
        }
        Some(match text {
            "string" => Self::Text,
            "bytes" => Self::Bytes,
            "bool" => Self::Bool,
            "int32" | "int64" => Self::Integer,
            "time" => Self::Time,
            "microtime" => Self::MicroTime,
            "items" => Self::Items,
            "quantity" => Self::Quantity,
            "int-or-string" => Self::IntOrString,
            "json" => Self::Json,
            name => Self::Message(*by_name.get(name)?),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::rules::schema::definitions;

    #[test]
    fn every_line_is_a_message_or_a_field() {
        let fields = MESSAGES.lines().filter(|line| line.contains(' ')).count();
        let known = TABLE.messages.iter().map(|message| message.by_number.len() + message.inlined.len());
        assert_eq!(known.sum::<usize>(), fields);
        let mut names: Vec<&str> = MESSAGES.lines().filter(|line| !line.contains(' ')).collect();
        assert!(names.is_sorted());
        names.dedup();
        assert_eq!(names.len(), TABLE.messages.len());
        let inlined = TABLE.messages.iter().flat_map(|message| message.inlined.values());
        assert!(
            inlined.into_iter().all(|id| id.get().inlined.is_empty()),
            "one within another is not looked for"
        );
    }

    /// No field of the API can be lost in the conversion.
    #[test]
    fn every_property_of_the_api_has_a_number_and_its_type() {
        let definitions = definitions();
        let mut compared = 0;
        for (definition, schema) in &definitions {
            let name = definition.rsplitn(4, '.').take(3).collect::<Vec<_>>();
            let name = name.into_iter().rev().collect::<Vec<_>>().join(".");
            let Some(message) = MessageId::named(&name).map(MessageId::get) else { continue };
            for (property, schema) in schema["properties"].as_object().into_iter().flatten() {
                let of_type =
                    schema["description"].as_str().unwrap_or_default().starts_with("APIVersion defines")
                        || schema["description"]
                            .as_str()
                            .unwrap_or_default()
                            .starts_with("Kind is a string value rep");
                match message.fields.get(property.as_str()) {
                    Some(field) => {
                        assert!(matches(schema, &field.kind), "{name} {property}: {:?}", field.kind)
                    }
                    None if of_type => {}
                    None => panic!("{name} {property} has no number"),
                }
                compared += 1;
            }
        }
        assert!(compared > 500, "{compared}");
    }

    /// Whether a JSON Schema and a kind are equivalent.
    fn matches(schema: &serde_json::Value, kind: &Kind) -> bool {
        let reference = schema["$ref"].as_str().map(|path| path.rsplit('.').next().unwrap());
        match (reference, schema["type"].as_str(), schema["format"].as_str()) {
            (Some("Time"), ..) => *kind == Kind::Time,
            (Some("MicroTime"), ..) => *kind == Kind::MicroTime,
            (Some("Quantity"), ..) => *kind == Kind::Quantity,
            (Some("IntOrString"), ..) => *kind == Kind::IntOrString,
            (Some("FieldsV1"), ..) => *kind == Kind::Json,
            (Some(name), ..) => {
                let Kind::Message(id) = kind else { return false };
                TABLE
                    .by_name
                    .iter()
                    .any(|(known, other)| other == id && known.rsplit('.').next() == Some(name))
            }
            (None, Some("string"), Some("byte")) => *kind == Kind::Bytes,
            (None, Some("string"), _) => *kind == Kind::Text,
            (None, Some("boolean"), _) => *kind == Kind::Bool,
            (None, Some("integer"), _) => *kind == Kind::Integer,
            (None, Some("array"), _) => {
                (*kind == Kind::Items && schema["items"]["type"] == "string")
                    || matches!(kind, Kind::List(item) if matches(&schema["items"], item))
            }
            (None, Some("object"), _) => {
                matches!(kind, Kind::Map(value) if matches(&schema["additionalProperties"], value))
            }
            _ => false,
        }
    }
}
