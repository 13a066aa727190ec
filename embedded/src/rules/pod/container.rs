//! Containers of a pod.

use std::collections::HashSet;

use serde_json::Value;

use super::super::field::{Causes, Path};
use super::super::names;
use super::super::quantity::Quantity;
use super::{list, probe, text, volume};

const PULL_POLICIES: [&str; 3] = ["Always", "IfNotPresent", "Never"];
const MESSAGE_POLICIES: [&str; 2] = ["File", "FallbackToLogsOnError"];
/// Fields of a pod that volumes or other API versions may refer to, but environment variables may not.
const OTHER_FIELD_PATHS: [&str; 6] = [
    "metadata.annotations",
    "metadata.labels",
    "spec.host",
    "spec.restartPolicy",
    "spec.schedulerName",
    "status.phase",
];
const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const RESTART_POLICIES: [&str; 3] = ["Always", "Never", "OnFailure"];
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
/// Resources without a domain that a container may request.
const STANDARD_RESOURCES: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// Checks containers and init containers of a pod spec.
pub(super) fn validate_all(causes: &mut Causes, path: &Path<'_>, spec: &Value) {
    let volumes: HashSet<&Value> = list(&spec["volumes"]).iter().map(|volume| &volume["name"]).collect();
    let mut names = HashSet::new();
    let regular = list(&spec["containers"]);
    let containers_path = path.child("containers");
    if regular.is_empty() {
        causes.required(&containers_path, "");
    }
    for (index, container) in regular.iter().enumerate() {
        let path = containers_path.index(index);
        validate(causes, &path, container, &volumes);
        duplicate_name(causes, &path, container, &mut names);
        probe::validate_all(causes, &path, container);
    }
    host_port_conflicts(causes, &containers_path, regular);
    let init = list(&spec["initContainers"]);
    let init_path = path.child("initContainers");
    for (index, container) in init.iter().enumerate() {
        let path = init_path.index(index);
        validate(causes, &path, container, &volumes);
        let policy = &container["restartPolicy"];
        if !policy.is_null() && !RESTART_POLICIES.contains(&text(policy)) {
            causes.not_supported(&path.child("restartPolicy"), policy, &RESTART_POLICIES);
        }
        duplicate_name(causes, &path, container, &mut names);
        host_port_conflicts(causes, &init_path, std::slice::from_ref(container));
        // Only sidecars run as long as regular containers.
        if *policy == "Always" {
            probe::validate_all(causes, &path, container);
        } else {
            probe::forbid_all(causes, &path, container);
        }
    }
}

/// With host networking, a container's port is the host's port. A template may omit the host port.
pub(super) fn host_network_ports(causes: &mut Causes, path: &Path<'_>, spec: &Value, is_pod: bool) {
    if spec["hostNetwork"] != true {
        return;
    }
    let containers_path = path.child("containers");
    for (index, container) in list(&spec["containers"]).iter().enumerate() {
        let container_path = containers_path.index(index);
        let ports_path = container_path.child("ports");
        for (index, port) in list(&container["ports"]).iter().enumerate() {
            let [host, own] = ["hostPort", "containerPort"].map(|field| port[field].as_i64().unwrap_or(0));
            if (is_pod || host != 0) && host != own {
                let path = ports_path.index(index);
                let detail = "must match `containerPort` when `hostNetwork` is true";
                causes.invalid(&path.child("hostPort"), &host.into(), detail);
            }
        }
    }
}

fn duplicate_name<'a>(
    causes: &mut Causes,
    path: &Path<'_>,
    container: &'a Value,
    known: &mut HashSet<&'a str>,
) {
    let name = text(&container["name"]);
    if !known.insert(name) {
        causes.duplicate_str(&path.child("name"), name);
    }
}

