//! Objects by the API's schema: the table of fields of the embedded API server, which is generated from Kubernetes' types.

use std::sync::LazyLock;

use rand::Rng as _;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom as _;
use serde_json::{Map, Value, json};

use crate::hostile;

static DEFINITIONS: LazyLock<Map<String, Value>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../embedded/src/rules/schema/definitions.json")).unwrap()
});

pub(crate) const JOB: &str = "io.k8s.api.batch.v1.Job";
pub(crate) const POD: &str = "io.k8s.api.core.v1.Pod";

/// Levels of structs below which only required fields are given.
const DEPTH: usize = 5;
/// Lengths of lists and maps.
const LENGTHS: [u64; 8] = [0, 1, 2, 3, 20, 255, 2_000, 10_000];

/// The type of a value, as the schema has it.
enum Kind<'s> {
    Struct(&'static str),
    List(&'s Value),
    Map(&'s Value),
    Scalar(&'s str),
}

fn kind(schema: &'static Value) -> Kind<'static> {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference.rsplit('/').next().unwrap();
        return match name.rsplit('.').next().unwrap() {
            scalar @ ("Time" | "MicroTime" | "Quantity" | "IntOrString" | "FieldsV1") => Kind::Scalar(scalar),
            _ => Kind::Struct(name),
        };
    }
    match (schema["type"].as_str(), schema["format"].as_str()) {
        (Some("array"), _) => Kind::List(&schema["items"]),
        (Some("object"), _) if !schema["additionalProperties"].is_null() => {
            Kind::Map(&schema["additionalProperties"])
        }
        (Some("integer"), Some("int64")) => Kind::Scalar("int64"),
        (Some("integer"), _) => Kind::Scalar("int32"),
        (Some("boolean"), _) => Kind::Scalar("boolean"),
        (Some("string"), _) => Kind::Scalar("string"),
        _ => Kind::Scalar("FieldsV1"),
    }
}

fn properties(name: &str) -> Option<&'static Map<String, Value>> {
    DEFINITIONS.get(name)?["properties"].as_object()
}

/// A field of a struct: mostly one that the controller reads, if there is such a one.
fn field(name: &str, random: &mut SmallRng) -> Option<(&'static str, &'static Value)> {
    let all: Vec<_> = properties(name)?.iter().filter(|(field, _)| !is_fixed(field)).collect();
    let read: Vec<_> = all.iter().filter(|(field, _)| hostile::is_read(field)).copied().collect();
    let chosen = if random.random_ratio(2, 3) && !read.is_empty() { read } else { all };
    chosen.choose(random).map(|(field, schema)| (field.as_str(), *schema))
}

/// Fields of every object that no client chooses.
fn is_fixed(field: &str) -> bool {
    matches!(field, "apiVersion" | "kind" | "resourceVersion" | "managedFields" | "selfLink")
}

/// Changes one field of an object, at any depth.
pub(crate) fn mutate(object: &mut Value, name: &'static str, random: &mut SmallRng) {
    let Some((field, schema)) = field(name, random) else { return };
    if !object.is_object() {
        *object = json!({});
    }
    let descends = random.random_ratio(3, 4);
    let slot = &mut object[field];
    match kind(schema) {
        Kind::Struct(inner) if descends && hostile::of_field(name, field, &mut random.clone()).is_none() => {
            mutate(slot, inner, random);
        }
        Kind::Struct(inner) if descends && slot.is_object() => mutate(slot, inner, random),
        Kind::List(items) if descends && slot.as_array().is_some_and(|list| !list.is_empty()) => {
            change_list(slot.as_array_mut().unwrap(), name, field, items, random);
        }
        Kind::Map(_) if descends && slot.is_object() => {
            if let Some(more) = hostile::of_field(name, field, random)
                && let (Some(map), Value::Object(more)) = (slot.as_object_mut(), more)
            {
                map.extend(more);
            }
        }
        _ => match random.random_range(0..12) {
            0 => drop(object.as_object_mut().unwrap().remove(field)),
            // API servers write null for what is no number, text or flag.
            1 if !matches!(kind(schema), Kind::Scalar("string" | "int32" | "int64" | "boolean")) => {
                *slot = Value::Null
            }
            // Metadata do not change their types.
            2 if !name.contains(".meta.") => *slot = wrong(random),
            _ => *slot = value(name, field, schema, DEPTH, random),
        },
    }
}

fn change_list(
    list: &mut Vec<Value>,
    name: &'static str,
    field: &'static str,
    items: &'static Value,
    random: &mut SmallRng,
) {
    let at = random.random_range(0..list.len());
    match random.random_range(0..8) {
        0 => drop(list.remove(at)),
        1 => list.push(list[at].clone()),
        2 => list.push(value(name, field, items, DEPTH, random)),
        3 => list[at] = times(*LENGTHS.choose(random).unwrap(), list[at].take()),
        4 if list[at].get("$times").is_some() => {
            list[at]["$times"] = (*LENGTHS.choose(random).unwrap()).into()
        }
        _ => {
            let slot = if list[at].get("$times").is_some() { &mut list[at]["of"] } else { &mut list[at] };
            match kind(items) {
                Kind::Struct(inner) => mutate(slot, inner, random),
                _ => *slot = value(name, field, items, DEPTH, random),
            }
        }
    }
}

/// A value for a field of the struct `name`.
fn value(
    name: &'static str,
    field: &'static str,
    schema: &'static Value,
    depth: usize,
    random: &mut SmallRng,
) -> Value {
    if random.random_ratio(2, 3)
        && let Some(value) = hostile::of_field(name, field, random)
        && fits(&value, schema)
    {
        return value;
    }
    match kind(schema) {
        Kind::Struct(inner) => structure(inner, depth, random),
        Kind::List(items) => {
            let item = value(name, field, items, depth, random);
            json!([times(*LENGTHS.choose(random).unwrap(), item)])
        }
        Kind::Map(values) => {
            let of = value(name, "", values, depth, random);
            let key = *["example.com/key-#", "k#", "#", "A_#.b"].choose(random).unwrap();
            json!({"$keys": {"$times": LENGTHS.choose(random).unwrap(), "key": key, "of": of}})
        }
        Kind::Scalar(scalar) => hostile::scalar(scalar, random),
    }
}

/// Whether a value has the type of the schema: items of a list have the name of its field, too.
fn fits(value: &Value, schema: &'static Value) -> bool {
    match kind(schema) {
        Kind::List(_) => value.is_array(),
        Kind::Struct(_) | Kind::Map(_) => value.is_object() && value.get("$text").is_none(),
        Kind::Scalar("string") => value.is_string() || value.get("$text").is_some(),
        Kind::Scalar("int32" | "int64") => value.is_i64(),
        Kind::Scalar(_) => true,
    }
}

fn structure(name: &'static str, depth: usize, random: &mut SmallRng) -> Value {
    let mut object = Map::new();
    let required = DEFINITIONS.get(name).and_then(|schema| schema["required"].as_array());
    for needed in required.into_iter().flatten() {
        let Some((field, schema)) =
            properties(name).and_then(|all| all.get_key_value(needed.as_str().unwrap()))
        else {
            continue;
        };
        if depth > 0 {
            object.insert(field.clone(), value(name, field, schema, depth - 1, random));
        }
    }
    for _ in 0..random.random_range(0..4) {
        if depth > 0
            && let Some((field, schema)) = field(name, random)
        {
            object.insert(field.to_owned(), value(name, field, schema, depth - 1, random));
        }
    }
    object.into()
}

fn times(times: u64, of: Value) -> Value {
    let of = if of.get("$times").is_some() { of["of"].clone() } else { of };
    json!({"$times": times, "of": of})
}

/// A value of a type that the field does not have, as a newer API server may send it.
fn wrong(random: &mut SmallRng) -> Value {
    [json!({}), json!([]), json!("x"), json!(7), json!(true), json!(1.5)].choose(random).unwrap().clone()
}

#[test]
fn every_field_of_jobs_and_pods_is_reached() {
    use std::collections::BTreeSet;

    use rand::SeedableRng as _;
    let mut random = SmallRng::seed_from_u64(1);
    for name in [JOB, POD] {
        let mut seen = BTreeSet::new();
        for _ in 0..3_000 {
            let mut object = json!({});
            mutate(&mut object, name, &mut random);
            for (part, value) in object.as_object().unwrap() {
                let fields = value.as_object().into_iter().flatten();
                seen.extend(fields.map(|(field, _)| format!("{part}.{field}")));
            }
        }
        for part in ["metadata", "spec", "status"] {
            let Kind::Struct(inner) = kind(&properties(name).unwrap()[part]) else { panic!("{part}") };
            for field in properties(inner).unwrap().keys().filter(|field| !is_fixed(field)) {
                assert!(seen.contains(&format!("{part}.{field}")), "{name}: {part}.{field}");
            }
        }
    }
}
