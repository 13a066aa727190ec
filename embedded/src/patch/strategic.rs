//! Strategic merge patch: a merge patch with directives, which merges lists according to their type.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use crate::rules::schema::{self, PatchStrategy, TypeId};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_PREFIX: &str = "$deleteFromPrimitiveList/";
const ORDER_PREFIX: &str = "$setElementOrder/";

/// Applies a patch to an object of this type; errors have the text of Kubernetes.
pub(super) fn apply(object: &mut Value, patch: &Value, ty: Option<TypeId>) -> Result<(), String> {
    let empty = Map::new();
    let patch = patch.as_object().unwrap_or(&empty);
    let merged = merge_map(std::mem::take(object), patch, ty)?;
    *object = merged;
    Ok(())
}

fn merge_map(original: Value, patch: &Map<String, Value>, ty: Option<TypeId>) -> Result<Value, String> {
    match patch.get(DIRECTIVE).map(|directive| directive.as_str().unwrap_or_default()) {
        None | Some("merge") => {}
        Some("replace") => return Ok(Value::Object(without_directives(patch))),
        Some("delete") => return Ok(Value::Object(Map::new())),
        Some(other) => return Err(format!("unknown patch type: {other} in map: {}", go_map(patch))),
    }
    let mut merged = match original {
        Value::Object(original) => original,
        _ => Map::new(),
    };
    if let Some(kept) = patch.get(RETAIN_KEYS).and_then(Value::as_array) {
        let kept: HashSet<&str> = kept.iter().filter_map(Value::as_str).collect();
        merged.retain(|key, _| kept.contains(key.as_str()));
    }
    let ordered = patch.keys().filter_map(|key| key.strip_prefix(ORDER_PREFIX));
    for field in ordered {
        merge_ordered(&mut merged, patch, ty, field)?;
    }
    for (key, value) in patch {
        if let Some(field) = key.strip_prefix(DELETE_PREFIX) {
            delete_from(&mut merged, field, value);
        } else if !key.starts_with('$') && !patch.contains_key(&format!("{ORDER_PREFIX}{key}")) {
            merge_field(&mut merged, key, value, ty)?;
        }
    }
    Ok(Value::Object(merged))
}

fn merge_field(
    merged: &mut Map<String, Value>,
    key: &str,
    value: &Value,
    ty: Option<TypeId>,
) -> Result<(), String> {
    let new = match (merged.remove(key), value) {
        (_, Value::Null) => return Ok(()),
        (Some(old @ Value::Object(_)), Value::Object(patch)) => merge_map(old, patch, inner(ty, key))?,
        (Some(Value::Array(old)), Value::Array(patch)) => {
            Value::Array(merge_list(old, patch, strategy(ty, key), inner(ty, key))?)
        }
        (_, value) => match taken(value) {
            Some(new) => new,
            None => return Ok(()),
        },
    };
    merged.insert(key.to_owned(), new);
    Ok(())
}

/// A value of the patch that has no value to merge with, without nulls. Maps with a directive are left out,
/// too: there is nothing that they could replace or delete.
fn taken(value: &Value) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.contains_key(DIRECTIVE) => None,
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(_, value)| !value.is_null());
            Some(fields.filter_map(|(key, value)| Some((key.clone(), taken(value)?))).collect())
        }
        Value::Array(items) => Some(items.iter().filter_map(taken).collect()),
        value => Some(value.clone()),
    }
}

/// How the list at a field merges; a list of unknown type is replaced.
fn strategy(ty: Option<TypeId>, field: &str) -> PatchStrategy {
    ty.map_or(PatchStrategy::Replace, |ty| schema::list_type(ty, field).patch_strategy())
}

/// The type of the value at a field, or of its elements.
fn inner(ty: Option<TypeId>, field: &str) -> Option<TypeId> {
    schema::struct_at(ty?, field)
}