fn validate(causes: &mut Causes, path: &Path<'_>, container: &Value, volumes: &HashSet<&Value>) {
    match text(&container["name"]) {
        "" => causes.required(&path.child("name"), ""),
        name => causes.invalid_each(&path.child("name"), name, names::dns_label(name)),
    }
    if text(&container["image"]).is_empty() {
        causes.required(&path.child("image"), "");
    }
    let policy_path = path.child("terminationMessagePolicy");
    causes.required_enum(&policy_path, &container["terminationMessagePolicy"], &MESSAGE_POLICIES);
    ports(causes, &path.child("ports"), &container["ports"]);
    environment(causes, &path.child("env"), &container["env"]);
    volume_mounts(causes, &path.child("volumeMounts"), &container["volumeMounts"], volumes);
    causes.required_enum(&path.child("imagePullPolicy"), &container["imagePullPolicy"], &PULL_POLICIES);
    resources(causes, &path.child("resources"), &container["resources"]);
    security_context(causes, &path.child("securityContext"), &container["securityContext"]);
}

fn ports(causes: &mut Causes, path: &Path<'_>, ports: &Value) {
    let mut known = HashSet::new();
    for (index, port) in list(ports).iter().enumerate() {
        let path = path.index(index);
        let name = text(&port["name"]);
        if !name.is_empty() {
            let errors = names::port_name(name);
            let valid = errors.is_empty();
            causes.invalid_each(&path.child("name"), name, errors);
            if !known.insert(name) && valid {
                causes.duplicate_str(&path.child("name"), text(&port["name"]));
            }
        }
        match port["containerPort"].as_i64().unwrap_or(0) {
            0 => causes.required(&path.child("containerPort"), ""),
            number => probe::port_number(causes, &path.child("containerPort"), number),
        }
        match port["hostPort"].as_i64().unwrap_or(0) {
            0 => {}
            number => probe::port_number(causes, &path.child("hostPort"), number),
        }
        causes.required_enum(&path.child("protocol"), &port["protocol"], &PROTOCOLS);
    }
}

fn host_port_conflicts(causes: &mut Causes, path: &Path<'_>, containers: &[Value]) {
    let mut taken: HashSet<(&str, &str, i64)> = HashSet::new();
    for (index, container) in containers.iter().enumerate() {
        for (port_index, port) in list(&container["ports"]).iter().enumerate() {
            let host_port = port["hostPort"].as_i64().unwrap_or(0);
            if host_port == 0 {
                continue;
            }
            let key = (text(&port["protocol"]), text(&port["hostIP"]), host_port);
            if !taken.insert(key) {
                let (container_path, ports_path) = (path.index(index), "ports");
                let ports_path = container_path.child(ports_path);
                let shown = format!("{}/{}/{}", key.0, key.1, key.2);
                causes.duplicate_str(&ports_path.index(port_index).child("hostPort"), &shown);
            }
        }
    }
}

