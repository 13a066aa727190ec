//! Namespaces: those that exist from the start, whether objects may be created in them, and their finalizers.

use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::http::reply::Reply;
use crate::http::request::Request;
use crate::object::{self, Object, meta};
use crate::resources::{self, Resource};
use crate::server::Server;
use crate::store::{Expect, NewVersion};
use crate::verbs::{Writer, create, update};

/// The namespaces of a new cluster.
pub(crate) const INITIAL: &[&str] = &["default", "kube-node-lease", "kube-public", "kube-system"];

/// Creates the initial namespaces that do not exist yet.
pub(crate) fn bootstrap(server: &Server) -> Result<(), ApiError> {
    let namespaces = resources::stored("namespaces").ok_or_else(ApiError::no_resource)?;
    for name in INITIAL.iter().filter(|name| get(server, name).is_none()) {
        let namespace = json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name}});
        create::insert(server, namespaces, None, namespace, Writer::internal(server, "kube-apiserver"))?;
    }
    Ok(())
}

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

/// PUT on `namespaces/NAME/finalize`: replaces `spec.finalizers`.
pub(crate) fn finalize(server: &Server, request: &Request) -> Result<Reply, ApiError> {
    let resource = request.resource();
    let sent = request.decode()?.object;
    update::check_name(&sent, request.name())?;
    let stored = set_finalizers(server, resource, request.name(), |current| {
        update::check_uid(resource, &sent, &current.decode(resource))?;
        update::check_version(resource, request.name(), &sent, current.revision)?;
        Ok(sent["spec"]["finalizers"].clone())
    })?;
    Reply::object(StatusCode::OK, request.accept, resource, &stored, request.include()?)
}

/// Replaces `spec.finalizers` of a namespace. A terminating namespace without finalizers is removed.
pub(crate) fn set_finalizers(
    server: &Server,
    resource: &'static Resource,
    name: &str,
    finalizers: impl Fn(&Object) -> Result<Value, ApiError>,
) -> Result<Arc<Object>, ApiError> {
    let table = server.table(resource);
    let key = object::key(None, name);
    loop {
        let current = table.get(&key).ok_or_else(|| ApiError::not_found(resource, name))?;
        let mut namespace = current.decode(resource);
        match finalizers(&current)? {
            Value::Array(left) if !left.is_empty() => namespace["spec"]["finalizers"] = left.into(),
            _ => namespace["spec"] = json!({}),
        }
        let gone = update::ends_deletion(resource, &namespace);
        let (header, tail) = Object::encode(resource, namespace);
        let (expect, version) = (Expect::Version(current.revision), NewVersion { header, tail });
        let written =
            if gone { table.delete(&key, expect, version) } else { table.put(&key, expect, version) };
        if let Ok(stored) = written {
            return Ok(stored);
        }
    }
}
