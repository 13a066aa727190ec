//! Typed views of objects: the fields that they set, how two differ, and how one merges into another.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value, json};

use super::super::schema::{Kind, ListType, Type, Types, key_default};
use super::field_set::{Element, FieldSet};

/// The type of a value, and its merge rule if it is a list.
#[derive(Clone, Copy)]
pub(super) struct Slot<'a> {
    pub(super) kind: &'a Kind,
    list: ListType,
    atomic: bool,
}

/// How a value is divided into parts.
enum Shape<'a> {
    /// A value without parts.
    Leaf,
    /// Fields of a struct.
    Struct(&'static Type),
    /// Entries of a map.
    Map(&'a Kind),
    /// Elements of a list with keys.
    Keyed(&'a Kind, &'static [&'static str]),
    /// Scalars of a set.
    Set,
}

impl<'a> Slot<'a> {
    pub(super) fn root(kind: &'a Kind) -> Self {
        Self { kind, list: ListType::Atomic, atomic: false }
    }

    fn shape(&self) -> Shape<'a> {
        match (self.kind, self.list) {
            _ if self.atomic => Shape::Leaf,
            (Kind::Struct(id), _) => Shape::Struct(Types::get().by_id(*id)),
            (Kind::Map(item), _) => Shape::Map(item),
            (Kind::List(item), ListType::Map { keys, .. }) if !keys.is_empty() => Shape::Keyed(item, keys),
            (Kind::List(_), ListType::Set { .. }) => Shape::Set,
            _ => Shape::Leaf,
        }
    }
}

/// A part of a value: its path element, type and value. Fields unknown to the type have no slot.
struct Part<'a, 'v> {
    element: Element<'static>,
    slot: Option<Slot<'a>>,
    value: &'v Value,
}

impl<'a> Shape<'a> {
    /// The path element and the type of the field or entry of this name.
    fn field(&self, name: &str) -> (Element<'static>, Option<Slot<'a>>) {
        match self {
            Self::Struct(ty) => match ty.fields.get(name) {
                Some(field) => {
                    let slot = Slot { kind: &field.kind, list: field.list, atomic: field.is_atomic() };
                    (field.element.as_str().into(), Some(slot))
                }
                None => (format!("f:{name}").into(), None),
            },
            _ => (format!("f:{name}").into(), self.item()),
        }
    }

    /// The type of every entry or element, if all have the same.
    fn item(&self) -> Option<Slot<'a>> {
        match self {
            Self::Map(item) | Self::Keyed(item, _) => {
                Some(Slot { kind: item, list: ListType::Atomic, atomic: item.is_atomic() })
            }
            Self::Set => Some(Slot { kind: &Kind::Raw, list: ListType::Atomic, atomic: true }),
            Self::Struct(_) | Self::Leaf => None,
        }
    }

    /// The type of the value at a path element.
    fn below(&self, element: &str) -> Option<Slot<'a>> {
        match self {
            Self::Struct(_) => self.field(element.strip_prefix("f:")?).1,
            _ => self.item(),
        }
    }
}

/// The parts of a value. A null or absent value has none.
fn parts<'a, 'v>(shape: &Shape<'a>, value: &'v Value) -> Vec<Part<'a, 'v>> {
    match (shape, value) {
        (Shape::Struct(_) | Shape::Map(_), Value::Object(map)) => {
            let part = |(name, value): (&String, &'v Value)| {
                let (element, slot) = shape.field(name);
                Part { element, slot, value }
            };
            map.iter().map(part).collect()
        }
        (Shape::Keyed(_, keys), Value::Array(list)) => {
            let part =
                |item| Part { element: key_element(keys, item).into(), slot: shape.item(), value: item };
            list.iter().map(part).collect()
        }
        (Shape::Set, Value::Array(list)) => {
            let part = |item| Part { element: format!("v:{item}").into(), slot: shape.item(), value: item };
            list.iter().map(part).collect()
        }
        _ => Vec::new(),
    }
}

