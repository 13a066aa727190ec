//! Scheduling constraints: tolerations, affinity, gates, topology spread.

use std::collections::HashSet;

use serde_json::Value;

use super::super::field::{Causes, Path};
use super::super::{label_selector, names};
use super::{list, security, text};

const TAINT_EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
const NODE_POLICIES: [&str; 2] = ["Honor", "Ignore"];
const UNSATISFIABLE: [&str; 2] = ["DoNotSchedule", "ScheduleAnyway"];

/// Checks tolerations.
pub(super) fn tolerations(causes: &mut Causes, path: &Path<'_>, tolerations: &Value) {
    for (index, toleration) in list(tolerations).iter().enumerate() {
        let path = path.index(index);
        let [key, operator, value, effect] =
            ["key", "operator", "value", "effect"].map(|field| text(&toleration[field]));
        if !key.is_empty() {
            causes.invalid_each(&path.child("key"), key, names::qualified_name(key));
        } else if operator != "Exists" {
            let detail =
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            causes.invalid(&path.child("operator"), &operator.into(), detail);
        }
        if !toleration["tolerationSeconds"].is_null() && effect != "NoExecute" {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            causes.invalid(&path.child("effect"), &effect.into(), detail);
        }
        match operator {
            "" | "Equal" => {
                let errors = names::label_value(value);
                if !errors.is_empty() {
                    causes.invalid_str(&path.child("operator"), value, &errors.join(";"));
                }
            }
            "Exists" if value.is_empty() => {}
            "Exists" => {
                let detail = "value must be empty when `operator` is 'Exists'";
                causes.invalid_str(&path.child("operator"), value, detail);
            }
            // Known, but behind a feature gate that is off.
            "Lt" | "Gt" => {
                let operators = ["Equal", "Exists", "Lt", "Gt"];
                causes.not_supported(&path.child("operator"), &toleration["operator"], &operators);
            }
            _ => causes.not_supported(&path.child("operator"), &toleration["operator"], &["Equal", "Exists"]),
        }
        if !effect.is_empty() && !TAINT_EFFECTS.contains(&effect) {
            causes.not_supported(&path.child("effect"), &toleration["effect"], &TAINT_EFFECTS);
        }
    }
}

/// Checks scheduling gates.
pub(super) fn gates(causes: &mut Causes, path: &Path<'_>, gates: &Value) {
    let mut known = HashSet::new();
    for (index, gate) in list(gates).iter().enumerate() {
        let path = path.index(index);
        let name = text(&gate["name"]);
        causes.invalid_each(&path, name, names::qualified_name(name));
        if !known.insert(&gate["name"]) {
            causes.duplicate_str(&path, name);
        }
    }
}

/// Checks the reference to the pod's PodGroup.
pub(super) fn group(causes: &mut Causes, path: &Path<'_>, group: &Value) {
    if group.is_null() {
        return;
    }
    let path = path.child("podGroupName");
    match group["podGroupName"].as_str() {
        None => causes.invalid(&path, &Value::Null, "must specify one of: `podGroupName`"),
        Some(name) => causes.invalid_each(&path, name, names::dns_subdomain(name)),
    }
}

/// Checks topology spread constraints.
pub(super) fn topology_spread(causes: &mut Causes, path: &Path<'_>, constraints: &Value) {
    for (index, constraint) in list(constraints).iter().enumerate() {
        let path = path.index(index);
        if constraint["maxSkew"].as_i64().unwrap_or(0) <= 0 {
            let skew = constraint["maxSkew"].as_i64().unwrap_or(0);
            causes.invalid(&path.child("maxSkew"), &skew.into(), "must be greater than zero");
        }
        if text(&constraint["topologyKey"]).is_empty() {
            causes.required(&path.child("topologyKey"), "can not be empty");
        }
        let action = &constraint["whenUnsatisfiable"];
        if !UNSATISFIABLE.contains(&text(action)) {
            let shown = if action.is_null() { &Value::from("") } else { action };
            causes.not_supported(&path.child("whenUnsatisfiable"), shown, &UNSATISFIABLE);
        }
        let same = |other: &Value| {
            ["topologyKey", "whenUnsatisfiable"].iter().all(|field| constraint[*field] == other[*field])
        };
        if list(constraints)[index + 1..].iter().any(same) {
            let pair = format!("{{{}, {}}}", text(&constraint["topologyKey"]), text(action));
            causes.duplicate_str(&path.child("{topologyKey, whenUnsatisfiable}"), &pair);
        }
        let (domains, domains_path) = (&constraint["minDomains"], path.child("minDomains"));
        if domains.as_i64().is_some_and(|number| number <= 0) {
            causes.invalid(&domains_path, domains, "must be greater than zero");
        }
        if !domains.is_null() && action != "DoNotSchedule" {
            let detail =
                format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {}", text(action));
            causes.invalid(&domains_path, domains, &detail);
        }
        security::one_of(causes, &path, constraint, "nodeAffinityPolicy", &NODE_POLICIES);
        security::one_of(causes, &path, constraint, "nodeTaintsPolicy", &NODE_POLICIES);
        label_keys(causes, &path, constraint);
        label_selector::validate(causes, &path.child("labelSelector"), &constraint["labelSelector"]);
    }
}

