//! Admission: completes a new object from other objects of the cluster, and checks it against them.

mod escalation;
mod gang;
mod limit_ranges;
pub(crate) mod namespaces;
mod owner_references;
pub(crate) mod pods;
mod quota;

use crate::error::ApiError;
use crate::object::{self, meta};
use crate::resources::{self, Resource};
use crate::rules::{self, Subresource};
use crate::server::Server;
use crate::verbs::Writer;
use serde_json::Value;

/// Completes a new object, before it has its name and is valid.
pub(crate) fn complete(server: &Server, resource: &Resource, object: &mut Value) -> Result<(), ApiError> {
    match resource.plural {
        "pods" => {
            limit_ranges::complete(server, object);
            pods::complete(server, resource, object)
        }
        _ => Ok(()),
    }
}

/// Admits or refuses a new object. Quotas are charged, but not in a dry run.
pub(crate) fn admit(
    server: &Server,
    resource: &Resource,
    object: &Value,
    writer: Writer<'_>,
) -> Result<(), ApiError> {
    owner_references::admit(server, writer.user, resource, Subresource::Main, None, object)?;
    escalation::admit(server, writer.user, resource, None, object)?;
    match resource.plural {
        "pods" => {
            limit_ranges::admit(server, resource, object)?;
            quota::admit(server, resource, object, writer.dry_run)
        }
        "persistentvolumeclaims" => limit_ranges::admit(server, resource, object),
        "podgroups" => admit_pod_group(server, resource, object),
        _ => Ok(()),
    }
}

/// Admits or refuses the change of an object.
pub(crate) fn admit_update(
    server: &Server,
    resource: &Resource,
    subresource: Subresource,
    old: &Value,
    new: &Value,
    writer: Writer<'_>,
) -> Result<(), ApiError> {
    owner_references::admit(server, writer.user, resource, subresource, Some(old), new)?;
    escalation::admit(server, writer.user, resource, Some(old), new)?;
    gang::admit_update(server, resource, old, new)?;
    limit_ranges::admit_update(server, resource, subresource, old, new)
}

/// A PodGroup needs its Workload and, in it, its template.
fn admit_pod_group(server: &Server, resource: &Resource, object: &Value) -> Result<(), ApiError> {
    let Some((name, template)) = rules::workload_of(object) else { return Ok(()) };
    let Some(workloads) = resources::stored("workloads") else { return Ok(()) };
    let refuse = |why: String| {
        let why = format!("PodGroup rejected: {why}");
        Err(ApiError::forbidden(resource, meta(object, "name"), &why))
    };
    let key = object::key(Some(meta(object, "namespace")), name);
    let Some(workload) = server.table(workloads).get(&key) else {
        return refuse(format!("Workload \"{name}\" not found"));
    };
    if workload.header.deleting {
        return refuse(format!("Workload \"{name}\" is being deleted"));
    }
    let workload = workload.decode(workloads);
    let templates = workload["spec"]["podGroupTemplates"].as_array();
    if !templates.into_iter().flatten().any(|one| one["name"] == template) {
        return refuse(format!("PodGroupTemplate \"{template}\" not found in Workload \"{name}\""));
    }
    Ok(())
}