fn without_directives(patch: &Map<String, Value>) -> Map<String, Value> {
    let fields = patch.iter().filter(|(key, value)| !key.starts_with('$') && !value.is_null());
    fields.map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn delete_from(merged: &mut Map<String, Value>, field: &str, values: &Value) {
    let gone: HashSet<&Value> = values.as_array().into_iter().flatten().collect();
    if let Some(list) = merged.get_mut(field).and_then(Value::as_array_mut) {
        list.retain(|value| !gone.contains(value));
    }
}

/// Merges a list whose order the patch specifies.
fn merge_ordered(
    merged: &mut Map<String, Value>,
    patch: &Map<String, Value>,
    ty: Option<TypeId>,
    field: &str,
) -> Result<(), String> {
    let how = strategy(ty, field);
    let key = format!("{ORDER_PREFIX}{field}");
    let order = patch.get(&key).and_then(Value::as_array).cloned().unwrap_or_default();
    let old = merged.get(field).and_then(Value::as_array).cloned();
    let sent = patch.get(field).and_then(Value::as_array);
    let list = match (&old, sent) {
        (None, None) => return Ok(()),
        (Some(old), None) => old.clone(),
        (None, Some(sent)) => sent.iter().filter_map(taken).collect(),
        (Some(old), Some(sent)) => merge_list(old.clone(), sent, how, inner(ty, field))?,
    };
    merged.insert(field.to_owned(), Value::Array(sort(list, &order, &old.unwrap_or_default(), how)));
    Ok(())
}

fn merge_list(
    old: Vec<Value>,
    patch: &[Value],
    how: PatchStrategy,
    item: Option<TypeId>,
) -> Result<Vec<Value>, String> {
    match how {
        PatchStrategy::Replace => Ok(patch.to_vec()),
        PatchStrategy::Add => {
            let known: HashSet<&Value> = old.iter().collect();
            let mut added = HashSet::new();
            let new = patch.iter().filter(|value| !known.contains(value) && added.insert(*value));
            let merged = old.iter().chain(new).cloned().collect();
            Ok(sort(merged, patch, &old, how))
        }
        PatchStrategy::Key(key) => merge_keyed(old, patch, key, item),
    }
}

/// Merges a list by key. As in Kubernetes, elements are deleted before any is merged, and a deletion removes
/// all elements with its key.
fn merge_keyed(
    old: Vec<Value>,
    patch: &[Value],
    key: &'static str,
    ty: Option<TypeId>,
) -> Result<Vec<Value>, String> {
    let directive = |item: &Value| item[DIRECTIVE].as_str().map(str::to_owned);
    let plain: Vec<Value> = patch.iter().filter(|item| directive(item).is_none()).cloned().collect();
    if patch.iter().any(|item| directive(item).as_deref() == Some("replace")) {
        return Ok(plain);
    }
    let (deletions, additions): (Vec<&Value>, Vec<&Value>) =
        patch.iter().partition(|item| directive(item).as_deref() == Some("delete"));
    let deleted = deletions.into_iter().map(|item| id(item, key)).collect::<Result<HashSet<_>, _>>()?;
    let is_kept = |item: &Value| item.get(key).is_none_or(|id| !deleted.contains(id));
    let kept: Vec<Value> = old.into_iter().filter(is_kept).collect();
    let mut merged = kept.clone();
    // Of several elements with one key, the first is merged.
    let mut places: HashMap<&Value, usize> = HashMap::with_capacity(kept.len());
    for (place, item) in kept.iter().enumerate() {
        item.get(key).into_iter().for_each(|id| _ = places.entry(id).or_insert(place));
    }
    for item in additions {
        let id = id(item, key)?;
        let fields = item.as_object().cloned().unwrap_or_default();
        match places.get(id).and_then(|place| merged.get_mut(*place)) {
            Some(slot) => *slot = merge_map(slot.take(), &fields, ty)?,
            None => {
                places.insert(id, merged.len());
                merged.push(merge_map(Value::Null, &fields, ty)?);
            }
        }
    }
    Ok(sort(merged, &plain, &kept, PatchStrategy::Key(key)))
}

/// The value of an element's merge key.
fn id<'a>(item: &'a Value, key: &str) -> Result<&'a Value, String> {
    item.get(key).ok_or_else(|| {
        let text = item.as_object().map(go_map).unwrap_or_default();
        format!("map: {text} does not contain declared merge key: {key}")
    })
}

/// Sorts a merged list: items of the patch in the order of `order`, others in the order of `server`. If
/// neither decides, items of the patch come first.
fn sort(list: Vec<Value>, order: &[Value], server: &[Value], how: PatchStrategy) -> Vec<Value> {
    let places = |among: &[Value]| -> HashMap<Value, usize> {
        let ids = among.iter().map(|item| identity(item, how).clone()).enumerate();
        // Collected from the end, so that the first of several elements counts.
        ids.map(|(place, id)| (id, place)).rev().collect()
    };
    let (ordered, known) = (places(order), places(server));
    let place_in = |places: &HashMap<Value, usize>, item: &Value| places.get(identity(item, how)).copied();
    let (mut sent, mut others): (Vec<Value>, Vec<Value>) =
        list.into_iter().partition(|item| place_in(&ordered, item).is_some());
    sent.sort_by_cached_key(|item| place_in(&ordered, item));
    others.sort_by_cached_key(|item| place_in(&known, item));
    let mut sorted = Vec::with_capacity(sent.len() + others.len());
    let (mut sent, mut others) = (sent.into_iter().peekable(), others.into_iter().peekable());
    loop {
        let other_first = match (others.peek(), sent.peek()) {
            (None, None) => return sorted,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(other), Some(sent)) => match (place_in(&known, other), place_in(&known, sent)) {
                (Some(other), Some(sent)) => other < sent,
                _ => false,
            },
        };
        sorted.extend(if other_first { others.next() } else { sent.next() });
    }
}

fn identity(item: &Value, how: PatchStrategy) -> &Value {
    match how {
        PatchStrategy::Key(key) => &item[key],
        PatchStrategy::Add | PatchStrategy::Replace => item,
    }
}

