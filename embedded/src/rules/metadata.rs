//! `metadata`: the rules that all kinds share (`ValidateObjectMeta` and `BeforeUpdate` of Kubernetes).

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use super::field::{Causes, Path};
use super::{go_value, names};

/// A check of an object's name; returns the reasons why it is malformed.
pub(crate) type NameRule = fn(&str) -> Vec<String>;

/// The rules of `metadata` for one kind.
#[derive(Clone, Copy)]
pub(crate) struct MetadataRule {
    /// Whether objects of the kind live in a namespace.
    pub(crate) namespaced: bool,
    /// The rule of names.
    pub(crate) name: NameRule,
}

const METADATA: Path<'static> = Path::root("metadata");
const TOTAL_ANNOTATION_SIZE_MAX: usize = 256 * 1024;
const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];

/// Checks `metadata` of a new object.
pub(crate) fn validate(causes: &mut Causes, object: &Value, rule: MetadataRule) {
    let metadata = &object["metadata"];
    validate_names(causes, metadata, rule.name);
    validate_namespace(causes, metadata, rule.namespaced);
    validate_shared(causes, metadata);
    validate_finalizers(causes, metadata);
    validate_finalizer_names(causes, metadata);
}

fn validate_names(causes: &mut Causes, metadata: &Value, rule: NameRule) {
    let name_path = METADATA.child("name");
    if let Some(prefix) = metadata["generateName"].as_str().filter(|prefix| !prefix.is_empty()) {
        let errors = rule(&mask_trailing_dash(prefix));
        causes.invalid_each(&METADATA.child("generateName"), prefix, errors);
    }
    match metadata["name"].as_str().unwrap_or_default() {
        "" => causes.required(&name_path, "name or generateName is required"),
        name => causes.invalid_each(&name_path, name, rule(name)),
    }
}

/// Masks a trailing dash of a prefix, which is valid because a suffix follows.
fn mask_trailing_dash(prefix: &str) -> String {
    match prefix.strip_suffix('-') {
        Some(head) if !head.is_empty() => format!("{head}a"),
        _ => prefix.to_owned(),
    }
}

fn validate_namespace(causes: &mut Causes, metadata: &Value, namespaced: bool) {
    let path = METADATA.child("namespace");
    match (metadata["namespace"].as_str().unwrap_or_default(), namespaced) {
        ("", true) => causes.required(&path, ""),
        (namespace, true) => causes.invalid_each(&path, namespace, names::dns_label(namespace)),
        ("", false) => {}
        (_, false) => causes.forbidden(&path, "not allowed on this type"),
    }
}

/// The checks that creation and update share.
fn validate_shared(causes: &mut Causes, metadata: &Value) {
    labels(causes, &METADATA.child("labels"), &metadata["labels"]);
    annotations(causes, &METADATA.child("annotations"), &metadata["annotations"]);
    owner_references(causes, metadata);
}

/// Checks keys and values of a map of labels.
pub(crate) fn labels(causes: &mut Causes, path: &Path<'_>, labels: &Value) {
    for (key, value) in labels.as_object().into_iter().flatten() {
        let path = path.entry(key);
        causes.invalid_each(&path, key, names::qualified_name(key));
        let value = value.as_str().unwrap_or_default();
        causes.invalid_each(&path, value, names::label_value(value));
    }
}

/// Checks keys and the total size of a map of annotations.
pub(crate) fn annotations(causes: &mut Causes, path: &Path<'_>, annotations: &Value) {
    let mut size = 0;
    for (key, value) in annotations.as_object().into_iter().flatten() {
        causes.invalid_each(&path.entry(key), key, names::qualified_name(&key.to_lowercase()));
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > TOTAL_ANNOTATION_SIZE_MAX {
        causes.too_long(path, TOTAL_ANNOTATION_SIZE_MAX);
    }
}

fn owner_references(causes: &mut Causes, metadata: &Value) {
    let path = METADATA.child("ownerReferences");
    let references = &metadata["ownerReferences"];
    let mut controller: Option<String> = None;
    for reference in references.as_array().into_iter().flatten() {
        let text = |field: &str| reference[field].as_str().unwrap_or_default();
        // Anything but `VERSION` and `GROUP/VERSION` is no version at all.
        let version = match *text("apiVersion").split('/').collect::<Vec<_>>() {
            [version] | [_, version] => version,
            _ => "",
        };
        if version.is_empty() {
            causes.invalid_str(&path.child("apiVersion"), text("apiVersion"), "version must not be empty");
        }
        for field in ["kind", "name", "uid"] {
            if text(field).is_empty() {
                causes.invalid_str(&path.child(field), "", "must not be empty");
            }
        }
        if (text("apiVersion"), text("kind")) == ("v1", "Event") {
            causes.invalid_of(
                &path,
                "meta.OwnerReference",
                reference,
                "/v1, Kind=Event is disallowed from being an owner",
            );
        }
        if reference["controller"] == true {
            let current = format!("{}/{}", text("kind"), text("name"));
            match &controller {
                Some(first) => {
                    let detail = format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {current}"
                    );
                    causes.invalid_shown(
                        &path,
                        &go_value::of_list("meta.OwnerReference", references),
                        &detail,
                    );
                    if causes.is_full() {
                        return;
                    }
                }
                None => controller = Some(current),
            }
        }
    }
}

