//! `PodSpec`, in pods and templates (`ValidatePodSpec`).

use serde_json::Value;

use super::super::field::{Causes, Path};
use super::super::{metadata, names};
use super::container::Referents;
use super::{claims, container, environment, list, resources, scheduling, security, text, volume};

const RESTART_POLICIES: [&str; 3] = ["Always", "OnFailure", "Never"];
const DNS_POLICIES: [&str; 4] = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
const SYSTEMS: [&str; 2] = ["linux", "windows"];
const NAMESERVERS_MAX: usize = 3;
const PREEMPTION_POLICIES: [&str; 2] = ["PreemptLowerPriority", "Never"];

/// Checks the spec of a pod, or of a template.
pub(super) fn validate(causes: &mut Causes, path: &Path<'_>, spec: &Value, is_pod: bool) {
    let volumes = volume::validate_all(causes, &path.child("volumes"), list(&spec["volumes"]));
    claims::validate_all(causes, &path.child("resourceClaims"), &spec["resourceClaims"]);
    let (claims, grace) = (claims::names_of(spec), spec["terminationGracePeriodSeconds"].as_i64());
    let referents = Referents { volumes, claims, grace };
    container::validate_all(causes, path, spec, &referents);
    resources::of_pod(causes, path, spec, &referents.claims);
    container::host_network_ports(causes, path, spec, is_pod);
    causes.required_enum(&path.child("restartPolicy"), &spec["restartPolicy"], &RESTART_POLICIES);
    causes.required_enum(&path.child("dnsPolicy"), &spec["dnsPolicy"], &DNS_POLICIES);
    metadata::labels(causes, &path.child("nodeSelector"), &spec["nodeSelector"]);
    security::pod(causes, &path.child("securityContext"), spec);
    scheduling::affinity(causes, &path.child("affinity"), &spec["affinity"]);
    dns_config(causes, &path.child("dnsConfig"), spec);
    readiness_gates(causes, &path.child("readinessGates"), &spec["readinessGates"]);
    scheduling::gates(causes, &path.child("schedulingGates"), &spec["schedulingGates"]);
    let constraints = &spec["topologySpreadConstraints"];
    scheduling::topology_spread(causes, &path.child("topologySpreadConstraints"), constraints);
    object_names(causes, path, spec, &["serviceAccountName", "nodeName"]);
    active_deadline(causes, &path.child("activeDeadlineSeconds"), &spec["activeDeadlineSeconds"]);
    for field in ["hostname", "subdomain"] {
        let name = text(&spec[field]);
        if !name.is_empty() {
            causes.invalid_each(&path.child(field), name, names::dns_label(name));
        }
    }
    scheduling::tolerations(causes, &path.child("tolerations"), &spec["tolerations"]);
    host_aliases(causes, &path.child("hostAliases"), &spec["hostAliases"]);
    object_names(causes, path, spec, &["priorityClassName", "runtimeClassName"]);
    if !text(&spec["preemptionPolicy"]).is_empty() {
        causes.required_enum(
            &path.child("preemptionPolicy"),
            &spec["preemptionPolicy"],
            &PREEMPTION_POLICIES,
        );
    }
    operating_system(causes, &path.child("os"), &spec["os"]);
    scheduling::group(causes, &path.child("schedulingGroup"), &spec["schedulingGroup"]);
    environment::file_volumes(causes, path, spec);
}

fn operating_system(causes: &mut Causes, path: &Path<'_>, os: &Value) {
    match text(&os["name"]) {
        _ if os.is_null() => {}
        "" => causes.required(&path.child("name"), ""),
        name if !SYSTEMS.contains(&name) => causes.not_supported(path, &os["name"], &SYSTEMS),
        _ => {}
    }
}

/// Checks fields that contain names of other objects.
fn object_names(causes: &mut Causes, path: &Path<'_>, spec: &Value, fields: &[&str]) {
    for field in fields {
        let name = text(&spec[*field]);
        if !name.is_empty() {
            causes.invalid_each(&path.child(field), name, names::dns_subdomain(name));
        }
    }
}

