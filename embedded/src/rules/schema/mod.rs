//! The types of the Kubernetes API: fields, their types, and their encoding.
//!
//! `definitions.json` is generated from `k8s-openapi` (see `generate.rs`) and contains the information of
//! OpenAPI. [`go`] adds information that only the Go types have, above all which fields are omitted if zero.

#[cfg(all(test, feature = "api-schema"))]
mod generate;
mod go;
mod merge;

use std::sync::LazyLock;

use fnv::FnvHashMap;
use serde_json::Value;

pub(crate) use merge::{ListType, PatchStrategy, key_default, list_type, struct_at};

/// JSON Schemas by OpenAPI name, such as `io.k8s.api.batch.v1.Job`.
static DEFINITIONS: &str = include_str!("definitions.json");

static TYPES: LazyLock<Types> = LazyLock::new(|| Types::parse(DEFINITIONS));

/// The type of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Bool,
    Int32,
    Int64,
    Time,
    MicroTime,
    Quantity,
    IntOrString,
    /// Any JSON.
    Raw,
    List(Box<Kind>),
    Map(Box<Kind>),
    Struct(TypeId),
}

/// The index of a struct in [`Types`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TypeId(usize);

/// When a field is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// Always, with its zero value if not given.
    Always,
    /// Always, as null if not given.
    OrNull,
    /// If it is not zero.
    NonZero,
    /// If it was given, even as zero.
    Given,
}

/// A field of a struct.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub(crate) kind: Kind,
    pub(crate) presence: Presence,
    /// Name of the Go type, or of the elements of a list, if the kind does not determine it.
    pub(crate) go_type: Option<&'static str>,
    /// The field as an element of paths in `FieldsV1`, such as `f:spec`.
    pub(crate) element: String,
    /// Its merge rule, if it is a list.
    pub(crate) list: ListType,
    /// Whether it is a map that merges as one value.
    atomic_map: bool,
}

impl Field {
    fn is_always_written(&self) -> bool {
        matches!(self.presence, Presence::Always | Presence::OrNull)
    }

    /// The value to write for an absent field that is always written.
    pub(crate) fn absent(&self) -> Value {
        if self.presence == Presence::OrNull { Value::Null } else { self.kind.zero() }
    }

    /// Whether the field merges as one value although it has parts.
    pub(crate) fn is_atomic(&self) -> bool {
        self.atomic_map || self.kind.is_atomic()
    }
}

/// A struct.
#[derive(Debug)]
pub(crate) struct Type {
    /// Name with the version, such as `v1.Job`.
    pub(crate) go_name: String,
    pub(crate) fields: FnvHashMap<String, Field>,
    /// The fields that are always written.
    pub(crate) always: Vec<String>,
    /// Whether it merges as one value.
    pub(crate) atomic: bool,
}

impl Type {
    /// Name without the version, such as `Job`.
    pub(crate) fn name(&self) -> &str {
        self.go_name.rsplit('.').next().unwrap_or_default()
    }
}

/// All structs of the API.
#[derive(Debug)]
pub(crate) struct Types {
    structs: Vec<Type>,
    by_name: FnvHashMap<String, TypeId>,
}

impl Types {
    fn parse(definitions: &str) -> Self {
        #[expect(clippy::expect_used, reason = "a file of this crate, which a test parses")]
        let definitions: serde_json::Map<String, Value> =
            serde_json::from_str(definitions).expect("definitions.json is valid");
        let by_name: FnvHashMap<String, TypeId> =
            definitions.keys().enumerate().map(|(index, name)| (name.clone(), TypeId(index))).collect();
        let structs = definitions.iter().map(|(name, schema)| parse_type(&by_name, name, schema)).collect();
        Self { structs, by_name }
    }

    /// The table of all types.
    pub(crate) fn get() -> &'static Self {
        &TYPES
    }

    /// The struct with this id.
    pub(crate) fn by_id(&self, TypeId(index): TypeId) -> &Type {
        &self.structs[index]
    }

    /// The struct of a kind, such as (`batch/v1`, `Job`).
    pub(crate) fn of_kind(&self, api_version: &str, kind: &str) -> Option<TypeId> {
        self.of_definition(&definition_name(api_version, kind))
    }

    /// The struct with this OpenAPI name.
    pub(crate) fn of_definition(&self, name: &str) -> Option<TypeId> {
        self.by_name.get(name).copied()
    }
}

/// The JSON Schemas by OpenAPI name.
pub(crate) fn definitions() -> serde_json::Map<String, Value> {
    // The file belongs to this crate, and a test checks that it parses.
    serde_json::from_str(DEFINITIONS).unwrap_or_default()
}

/// The OpenAPI name of a kind.
pub(crate) fn definition_name(api_version: &str, kind: &str) -> String {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let package = match group.split('.').next() {
        None | Some("") => "core",
        Some(package) => package,
    };
    format!("io.k8s.api.{package}.{version}.{kind}")
}

