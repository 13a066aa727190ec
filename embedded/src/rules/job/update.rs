//! Changes of a Job's spec (`ValidateJobSpecUpdate`).

use serde_json::{Map, Value};

use super::super::field::{Causes, Path};
use super::super::metadata::as_object;
use super::conditions::is_true;
use super::{CONTROLLER_UID_LABEL, JOB_NAME_LABEL, create, is_indexed};

const SPEC: Path<'static> = Path::root("spec");

/// Whether the prefixed labels are required. Jobs that were created without them need none.
pub(super) fn requires_prefixed_labels(old: &Value) -> bool {
    let labels = &old["spec"]["template"]["metadata"]["labels"];
    [CONTROLLER_UID_LABEL, JOB_NAME_LABEL].iter().all(|key| !labels[*key].is_null())
}

/// Checks the change of a spec.
pub(super) fn validate(causes: &mut Causes, old: &Value, new: &Value) {
    let (old_spec, spec) = (&old["spec"], &new["spec"]);
    create::validate_spec(causes, spec);
    completions(causes, old_spec, spec);
    let same = |causes: &mut Causes, field: &str, ty: Option<&str>| {
        let (path, new, old) = (SPEC.child(field), &spec[field], &old_spec[field]);
        match ty {
            Some(ty) => causes.immutable_of(&path, ty, new, old),
            None => causes.immutable(&path, new, old),
        }
    };
    same(causes, "selector", Some("meta.LabelSelector"));
    template(causes, old, new);
    same(causes, "completionMode", None);
    same(causes, "podFailurePolicy", Some("batch.PodFailurePolicy"));
    same(causes, "backoffLimitPerIndex", None);
    same(causes, "managedBy", None);
    same(causes, "successPolicy", Some("batch.SuccessPolicy"));
}

/// Completions can change only for an Indexed Job, and only together with parallelism.
fn completions(causes: &mut Causes, old: &Value, new: &Value) {
    let path = SPEC.child("completions");
    let value = &new["completions"];
    if !is_indexed(new) {
        causes.immutable(&path, value, &old["completions"]);
        return;
    }
    if old["completions"] == *value || value.is_null() {
        return;
    }
    if new["completions"] != new["parallelism"] {
        causes.invalid(&path, value, "can only be modified in tandem with spec.parallelism");
    }
}

/// The template can change only while the Job is suspended and has no active pods. Mutable are scheduling
/// fields, the pods' labels and annotations, and the resources of containers.
fn template(causes: &mut Causes, old: &Value, new: &Value) {
    let (before, after) = (&old["spec"]["template"], &new["spec"]["template"]);
    let path = SPEC.child("template");
    if !template_is_mutable(old) {
        causes.immutable_of(&path, "core.PodTemplateSpec", after, before);
        return;
    }
    if immutable_part(before) != immutable_part(after) {
        causes.invalid_of(&path.child("spec"), "core.PodSpec", &after["spec"], "field is immutable");
    }
}

/// Whether the Job is suspended, has no active pods, and either has the condition Suspended or never started.
fn template_is_mutable(job: &Value) -> bool {
    let status = &job["status"];
    job["spec"]["suspend"] == true
        && status["active"].as_i64().unwrap_or(0) == 0
        && (is_true(status, "Suspended") || status["startTime"].is_null())
}

/// The spec of a template without the fields that are mutable while suspended.
fn immutable_part(template: &Value) -> Value {
    let mut spec = template["spec"].clone();
    let fields = as_object(&mut spec);
    for field in ["nodeSelector", "tolerations", "schedulingGates"] {
        fields.remove(field);
    }
    if let Some(affinity) = fields.get_mut("affinity").and_then(Value::as_object_mut) {
        affinity.remove("nodeAffinity");
    }
    if fields.get("affinity").and_then(Value::as_object).is_some_and(Map::is_empty) {
        fields.remove("affinity");
    }
    for list in ["containers", "initContainers"] {
        for container in fields.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            as_object(container).remove("resources");
        }
    }
    spec
}