/// Checks keys of labels whose values are those of the pod itself.
fn label_keys(causes: &mut Causes, path: &Path<'_>, object: &Value) {
    for field in ["matchLabelKeys", "mismatchLabelKeys"] {
        let path = path.child(field);
        for (index, key) in list(&object[field]).iter().map(text).enumerate() {
            if object["labelSelector"].is_null() {
                causes.forbidden(&path, "must not be specified when labelSelector is not set");
                break;
            }
            causes.invalid_each(&path.index(index), key, names::qualified_name(key));
        }
    }
}

/// Checks node and pod (anti-)affinity.
pub(super) fn affinity(causes: &mut Causes, path: &Path<'_>, affinity: &Value) {
    let node = &affinity["nodeAffinity"];
    let node_path = path.child("nodeAffinity");
    let required = &node["requiredDuringSchedulingIgnoredDuringExecution"];
    if !required.is_null() {
        let required_path = node_path.child("requiredDuringSchedulingIgnoredDuringExecution");
        let terms_path = required_path.child("nodeSelectorTerms");
        let terms = list(&required["nodeSelectorTerms"]);
        if terms.is_empty() {
            causes.required(&terms_path, "must have at least one node selector term");
        }
        for (index, term) in terms.iter().enumerate() {
            node_selector_term(causes, &terms_path.index(index), term);
        }
    }
    let preferred_path = node_path.child("preferredDuringSchedulingIgnoredDuringExecution");
    for (index, term) in list(&node["preferredDuringSchedulingIgnoredDuringExecution"]).iter().enumerate() {
        weight(causes, &preferred_path.index(index), term);
        let term_path = preferred_path.index(index);
        node_selector_term(causes, &term_path.child("preference"), &term["preference"]);
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        pod_affinity(causes, &path.child(kind), &affinity[kind]);
    }
}

fn weight(causes: &mut Causes, path: &Path<'_>, term: &Value) {
    if !(1..=100).contains(&term["weight"].as_i64().unwrap_or(0)) {
        let weight = term["weight"].as_i64().unwrap_or(0);
        causes.invalid(&path.child("weight"), &weight.into(), "must be in the range 1-100");
    }
}

fn node_selector_term(causes: &mut Causes, path: &Path<'_>, term: &Value) {
    match_expressions(causes, &path.child("matchExpressions"), term);
    let path = path.child("matchFields");
    for (index, field) in list(&term["matchFields"]).iter().enumerate() {
        let path = path.index(index);
        let (values_path, values) = (path.child("values"), list(&field["values"]));
        match text(&field["operator"]) {
            "In" | "NotIn" if values.len() == 1 => {}
            "In" | "NotIn" => {
                let detail =
                    "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
                causes.required(&values_path, detail);
            }
            given => causes.invalid(&path.child("operator"), &given.into(), "not a valid selector operator"),
        }
        if field["key"] != "metadata.name" {
            causes.invalid_str(&path.child("key"), text(&field["key"]), "not a valid field selector key");
            continue;
        }
        for (index, value) in values.iter().map(text).enumerate() {
            causes.invalid_each(&values_path.index(index), value, names::dns_subdomain(value));
        }
    }
}

fn match_expressions(causes: &mut Causes, path: &Path<'_>, term: &Value) {
    for (index, expression) in list(&term["matchExpressions"]).iter().enumerate() {
        let path = path.index(index);
        let values = list(&expression["values"]);
        match text(&expression["operator"]) {
            "In" | "NotIn" if values.is_empty() => {
                causes
                    .required(&path.child("values"), "must be specified when `operator` is 'In' or 'NotIn'");
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                causes.forbidden(&path.child("values"), detail);
            }
            "Gt" | "Lt" if values.len() != 1 => {
                causes.required(
                    &path.child("values"),
                    "must be specified single value when `operator` is 'Lt' or 'Gt'",
                );
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
            given => causes.invalid(&path.child("operator"), &given.into(), "not a valid selector operator"),
        }
        let key = text(&expression["key"]);
        causes.invalid_each(&path.child("key"), key, names::qualified_name(key));
    }
}

fn pod_affinity(causes: &mut Causes, path: &Path<'_>, affinity: &Value) {
    let required_path = path.child("requiredDuringSchedulingIgnoredDuringExecution");
    for (index, term) in list(&affinity["requiredDuringSchedulingIgnoredDuringExecution"]).iter().enumerate()
    {
        pod_affinity_term(causes, &required_path.index(index), term);
    }
    let preferred_path = path.child("preferredDuringSchedulingIgnoredDuringExecution");
    for (index, term) in list(&affinity["preferredDuringSchedulingIgnoredDuringExecution"]).iter().enumerate()
    {
        let path = preferred_path.index(index);
        weight(causes, &path, term);
        pod_affinity_term(causes, &path.child("podAffinityTerm"), &term["podAffinityTerm"]);
    }
}

fn pod_affinity_term(causes: &mut Causes, path: &Path<'_>, term: &Value) {
    label_selector::validate(causes, &path.child("labelSelector"), &term["labelSelector"]);
    // The path of these causes does not name the element.
    for namespace in list(&term["namespaces"]).iter().map(text) {
        causes.invalid_each(&path.child("namespace"), namespace, names::dns_label(namespace));
    }
    label_keys(causes, path, term);
    let key = text(&term["topologyKey"]);
    if key.is_empty() {
        causes.required(&path.child("topologyKey"), "can not be empty");
    }
    causes.invalid_each(&path.child("topologyKey"), key, names::qualified_name(key));
}