fn parse_type(by_name: &FnvHashMap<String, TypeId>, name: &str, schema: &Value) -> Type {
    let mut parts = name.rsplit('.');
    let short = parts.next().unwrap_or_default();
    let go_name = format!("{}.{short}", parts.next().unwrap_or_default());
    let required: Vec<String> = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|field| field.as_str().map(str::to_owned))
        .collect();
    let fields: FnvHashMap<String, Field> = schema["properties"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(field, schema)| {
            let kind = parse_kind(by_name, schema);
            let required = required.iter().any(|name| name == field);
            let presence = go::presence(name, field, &kind, required);
            let parsed = Field {
                kind,
                presence,
                go_type: go::type_name(name, field),
                element: format!("f:{field}"),
                list: merge::list_of(short, field),
                atomic_map: merge::is_atomic_map(short, field),
            };
            (field.clone(), parsed)
        })
        .collect();
    let mut always: Vec<String> =
        fields.iter().filter(|(_, field)| field.is_always_written()).map(|(name, _)| name.clone()).collect();
    always.sort_unstable();
    Type { go_name, fields, always, atomic: merge::is_atomic_struct(short) }
}

fn parse_kind(by_name: &FnvHashMap<String, TypeId>, schema: &Value) -> Kind {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference.rsplit('/').next().unwrap_or_default();
        return match name.rsplit('.').next().unwrap_or_default() {
            "Time" => Kind::Time,
            "MicroTime" => Kind::MicroTime,
            "Quantity" => Kind::Quantity,
            "IntOrString" => Kind::IntOrString,
            "FieldsV1" => Kind::Raw,
            _ => by_name.get(name).map_or(Kind::Raw, |id| Kind::Struct(*id)),
        };
    }
    match (schema["type"].as_str(), schema["format"].as_str()) {
        (Some("string"), _) => Kind::Text,
        (Some("boolean"), _) => Kind::Bool,
        (Some("integer"), Some("int64")) => Kind::Int64,
        (Some("integer"), _) => Kind::Int32,
        (Some("array"), _) => Kind::List(Box::new(parse_kind(by_name, &schema["items"]))),
        (Some("object"), _) if !schema["additionalProperties"].is_null() => {
            Kind::Map(Box::new(parse_kind(by_name, &schema["additionalProperties"])))
        }
        _ => Kind::Raw,
    }
}

impl Kind {
    /// The name of the Go type in messages of its decoder.
    pub(crate) fn go_name(&self) -> String {
        match self {
            Self::Text => "string".into(),
            Self::Bool => "bool".into(),
            Self::Int32 => "int32".into(),
            Self::Int64 => "int64".into(),
            Self::Time => "v1.Time".into(),
            Self::MicroTime => "v1.MicroTime".into(),
            Self::Quantity => "resource.Quantity".into(),
            Self::IntOrString => "intstr.IntOrString".into(),
            Self::Raw => "interface {}".into(),
            Self::List(item) => format!("[]{}", item.go_name()),
            Self::Map(item) => format!("map[string]{}", item.go_name()),
            Self::Struct(id) => Types::get().by_id(*id).go_name.clone(),
        }
    }

    /// Whether values of this type merge as one although they have parts.
    pub(crate) fn is_atomic(&self) -> bool {
        matches!(self, Self::Struct(id) if Types::get().by_id(*id).atomic)
    }

    /// The value that Kubernetes writes for an unset field of this type.
    pub(crate) fn zero(&self) -> Value {
        match self {
            Self::Text => "".into(),
            Self::Bool => false.into(),
            Self::Int32 | Self::Int64 | Self::IntOrString => 0.into(),
            Self::Quantity => "0".into(),
            Self::Time | Self::MicroTime | Self::Raw | Self::List(_) | Self::Map(_) => Value::Null,
            Self::Struct(id) => {
                let ty = Types::get().by_id(*id);
                ty.always.iter().map(|name| (name.clone(), ty.fields[name].absent())).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_reference_is_defined() {
        fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
            match value {
                Value::Object(map) => {
                    found.extend(map.get("$ref").and_then(Value::as_str));
                    map.values().for_each(|value| references(value, found));
                }
                Value::Array(list) => list.iter().for_each(|value| references(value, found)),
                _ => {}
            }
        }
        let definitions: Value = serde_json::from_str(DEFINITIONS).unwrap();
        let mut found = Vec::new();
        references(&definitions, &mut found);
        assert!(found.len() > 200);
        for reference in found {
            assert!(!definitions[reference.rsplit('/').next().unwrap()].is_null(), "{reference}");
        }
    }

    #[test]
    fn exceptions_name_fields_that_exist() {
        for (ty, field) in go::named_fields() {
            let known = Types::get()
                .structs
                .iter()
                .any(|known| ty.ends_with(known.name()) && known.fields.contains_key(field));
            assert!(known, "{ty}.{field}");
        }
    }
}
