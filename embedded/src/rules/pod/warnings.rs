//! Warnings about pods and templates that are allowed but unwise (`pkg/api/pod/warnings.go`).

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::super::field::Path;
use super::super::names;
use super::super::quantity::Quantity;
use super::{list, text};

/// The lists of containers, in the order in which they are read.
const CONTAINERS: [&str; 2] = ["initContainers", "containers"];
/// Deprecated node labels: the label, the version that deprecated it, and its replacement.
const DEPRECATED_NODE_LABELS: [(&str, &str, &str); 5] = [
    ("beta.kubernetes.io/arch", "v1.14", "kubernetes.io/arch"),
    ("beta.kubernetes.io/os", "v1.14", "kubernetes.io/os"),
    ("failure-domain.beta.kubernetes.io/region", "v1.17", "topology.kubernetes.io/region"),
    ("failure-domain.beta.kubernetes.io/zone", "v1.17", "topology.kubernetes.io/zone"),
    ("beta.kubernetes.io/instance-type", "v1.17", "node.kubernetes.io/instance-type"),
];

/// A warning about a name that is used in host names but is not a DNS label. `use_of_name` is the description
/// of that use.
pub(crate) fn hostname(name: &str, use_of_name: &str) -> Option<String> {
    let errors = names::dns_label(name);
    (!errors.is_empty()).then(|| {
        format!(
            "metadata.name: this is used in {use_of_name}, which can result in surprising behavior; \
             a DNS label is recommended: [{}]",
            errors.join(" ")
        )
    })
}

/// Warnings about a new pod.
pub(super) fn of_pod(pod: &Value) -> Vec<String> {
    let mut warnings: Vec<String> =
        hostname(text(&pod["metadata"]["name"]), "the Pod's hostname").into_iter().collect();
    of_spec(&mut warnings, &Path::root("spec"), &pod["spec"]);
    warnings
}

/// Warnings about the pod template of another kind.
pub(crate) fn template(warnings: &mut Vec<String>, path: &Path<'_>, template: &Value) {
    of_spec(warnings, &path.child("spec"), &template["spec"]);
}

fn of_spec(warnings: &mut Vec<String>, path: &Path<'_>, spec: &Value) {
    let selector_path = path.child("nodeSelector");
    for (label, since, instead) in DEPRECATED_NODE_LABELS {
        if !spec["nodeSelector"][label].is_null() {
            warnings.push(format!(
                "{}: deprecated since {since}; use {instead:?} instead",
                selector_path.key(label)
            ));
        }
    }
    let constraints_path = path.child("topologySpreadConstraints");
    for (index, constraint) in list(&spec["topologySpreadConstraints"]).iter().enumerate() {
        no_selector(warnings, &constraints_path.index(index), constraint);
    }
    duplicates(warnings, &path.child("hostAliases"), &spec["hostAliases"], "ip");
    let secrets_path = path.child("imagePullSecrets");
    duplicates(warnings, &secrets_path, &spec["imagePullSecrets"], "name");
    for (index, secret) in list(&spec["imagePullSecrets"]).iter().enumerate() {
        if text(&secret["name"]).is_empty() {
            warnings.push(format!("{}: invalid empty name \"\"", secrets_path.index(index).child("name")));
        }
    }
    for kind in CONTAINERS {
        let path = path.child(kind);
        for (index, container) in list(&spec[kind]).iter().enumerate() {
            fractional_bytes(warnings, &path.index(index).child("resources"), &container["resources"]);
            hidden_variables(warnings, &path.index(index).child("env"), &container["env"]);
        }
    }
    ports(warnings, path, spec);
    if spec["terminationGracePeriodSeconds"].as_i64().is_some_and(|seconds| seconds < 0) {
        let path = path.child("terminationGracePeriodSeconds");
        warnings.push(format!("{path}: must be >= 0; negative values are invalid and will be treated as 1"));
    }
    let affinity_path = path.child("affinity");
    for kind in ["podAffinity", "podAntiAffinity"] {
        affinity_terms(warnings, &affinity_path.child(kind), &spec["affinity"][kind]);
    }
}

