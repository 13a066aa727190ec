//! Server-side apply, and the tracking of field managers that it requires for every other write.
//!
//! Both work on objects before the server prepares them: fields that the server generates have no manager.

mod field_set;
mod managers;
mod typed;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use super::schema::{Kind, Types};
use super::{Subresource, metadata};
use field_set::FieldSet;
use managers::{Identity, Managers, Operation, put_entries, take_entries};
use typed::Slot;

/// The manager of fields that were set before the first apply, for objects without tracked managers.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Metadata that the server owns.
const SYSTEM_METADATA: [&str; 8] = [
    "name",
    "namespace",
    "creationTimestamp",
    "selfLink",
    "uid",
    "generation",
    "managedFields",
    "resourceVersion",
];

/// A kind of object, such as (`batch/v1`, `Job`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectType<'a> {
    /// Group and version.
    pub api_version: &'a str,
    /// Kind.
    pub kind: &'a str,
}

/// The manager, target and time of a write.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    /// Name of the field manager.
    pub manager: &'a str,
    /// The written part of the object.
    pub subresource: Subresource,
    /// Time of the write.
    pub now: Timestamp,
}

/// A field that another manager owns with a different value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The other manager, as in `"m1" with subresource "status" using batch/v1`.
    pub manager: String,
    /// Path of the field, such as `.spec.parallelism`.
    pub field: String,
}

impl Conflict {
    /// Text of the cause (`FieldManagerConflict`).
    pub fn message(&self) -> String {
        format!("conflict with {}", self.manager)
    }
}

/// Why an apply was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// 400 Bad Request.
    #[error("{0}")]
    BadRequest(String),
    /// 500 without reason: the applied object does not fit its type.
    #[error("{0}")]
    Untyped(String),
    /// 409 Conflict with a cause per conflict.
    #[error("{}", conflict_message(.0))]
    Conflicts(Vec<Conflict>),
}

fn conflict_message(conflicts: &[Conflict]) -> String {
    if let [only] = conflicts {
        return format!("Apply failed with 1 conflict: {}: {}", only.message(), only.field);
    }
    let mut managers: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for conflict in conflicts {
        managers.entry(&conflict.manager).or_default().push(format!("- {}", conflict.field));
    }
    let groups = managers.iter();
    let groups: Vec<String> =
        groups.map(|(manager, fields)| format!("conflicts with {manager}:\n{}", fields.join("\n"))).collect();
    format!("Apply failed with {} conflicts: {}", conflicts.len(), groups.join("\n"))
}

/// Applies an object: merges it into the live one, removes fields that its manager applied before but no
/// longer, and updates the managers.
///
/// The caller must decode and default the result, and then create or update it like any other object.
///
/// # Errors
/// The applied object does not fit its type, or it changes fields of other managers without `force`.
pub fn apply(
    ty: ObjectType<'_>,
    live: Option<&Value>,
    applied: &Value,
    write: Write<'_>,
    force: bool,
) -> Result<Value, ApplyError> {
    let kind = kind_of(ty);
    let slot = Slot::root(&kind);
    check(ty, slot, applied)?;
    let wanted = relevant(applied, write.subresource);
    let stored = live.map(|live| entries(live).to_vec()).unwrap_or_default();
    let mut managers = Managers::read(&stored, true);
    let empty = kind.zero();
    let live = live.unwrap_or(&empty);
    let before = relevant(live, write.subresource);
    if managers.is_empty() && *live != empty {
        let earlier = Identity::new(BEFORE_FIRST_APPLY, Operation::Update, ty.api_version, Subresource::Main);
        let fields = typed::compare(slot, Some(&empty), Some(&relevant_everywhere(live))).added;
        managers.set(earlier, fields);
    }

    let writer = Identity::new(write.manager, Operation::Apply, ty.api_version, write.subresource);
    let time = seconds(write.now);
    let last = managers.fields(&writer);
    managers.set(writer, owned_by(slot, &wanted));
    let mut merged = typed::merge(slot, Some(&before), &wanted);
    typed::prune(slot, &mut merged, &last, &managers.owned());
    let (written, removed) = typed::compare(slot, Some(&before), Some(&merged)).written_and_removed();
    managers.resolve(&writer, &written, &removed, force).map_err(ApplyError::Conflicts)?;
    if merged != before {
        managers.touch(&writer, &time);
    }
    let mut result = restore(live, merged, applied, write.subresource);
    let entries = managers.into_entries();
    put_entries(&mut result, stored, entries);
    Ok(result)
}