/// The first part of each path element. Lists of clients may repeat elements.
fn first_places<'p>(parts: &'p [Part<'_, '_>]) -> HashMap<&'p str, usize> {
    parts.iter().enumerate().rev().map(|(place, part)| (&*part.element, place)).collect()
}

fn key_element(keys: &[&str], item: &Value) -> String {
    let mut element = Map::new();
    for key in keys {
        let default = || key_default(key).map_or(Value::Null, Value::from);
        let value = item.get(*key).filter(|value| !value.is_null()).cloned().unwrap_or_else(default);
        element.insert((*key).to_owned(), value);
    }
    format!("k:{}", Value::Object(element))
}

/// The fields that a value sets.
///
/// A container of fields is itself in the set if it is empty or an element of a list. With `containers`,
/// every container is; this is for values that did not exist before.
pub(super) fn field_set(slot: Slot<'_>, value: &Value, containers: bool) -> FieldSet<'static> {
    let shape = slot.shape();
    let parts = parts(&shape, value);
    if parts.is_empty() {
        return FieldSet::leaf();
    }
    let mut set = FieldSet { member: containers, ..FieldSet::default() };
    for Part { element, slot, value } in parts {
        let Some(slot) = slot else { continue };
        let mut child = field_set(slot, value, containers);
        child.member |= matches!(shape, Shape::Keyed(..));
        set.insert(element, child);
    }
    set
}

/// The differences between a value and an earlier one.
#[derive(Default)]
pub(super) struct Changes {
    pub(super) added: FieldSet<'static>,
    pub(super) modified: FieldSet<'static>,
    pub(super) removed: FieldSet<'static>,
}

impl Changes {
    /// The added or modified fields, and the removed fields.
    pub(super) fn written_and_removed(self) -> (FieldSet<'static>, FieldSet<'static>) {
        let mut written = self.modified;
        written.absorb(self.added);
        (written, self.removed)
    }

    /// Adds the changes below an element.
    fn insert(&mut self, element: Element<'static>, below: Self) {
        let sets = [
            (&mut self.added, below.added),
            (&mut self.modified, below.modified),
            (&mut self.removed, below.removed),
        ];
        for (set, below) in sets {
            if !below.is_empty() {
                set.insert(element.clone(), below);
            }
        }
    }
}

/// Compares two values of a type.
pub(super) fn compare(slot: Slot<'_>, old: Option<&Value>, new: Option<&Value>) -> Changes {
    let mut changes = Changes::default();
    match (old, new) {
        (None, None) => {}
        (None, Some(new)) => changes.added = field_set(slot, new, true),
        (Some(old), None) => changes.removed = field_set(slot, old, true),
        // Most parts of an object do not change in a write.
        (Some(old), Some(new)) if old == new => {}
        (Some(old), Some(new)) => {
            let shape = slot.shape();
            if matches!(shape, Shape::Leaf) {
                changes.modified.member = true;
            } else {
                compare_parts(&mut changes, &shape, old, new, &[]);
            }
        }
    }
    changes
}

/// Compares two objects, except for the top-level fields in `ignored` and the metadata that they name.
pub(super) fn compare_objects(
    slot: Slot<'_>,
    old: &Value,
    new: &Value,
    ignored: &[&str],
    ignored_metadata: &[&str],
) -> Changes {
    let mut changes = Changes::default();
    let mut apart: Vec<&str> = ignored.to_vec();
    apart.push("metadata");
    let shape = slot.shape();
    compare_parts(&mut changes, &shape, old, new, &apart);
    let (element, slot) = shape.field("metadata");
    if let Some(slot) = slot {
        let mut metadata = Changes::default();
        compare_parts(&mut metadata, &slot.shape(), &old["metadata"], &new["metadata"], ignored_metadata);
        changes.insert(element, metadata);
    }
    changes
}

fn compare_parts(changes: &mut Changes, shape: &Shape<'_>, old: &Value, new: &Value, ignored: &[&str]) {
    match (shape, old, new) {
        (Shape::Struct(_) | Shape::Map(_), Value::Object(old), Value::Object(new)) => {
            compare_fields(changes, shape, old, new, ignored);
        }
        _ => compare_elements(changes, shape, old, new, ignored),
    }
}

/// Compares structs or maps. Path elements are built only for values that differ.
fn compare_fields(
    changes: &mut Changes,
    shape: &Shape<'_>,
    old: &Map<String, Value>,
    new: &Map<String, Value>,
    ignored: &[&str],
) {
    let mut visit = |name: &str, old: Option<&Value>, new: Option<&Value>| {
        if old == new || ignored.contains(&name) {
            return;
        }
        if let (element, Some(slot)) = shape.field(name) {
            changes.insert(element, compare(slot, old, new));
        }
    };
    for (name, old) in old {
        visit(name, Some(old), new.get(name));
    }
    for (name, new) in new {
        if !old.contains_key(name) {
            visit(name, None, Some(new));
        }
    }
}

/// Compares lists by their elements. Also compares a struct or map with a value that is neither, such as
/// null.
fn compare_elements(changes: &mut Changes, shape: &Shape<'_>, old: &Value, new: &Value, ignored: &[&str]) {
    let (old, new) = (parts(shape, old), parts(shape, new));
    let (old_places, new_places) = (first_places(&old), first_places(&new));
    let only_new = new.iter().filter(|part| !old_places.contains_key(&*part.element));
    for (index, part) in old.iter().chain(only_new).enumerate() {
        let ignored = ignored.iter().any(|name| part.element.strip_prefix("f:") == Some(name));
        let (true, Some(slot)) = (!ignored, part.slot) else { continue };
        // The first of several elements with the same key counts.
        let before = old_places.get(&*part.element).copied();
        if before.is_some_and(|first| first != index) {
            continue;
        }
        let before = before.and_then(|at| old.get(at)).map(|part| part.value);
        let after = new_places.get(&*part.element).and_then(|at| new.get(*at)).map(|part| part.value);
        changes.insert(part.element.clone(), compare(slot, before, after));
    }
}

/// Merges an applied value into a live one.
pub(super) fn merge(slot: Slot<'_>, live: Option<&Value>, applied: &Value) -> Value {
    let Some(live) = live else { return applied.clone() };
    let shape = slot.shape();
    match (&shape, live, applied) {
        (Shape::Struct(..) | Shape::Map(_), Value::Object(live), Value::Object(applied)) => {
            let mut merged = live.clone();
            for (name, value) in applied {
                let value = match shape.field(name).1 {
                    Some(slot) => merge(slot, live.get(name), value),
                    None => value.clone(),
                };
                merged.insert(name.clone(), value);
            }
            Value::Object(merged)
        }
        (Shape::Keyed(..) | Shape::Set, Value::Array(_), Value::Array(_)) => {
            let applied = parts(&shape, applied);
            let live = parts(&shape, live);
            let (applied_places, live_places) = (first_places(&applied), first_places(&live));
            let mut merged: Vec<Value> = Vec::new();
            for part in &live {
                let given = applied_places.get(&*part.element).and_then(|at| applied.get(*at));
                merged.push(match (given, part.slot) {
                    (Some(given), Some(slot)) => merge(slot, Some(part.value), given.value),
                    _ => part.value.clone(),
                });
            }
            let is_known = |given: &&Part<'_, '_>| live_places.contains_key(&*given.element);
            merged.extend(applied.iter().filter(|given| !is_known(given)).map(|given| given.value.clone()));
            Value::Array(merged)
        }
        _ => applied.clone(),
    }
}

/// Removes from `value` the fields that are in `last`, the manager's previously applied set, and that no
/// manager owns any more.
pub(super) fn prune(slot: Slot<'_>, value: &mut Value, last: &FieldSet<'_>, owned: &FieldSet<'_>) {
    let shape = slot.shape();
    match value {
        Value::Object(map) => {
            for (element, last) in &last.children {
                let Some(name) = element.strip_prefix("f:") else { continue };
                match (owned.children.get(element), shape.below(element)) {
                    (None, _) => drop(map.remove(name)),
                    (Some(owned), Some(slot)) => {
                        if let Some(child) = map.get_mut(name) {
                            prune(slot, child, last, owned);
                        }
                    }
                    _ => {}
                }
            }
        }
        Value::Array(_) => prune_list(&shape, value, last, owned),
        _ => {}
    }
}

fn prune_list(shape: &Shape<'_>, value: &mut Value, last: &FieldSet<'_>, owned: &FieldSet<'_>) {
    let parts = parts(shape, value);
    let places = first_places(&parts);
    let place = |element: &Element<'_>| places.get(&**element).copied();
    let found: Vec<_> = last.children.iter().map(|(element, last)| (place(element), element, last)).collect();
    let Value::Array(list) = value else { return };
    let mut removed = HashSet::new();
    for (place, element, last) in found {
        match (place, owned.children.get(element), shape.below(element)) {
            (Some(place), None, _) => drop(removed.insert(place)),
            (Some(place), Some(owned), Some(slot)) => prune(slot, &mut list[place], last, owned),
            _ => {}
        }
    }
    let mut place = 0..;
    list.retain(|_| place.next().is_none_or(|place| !removed.contains(&place)));
}

/// Adds the reasons why a value does not fit its type, in the words of Kubernetes' apply. Each begins with
/// its path.
pub(super) fn check(slot: Slot<'_>, path: &str, value: &Value, errors: &mut Vec<String>) {
    if value.is_null() {
        return;
    }
    let expected = match slot.kind {
        Kind::Struct(_) | Kind::Map(_) if !value.is_object() => Some("map"),
        Kind::List(_) if !value.is_array() => Some("list"),
        Kind::Text | Kind::Time | Kind::MicroTime if !value.is_string() => Some("string"),
        Kind::Bool if !value.is_boolean() => Some("boolean"),
        Kind::Int32 | Kind::Int64 if !value.is_number() => Some("numeric (int or float)"),
        _ => None,
    };
    if let Some(expected) = expected {
        errors.push(format!("{path}: expected {expected}, got {}", given(value)));
        return;
    }
    let shape = slot.shape();
    match (slot.kind, value) {
        (Kind::Struct(id), Value::Object(fields)) => {
            let ty = Types::get().by_id(*id);
            for (name, value) in fields {
                let path = format!("{path}.{name}");
                match ty.fields.get(name) {
                    Some(field) => {
                        let slot = shape.field(name).1.unwrap_or(Slot::root(&field.kind));
                        check(slot, &path, value, errors);
                    }
                    None => errors.push(format!("{path}: field not declared in schema")),
                }
            }
        }
        (Kind::Map(item), Value::Object(entries)) => {
            for (name, value) in entries {
                check(Slot::root(item), &format!("{path}.{name}"), value, errors);
            }
        }
        (Kind::List(item), Value::Array(list)) => check_list(&shape, item, path, list, errors),
        _ => {}
    }
}

fn check_list(shape: &Shape<'_>, item: &Kind, path: &str, list: &[Value], errors: &mut Vec<String>) {
    if let Shape::Keyed(_, keys) = shape {
        for (index, element) in list.iter().enumerate() {
            let absent = |key: &&&str| element[**key].is_null() && key_default(key).is_none();
            if let Some(key) = keys.iter().find(absent) {
                errors.push(format!(
                    "{path}: element {index}: associative list with keys has an element that omits key field {key:?} \
                     (and doesn't have default value)"
                ));
                return;
            }
        }
    }
    let whole = json!(list);
    let mut known = HashSet::new();
    for Part { element, .. } in parts(shape, &whole) {
        if !known.insert(element.clone()) {
            let mut only = FieldSet::default();
            only.insert(element, FieldSet::leaf());
            let shown = only.paths().concat();
            errors.push(format!("{path}: duplicate entries for key {shown}"));
        }
    }
    for (index, value) in list.iter().enumerate() {
        check(Slot::root(item), &format!("{path}[{index}]"), value, errors);
    }
}

fn given(value: &Value) -> String {
    match value {
        Value::Object(_) => "map".into(),
        Value::Array(_) => "list".into(),
        Value::String(text) => format!("string: {text}"),
        other => other.to_string(),
    }
}