/// Terms that match no pod because they have no selector.
fn affinity_terms(warnings: &mut Vec<String>, path: &Path<'_>, affinity: &Value) {
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    for (index, term) in list(&affinity[required]).iter().enumerate() {
        no_selector(warnings, &path.child(required).index(index), term);
    }
    let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
    for (index, term) in list(&affinity[preferred]).iter().enumerate() {
        let path = path.child(preferred);
        let path = path.index(index);
        no_selector(warnings, &path.child("podAffinityTerm"), &term["podAffinityTerm"]);
    }
}

fn no_selector(warnings: &mut Vec<String>, path: &Path<'_>, term: &Value) {
    if term["labelSelector"].is_null() {
        let path = path.child("labelSelector");
        warnings.push(format!("{path}: a null labelSelector results in matching no pod"));
    }
}

fn fractional_bytes(warnings: &mut Vec<String>, path: &Path<'_>, resources: &Value) {
    for name in ["memory", "ephemeral-storage"] {
        for field in ["limits", "requests"] {
            let amount = text(&resources[field][name]);
            if Quantity::parse(amount).is_ok_and(|bytes| !bytes.is_integer()) {
                let path = path.child(field);
                let path = path.key(name);
                warnings
                    .push(format!("{path}: fractional byte value {amount:?} is invalid, must be an integer"));
            }
        }
    }
}

/// Variables that have a value already, unless the new value contains it.
fn hidden_variables(warnings: &mut Vec<String>, path: &Path<'_>, variables: &Value) {
    let mut known = HashSet::new();
    for (index, variable) in list(variables).iter().enumerate() {
        let (name, value) = (text(&variable["name"]), text(&variable["value"]));
        let old = format!("$({name})");
        let extends = value != old && value.contains(&old) && variable["valueFrom"].is_null();
        if !known.insert(name) && !extends {
            warnings.push(format!(
                "{}: hides previous definition of {name:?}, which may be dropped when using apply",
                path.index(index)
            ));
        }
    }
}

/// Ports that another container, or the same one, has as well.
fn ports(warnings: &mut Vec<String>, path: &Path<'_>, spec: &Value) {
    let mut known: HashMap<(i64, &str), Vec<(String, &Value)>> = HashMap::new();
    let mut names: HashMap<&str, String> = HashMap::new();
    let mut of_names = Vec::new();
    for kind in CONTAINERS {
        let path = path.child(kind);
        for (index, container) in list(&spec[kind]).iter().enumerate() {
            let path = path.index(index);
            let path = path.child("ports");
            for (index, port) in list(&container["ports"]).iter().enumerate() {
                let (path, name) = (path.index(index).to_string(), text(&port["name"]));
                let number = (port["containerPort"].as_i64().unwrap_or(0), text(&port["protocol"]));
                let others = known.entry(number).or_default();
                let overlaps = others.iter().filter_map(|(other, same)| Some((other, overlap(port, same)?)));
                warnings.extend(
                    overlaps.map(|(other, how)| format!("{path}: {how} port definition with {other}")),
                );
                others.push((path.clone(), port));
                match names.get(name).filter(|_| !name.is_empty()) {
                    Some(other) => of_names.push(format!(
                        "{path}: duplicate port name {name:?} with {other}, services and probes that select ports by name will use {other}"
                    )),
                    None => drop(names.insert(name, path)),
                }
            }
        }
    }
    warnings.append(&mut of_names);
}

/// How two ports of one number and protocol overlap.
fn overlap(a: &Value, b: &Value) -> Option<&'static str> {
    let [host_a, host_b] = [a, b].map(|port| port["hostPort"].as_i64().unwrap_or(0));
    let [ip_a, ip_b] = [a, b].map(|port| text(&port["hostIP"]));
    if (host_a, ip_a) == (host_b, ip_b) {
        Some("duplicate")
    } else if host_a == 0 || host_b == 0 {
        Some("overlapping")
    } else if host_a == host_b && ip_a.is_empty() != ip_b.is_empty() {
        Some("dangerously ambiguous")
    } else {
        None
    }
}

/// Warnings about entries that repeat the key of an earlier one, which apply may drop.
fn duplicates(warnings: &mut Vec<String>, path: &Path<'_>, entries: &Value, key: &str) {
    let mut known = HashSet::new();
    for (index, entry) in list(entries).iter().enumerate() {
        let Some(value) = entry[key].as_str() else { continue };
        if !known.insert(value) {
            let path = path.index(index);
            warnings.push(format!("{}: duplicate {key} {value:?}", path.child(key)));
        }
    }
}
