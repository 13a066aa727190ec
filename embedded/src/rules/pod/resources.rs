//! Requests and limits of containers and of pods.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::field::{Causes, Path};
use super::super::names;
use super::super::quantity::Quantity;
use super::{claims, list, text};

/// Standard resources that a container may not request: those of quotas and of volumes.
const OTHER_STANDARD_RESOURCES: [&str; 16] = [
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "storage",
    "requests.storage",
    "services.nodeports",
];
/// Resources without a domain that a container may request.
const STANDARD_RESOURCES: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// The kind of object whose requests and limits are checked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    Container,
    Pod,
    /// Neither, so that any resource may be named.
    Other,
}

/// Checks requests and limits of a container or of a pod as a whole.
pub(super) fn validate(causes: &mut Causes, path: &Path<'_>, resources: &Value, owner: Owner) {
    let (limits, requests) = (&resources["limits"], &resources["requests"]);
    let limits_path = path.child("limits");
    for (field, amounts) in [("limits", limits), ("requests", requests)] {
        let path = path.child(field);
        for (name, amount) in amounts.as_object().into_iter().flatten() {
            amount_rules(causes, &path.key(name), name, amount, owner);
            if field == "requests" {
                request_within_limit(causes, &path.entry(name), name, amount, &limits[name]);
                if limits[name].is_null() && !may_overcommit(name) {
                    causes.required(
                        &limits_path.entry(name),
                        "Limit must be set for non overcommitable resources",
                    );
                }
            }
        }
    }
    let has = |rule: fn(&str) -> bool| {
        let all = [limits, requests].into_iter().filter_map(Value::as_object).flatten();
        all.into_iter().any(|(name, _)| rule(name))
    };
    if has(|name| name.starts_with("hugepages-")) && !has(|name| matches!(name, "cpu" | "memory")) {
        causes.forbidden(path, "HugePages require cpu or memory");
    }
}

/// Checks `spec.resources`: the requests and limits of the pod as a whole, which bound those of its
/// containers.
pub(super) fn of_pod(causes: &mut Causes, path: &Path<'_>, spec: &Value, known: &BTreeSet<&str>) {
    let resources = &spec["resources"];
    let path = path.child("resources");
    if resources.is_null() {
        return;
    }
    if spec["os"]["name"] == "windows" {
        return causes.forbidden(&path, "may not be set for a windows pod");
    }
    if !resources["claims"].is_null() {
        causes.forbidden(&path.child("claims"), "claims may not be set for Resources at pod-level");
    }
    validate(causes, &path, resources, Owner::Pod);
    claims::references(causes, &path.child("claims"), &resources["claims"], known);
    let requests_path = path.child("requests");
    for (name, requested) in resources["requests"].as_object().into_iter().flatten() {
        let all = amount_of_containers(spec, "requests", name).unwrap_or(Quantity::ZERO);
        if quantity(requested).is_some_and(|requested| all > requested) {
            let detail = format!("must be greater than or equal to aggregate container requests of {all}");
            causes.invalid(&requests_path.key(name), requested, &detail);
        }
    }
    let containers_path = path.child("containers");
    for (index, container) in list(&spec["containers"]).iter().enumerate() {
        let path = containers_path.index(index);
        for (name, limit) in container["resources"]["limits"].as_object().into_iter().flatten() {
            let of_pod = &resources["limits"][name];
            if quantity(limit).zip(quantity(of_pod)).is_some_and(|(limit, of_pod)| limit > of_pod) {
                let detail = format!("must be less than or equal to pod limits of {}", text(of_pod));
                causes.invalid(&path.key(name).child("limits"), limit, &detail);
            }
        }
    }
}

/// The amount that the containers of a pod request at once, or are limited to (`field`). Returns `None` if no
/// container names it. Init containers run one after the other, before the others and beside the sidecars
/// that have started.
pub(crate) fn amount_of_containers(spec: &Value, field: &str, name: &str) -> Option<Quantity> {
    let amount = |container: &Value| quantity(&container["resources"][field][name]);
    let (mut sidecars, mut most) = (None, None);
    for container in list(&spec["initContainers"]) {
        let with_sidecars = sum(sidecars, amount(container));
        if container["restartPolicy"] == "Always" {
            sidecars = with_sidecars;
        }
        most = larger(most, with_sidecars);
    }
    larger(most, list(&spec["containers"]).iter().map(amount).fold(sidecars, sum))
}

fn sum(one: Option<Quantity>, other: Option<Quantity>) -> Option<Quantity> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one + other),
        (one, other) => one.or(other),
    }
}

fn larger(one: Option<Quantity>, other: Option<Quantity>) -> Option<Quantity> {
    if other > one { other } else { one }
}

/// Whether a resource may be overcommitted. Extended resources and huge pages may not.
pub(crate) fn may_overcommit(name: &str) -> bool {
    !name.contains('/') && !name.starts_with("hugepages-")
}

pub(crate) fn quantity(value: &Value) -> Option<Quantity> {
    Quantity::parse(value.as_str()?).ok()
}

fn amount_rules(causes: &mut Causes, path: &Path<'_>, name: &str, amount: &Value, owner: Owner) {
    name_rules(causes, path, name, owner);
    let Some(parsed) = quantity(amount) else { return };
    if parsed.is_negative() {
        causes.invalid(path, amount, "must be greater than or equal to 0");
    }
    if name.contains('/') && !parsed.is_integer() {
        causes.invalid(path, amount, "must be an integer");
    }
}

/// Checks the name of a resource.
pub(crate) fn name_rules(causes: &mut Causes, path: &Path<'_>, name: &str, owner: Owner) {
    let mut errors = names::qualified_name(name);
    let standard = STANDARD_RESOURCES.contains(&name) || name.starts_with("hugepages-");
    let plain = !name.contains('/') && !standard;
    if errors.is_empty() && plain && !OTHER_STANDARD_RESOURCES.contains(&name) {
        errors.push("must be a standard resource type or fully qualified".to_owned());
    }
    let valid = errors.is_empty();
    if owner == Owner::Container && plain {
        errors.push("must be a standard resource for containers".to_owned());
    }
    errors.iter().for_each(|error| causes.invalid(path, &name.into(), error));
    let of_pods = matches!(name, "cpu" | "memory") || name.starts_with("hugepages-");
    if owner == Owner::Pod && valid && !of_pods {
        causes.not_supported(path, &name.into(), &["cpu", "hugepages-", "memory"]);
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