/// A map in Go's format.
fn go_map(map: &Map<String, Value>) -> String {
    fn show(value: &Value) -> String {
        match value {
            Value::String(text) => text.clone(),
            Value::Object(map) => go_map(map),
            Value::Array(items) => {
                let items: Vec<String> = items.iter().map(show).collect();
                format!("[{}]", items.join(" "))
            }
            Value::Null => "<nil>".into(),
            other => other.to_string(),
        }
    }
    let fields: Vec<String> = map.iter().map(|(key, value)| format!("{key}:{}", show(value))).collect();
    format!("map[{}]", fields.join(" "))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn pod() -> Option<TypeId> {
        schema::Types::get().of_kind("v1", "Pod")
    }

    fn patched(mut object: Value, patch: &Value) -> Value {
        apply(&mut object, patch, pod()).unwrap();
        object
    }

    #[test]
    fn lists_with_a_key_merge_and_others_are_replaced() {
        let pod =
            json!({"spec": {"containers": [{"name": "a", "image": "1", "args": ["x"]}, {"name": "b"}]}});
        let patch = json!({"spec": {"containers": [{"name": "a", "image": "2", "args": ["y"]}]}});
        let wanted =
            json!({"spec": {"containers": [{"name": "a", "image": "2", "args": ["y"]}, {"name": "b"}]}});
        assert_eq!(patched(pod, &patch), wanted);
    }

    #[test]
    fn directives_delete_replace_and_order() {
        let object = || json!({"metadata": {"finalizers": ["a", "b", "c"], "labels": {"x": "1", "y": "2"}}});
        let cases = [
            (
                json!({"$deleteFromPrimitiveList/finalizers": ["b"]}),
                json!(["a", "c"]),
                json!({"x": "1", "y": "2"}),
            ),
            (
                json!({"$setElementOrder/finalizers": ["c", "a"]}),
                json!(["b", "c", "a"]),
                json!({"x": "1", "y": "2"}),
            ),
            (json!({"labels": {"$patch": "replace", "z": "3"}}), json!(["a", "b", "c"]), json!({"z": "3"})),
            (json!({"labels": {"x": null}}), json!(["a", "b", "c"]), json!({"y": "2"})),
            (json!({"labels": {"$retainKeys": ["y"]}}), json!(["a", "b", "c"]), json!({"y": "2"})),
        ];
        for (patch, finalizers, labels) in cases {
            let wanted = json!({"metadata": {"finalizers": finalizers, "labels": labels}});
            assert_eq!(patched(object(), &json!({"metadata": patch})), wanted, "{patch}");
        }
    }

    #[test]
    fn elements_are_deleted_by_key_and_absent_ones_are_no_error() {
        let pod = json!({"spec": {"volumes": [{"name": "a"}, {"name": "b"}]}});
        let patch = json!({"spec": {"volumes": [{"name": "a", "$patch": "delete"}, {"name": "c", "$patch": "delete"}]}});
        assert_eq!(patched(pod, &patch), json!({"spec": {"volumes": [{"name": "b"}]}}));
    }

    #[test]
    fn all_elements_of_a_key_are_deleted_before_others_are_added() {
        let job = schema::Types::get().of_kind("batch/v1", "Job");
        let of = |kind: &str, status: &str| json!({"type": kind, "status": status});
        let deleted = |kind: &str| json!({"$patch": "delete", "type": kind});
        let found = || vec![of("A", "1"), of("F", "1"), of("A", "2"), of("F", "2")];
        for (patch, wanted) in [
            (vec![of("A", "3")], vec![of("A", "3"), of("A", "2"), of("F", "1"), of("F", "2")]),
            (vec![deleted("A"), of("A", "3")], vec![of("A", "3"), of("F", "1"), of("F", "2")]),
            (
                vec![of("A", "3"), of("B", "1"), deleted("A")],
                vec![of("A", "3"), of("B", "1"), of("F", "1"), of("F", "2")],
            ),
            (vec![deleted("A"), deleted("F")], vec![]),
        ] {
            let mut object = json!({"status": {"conditions": found()}});
            apply(&mut object, &json!({"status": {"conditions": &patch}}), job).unwrap();
            assert_eq!(object["status"]["conditions"], json!(wanted), "{patch:?}");
        }
    }

    #[test]
    fn a_list_that_was_absent_is_taken_as_it_is() {
        let conditions = json!([{"type": "A", "status": "True"}, {"type": "A", "status": "False"}]);
        let patch =
            json!({"status": {"conditions": conditions, "podIPs": [{"$patch": "delete", "ip": "::1"}]}});
        let wanted = json!({"status": {"conditions": conditions, "podIPs": []}});
        assert_eq!(patched(json!({"status": {}}), &patch), wanted);
    }

    #[test]
    fn elements_without_their_key_are_refused() {
        let patch = json!({"spec": {"containers": [{"image": "i"}]}});
        let error = apply(&mut json!({"spec": {"containers": [{"name": "c"}]}}), &patch, pod()).unwrap_err();
        assert_eq!(error, "map: map[image:i] does not contain declared merge key: name");
    }
}
