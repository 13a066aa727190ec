//! Containers of a pod.

use std::collections::{BTreeSet, HashSet};

use serde_json::Value;

use super::super::field::{Causes, Path};
use super::super::names;
use super::{claims, environment, list, probe, resources, restart, security, text, volume};

const PULL_POLICIES: [&str; 3] = ["Always", "IfNotPresent", "Never"];
const MESSAGE_POLICIES: [&str; 2] = ["File", "FallbackToLogsOnError"];
/// The modes of mount propagation.
const PROPAGATIONS: [&str; 3] = ["Bidirectional", "HostToContainer", "None"];
const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
/// The parts of a pod that its containers refer to.
pub(super) struct Referents<'a> {
    /// The names of its volumes.
    pub(super) volumes: HashSet<&'a str>,
    /// The names of its claims.
    pub(super) claims: BTreeSet<&'a str>,
    /// Its grace period, in seconds, which is also the longest sleep of a handler.
    pub(super) grace: Option<i64>,
}

/// Checks containers and init containers of a pod spec.
pub(super) fn validate_all(causes: &mut Causes, path: &Path<'_>, spec: &Value, referents: &Referents<'_>) {
    let mut names = HashSet::new();
    let regular = list(&spec["containers"]);
    let containers_path = path.child("containers");
    if regular.is_empty() {
        causes.required(&containers_path, "");
    }
    for (index, container) in regular.iter().enumerate() {
        let path = containers_path.index(index);
        validate(causes, &path, container, referents);
        duplicate_name(causes, &path, container, &mut names);
        probe::validate_all(causes, &path, container, referents.grace);
        restart::validate(causes, &path, container);
    }
    host_port_conflicts(causes, &containers_path, regular);
    let init = list(&spec["initContainers"]);
    let init_path = path.child("initContainers");
    for (index, container) in init.iter().enumerate() {
        let path = init_path.index(index);
        validate(causes, &path, container, referents);
        restart::validate_init(causes, &path, container);
        duplicate_name(causes, &path, container, &mut names);
        host_port_conflicts(causes, &init_path, std::slice::from_ref(container));
        // Only sidecars run as long as regular containers.
        if container["restartPolicy"] == "Always" {
            probe::validate_all(causes, &path, container, referents.grace);
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

fn validate(causes: &mut Causes, path: &Path<'_>, container: &Value, referents: &Referents<'_>) {
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
    environment::environment(causes, &path.child("env"), &container["env"]);
    environment::sources(causes, &path.child("envFrom"), &container["envFrom"]);
    volume_mounts(causes, &path.child("volumeMounts"), container, &referents.volumes);
    causes.required_enum(&path.child("imagePullPolicy"), &container["imagePullPolicy"], &PULL_POLICIES);
    let resources_path = path.child("resources");
    resources::validate(causes, &resources_path, &container["resources"], resources::Owner::Container);
    claims::references(
        causes,
        &resources_path.child("claims"),
        &container["resources"]["claims"],
        &referents.claims,
    );
    security::container(causes, &path.child("securityContext"), &container["securityContext"]);
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

/// Checks mounts. As in Kubernetes, the path of some causes does not name the mount.
fn volume_mounts(causes: &mut Causes, path: &Path<'_>, container: &Value, volumes: &HashSet<&str>) {
    let mut known = HashSet::new();
    for (index, mount) in list(&container["volumeMounts"]).iter().enumerate() {
        let mount_path = path.index(index);
        let [name, target] = ["name", "mountPath"].map(|field| text(&mount[field]));
        if name.is_empty() {
            causes.required(&mount_path.child("name"), "");
        }
        if !volumes.contains(name) {
            causes.not_found(&mount_path.child("name"), name);
        }
        if target.is_empty() {
            causes.required(&mount_path.child("mountPath"), "");
        }
        if !known.insert(target) {
            causes.invalid_str(&mount_path.child("mountPath"), target, "must be unique");
        }
        let [sub, expression] = ["subPath", "subPathExpr"].map(|field| text(&mount[field]));
        volume::relative_path(causes, &path.child("subPath"), sub);
        if !sub.is_empty() && !expression.is_empty() {
            let detail = "subPathExpr and subPath are mutually exclusive";
            causes.invalid_str(&mount_path.child("subPathExpr"), expression, detail);
        }
        volume::relative_path(causes, &path.child("subPathExpr"), expression);
        security::one_of(causes, path, mount, "mountPropagation", &PROPAGATIONS);
        if mount["mountPropagation"] == "Bidirectional" && container["securityContext"]["privileged"] != true
        {
            let detail = "Bidirectional mount propagation is available only to privileged containers";
            causes.forbidden(&path.child("mountPropagation"), detail);
        }
    }
}
