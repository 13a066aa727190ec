//! Warnings about pods and templates that are allowed but unwise (`pkg/api/pod/warnings.go`).

use std::collections::HashSet;

use serde_json::Value;

use super::super::field::Path;
use super::super::names;
use super::{list, text};

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

/// Warnings about a new or changed pod.
pub(super) fn of_pod(old: Option<&Value>, pod: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    if old.is_none() {
        let name = text(&pod["metadata"]["name"]);
        warnings.extend(hostname(name, "the Pod's hostname"));
    }
    of_spec(&mut warnings, &Path::root("spec"), old.map(|old| &old["spec"]), &pod["spec"]);
    warnings
}

/// Warnings about the pod template of another kind.
pub(crate) fn template(warnings: &mut Vec<String>, path: &Path<'_>, old: Option<&Value>, template: &Value) {
    of_spec(warnings, &path.child("spec"), old.map(|old| &old["spec"]), &template["spec"]);
}

fn of_spec(warnings: &mut Vec<String>, path: &Path<'_>, old: Option<&Value>, spec: &Value) {
    if old == Some(spec) {
        return;
    }
    let selector_path = path.child("nodeSelector");
    for (label, since, instead) in DEPRECATED_NODE_LABELS {
        if !spec["nodeSelector"][label].is_null() {
            warnings.push(format!(
                "{}: deprecated since {since}; use {instead:?} instead",
                selector_path.key(label)
            ));
        }
    }
    if spec["terminationGracePeriodSeconds"].as_i64().is_some_and(|seconds| seconds < 0) {
        let path = path.child("terminationGracePeriodSeconds");
        warnings.push(format!("{path}: must be >= 0; negative values are invalid and will be treated as 1"));
    }
    for (kind, containers) in
        [("initContainers", &spec["initContainers"]), ("containers", &spec["containers"])]
    {
        let path = path.child(kind);
        for (index, container) in list(containers).iter().enumerate() {
            of_container(warnings, &path.index(index), container);
        }
    }
    duplicates(warnings, &path.child("imagePullSecrets"), &spec["imagePullSecrets"], "name");
}

fn of_container(warnings: &mut Vec<String>, path: &Path<'_>, container: &Value) {
    let env_path = path.child("env");
    let mut known = HashSet::new();
    for (index, variable) in list(&container["env"]).iter().enumerate() {
        let Some(name) = variable["name"].as_str() else { continue };
        if !known.insert(name) {
            warnings.push(format!(
                "{}: hides previous definition of {name:?}, which may be dropped when using apply",
                env_path.index(index)
            ));
        }
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
