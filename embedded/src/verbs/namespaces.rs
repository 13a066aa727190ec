//! Namespaces: those that exist from the start, and their finalizers.

use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value, json};

use super::{Writer, create, update};
use crate::admission::namespaces;
use crate::error::ApiError;
use crate::exchange::reply::Reply;
use crate::exchange::request::Request;
use crate::object::{self, Object};
use crate::resources::{self, Resource};
use crate::server::Server;
use crate::store::{Expect, NewVersion};

/// The namespaces of a new cluster.
const INITIAL: &[&str] = &["default", "kube-node-lease", "kube-public", "kube-system"];

/// Creates the initial namespaces that do not exist yet.
pub(crate) fn bootstrap(server: &Server) -> Result<(), ApiError> {
    let kind = resources::stored("namespaces").ok_or_else(ApiError::no_resource)?;
    for name in INITIAL.iter().filter(|name| namespaces::get(server, name).is_none()) {
        let namespace = json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name}});
        create::insert(server, kind, None, namespace, Writer::internal(server, "kube-apiserver"))?;
    }
    Ok(())
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
    Reply::object(StatusCode::OK, request.accept, resource, &stored, request.rows()?)
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
