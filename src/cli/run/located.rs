//! YAML documents as JSON values, with the line of every field.

use std::collections::HashMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::Spanned;

/// A document and the lines of its fields.
#[derive(Clone, Debug)]
pub(super) struct Document {
    /// The document as JSON.
    pub(super) value: Value,
    /// Lines (from 1) by field path such as `spec.template.spec.containers[0].name`.
    lines: HashMap<String, u64>,
}

/// The text is neither YAML nor JSON.
#[derive(Debug)]
pub(super) struct SyntaxError {
    /// The line of the error, if known.
    pub(super) line: Option<u64>,
    /// The parser's message.
    pub(super) message: String,
}

/// All documents of a file; JSON is read as YAML, its superset.
pub(super) fn parse(text: &str) -> Result<Vec<Document>, SyntaxError> {
    let options = serde_saphyr::options! {
        with_snippet: false,
        // Kubernetes reads YAML 1.1, where a file mode such as 0644 is octal.
        legacy_octal_numbers: true,
    };
    let nodes: Vec<Spanned<Node>> =
        serde_saphyr::from_multiple_with_options(text, options).map_err(|error| SyntaxError {
            line: error.location().map(|location| location.line()),
            message: sentence(&error.to_string()),
        })?;
    Ok(nodes.into_iter().map(Document::new).collect())
}

/// The first line of a message, without the position that some messages end in.
fn sentence(message: &str) -> String {
    let line = message.lines().next().unwrap_or_default();
    let line = line.strip_prefix("error: ").unwrap_or(line);
    line.split(" at line ").next().unwrap_or_default().to_owned()
}

impl Document {
    fn new(node: Spanned<Node>) -> Self {
        let mut lines = HashMap::new();
        lines.insert(String::new(), node.referenced.line());
        let value = node.value.into_value(&mut String::new(), &mut lines);
        Self { value, lines }
    }

    /// A document within this one: an item of a List.
    pub(super) fn item(&self, path: &str, value: Value) -> Self {
        let within = |(field, line): (&String, &u64)| {
            let inner = field.strip_prefix(path)?;
            Some((inner.strip_prefix('.').unwrap_or(inner).to_owned(), *line))
        };
        Self { value, lines: self.lines.iter().filter_map(within).collect() }
    }

    /// The line of a field, or of its nearest parent if the document does not have the field.
    pub(super) fn line(&self, field: &str) -> Option<u64> {
        let mut path = field;
        loop {
            if let Some(line) = self.lines.get(path) {
                return Some(*line);
            }
            path = &path[..path.rfind(['.', '['])?];
        }
    }
}

/// A YAML node with the positions of its parts.
#[derive(Debug)]
enum Node {
    Scalar(Value),
    Sequence(Vec<Spanned<Node>>),
    Mapping(Vec<(Spanned<String>, Spanned<Node>)>),
}

impl Node {
    fn into_value(self, path: &mut String, lines: &mut HashMap<String, u64>) -> Value {
        let length = path.len();
        match self {
            Self::Scalar(value) => value,
            Self::Sequence(items) => {
                let item = |(index, item): (usize, Spanned<Self>)| {
                    path.push_str(&format!("[{index}]"));
                    lines.insert(path.clone(), item.referenced.line());
                    let value = item.value.into_value(path, lines);
                    path.truncate(length);
                    value
                };
                Value::Array(items.into_iter().enumerate().map(item).collect())
            }
            Self::Mapping(fields) => {
                let field = |(key, node): (Spanned<String>, Spanned<Self>)| {
                    if length > 0 {
                        path.push('.');
                    }
                    path.push_str(&key.value);
                    lines.insert(path.clone(), key.referenced.line());
                    let value = node.value.into_value(path, lines);
                    path.truncate(length);
                    (key.value, value)
                };
                Value::Object(fields.into_iter().map(field).collect::<Map<_, _>>())
            }
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML node")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Node, E> {
        let number = Number::from_f64(value).ok_or_else(|| E::custom("not a finite number"))?;
        Ok(Node::Scalar(Value::Number(number)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Null))
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<Node, E> {
        self.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        Node::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Node, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = sequence.next_element()? {
            items.push(item);
        }
        Ok(Node::Sequence(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut mapping: A) -> Result<Node, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = mapping.next_entry()? {
            fields.push(field);
        }
        Ok(Node::Mapping(fields))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn yaml_is_parsed_with_the_line_of_every_field() {
        let text = "# a comment\na: 1\nb:\n  c: [x, true, null, 1.5, \"2\"]\n  d:\n  - e: 0644\n---\nf: &x 1e3\ng: *x\n";
        let documents = parse(text).unwrap();
        assert_eq!(
            documents[0].value,
            json!({"a": 1, "b": {"c": ["x", true, null, 1.5, "2"], "d": [{"e": 420}]}})
        );
        for (field, line) in [("a", 2), ("b.c", 4), ("b.c[1]", 4), ("b.d[0].e", 6), ("b.d[0].missing.too", 6)]
        {
            assert_eq!(documents[0].line(field), Some(line), "{field}");
        }
        assert_eq!(documents[1].value, json!({"f": 1000.0, "g": 1000.0}));
    }

    #[test]
    fn json_is_parsed_as_yaml() {
        let documents = parse("{\"a\": {\"b\": [1, \"x\\n\"]},\n \"c\": null}").unwrap();
        assert_eq!(documents[0].value, json!({"a": {"b": [1, "x\n"]}, "c": null}));
        assert_eq!(documents[0].line("c"), Some(2));
    }

    #[test]
    fn syntax_errors_have_a_line() {
        for (text, line) in [("a: 1\nb: [1, 2\nc: 3\n", 3), ("a: 1\na: 2\n", 2), ("a:\n\t- x\n", 2)] {
            let error = parse(text).unwrap_err();
            assert_eq!(error.line, Some(line), "{text:?}: {error:?}");
            assert!(!error.message.contains('\n'));
        }
    }
}