fn finalizers(metadata: &Value) -> impl Iterator<Item = &str> {
    metadata["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str)
}

fn validate_finalizers(causes: &mut Causes, metadata: &Value) {
    let path = METADATA.child("finalizers");
    for finalizer in finalizers(metadata) {
        causes.invalid_each(&path, finalizer, names::qualified_name(finalizer));
    }
    let has = |name: &str| finalizers(metadata).any(|finalizer| finalizer == name);
    if has("orphan") && has("foregroundDeletion") {
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        causes.invalid(&path, &metadata["finalizers"], detail);
    }
}

/// Kubernetes' own kinds require a domain in finalizers other than the standard ones.
fn validate_finalizer_names(causes: &mut Causes, metadata: &Value) {
    let path = METADATA.child("finalizers");
    for (index, finalizer) in finalizers(metadata).enumerate() {
        if !finalizer.contains('/') && !STANDARD_FINALIZERS.contains(&finalizer) {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            causes.invalid_str(&path.index(index), finalizer, detail);
        }
    }
}

/// The server's own checks of `metadata` of every kind, which precede the rules of the kind. The namespace is
/// that of the request.
pub(crate) fn validate_update_generic(causes: &mut Causes, old: &Value, new: &Value) {
    validate_names(causes, &new["metadata"], names::path_segment);
    validate_shared(causes, &new["metadata"]);
    validate_finalizers(causes, &new["metadata"]);
    validate_changes(causes, old, new);
}

/// The checks of a change of `metadata`.
fn validate_changes(causes: &mut Causes, old: &Value, new: &Value) {
    let (old, new) = (&old["metadata"], &new["metadata"]);
    if !old["deletionTimestamp"].is_null() {
        let known: HashSet<&str> = finalizers(old).collect();
        let added: Vec<&str> = finalizers(new).filter(|name| !known.contains(name)).collect();
        if !added.is_empty() {
            let added: Vec<String> = added.iter().map(|name| format!("{name:?}")).collect();
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added.join(", ")
            );
            causes.forbidden(&METADATA.child("finalizers"), &detail);
        }
    }
    for field in
        ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"]
    {
        causes.immutable(&METADATA.child(field), &new[field], &old[field]);
    }
    validate_shared(causes, new);
}

/// Checks an update: the server's own check of `metadata`, then the kind's checks of the new object, then
/// `metadata` again. In Kubernetes, `ValidateUpdate` of most strategies begins with the creation rules, and
/// every kind's update rules check `metadata`. The repetition is visible in the causes that Kubernetes
/// reports.
pub(crate) fn validate_update(
    causes: &mut Causes,
    old: &Value,
    new: &Value,
    create_rules: impl FnOnce(&mut Causes),
    update_rules: impl FnOnce(&mut Causes),
) {
    validate_update_generic(causes, old, new);
    create_rules(causes);
    validate_changes(causes, old, new);
    validate_finalizer_names(causes, &new["metadata"]);
    update_rules(causes);
}

/// Keeps metadata that a client cannot change: identity, creation and deletion, generation.
pub(crate) fn carry_over(old: &Value, new: &mut Value) {
    let old = &old["metadata"];
    let new = object_at(new, "metadata");
    let mut keep = |field: &str, given: bool| {
        if given && new.contains_key(field) && !new[field].is_null() {
            return;
        }
        match &old[field] {
            Value::Null if given => {}
            Value::Null => drop(new.remove(field)),
            value => drop(new.insert(field.to_owned(), value.clone())),
        }
    };
    keep("generation", false);
    keep("creationTimestamp", old["creationTimestamp"].is_null());
    keep("uid", true);
    keep("deletionTimestamp", old["deletionTimestamp"].is_null());
    keep("deletionGracePeriodSeconds", true);
    new.remove("selfLink");
}

/// Restores a top-level field. In most writes it is unchanged anyway.
pub(crate) fn keep(old: &Value, new: &mut Value, field: &str) {
    if new[field] != old[field] {
        new[field] = old[field].clone();
    }
}

/// Raises `metadata.generation` by one.
pub(crate) fn bump_generation(object: &mut Value) {
    let generation = object["metadata"]["generation"].as_i64().unwrap_or(0).saturating_add(1);
    object_at(object, "metadata").insert("generation".into(), json!(generation));
}

/// The object at `field`, created if it is absent or not an object.
pub(crate) fn object_at<'a>(parent: &'a mut Value, field: &str) -> &'a mut Map<String, Value> {
    as_object(child(as_object(parent), field))
}

/// The value at `field`, null if absent.
pub(crate) fn child<'a>(parent: &'a mut Map<String, Value>, field: &str) -> &'a mut Value {
    if !parent.contains_key(field) {
        parent.insert(field.to_owned(), Value::Null);
    }
    &mut parent[field]
}

/// `value` as an object. Any other value is replaced by an empty object.
pub(crate) fn as_object(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("just made an object"),
    }
}

/// Sets `field` if it is absent or null.
pub(crate) fn default_to(object: &mut Map<String, Value>, field: &str, value: impl Into<Value>) {
    if object.get(field).is_none_or(Value::is_null) {
        object.insert(field.to_owned(), value.into());
    }
}

/// Sets `field` if it is absent, null or an empty string.
pub(crate) fn default_text(object: &mut Map<String, Value>, field: &str, value: &str) {
    if object.get(field).is_none_or(|given| given.is_null() || given == "") {
        object.insert(field.to_owned(), value.into());
    }
}
