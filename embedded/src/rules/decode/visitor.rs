//! The decoder's traversal of a document along the types of the schema.

use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserialize as _, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::super::quantity;
use super::super::schema::{Field, Kind, Presence, Type, Types};
use super::time::{self, Precision};
use super::{DEPTH_MAX, TypeError};

/// The position of the decoder in the document.
pub(super) struct Place<'a> {
    parent: Option<&'a Place<'a>>,
    segment: Segment<'a>,
    /// The number of maps and lists around it.
    depth: usize,
}

enum Segment<'a> {
    Root,
    Field(&'a str),
    Index(usize),
    Key(&'a str),
}

impl<'a> Place<'a> {
    pub(super) const fn root() -> Self {
        Self { parent: None, segment: Segment::Root, depth: 0 }
    }

    fn child(&'a self, segment: Segment<'a>) -> Self {
        Self { parent: Some(self), segment, depth: self.depth + 1 }
    }

    /// The path in the form of strict errors: `spec.containers[0].image`.
    fn path(&self) -> String {
        let mut path = self.parent.map(Self::path).unwrap_or_default();
        match self.segment {
            Segment::Root => {}
            Segment::Index(index) => path.push_str(&format!("[{index}]")),
            Segment::Field(name) | Segment::Key(name) => {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(name);
            }
        }
        path
    }

    /// The path in the form of type errors: only fields of structs.
    fn fields(&self) -> String {
        let mut path = self.parent.map(Self::fields).unwrap_or_default();
        if let Segment::Field(name) = self.segment {
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(name);
        }
        path
    }
}

/// The errors in the document.
#[derive(Default)]
pub(super) struct Report {
    /// Values with a wrong type or form: the first of them.
    pub(super) errors: Vec<TypeError>,
    /// Unknown and repeated fields: the first of them, each once.
    pub(super) strict: Vec<String>,
}

/// Maximum number of unknown and repeated fields that are reported, as in Kubernetes, and of wrong values.
const STRICT_MAX: usize = 100;

impl Report {
    /// Reports a wrong value, with the message of Kubernetes and one for people.
    fn fail(&mut self, place: &Place<'_>, error: impl FnOnce() -> (String, String)) {
        if self.errors.len() < STRICT_MAX {
            let (message, problem) = error();
            self.errors.push(TypeError { field: place.path(), message, problem });
        }
    }

    /// Reports an unknown or repeated field.
    fn strict(&mut self, problem: &str, place: &Place<'_>) {
        if self.strict.len() < STRICT_MAX {
            let error = format!("{problem} field {:?}", place.path());
            if !self.strict.contains(&error) {
                self.strict.push(error);
            }
        }
    }
}

/// The values that a kind admits, in words.
fn wanted(kind: &Kind) -> &'static str {
    match kind {
        Kind::Text => "a string",
        Kind::Bool => "true or false",
        Kind::Int32 => "a whole number of 32 bits",
        Kind::Int64 => "a whole number of 64 bits",
        Kind::IntOrString => "a whole number of 32 bits or a string",
        Kind::Time | Kind::MicroTime => "a time such as \"2026-01-31T12:00:00Z\"",
        Kind::Quantity => "a quantity such as 500m or 2Gi",
        Kind::List(_) => "a list",
        Kind::Raw | Kind::Map(_) | Kind::Struct(_) => "a map",
    }
}

/// The expected and the given value, in words. `given` is Go's name of the type, with the number if that
/// matters.
fn wrong_type(kind: &Kind, given: &str) -> String {
    let shown = match given.split_once(' ') {
        Some((_, number)) => format!("the number {number}"),
        None => format!("a {}", given.replace("array", "list").replace("object", "map")),
    };
    let could_be_quoted = matches!(kind, Kind::Text) && matches!(given, "bool" | "number");
    let hint = if could_be_quoted { ": put it into quotes" } else { "" };
    format!("must be {}, but is {shown}{hint}", wanted(kind))
}

