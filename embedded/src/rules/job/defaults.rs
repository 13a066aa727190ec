//! Defaults of a Job, including the selector and labels that tie its pods to it.

use serde_json::{Map, Value, json};

use super::super::metadata::{as_object, child, default_text, default_to, object_at};
use super::super::pod::template;
use super::{CONTROLLER_UID_LABEL, JOB_NAME_LABEL, LEGACY_CONTROLLER_UID_LABEL, LEGACY_JOB_NAME_LABEL};

/// The default of `backoffLimit`.
const BACKOFF_LIMIT: i32 = 6;

/// The defaults of `batch/v1` for a Job, except for its labels ([`default_labels`]).
pub(super) fn default_job(job: &mut Value) {
    let spec = object_at(job, "spec");
    let absent = |spec: &Map<String, Value>, field: &str| spec.get(field).is_none_or(Value::is_null);
    if absent(spec, "completions") && absent(spec, "parallelism") {
        spec.insert("completions".into(), json!(1));
    }
    default_to(spec, "parallelism", 1);
    let unlimited = !absent(spec, "backoffLimitPerIndex");
    default_to(spec, "backoffLimit", if unlimited { i32::MAX } else { BACKOFF_LIMIT });
    default_to(spec, "completionMode", "NonIndexed");
    default_to(spec, "manualSelector", false);
    default_to(spec, "suspend", false);
    let replacement = if absent(spec, "podFailurePolicy") { "TerminatingOrFailed" } else { "Failed" };
    default_to(spec, "podReplacementPolicy", replacement);
    default_condition_patterns(spec);
    template::default_template(child(spec, "template"));
}

fn default_condition_patterns(spec: &mut Map<String, Value>) {
    let rules = spec.get_mut("podFailurePolicy").and_then(|policy| policy.get_mut("rules"));
    for rule in rules.and_then(Value::as_array_mut).into_iter().flatten() {
        for pattern in rule.get_mut("onPodConditions").and_then(Value::as_array_mut).into_iter().flatten() {
            default_text(as_object(pattern), "status", "True");
        }
    }
}

/// Copies the labels of its template to a Job without labels. Returns whether it copied any.
pub(super) fn default_labels(job: &mut Value) -> bool {
    let empty = |labels: &Value| labels.as_object().is_none_or(Map::is_empty);
    let lacking = empty(&job["metadata"]["labels"]) && !empty(&job["spec"]["template"]["metadata"]["labels"]);
    if lacking {
        copy_labels(job);
    }
    lacking
}

/// Copies the labels of its template to a Job.
pub(super) fn copy_labels(job: &mut Value) {
    let of_template = job["spec"]["template"]["metadata"]["labels"].clone();
    object_at(job, "metadata").insert("labels".into(), of_template);
}

/// Adds the labels and the selector with which a Job finds its pods, unless the Job has `manualSelector`.
/// Values of the client stay; validation refuses wrong ones.
pub(super) fn generate_selector(job: &mut Value) {
    if job["spec"]["manualSelector"] == true {
        return;
    }
    let [name, uid] =
        ["name", "uid"].map(|field| Value::from(job["metadata"][field].as_str().unwrap_or_default()));
    let spec = object_at(job, "spec");
    let template = as_object(child(spec, "template"));
    let labels = object_at(child(template, "metadata"), "labels");
    for (key, value) in [
        (LEGACY_JOB_NAME_LABEL, &name),
        (JOB_NAME_LABEL, &name),
        (LEGACY_CONTROLLER_UID_LABEL, &uid),
        (CONTROLLER_UID_LABEL, &uid),
    ] {
        default_to(labels, key, value.clone());
    }
    default_to(object_at(child(spec, "selector"), "matchLabels"), CONTROLLER_UID_LABEL, uid);
}