fn environment(causes: &mut Causes, path: &Path<'_>, variables: &Value) {
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
    let kinds = source.as_object().map_or(0, |map| map.values().filter(|value| !value.is_null()).count());
    if kinds == 0 {
        let detail =
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`";
        causes.invalid_str(path, "", detail);
    } else if !text(&variable["value"]).is_empty() {
        causes.invalid_str(path, "", "may not be specified when `value` is not empty");
    } else if kinds > 1 {
        causes.invalid_str(path, "", "may not have more than one field specified at a time");
    }
    let reference = &source["fieldRef"];
    if !reference.is_null() {
        field_ref(causes, &path.child("fieldRef"), reference);
    }
    for kind in ["configMapKeyRef", "secretKeyRef"] {
        let reference = &source[kind];
        if !reference.is_null() {
            match text(&reference["key"]) {
                "" => causes.required(&path.child(kind).child("key"), ""),
                key => causes.invalid_each(&path.child(kind).child("key"), key, names::config_key(key)),
            }
        }
    }
}

fn field_ref(causes: &mut Causes, path: &Path<'_>, reference: &Value) {
    let field = text(&reference["fieldPath"]);
    let field_path = path.child("fieldPath");
    let subscript = |head: &str| field.strip_prefix(head)?.strip_prefix("['")?.strip_suffix("']");
    if field.is_empty() {
        causes.required(&field_path, "");
    } else if let Some(key) = subscript("metadata.annotations") {
        causes.invalid_each(path, &key.to_lowercase(), names::qualified_name(&key.to_lowercase()));
    } else if let Some(key) = subscript("metadata.labels") {
        causes.invalid_each(path, key, names::qualified_name(key));
    } else if OTHER_FIELD_PATHS.contains(&field) {
        causes.not_supported_str(&field_path, field, &FIELD_PATHS);
    } else if !FIELD_PATHS.contains(&field) {
        let detail = format!("error converting fieldPath: field label not supported: {field}");
        causes.invalid_str(&field_path, field, &detail);
    }
}

fn volume_mounts(causes: &mut Causes, path: &Path<'_>, mounts: &Value, volumes: &HashSet<&Value>) {
    let mut known = HashSet::new();
    for (index, mount) in list(mounts).iter().enumerate() {
        let path = path.index(index);
        let name = &mount["name"];
        if text(name).is_empty() {
            causes.required(&path.child("name"), "");
        }
        if !volumes.contains(name) {
            causes.not_found(&path.child("name"), text(name));
        }
        let mount_path = &mount["mountPath"];
        if text(mount_path).is_empty() {
            causes.required(&path.child("mountPath"), "");
        } else if !known.insert(text(mount_path)) {
            causes.invalid_str(&path.child("mountPath"), text(mount_path), "must be unique");
        }
        for field in ["subPath", "subPathExpr"] {
            let given = text(&mount[field]);
            if !given.is_empty() {
                volume::relative_path(causes, &path.child(field), given);
            }
        }
    }
}

/// Checks requests and limits of a container.
pub(super) fn resources(causes: &mut Causes, path: &Path<'_>, resources: &Value) {
    let (limits, requests) = (&resources["limits"], &resources["requests"]);
    let limits_path = path.child("limits");
    for (field, amounts) in [("limits", limits), ("requests", requests)] {
        let path = path.child(field);
        for (name, amount) in amounts.as_object().into_iter().flatten() {
            amount_rules(causes, &path.key(name), name, amount);
            if field == "requests" {
                request_within_limit(causes, &path, name, amount, &limits[name]);
                if limits[name].is_null() && !may_overcommit(name) {
                    causes.required(&limits_path, "Limit must be set for non overcommitable resources");
                }
            }
        }
    }
}

/// Whether a resource may be overcommitted. Extended resources and huge pages may not.
fn may_overcommit(name: &str) -> bool {
    !name.contains('/') && !name.starts_with("hugepages-")
}

fn quantity(value: &Value) -> Option<Quantity> {
    Quantity::parse(value.as_str()?).ok()
}

fn amount_rules(causes: &mut Causes, path: &Path<'_>, name: &str, amount: &Value) {
    let errors = names::qualified_name(name);
    let qualified = errors.is_empty();
    causes.invalid_each(path, name, errors);
    let standard = STANDARD_RESOURCES.contains(&name) || name.starts_with("hugepages-");
    if qualified && !name.contains('/') && !standard {
        causes.invalid_str(path, name, "must be a standard resource for containers");
    }
    let Some(parsed) = quantity(amount) else { return };
    if parsed.is_negative() {
        causes.invalid(path, amount, "must be greater than or equal to 0");
    }
    if name.contains('/') && !parsed.is_integer() {
        causes.invalid(path, amount, "must be an integer");
    }
}

fn request_within_limit(causes: &mut Causes, path: &Path<'_>, name: &str, request: &Value, limit: &Value) {
    let (Some(requested), Some(allowed)) = (quantity(request), quantity(limit)) else { return };
    let shown = text(limit);
    if !may_overcommit(name) && requested != allowed {
        causes.invalid(path, request, &format!("must be equal to {name} limit of {shown}"));
    } else if requested > allowed {
        causes.invalid(path, request, &format!("must be less than or equal to {name} limit of {shown}"));
    }
}

/// User and group ids: 0 to 2^31 - 1.
pub(super) fn user_id(causes: &mut Causes, path: &Path<'_>, id: &Value) {
    if id.as_i64().is_some_and(|id| !(0..=i64::from(i32::MAX)).contains(&id)) {
        causes.invalid(path, id, "must be between 0 and 2147483647, inclusive");
    }
}

fn security_context(causes: &mut Causes, path: &Path<'_>, context: &Value) {
    for field in ["runAsUser", "runAsGroup"] {
        user_id(causes, &path.child(field), &context[field]);
    }
    if context["allowPrivilegeEscalation"] == false && context["privileged"] == true {
        let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
        causes.invalid_of(path, "core.SecurityContext", context, detail);
    }
}
