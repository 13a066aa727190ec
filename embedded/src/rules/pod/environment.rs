//! Environment variables of a container.

use serde_json::Value;

use super::super::field::{Causes, Path};
use super::super::names;
use super::{list, text, volume};

/// Fields of a pod that an environment variable may refer to; labels and annotations need a key.
const FIELD_PATHS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
const OTHER_FIELD_PATHS: [&str; 6] = [
    "metadata.annotations",
    "metadata.labels",
    "spec.host",
    "spec.restartPolicy",
    "spec.schedulerName",
    "status.phase",
];
/// Fields of a pod that a file may show.
const FILE_FIELD_PATHS: [&str; 5] =
    ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
/// Amounts of a container that a variable or file may show, besides those of huge pages.
const CONTAINER_RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

/// Checks variables with a value or a source.
pub(super) fn environment(causes: &mut Causes, path: &Path<'_>, variables: &Value) {
    for (index, variable) in list(variables).iter().enumerate() {
        let path = path.index(index);
        match text(&variable["name"]) {
            "" => causes.required(&path.child("name"), ""),
            name => causes.invalid_each(&path.child("name"), name, names::environment_variable(name)),
        }
        let source = &variable["valueFrom"];
        if !source.is_null() {
            value_source(causes, &path.child("valueFrom"), variable, source);
        }
    }
}

