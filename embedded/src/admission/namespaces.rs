//! Whether objects may be created in a namespace.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::error::ApiError;
use crate::object::{Object, meta};
use crate::resources::{self, Resource};
use crate::server::Server;

/// A namespace by name.
pub(crate) fn get(server: &Server, name: &str) -> Option<Arc<Object>> {
    server.store.table("namespaces")?.get(name)
}

/// Whether an object may be created in a namespace: the namespace must exist and not be terminating.
pub(crate) fn admit_creation(
    server: &Server,
    resource: &Resource,
    namespace: &str,
    object: &Value,
) -> Result<(), ApiError> {
    let Some(found) = get(server, namespace) else {
        let namespaces = resources::stored("namespaces").ok_or_else(ApiError::no_resource)?;
        return Err(ApiError::not_found(namespaces, namespace));
    };
    if !found.header.deleting {
        return Ok(());
    }
    let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
    let cause = json!([{
        "reason": "NamespaceTerminating", "message": format!("namespace {namespace} is being terminated"),
        "field": "metadata.namespace",
    }]);
    let name = meta(object, "name");
    Err(ApiError::forbidden(resource, name, &why).with_causes(cause))
}
