//! POST of a binding: a scheduler assigns a pod to a node.

use http::StatusCode;
use serde_json::{Value, json};

use super::{Writer, update};
use crate::error::ApiError;
use crate::exchange::decode;
use crate::exchange::reply::Reply;
use crate::exchange::request::Request;
use crate::object::{self, meta};
use crate::resources::{self, Resource};
use crate::rules::{self, Subresource};
use crate::server::Server;

/// POST on `pods/NAME/binding`, or on the older `bindings`.
pub(crate) fn bind(server: &Server, request: &Request) -> Result<Reply, ApiError> {
    let binding = decode::object("Binding", "", "v1", &request.content_type, &request.body)?;
    let pods = resources::stored("pods").ok_or_else(ApiError::no_resource)?;
    let name = match request.path.subresource {
        Some(_) => request.name(),
        None => meta(&binding, "name"),
    };
    let node = binding["target"]["name"].as_str().unwrap_or_default();
    if node.is_empty() {
        return Err(ApiError::unclassified("target.name: Required value"));
    }
    let key = object::key(request.path.namespace.as_deref(), name);
    let writer = Writer::of(server, request);
    update::modify(server, pods, &key, Subresource::Binding, writer, |pod| {
        check(pods, name, pod, &binding)?;
        let mut bound = pod.clone();
        rules::bind(&mut bound, &binding, writer.now);
        Ok(bound)
    })?;
    let status =
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    Ok(Reply::value(StatusCode::CREATED, request.accept, &status))
}

fn check(pods: &Resource, name: &str, pod: &Value, binding: &Value) -> Result<(), ApiError> {
    let refuse = |why: String| {
        let details = json!({"name": name, "kind": "pods/binding"});
        Err(ApiError::conflict_on(details, "pods/binding", name, &why))
    };
    let (wanted, uid) = (meta(binding, "uid"), meta(pod, "uid"));
    if !wanted.is_empty() && wanted != uid {
        return Err(update::uid_mismatch(pods, wanted, pod));
    }
    if !pod["metadata"]["deletionTimestamp"].is_null() {
        return refuse(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    if let Some(node) = pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) {
        return refuse(format!("pod {name} is already assigned to node \"{node}\""));
    }
    if pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
        return refuse(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    Ok(())
}
