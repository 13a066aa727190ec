//! `core/v1` Pod, and the pod templates of other kinds.

mod annotations;
mod claims;
mod container;
mod defaults;
mod environment;
mod probe;
pub(crate) mod resources;
mod restart;
mod scheduling;
mod security;
mod spec;
pub(crate) mod template;
#[cfg(test)]
mod tests;
mod update;
mod volume;
pub(crate) mod warnings;

use serde_json::{Value, json};

use super::field::{Causes, Path};
use super::metadata::{self, MetadataRule, as_object, child, object_at};
use super::{Cause, Strategy, Subresource, names};

const METADATA_RULE: MetadataRule = MetadataRule { namespaced: true, name: names::dns_subdomain };

/// Seconds that a pod tolerates a node that is not ready (admission plugin `DefaultTolerationSeconds`).
const NODE_TOLERATION_SECONDS: i64 = 300;
const NODE_TAINTS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// A list, empty if absent.
fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A string, empty if absent.
fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The rules of pods.
#[derive(Clone, Copy, Debug, Default)]
pub struct PodStrategy;

impl Strategy for PodStrategy {
    fn default_object(&self, object: &mut Value) {
        let spec = object_at(object, "spec");
        defaults::default_spec(spec);
        defaults::default_pod_only(spec);
        if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
            defaults::mirror_pod_ip(status);
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        object_at(object, "metadata").insert("generation".into(), json!(1));
        add_node_tolerations(object);
        let mut status = json!({ "phase": "Pending", "qosClass": quality_of_service(&object["spec"]) });
        if !list(&object["spec"]["schedulingGates"]).is_empty() {
            status["conditions"] = json!([{
                "type": "PodScheduled",
                "status": "False",
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
                "lastProbeTime": null,
                "lastTransitionTime": object["metadata"]["creationTimestamp"],
            }]);
        }
        object["status"] = status;
    }

    fn validate_create(&self, object: &Value) -> Vec<Cause> {
        let mut causes = Causes::default();
        validate(&mut causes, object);
        let path = Path::root("spec");
        if !list(&object["spec"]["ephemeralContainers"]).is_empty() {
            causes.forbidden(&path.child("ephemeralContainers"), "cannot be set on create");
        }
        if !list(&object["spec"]["schedulingGates"]).is_empty()
            && !text(&object["spec"]["nodeName"]).is_empty()
        {
            let detail = "cannot be set until all schedulingGates have been cleared";
            causes.forbidden(&path.child("nodeName"), detail);
        }
        causes.into_vec()
    }

    fn prepare_update(&self, subresource: Subresource, old: &Value, new: &mut Value) {
        update::prepare(subresource, old, new);
    }

    fn validate_update(&self, subresource: Subresource, old: &Value, new: &Value) -> Vec<Cause> {
        let mut causes = Causes::default();
        update::validate(&mut causes, subresource, old, new);
        causes.into_vec()
    }

    fn warnings(&self, subresource: Subresource, old: Option<&Value>, new: &Value) -> Vec<String> {
        // Changes of pods come from programs, which read no warnings.
        if subresource == Subresource::Main && old.is_none() { warnings::of_pod(new) } else { Vec::new() }
    }
}

/// The rules of a pod, new or changed (`validatePodMetadataAndSpec`).
fn validate(causes: &mut Causes, pod: &Value) {
    metadata::validate(causes, pod, METADATA_RULE);
    validate_annotations(causes, pod);
    let path = Path::root("spec");
    spec::validate(causes, &path, &pod["spec"], true);
    spec::validate_pod_only(causes, &path, &pod["spec"]);
}

fn validate_annotations(causes: &mut Causes, pod: &Value) {
    let path = Path::root("metadata");
    annotations::validate(causes, &path.child("annotations"), &pod["metadata"]["annotations"], &pod["spec"]);
}

/// Adds default tolerations, with which the pod survives short problems of its node.
fn add_node_tolerations(pod: &mut Value) {
    let spec = object_at(pod, "spec");
    let tolerations = child(spec, "tolerations");
    let missing: Vec<Value> = NODE_TAINTS
        .iter()
        .filter(|taint| !list(tolerations).iter().any(|toleration| tolerates(toleration, taint)))
        .map(|taint| {
            json!({
                "key": taint,
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": NODE_TOLERATION_SECONDS,
            })
        })
        .collect();
    match tolerations {
        Value::Array(tolerations) => tolerations.extend(missing),
        _ if missing.is_empty() => drop(spec.remove("tolerations")),
        absent => *absent = missing.into(),
    }
}

fn tolerates(toleration: &Value, taint: &str) -> bool {
    let key = text(&toleration["key"]);
    let effect = text(&toleration["effect"]);
    (key == taint || key.is_empty()) && (effect == "NoExecute" || effect.is_empty())
}

/// The pod's quality of service class, from the cpu and memory of its containers.
fn quality_of_service(spec: &Value) -> &'static str {
    let containers = || list(&spec["containers"]).iter().chain(list(&spec["initContainers"]));
    let amount = |container: &Value, kind: &str, name: &str| {
        let amount = text(&container["resources"][kind][name]).to_owned();
        super::quantity::Quantity::parse(&amount)
            .ok()
            .filter(|amount| *amount > super::quantity::Quantity::ZERO)
    };
    let names = ["cpu", "memory"];
    let any = containers().any(|container| {
        names
            .iter()
            .any(|name| ["requests", "limits"].iter().any(|kind| amount(container, kind, name).is_some()))
    });
    if !any {
        return "BestEffort";
    }
    let guaranteed = containers().all(|container| {
        names.iter().all(|name| {
            let limit = amount(container, "limits", name);
            limit.is_some()
                && amount(container, "requests", name).is_none_or(|request| Some(request) == limit)
        })
    });
    if guaranteed { "Guaranteed" } else { "Burstable" }
}

/// Applies `POST /binding` to a pod: sets the node and the condition that the pod was scheduled at `now`.
pub fn bind(pod: &mut Value, binding: &Value, now: jiff::Timestamp) {
    let node = binding["target"]["name"].clone();
    object_at(pod, "spec").insert("nodeName".into(), node);
    for field in ["annotations", "labels"] {
        let given = binding["metadata"][field].as_object().cloned().unwrap_or_default();
        if !given.is_empty() {
            as_object(child(object_at(pod, "metadata"), field)).extend(given);
        }
    }
    let seconds = now.round(jiff::Unit::Second).unwrap_or(now);
    let condition = json!({
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": null,
        "lastTransitionTime": seconds.to_string(),
    });
    let conditions = child(object_at(pod, "status"), "conditions");
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    if let Value::Array(conditions) = conditions {
        conditions.retain(|known| known["type"] != "PodScheduled");
        conditions.push(condition);
    }
}
