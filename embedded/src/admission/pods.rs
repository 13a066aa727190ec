//! Admission of pods: adds the priority of a class and the account of a token. Refuses a pod whose
//! ServiceAccount does not exist.

use serde_json::Value;

use crate::error::ApiError;
use crate::object::{self, meta};
use crate::resources::{self, Resource};
use crate::server::Server;

/// Classes that every cluster has, with their values.
const SYSTEM_CLASSES: [(&str, i32); 2] =
    [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];
/// The ServiceAccount that each namespace gets. Pods may be created before it exists.
pub(crate) const DEFAULT_ACCOUNT: &str = "default";

/// Completes a new pod, which may not have its name yet.
pub(super) fn complete(server: &Server, resource: &Resource, pod: &mut Value) -> Result<(), ApiError> {
    name_account(pod);
    account(server, resource, pod)?;
    let mut class = pod["spec"]["priorityClassName"].as_str().unwrap_or_default().to_owned();
    if class.is_empty() {
        let Some(usual) = usual_class(server) else { return Ok(()) };
        pod["spec"]["priorityClassName"] = usual.clone().into();
        class = usual;
    }
    let Some(value) = value_of(server, &class) else {
        return Err(refused(resource, pod, &format!("no PriorityClass with name {class} was found")));
    };
    pod["spec"]["priority"] = value.into();
    Ok(())
}

/// The class of pods that name none. Of several global defaults, the one with the lowest value counts.
fn usual_class(server: &Server) -> Option<String> {
    let classes = resources::stored("priorityclasses")?;
    let page = server.table(classes).page("", None, None, None, |_| true).ok()?;
    let classes = page.items.iter().map(|class| class.decode(classes));
    let usual =
        classes.filter(|class| class["globalDefault"] == true).min_by_key(|class| class["value"].as_i64());
    Some(meta(&usual?, "name").to_owned())
}

/// Whether every cluster has this class.
pub(crate) fn is_system_class(name: &str) -> bool {
    SYSTEM_CLASSES.iter().any(|(known, _)| *known == name)
}

fn value_of(server: &Server, class: &str) -> Option<i32> {
    if let Some((_, value)) = SYSTEM_CLASSES.iter().find(|(name, _)| *name == class) {
        return Some(*value);
    }
    let classes = resources::stored("priorityclasses")?;
    let found = server.table(classes).get(&object::key(None, class))?;
    found.decode(classes)["value"].as_i64().and_then(|value| i32::try_from(value).ok())
}

/// Names the usual account in a pod that wants a token and names none.
///
/// In Kubernetes every pod gets the name. Pods here are compared with those of an API server without that
/// admission plugin. So only a pod that would be refused without the name gets it.
fn name_account(pod: &mut Value) {
    let spec = &mut pod["spec"];
    if !spec["serviceAccountName"].as_str().unwrap_or_default().is_empty() {
        return;
    }
    let volumes = spec["volumes"].as_array().into_iter().flatten();
    let mut sources =
        volumes.flat_map(|volume| volume["projected"]["sources"].as_array().into_iter().flatten());
    if sources.any(|source| !source["serviceAccountToken"].is_null()) {
        spec["serviceAccountName"] = DEFAULT_ACCOUNT.into();
        spec["serviceAccount"] = DEFAULT_ACCOUNT.into();
    }
}

fn account(server: &Server, resource: &Resource, pod: &Value) -> Result<(), ApiError> {
    let (namespace, name) =
        (meta(pod, "namespace"), pod["spec"]["serviceAccountName"].as_str().unwrap_or_default());
    if matches!(name, "" | DEFAULT_ACCOUNT) {
        return Ok(());
    }
    let accounts = resources::stored("serviceaccounts");
    if accounts
        .is_some_and(|accounts| server.table(accounts).get(&object::key(Some(namespace), name)).is_some())
    {
        return Ok(());
    }
    let why =
        format!("error looking up service account {namespace}/{name}: serviceaccount \"{name}\" not found");
    Err(refused(resource, pod, &why))
}

fn refused(resource: &Resource, pod: &Value, why: &str) -> ApiError {
    let (name, prefix) = (meta(pod, "name"), meta(pod, "generateName"));
    ApiError::forbidden(resource, if name.is_empty() { prefix } else { name }, why)
}