/// Rules only for pods, because existing templates may violate them.
pub(super) fn validate_pod_only(causes: &mut Causes, path: &Path<'_>, spec: &Value) {
    if text(&spec["serviceAccountName"]).is_empty() {
        service_account_tokens(causes, &path.child("volumes"), &spec["volumes"]);
    }
    for kind in ["containers", "initContainers"] {
        let path = path.child(kind);
        for (index, container) in list(&spec[kind]).iter().enumerate() {
            let image = text(&container["image"]);
            if image != image.trim() {
                let detail = "must not have leading or trailing whitespace";
                causes.invalid_str(&path.index(index).child("image"), image, detail);
            }
        }
    }
}

fn service_account_tokens(causes: &mut Causes, path: &Path<'_>, volumes: &Value) {
    for (index, volume) in list(volumes).iter().enumerate() {
        let volume_path = path.index(index);
        let projected_path = volume_path.child("projected");
        let sources_path = projected_path.child("sources");
        for (index, source) in list(&volume["projected"]["sources"]).iter().enumerate() {
            if !source["serviceAccountToken"].is_null() {
                let path = sources_path.index(index);
                let detail = "must not be specified when serviceAccountName is not set";
                causes.forbidden(&path.child("serviceAccountToken"), detail);
            }
        }
    }
}

/// Checks the seconds that a pod may run: 1 to 2^31 - 1.
pub(super) fn active_deadline(causes: &mut Causes, path: &Path<'_>, seconds: &Value) {
    if seconds.as_i64().is_some_and(|seconds| !(1..=i64::from(i32::MAX)).contains(&seconds)) {
        causes.invalid(path, seconds, "must be between 1 and 2147483647, inclusive");
    }
}

/// Checks name servers and search paths of a pod, which are required with the policy `None`.
fn dns_config(causes: &mut Causes, path: &Path<'_>, spec: &Value) {
    let config = &spec["dnsConfig"];
    let servers = list(&config["nameservers"]);
    let servers_path = path.child("nameservers");
    if spec["dnsPolicy"] == "None" {
        if config.is_null() {
            causes.required(path, "must provide `dnsConfig` when `dnsPolicy` is None");
            return;
        }
        if servers.is_empty() {
            causes
                .required(&servers_path, "must provide at least one DNS nameserver when `dnsPolicy` is None");
            return;
        }
    }
    if servers.len() > NAMESERVERS_MAX {
        let detail = format!("must not have more than {NAMESERVERS_MAX} nameservers");
        causes.invalid(&servers_path, &config["nameservers"], &detail);
    }
    for (index, server) in servers.iter().enumerate() {
        ip_address(causes, &servers_path.index(index), text(server));
    }
    let searches_path = path.child("searches");
    for (index, search) in list(&config["searches"]).iter().enumerate() {
        let search = text(search);
        if search != "." {
            let search = search.strip_suffix('.').unwrap_or(search);
            causes.invalid_each(&searches_path.index(index), search, names::dns_search(search));
        }
    }
    for (index, option) in list(&config["options"]).iter().enumerate() {
        if text(&option["name"]).is_empty() {
            causes.required(&path.child("options").index(index), "must not be empty");
        }
    }
}

fn ip_address(causes: &mut Causes, path: &Path<'_>, ip: &str) {
    if ip.parse::<std::net::IpAddr>().is_err() {
        causes.invalid_str(path, ip, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)");
    }
}

fn readiness_gates(causes: &mut Causes, path: &Path<'_>, gates: &Value) {
    for (index, gate) in list(gates).iter().enumerate() {
        let kind = text(&gate["conditionType"]);
        causes.invalid_each(&path.index(index).child("conditionType"), kind, names::qualified_name(kind));
    }
}

fn host_aliases(causes: &mut Causes, path: &Path<'_>, aliases: &Value) {
    for (index, alias) in list(aliases).iter().enumerate() {
        let alias_path = path.index(index);
        ip_address(causes, &alias_path.child("ip"), text(&alias["ip"]));
        for (index, name) in list(&alias["hostnames"]).iter().enumerate() {
            let name = text(name);
            let names_path = alias_path.child("hostnames");
            causes.invalid_each(&names_path.index(index), name, names::dns_subdomain(name));
        }
    }
}
