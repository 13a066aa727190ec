//! Updates of a pod, whose spec is mostly immutable.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::super::Subresource;
use super::super::field::{Causes, Path};
use super::super::go_value;
use super::super::metadata::{self, as_object, child, object_at};
use super::{list, text, validate as validate_pod, validate_annotations};

const SPEC: Path<'static> = Path::root("spec");

/// Restores fields that the request cannot change.
pub(super) fn prepare(subresource: Subresource, old: &Value, new: &mut Value) {
    metadata::carry_over(old, new);
    match subresource {
        Subresource::Status => {
            metadata::keep(old, new, "spec");
            // A kubelet has an old copy of the references, so those of a status write do not count.
            restore(object_at(new, "metadata"), &old["metadata"], "ownerReferences");
            // A client that omits the class does not clear it.
            let status = object_at(new, "status");
            metadata::default_to(status, "qosClass", old["status"]["qosClass"].clone());
        }
        // Binding to a node does not raise the generation.
        Subresource::Binding => {}
        Subresource::Main | Subresource::Scale => {
            metadata::keep(old, new, "status");
            if new["spec"] != old["spec"] {
                metadata::bump_generation(new);
            }
        }
    }
}

/// Checks the change.
pub(super) fn validate(causes: &mut Causes, subresource: Subresource, old: &Value, new: &Value) {
    match subresource {
        Subresource::Status => metadata::validate_update(
            causes,
            old,
            new,
            |_| {},
            |causes| {
                status_changes(causes, old, new);
            },
        ),
        Subresource::Binding => {}
        Subresource::Main | Subresource::Scale => metadata::validate_update(
            causes,
            old,
            new,
            |_| {},
            |causes| {
                validate_pod(causes, new);
                // Kubernetes checks annotations twice: as those of a pod, and as changed ones.
                validate_annotations(causes, new);
                spec_changes(causes, &old["spec"], &new["spec"]);
            },
        ),
    }
}

