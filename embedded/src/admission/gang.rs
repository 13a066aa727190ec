//! Admission of changed Jobs: parallelism stays fixed while a gang PodGroup counts the pods.

use serde_json::Value;

use crate::error::ApiError;
use crate::object::{self, Object, meta};
use crate::resources::{self, Resource};
use crate::server::Server;

/// Refuses to change the parallelism of a Job whose PodGroup is a gang. If the pod template names a PodGroup,
/// that one counts. Otherwise every PodGroup that the Job controls counts.
pub(crate) fn admit_update(
    server: &Server,
    resource: &Resource,
    old: &Value,
    new: &Value,
) -> Result<(), ApiError> {
    let is_job = (resource.group, resource.plural) == ("batch", "jobs");
    if !is_job || old["spec"]["parallelism"] == new["spec"]["parallelism"] {
        return Ok(());
    }
    let Some(pod_groups) = resources::stored("podgroups").filter(|kind| server.serves(kind)) else {
        return Ok(());
    };
    match gang_of(server, pod_groups, old) {
        None => Ok(()),
        Some(name) => {
            let why =
                format!("cannot change parallelism for a Job referencing gang-scheduled PodGroup \"{name}\"");
            Err(ApiError::forbidden(resource, meta(old, "name"), &why))
        }
    }
}

fn gang_of(server: &Server, pod_groups: &Resource, job: &Value) -> Option<Box<str>> {
    let (namespace, table) = (meta(job, "namespace"), server.table(pod_groups));
    let is_gang = |group: &Object| {
        let group = group.decode(pod_groups);
        group["spec"]["schedulingPolicy"]["gang"].is_object()
    };
    if let Some(name) = job["spec"]["template"]["spec"]["schedulingGroup"]["podGroupName"].as_str() {
        let group = table.get(&object::key(Some(namespace), name))?;
        return is_gang(&group).then(|| name.into());
    }
    let controlled = |group: &Object| {
        let group = group.decode(pod_groups);
        let owners = group["metadata"]["ownerReferences"].as_array();
        owners
            .into_iter()
            .flatten()
            .any(|owner| owner["uid"] == meta(job, "uid") && owner["controller"] == true)
    };
    let gangs = table
        .page(&format!("{namespace}/"), None, None, Some(1), |group| controlled(group) && is_gang(group))
        .ok()?;
    gangs.items.first().map(|group| group.header.name.clone())
}