/// Updates the managers in `new` for a write other than apply: create (`old` is `None`), update or patch.
///
/// The object must be defaulted but not yet prepared by its strategy.
pub fn track_update(ty: ObjectType<'_>, old: Option<&Value>, new: &mut Value, write: Write<'_>) {
    let kind = kind_of(ty);
    let slot = Slot::root(&kind);
    let reset = is_reset(new);
    let mut stored = take_entries(new);
    if reset {
        return;
    }
    let known = old.map(entries).unwrap_or_default();
    // Entries from a client may not be in the server's canonical form.
    let mut canonical = stored == known;
    if Managers::read(&stored, true).is_empty() {
        stored = known.to_vec();
        canonical = true;
    }
    let mut managers = Managers::read(&stored, canonical);
    // If the managers of an object were reset, it is not tracked until the next apply.
    if old.is_some() && managers.is_empty() {
        return;
    }
    let empty;
    let before = match old {
        Some(old) => old,
        None => {
            empty = kind.zero();
            &empty
        }
    };
    let ignored = ["apiVersion", "kind", apart(write.subresource)];
    let changes = typed::compare_objects(slot, before, new, &ignored, &SYSTEM_METADATA);
    let (mut written, removed) = changes.written_and_removed();
    let writer = Identity::new(write.manager, Operation::Update, ty.api_version, write.subresource);
    let time = seconds(write.now);
    // An ordinary write takes ownership of the fields that it changes.
    if managers.resolve(&writer, &written, &removed, true).is_ok() && !written.is_empty() {
        written.absorb(managers.fields(&writer));
        managers.set(writer, written);
        managers.touch(&writer, &time);
    }
    let entries = managers.into_entries();
    put_entries(new, stored, entries);
}

/// The entries of `metadata.managedFields`.
fn entries(object: &Value) -> &[Value] {
    object["metadata"]["managedFields"].as_array().map_or(&[], Vec::as_slice)
}

fn kind_of(ty: ObjectType<'_>) -> Kind {
    Types::get().of_kind(ty.api_version, ty.kind).map_or(Kind::Raw, Kind::Struct)
}

fn check(ty: ObjectType<'_>, slot: Slot<'_>, applied: &Value) -> Result<(), ApplyError> {
    let metadata = &applied["metadata"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if !metadata["managedFields"].is_null() {
        return Err(ApplyError::BadRequest("metadata.managedFields must be nil".into()));
    }
    let mut errors = Vec::new();
    typed::check(slot, "", applied, &mut errors);
    let errors = match &errors[..] {
        [] => return Ok(()),
        [only] => only.clone(),
        several => format!("errors:\n  {}", several.join("\n  ")),
    };
    let (namespace, name) = (text(&metadata["namespace"]), text(&metadata["name"]));
    Err(ApplyError::Untyped(format!(
        "failed to create typed patch object ({namespace}/{name}; {}, Kind={}): {errors}",
        ty.api_version, ty.kind
    )))
}

/// An object without the fields that managers cannot own.
fn relevant_everywhere(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("apiVersion");
        fields.remove("kind");
        if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
            for field in SYSTEM_METADATA {
                metadata.remove(field);
            }
        }
    }
    object
}

/// An object without the fields that a write to this part cannot change: `status` for the object itself,
/// everything except `status` for its status.
fn relevant(object: &Value, subresource: Subresource) -> Value {
    let mut object = relevant_everywhere(object);
    if let Some(fields) = object.as_object_mut() {
        fields.remove(apart(subresource));
    }
    object
}

/// The field that a write to this part of an object cannot change.
fn apart(subresource: Subresource) -> &'static str {
    if subresource == Subresource::Status { "spec" } else { "status" }
}