fn spec_changes(causes: &mut Causes, old: &Value, new: &Value) {
    let mut resized = false;
    for kind in ["containers", "initContainers"] {
        if list(&old[kind]).len() != list(&new[kind]).len() {
            causes.forbidden(&SPEC.child(kind), "pod updates may not add or remove containers");
            resized = true;
        }
    }
    if resized {
        return;
    }
    active_deadline(causes, &old["activeDeadlineSeconds"], &new["activeDeadlineSeconds"]);
    tolerations(causes, &old["tolerations"], &new["tolerations"]);
    gates(causes, &old["schedulingGates"], &new["schedulingGates"]);
    let munged = munged(old, new);
    if munged != *old {
        let changes = go_value::difference("core.PodSpec", old, &munged);
        let detail = format!(
            "pod updates may not change fields other than `spec.containers[*].image`,\
             `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
             `spec.tolerations` (only additions to existing tolerations),\
             `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\n{changes}"
        );
        causes.forbidden(&SPEC, &detail);
    }
}

/// The new spec with the old values of mutable fields, and of fields with their own checks.
fn munged(old: &Value, new: &Value) -> Value {
    let mut spec = new.clone();
    let fields = as_object(&mut spec);
    for field in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        restore(fields, old, field);
    }
    let negative = old["terminationGracePeriodSeconds"].as_i64().is_some_and(|seconds| seconds < 0);
    if negative && new["terminationGracePeriodSeconds"] == 1 {
        restore(fields, old, "terminationGracePeriodSeconds");
    }
    if !list(&old["schedulingGates"]).is_empty() {
        // While a pod has scheduling gates, its node constraints may become narrower.
        restore(fields, old, "nodeSelector");
        let affinity = as_object(child(fields, "affinity"));
        restore(affinity, &old["affinity"], "nodeAffinity");
        if affinity.is_empty() {
            restore(fields, old, "affinity");
        }
    }
    for kind in ["containers", "initContainers"] {
        let Some(containers) = fields.get_mut(kind).and_then(Value::as_array_mut) else { continue };
        for (container, old) in containers.iter_mut().zip(list(&old[kind])) {
            restore(as_object(container), old, "image");
        }
    }
    spec
}

/// Gives a field its old value.
fn restore(fields: &mut Map<String, Value>, old: &Value, field: &str) {
    match &old[field] {
        Value::Null => drop(fields.remove(field)),
        value => drop(fields.insert(field.to_owned(), value.clone())),
    }
}

fn active_deadline(causes: &mut Causes, old: &Value, new: &Value) {
    let path = SPEC.child("activeDeadlineSeconds");
    let Some(before) = old.as_i64() else { return };
    match new.as_i64() {
        None => causes.invalid(&path, &Value::Null, "must not update from a positive integer to nil value"),
        Some(after) if after > before => {
            causes.invalid(&path, new, "must be less than or equal to previous value");
        }
        Some(_) => {}
    }
}

fn tolerations(causes: &mut Causes, old: &Value, new: &Value) {
    let without_time = |toleration: &Value| {
        let mut toleration = toleration.clone();
        as_object(&mut toleration).remove("tolerationSeconds");
        toleration
    };
    let known: HashSet<Value> = list(new).iter().map(without_time).collect();
    if !list(old).iter().all(|toleration| known.contains(&without_time(toleration))) {
        let detail = "existing toleration can not be modified except its tolerationSeconds";
        causes.forbidden(&SPEC.child("tolerations"), detail);
    }
}

fn gates(causes: &mut Causes, old: &Value, new: &Value) {
    let path = SPEC.child("schedulingGates");
    let known: HashSet<&Value> = list(old).iter().collect();
    for (index, gate) in list(new).iter().enumerate() {
        if !known.contains(gate) {
            let detail =
                format!("only deletion is allowed, but found new scheduling gate '{}'", text(&gate["name"]));
            causes.forbidden(&path.index(index).child("name"), &detail);
        }
    }
}

/// Whether a container that ended with this code is started again: by one of its own rules, its own policy, or that of the pod.
fn restarts(pod_policy: &Value, own: Option<&Value>, exit_code: &Value) -> bool {
    let matches = |rule: &&Value| {
        let codes = &rule["exitCodes"];
        let is_named = list(&codes["values"]).contains(exit_code);
        codes["operator"] == if is_named { "In" } else { "NotIn" }
    };
    let rule = own.and_then(|container| list(&container["restartPolicyRules"]).iter().find(matches));
    if rule.is_some_and(|rule| rule["action"] == "Restart") {
        return true;
    }
    match own.map_or(pod_policy, |container| &container["restartPolicy"]).as_str() {
        Some("Always") => true,
        Some("OnFailure") => *exit_code != 0,
        _ => false,
    }
}

/// A terminated container that is not restarted stays terminated.
fn status_changes(causes: &mut Causes, old: &Value, new: &Value) {
    let status_path = Path::root("status");
    if old["spec"]["nodeName"] != new["spec"]["nodeName"] {
        causes.forbidden(&status_path.child("nodeName"), "may not be changed directly");
    }
    let class = "qosClass";
    if !old["status"][class].is_null() {
        causes.immutable(&status_path.child(class), &new["status"][class], &old["status"][class]);
    }
    if old["spec"]["restartPolicy"] == "Always" {
        return;
    }
    let path = status_path.child("containerStatuses");
    let mut current: HashMap<&Value, Vec<usize>> = HashMap::new();
    for (index, status) in list(&new["status"]["containerStatuses"]).iter().enumerate() {
        if status["state"]["terminated"].is_null() {
            current.entry(&status["name"]).or_default().push(index);
        }
    }
    let containers = list(&old["spec"]["containers"]).iter();
    let with_policy = containers.filter(|container| !container["restartPolicy"].is_null());
    let with_policy: HashMap<_, _> = with_policy.map(|container| (&container["name"], container)).collect();
    for previous in list(&old["status"]["containerStatuses"]) {
        let terminated = &previous["state"]["terminated"];
        let own = with_policy.get(&previous["name"]).copied();
        if terminated.is_null() || restarts(&old["spec"]["restartPolicy"], own, &terminated["exitCode"]) {
            continue;
        }
        for index in current.get(&previous["name"]).into_iter().flatten() {
            let state = path.index(*index);
            causes.forbidden(&state.child("state"), "may not be transitioned to non-terminated state");
            // Several entries may have one name.
            if causes.is_full() {
                return;
            }
        }
    }
}
