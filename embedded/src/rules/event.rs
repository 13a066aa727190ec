//! Events, in their two versions: `core/v1` and `events.k8s.io/v1`.
//!
//! `core/v1` is lenient unless `eventTime` is set. `events.k8s.io/v1` is strict, and its events are immutable
//! except for their series. Causes use the field names of `core/v1`.

use serde_json::Value;

use super::field::{Causes, Path};
use super::metadata::{self, MetadataRule};
use super::{Cause, Strategy, Subresource, go_value, names};

const METADATA_RULE: MetadataRule = MetadataRule { namespaced: true, name: names::dns_subdomain };
/// The minimal rule that the server applies to every name.
const LENIENT_METADATA_RULE: MetadataRule = MetadataRule { namespaced: true, name: names::path_segment };
const TEXT_LENGTH_MAX: usize = 128;
const NOTE_LENGTH_MAX: usize = 1024;

/// The rules of `core/v1` events.
#[derive(Clone, Copy, Debug, Default)]
pub struct CoreEventStrategy;

/// The rules of `events.k8s.io/v1` events.
#[derive(Clone, Copy, Debug, Default)]
pub struct EventStrategy;

/// Field names in one of the two versions.
struct Names {
    object: &'static str,
    message: &'static str,
    controller: &'static str,
}

const CORE: Names = Names { object: "involvedObject", message: "message", controller: "reportingComponent" };
const NEW: Names = Names { object: "regarding", message: "note", controller: "reportingController" };

/// Immutable fields of an `events.k8s.io/v1` event: the field name and the name in causes. Kubernetes reports
/// the reason twice.
const IMMUTABLE: [(&str, &str); 13] = [
    ("regarding", "involvedObject"),
    ("reason", "reason"),
    ("note", "message"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
    ("reason", "reason"),
    ("type", "type"),
    ("eventTime", "eventTime"),
    ("action", "action"),
    ("related", "related"),
    ("reportingController", "reportingController"),
];

/// Fields that only `core/v1` events may set.
const DEPRECATED: [(&str, &str); 4] = [
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
    ("deprecatedSource", "source"),
];

impl Strategy for CoreEventStrategy {
    fn validate_create(&self, object: &Value) -> Vec<Cause> {
        let mut causes = Causes::default();
        validate_lenient(&mut causes, object, &CORE);
        if causes.is_empty() {
            metadata::validate(&mut causes, object, LENIENT_METADATA_RULE);
        }
        causes.into_vec()
    }

    fn prepare_update(&self, _: Subresource, old: &Value, new: &mut Value) {
        metadata::carry_over(old, new);
    }

    fn validate_update(&self, _: Subresource, old: &Value, new: &Value) -> Vec<Cause> {
        let mut causes = Causes::default();
        metadata::validate_update_generic(&mut causes, old, new);
        validate_lenient(&mut causes, new, &CORE);
        causes.into_vec()
    }
}

impl Strategy for EventStrategy {
    fn validate_create(&self, object: &Value) -> Vec<Cause> {
        let mut causes = Causes::default();
        validate_lenient(&mut causes, object, &NEW);
        metadata::validate(&mut causes, object, METADATA_RULE);
        validate_series(&mut causes, &object["series"]);
        if object["eventTime"].is_null() {
            causes.required(&Path::root("eventTime"), "");
        }
        let kind = object["type"].as_str().unwrap_or_default();
        if !["Normal", "Warning"].contains(&kind) {
            causes.invalid_str(&Path::root("type"), "", &format!("has invalid value: {kind}"));
        }
        for (field, name) in DEPRECATED {
            let value = &object[field];
            if !(value.is_null() || *value == 0 || value.as_object().is_some_and(serde_json::Map::is_empty)) {
                causes.invalid_str(&Path::root(name), "", "needs to be unset");
            }
        }
        causes.into_vec()
    }

    fn prepare_update(&self, _: Subresource, old: &Value, new: &mut Value) {
        metadata::carry_over(old, new);
    }

    fn validate_update(&self, _: Subresource, old: &Value, new: &Value) -> Vec<Cause> {
        let mut causes = Causes::default();
        let lenient = |causes: &mut Causes| validate_lenient(causes, new, &NEW);
        metadata::validate_update(&mut causes, old, new, lenient, |causes| {
            if new["series"] != old["series"] {
                validate_series(causes, &new["series"]);
            }
            for (field, name) in IMMUTABLE.iter().chain(&[("reportingInstance", "reportingInstance")]) {
                if new[*field] != old[*field] {
                    causes.invalid_shown(
                        &Path::root(name),
                        &shown(field, &new[*field]),
                        "field is immutable",
                    );
                }
            }
        });
        causes.into_vec()
    }
}

/// A field of an event as messages print it.
fn shown(field: &str, value: &Value) -> String {
    match field {
        "regarding" | "related" => go_value::of_type("core.ObjectReference", value),
        "deprecatedSource" => go_value::of_type("core.EventSource", value),
        "deprecatedCount" => value.as_i64().unwrap_or(0).to_string(),
        _ if field.ends_with("Time") || field.ends_with("Timestamp") => go_value::json(value),
        _ => go_value::quoted(value.as_str().unwrap_or_default()),
    }
}

/// The rules of both versions. Events with `eventTime` must have a controller, instance, action and reason.
fn validate_lenient(causes: &mut Causes, event: &Value, names_of: &Names) {
    let text = |field: &str| event[field].as_str().unwrap_or_default();
    let namespace = event["metadata"]["namespace"].as_str().unwrap_or_default();
    let object_namespace = event[names_of.object]["namespace"].as_str().unwrap_or_default();
    let object_path = Path::root("involvedObject");
    let path = object_path.child("namespace");
    let detail = "does not match event.namespace";
    if event["eventTime"].is_null() {
        let clusterwide = object_namespace.is_empty() && matches!(namespace, "" | "default");
        if !clusterwide && object_namespace != namespace {
            causes.invalid_str(&path, object_namespace, detail);
        }
        return;
    }
    if object_namespace.is_empty() && !matches!(namespace, "default" | "kube-system") {
        causes.invalid_str(&path, object_namespace, detail);
    }
    let controller = text(names_of.controller);
    let controller_path = Path::root(names_of.controller);
    if controller.is_empty() {
        causes.required(&controller_path, "");
    }
    causes.invalid_each(&controller_path, controller, names::qualified_name(controller));
    for field in ["reportingInstance", "action", "reason"] {
        if text(field).is_empty() {
            causes.required(&Path::root(field), "");
        }
        at_most(causes, field, text(field), TEXT_LENGTH_MAX);
    }
    at_most(causes, "message", text(names_of.message), NOTE_LENGTH_MAX);
}

fn at_most(causes: &mut Causes, field: &str, value: &str, max: usize) {
    if value.len() > max {
        causes.invalid_str(&Path::root(field), "", &format!("can have at most {max} characters"));
    }
}

fn validate_series(causes: &mut Causes, series: &Value) {
    if series.is_null() {
        return;
    }
    let path = Path::root("series");
    if series["count"].as_i64().unwrap_or(0) < 2 {
        causes.invalid_str(&path.child("count"), "", "should be at least 2");
    }
    if series["lastObservedTime"].is_null() {
        causes.required(&path.child("lastObservedTime"), "");
    }
}