/// The fields that an apply of this object owns.
fn owned_by(slot: Slot<'_>, applied: &Value) -> FieldSet<'static> {
    let mut fields = typed::field_set(slot, applied, false);
    fields.member = false;
    if applied["metadata"].as_object().is_none_or(serde_json::Map::is_empty) {
        fields.remove("f:metadata");
    }
    fields
}

/// The merged object with the fields that were not merged, such as the expected resourceVersion. Type and
/// system metadata come from the applied object if it has them, otherwise from the live one. The part that
/// this write cannot change comes from the live one.
fn restore(live: &Value, mut merged: Value, applied: &Value, subresource: Subresource) -> Value {
    let apart = apart(subresource);
    let chosen = |field: &str, live: &Value, applied: &Value| {
        if applied[field].is_null() { live[field].clone() } else { applied[field].clone() }
    };
    let fields = metadata::as_object(&mut merged);
    for field in ["apiVersion", "kind"] {
        fields.insert(field.into(), chosen(field, live, applied));
    }
    if let Some(value) = live.get(apart) {
        fields.insert(apart.into(), value.clone());
    }
    let metadata = metadata::as_object(metadata::child(fields, "metadata"));
    for field in SYSTEM_METADATA {
        let value = chosen(field, &live["metadata"], &applied["metadata"]);
        if !value.is_null() {
            metadata.insert(field.into(), value);
        }
    }
    merged
}

/// Whether a write resets the managers, with an empty list or one empty entry.
fn is_reset(object: &Value) -> bool {
    match object["metadata"]["managedFields"].as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([only]) => only["manager"].as_str().unwrap_or_default().is_empty() && only["fieldsV1"].is_null(),
        _ => false,
    }
}

fn seconds(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    const POD: ObjectType<'_> = ObjectType { api_version: "v1", kind: "Pod" };

    fn write(manager: &str) -> Write<'_> {
        Write { manager, subresource: Subresource::Main, now: Timestamp::UNIX_EPOCH }
    }

    fn pod(containers: Value) -> Value {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": containers}})
    }

    fn applied(live: Option<&Value>, manager: &str, containers: Value) -> Result<Value, ApplyError> {
        apply(POD, live, &pod(containers), write(manager), false)
    }

    #[test]
    fn elements_of_a_keyed_list_need_their_keys() {
        let error = applied(None, "m", json!([{"image": "i"}])).unwrap_err().to_string();
        assert!(error.contains(".spec.containers: element 0: "), "{error}");
        assert!(error.contains("omits key field \"name\""), "{error}");
        let ports = |ports: Value| applied(None, "m", json!([{"name": "c", "ports": ports}]));
        assert!(ports(json!([{"containerPort": 1}, {"containerPort": 1, "protocol": "UDP"}])).is_ok());
        let error =
            ports(json!([{"containerPort": 1}, {"containerPort": 1, "protocol": "TCP"}])).unwrap_err();
        assert!(
            error.to_string().contains("duplicate entries for key [containerPort=1,protocol=\"TCP\"]"),
            "{error}"
        );
    }

    #[test]
    fn an_element_is_removed_when_its_last_manager_drops_it() {
        let both = json!([{"name": "c", "image": "i"}, {"name": "d", "image": "i"}]);
        let live = applied(None, "a", both.clone()).unwrap();
        let live = applied(Some(&live), "b", json!([{"name": "d", "image": "i"}])).unwrap();
        let names = |pod: &Value| -> Vec<String> {
            let containers = pod["spec"]["containers"].as_array().unwrap().iter();
            containers.map(|container| container["name"].as_str().unwrap().to_owned()).collect()
        };
        let live = applied(Some(&live), "a", json!([{"name": "c", "image": "i"}])).unwrap();
        assert_eq!(names(&live), ["c", "d"]);
        let live = applied(Some(&live), "b", json!([])).unwrap();
        assert_eq!(names(&live), ["c"]);
    }

    #[test]
    fn ordinary_writes_take_ownership_of_fields() {
        let mut live = applied(None, "a", json!([{"name": "c", "image": "i"}])).unwrap();
        let mut changed = live.clone();
        changed["spec"]["containers"][0]["image"] = "k".into();
        track_update(POD, Some(&live), &mut changed, write("b"));
        live = changed;
        let conflict = applied(Some(&live), "a", json!([{"name": "c", "image": "i"}])).unwrap_err();
        assert_eq!(
            conflict.to_string(),
            "Apply failed with 1 conflict: conflict with \"b\" using v1: .spec.containers[name=\"c\"].image"
        );
        assert!(applied(Some(&live), "a", json!([{"name": "c", "image": "k"}])).is_ok());
    }
}