fn value_source(causes: &mut Causes, path: &Path<'_>, variable: &Value, source: &Value) {
    let reference = &source["fieldRef"];
    if !reference.is_null() {
        field_ref(causes, &path.child("fieldRef"), reference, &FIELD_PATHS);
    }
    container_resource(causes, &path.child("resourceFieldRef"), &source["resourceFieldRef"]);
    for kind in ["configMapKeyRef", "secretKeyRef"] {
        key_ref(causes, &path.child(kind), &source[kind]);
    }
    file_ref(causes, &path.child("fileKeyRef"), &source["fileKeyRef"]);
    let kinds = source.as_object().map_or(0, |map| map.values().filter(|value| !value.is_null()).count());
    if kinds == 0 {
        let detail = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`";
        causes.invalid_str(path, "", detail);
    } else if !text(&variable["value"]).is_empty() {
        causes.invalid_str(path, "", "may not be specified when `value` is not empty");
    } else if kinds > 1 {
        causes.invalid_str(path, "", "may not have more than one field specified at a time");
    }
}

/// The amount of a resource of a container.
fn container_resource(causes: &mut Causes, path: &Path<'_>, reference: &Value) {
    if reference.is_null() {
        return;
    }
    let path = path.child("resource");
    let resource = text(&reference["resource"]);
    let huge_pages = ["limits.hugepages-", "requests.hugepages-"];
    if resource.is_empty() {
        causes.required(&path, "");
    } else if !CONTAINER_RESOURCES.contains(&resource)
        && !huge_pages.iter().any(|head| resource.starts_with(head))
    {
        causes.not_supported_str(&path, resource, &CONTAINER_RESOURCES);
    }
}

/// A key of a config map or secret.
fn key_ref(causes: &mut Causes, path: &Path<'_>, reference: &Value) {
    if reference.is_null() {
        return;
    }
    let name = text(&reference["name"]);
    causes.invalid_each(&path.child("name"), name, names::dns_subdomain(name));
    match text(&reference["key"]) {
        "" => causes.required(&path.child("key"), ""),
        key => causes.invalid_each(&path.child("key"), key, names::config_key(key)),
    }
}

/// A variable in a file of a volume.
fn file_ref(causes: &mut Causes, path: &Path<'_>, reference: &Value) {
    if reference.is_null() {
        return;
    }
    for field in ["key", "volumeName", "path"] {
        let path = path.child(field);
        match (field, text(&reference[field])) {
            (_, "") => causes.required(&path, ""),
            ("key", key) => causes.invalid_each(&path, key, names::environment_variable(key)),
            ("volumeName", name) => causes.invalid_each(&path, name, names::dns_label(name)),
            (_, given) => volume::no_backsteps(causes, &path, given),
        }
    }
}

/// Checks that variables from files name a volume that can contain them.
pub(super) fn file_volumes(causes: &mut Causes, path: &Path<'_>, spec: &Value) {
    for kind in ["initContainers", "containers"] {
        let kind_path = path.child(kind);
        for (index, container) in list(&spec[kind]).iter().enumerate() {
            let container_path = kind_path.index(index);
            let env_path = container_path.child("env");
            for (index, variable) in list(&container["env"]).iter().enumerate() {
                let reference = &variable["valueFrom"]["fileKeyRef"];
                let variable_path = env_path.index(index);
                let source_path = variable_path.child("valueFrom");
                let reference_path = source_path.child("fileKeyRef");
                let (path, name) = (reference_path.child("volumeName"), text(&reference["volumeName"]));
                match list(&spec["volumes"]).iter().rfind(|volume| text(&volume["name"]) == name) {
                    _ if reference.is_null() => {}
                    None => causes.not_found(&path, name),
                    Some(volume) if volume["emptyDir"].is_null() => {
                        causes.invalid_str(&path, name, "referenced volume must be of type emptyDir");
                    }
                    Some(_) => {}
                }
            }
        }
    }
}

/// Checks sources of many variables. As in Kubernetes, the path of some causes does not name the source.
pub(super) fn sources(causes: &mut Causes, path: &Path<'_>, sources: &Value) {
    for (index, source) in list(sources).iter().enumerate() {
        let source_path = path.index(index);
        let prefix = text(&source["prefix"]);
        if !prefix.is_empty() {
            causes.invalid_each(&source_path.child("prefix"), prefix, names::environment_variable(prefix));
        }
        let kinds = ["configMapRef", "secretRef"].into_iter().filter(|kind| !source[*kind].is_null());
        for kind in kinds.clone() {
            let (kind_path, name) = (source_path.child(kind), text(&source[kind]["name"]));
            let name_path = kind_path.child("name");
            match name {
                "" => causes.required(&name_path, ""),
                // Kubernetes checks it like the prefix of a generated name.
                name => {
                    causes.invalid_each(&name_path, name, names::dns_subdomain(name.trim_end_matches('-')))
                }
            }
        }
        match kinds.count() {
            0 => causes.invalid_str(path, "", "must specify one of: `configMapRef` or `secretRef`"),
            1 => {}
            _ => causes.invalid_str(path, "", "may not have more than one field specified at a time"),
        }
    }
}

/// Checks what a file of a downwardAPI volume shows.
pub(super) fn file_source(causes: &mut Causes, path: &Path<'_>, field: &Value, resource: &Value) {
    if !field.is_null() {
        field_ref(causes, &path.child("fieldRef"), field, &FILE_FIELD_PATHS);
        if !resource.is_null() {
            let detail = "fieldRef and resourceFieldRef can not be specified simultaneously";
            causes.invalid_str(path, "resource", detail);
        }
    } else if resource.is_null() {
        causes.required(path, "one of fieldRef and resourceFieldRef is required");
    } else if text(&resource["containerName"]).is_empty() {
        causes.required(&path.child("resourceFieldRef").child("containerName"), "");
    } else {
        container_resource(causes, &path.child("resourceFieldRef"), resource);
    }
}

fn field_ref(causes: &mut Causes, path: &Path<'_>, reference: &Value, supported: &[&str]) {
    let field = text(&reference["fieldPath"]);
    let field_path = path.child("fieldPath");
    let subscript = |head: &str| field.strip_prefix(head)?.strip_prefix("['")?.strip_suffix("']");
    if field.is_empty() {
        causes.required(&field_path, "");
    } else if let Some(key) = subscript("metadata.annotations") {
        causes.invalid_each(path, &key.to_lowercase(), names::qualified_name(&key.to_lowercase()));
    } else if let Some(key) = subscript("metadata.labels") {
        causes.invalid_each(path, key, names::qualified_name(key));
    } else if supported.contains(&field) {
    } else if OTHER_FIELD_PATHS.contains(&field) || FIELD_PATHS.contains(&field) {
        causes.not_supported_str(&field_path, field, supported);
    } else {
        let detail = format!("error converting fieldPath: field label not supported: {field}");
        causes.invalid_str(&field_path, field, &detail);
    }
}