/// Decodes one value. The result is `None` for null and for values with a wrong type.
pub(super) struct Seed<'a, 'r> {
    pub(super) kind: &'a Kind,
    pub(super) place: &'a Place<'a>,
    /// The struct that contains the value.
    pub(super) owner: Option<&'a Type>,
    /// The name of its Go type, if the kind does not determine it.
    pub(super) go_type: Option<&'static str>,
    pub(super) report: &'r mut Report,
}

impl Seed<'_, '_> {
    /// Reports a value with a wrong type, in the words of Go.
    fn mismatch(&mut self, given: &str) -> Option<Value> {
        let wanted = match (self.kind, self.go_type) {
            // Kubernetes parses any value as a quantity.
            (Kind::Quantity, _) => return self.quantity(""),
            // A time must be a string.
            (Kind::Time | Kind::MicroTime, _) => "string".into(),
            (Kind::IntOrString, _) => "int32".into(),
            (Kind::List(_), Some(name)) => format!("[]{name}"),
            (_, Some(name)) => name.into(),
            (kind, None) => kind.go_name(),
        };
        let (place, owner, kind) = (self.place, self.owner, self.kind);
        self.report.fail(place, || {
            let message = match owner {
                Some(owner) => {
                    let (owner, path) = (owner.name(), place.fields());
                    format!(
                        "json: cannot unmarshal {given} into Go struct field {owner}.{path} of type {wanted}"
                    )
                }
                None => format!("json: cannot unmarshal {given} into Go value of type {wanted}"),
            };
            (message, wrong_type(kind, given))
        });
        None
    }

    fn quantity(&mut self, text: &str) -> Option<Value> {
        match quantity::canonical(text) {
            Ok(canonical) => Some(canonical.into()),
            Err(error) => {
                let problem = || format!("must be {}, but is {text:?}", wanted(self.kind));
                self.report.fail(self.place, || (error.to_string(), problem()));
                None
            }
        }
    }

    fn number(&mut self, number: Number) -> Option<Value> {
        let fits = match self.kind {
            Kind::Int32 | Kind::IntOrString => {
                number.as_i64().is_some_and(|number| i32::try_from(number).is_ok())
            }
            Kind::Int64 => number.is_i64(),
            Kind::Raw => true,
            Kind::Quantity => return self.quantity(&number.to_string()),
            _ => return self.mismatch("number"),
        };
        if fits {
            return Some(Value::Number(number));
        }
        // Go prints the literal. A whole float is `1.0` in both languages.
        let literal = number
            .as_f64()
            .filter(|_| number.is_f64())
            .map_or_else(|| number.to_string(), |f| format!("{f:?}"));
        self.mismatch(&format!("number {literal}"))
    }

    fn text(&mut self, text: &str) -> Option<Value> {
        let time = match self.kind {
            Kind::Text | Kind::Raw | Kind::IntOrString => return Some(text.into()),
            Kind::Quantity => return self.quantity(text),
            Kind::Time => time::canonical(text, Precision::Seconds),
            Kind::MicroTime => time::canonical(text, Precision::Micros),
            _ => return self.mismatch("string"),
        };
        match time {
            Ok(canonical) => Some(canonical.into()),
            Err(error) => {
                let problem = || format!("must be {}, but is {text:?}", wanted(self.kind));
                self.report.fail(self.place, || (error, problem()));
                None
            }
        }
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_, '_> {
    type Value = Option<Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        if self.place.depth > DEPTH_MAX {
            let problem = || format!("more than {DEPTH_MAX} maps and lists within each other");
            self.report.fail(self.place, || ("json: exceeded max depth".into(), problem()));
            return IgnoredAny::deserialize(deserializer).map(|IgnoredAny| None);
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_, '_> {
    type Value = Option<Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_bool<E>(mut self, value: bool) -> Result<Self::Value, E> {
        Ok(match self.kind {
            Kind::Bool | Kind::Raw => Some(value.into()),
            Kind::Quantity => self.quantity(if value { "true" } else { "false" }),
            _ => self.mismatch("bool"),
        })
    }

    fn visit_i64<E>(mut self, value: i64) -> Result<Self::Value, E> {
        Ok(self.number(value.into()))
    }

    fn visit_u64<E>(mut self, value: u64) -> Result<Self::Value, E> {
        Ok(self.number(value.into()))
    }

    fn visit_f64<E>(mut self, value: f64) -> Result<Self::Value, E> {
        // The parser makes a float of `-0`, which is an integer for Go, and does not distinguish it from
        // `-0.0`.
        if value == 0.0 && value.is_sign_negative() {
            return Ok(self.number(0.into()));
        }
        match Number::from_f64(value) {
            Some(number) => Ok(self.number(number)),
            None => Ok(self.mismatch("number")),
        }
    }

    fn visit_str<E>(mut self, value: &str) -> Result<Self::Value, E> {
        Ok(self.text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut sequence: A) -> Result<Self::Value, A::Error> {
        let item = match self.kind {
            Kind::List(item) => item,
            Kind::Raw => self.kind,
            _ => {
                while sequence.next_element::<IgnoredAny>()?.is_some() {}
                return Ok(self.mismatch("array"));
            }
        };
        let mut list = Vec::new();
        loop {
            let place = self.place.child(Segment::Index(list.len()));
            let seed = Seed {
                kind: item,
                place: &place,
                owner: self.owner,
                go_type: self.go_type,
                report: self.report,
            };
            match sequence.next_element_seed(seed)? {
                // A null in a list of structs or strings is decoded as an empty element.
                Some(element) => list.push(element.unwrap_or_else(|| item.zero())),
                None => return Ok(Some(Value::Array(list))),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Self::Value, A::Error> {
        match self.kind {
            Kind::Struct(id) => self.structure(Types::get().by_id(*id), map),
            Kind::Map(item) => self.entries(item, map),
            Kind::Raw => self.entries(&Kind::Raw, map),
            _ => {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(self.mismatch("object"))
            }
        }
    }
}

impl Seed<'_, '_> {
    fn repeated(&mut self, place: &Place<'_>) {
        self.report.strict("duplicate", place);
    }

    fn entries<'de, A: MapAccess<'de>>(mut self, item: &Kind, mut map: A) -> Result<Option<Value>, A::Error> {
        let mut entries = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let place = self.place.child(Segment::Key(&key));
            if entries.contains_key(&key) {
                self.repeated(&place);
            }
            let seed =
                Seed { kind: item, place: &place, owner: self.owner, go_type: None, report: self.report };
            let value = map.next_value_seed(seed)?;
            // In free-form JSON a null is a value; in a map of strings it is decoded as an empty string.
            entries.insert(key, value.unwrap_or_else(|| item.zero()));
        }
        Ok(Some(Value::Object(entries)))
    }

    fn structure<'de, A: MapAccess<'de>>(mut self, ty: &Type, mut map: A) -> Result<Option<Value>, A::Error> {
        let mut fields = Map::new();
        let mut nulls = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            let place = self.place.child(Segment::Field(&key));
            let Some(field) = ty.fields.get(&key) else {
                self.report.strict("unknown", &place);
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            if fields.contains_key(&key) || nulls.contains(&key) {
                self.repeated(&place);
            }
            let go_type = field.go_type;
            let seed =
                Seed { kind: &field.kind, place: &place, owner: Some(ty), go_type, report: self.report };
            match map.next_value_seed(seed)? {
                Some(value) if is_kept(field, &value) => {
                    fields.insert(key, value);
                }
                _ => {
                    fields.remove(&key);
                    nulls.insert(key);
                }
            }
        }
        for name in &ty.always {
            if !fields.contains_key(name) {
                fields.insert(name.clone(), ty.fields[name].absent());
            }
        }
        Ok(Some(Value::Object(fields)))
    }
}

/// Whether the value is written. An empty list that is always written becomes null, because storage does not
/// keep empty lists.
fn is_kept(field: &Field, value: &Value) -> bool {
    match field.presence {
        Presence::Given | Presence::OrNull => true,
        Presence::NonZero => !is_zero(value),
        Presence::Always => !(matches!(field.kind, Kind::List(_)) && is_zero(value)),
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(value) => value.as_i64() == Some(0),
        Value::String(value) => value.is_empty(),
        Value::Array(value) => value.is_empty(),
        Value::Object(value) => value.is_empty(),
    }
}
