//! PATCH by server-side apply: a whole or partial object with ownership of fields.

use http::StatusCode;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::update::check_name;
use super::{ManagedFields, Writer, create, update};
use crate::error::ApiError;
use crate::exchange::decode;
use crate::exchange::media;
use crate::exchange::reply::Reply;
use crate::exchange::request::Request;
use crate::object::{meta, metadata_mut};
use crate::rules;
use crate::rules::Subresource;
use crate::rules::apply::{self, ApplyError, ObjectType, Write};
use crate::server::Server;

/// PATCH with `application/apply-patch+yaml`.
pub(crate) fn apply(server: &Server, request: &Request) -> Result<Reply, ApiError> {
    if media::essence(&request.content_type) != "application/apply-patch+yaml" {
        return Err(ApiError::unsupported_patch_type());
    }
    let resource = request.resource();
    let rows = request.rows()?;
    let namespace = request.path.namespace.as_deref();
    let applied = parse(&request.body)?;
    check_kind(request, &applied)?;
    check_name(&applied, request.name())?;
    create::set_namespace(&mut applied.clone(), namespace)?;
    // Ownership of fields is computed here, so the write itself must not track it.
    let writer = Writer { fields: ManagedFields::Computed, ..Writer::of(server, request) };
    let subresource = request.subresource();
    let changed = update::modify(server, resource, &request.key(), subresource, writer, |live| {
        merge(request, writer.now, Some(live), &applied)
    });
    let (code, (stored, warnings)) = match changed {
        Err(missing) if missing.code == StatusCode::NOT_FOUND && subresource == Subresource::Main => {
            let uid = meta(&applied, "uid");
            if !uid.is_empty() {
                let why = format!(
                    "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                );
                return Err(ApiError::conflict(resource, request.name(), &why));
            }
            let mut new = merge(request, writer.now, None, &applied)?;
            if let Some(metadata) = metadata_mut(&mut new) {
                metadata.remove("resourceVersion");
            }
            create::authorize(server, request)?;
            (StatusCode::CREATED, create::insert(server, resource, namespace, new, writer)?)
        }
        changed => (StatusCode::OK, changed?),
    };
    Ok(Reply::object(code, request.accept, resource, &stored, rows)?.with_warnings(warnings))
}

fn parse(body: &[u8]) -> Result<Value, ApiError> {
    let text = std::str::from_utf8(body).map_err(|error| ApiError::bad_request(error.to_string()))?;
    let parsed = match decode::json(body) {
        Ok(value) => Ok(value),
        Err(_) => yardmaster_manifest::value(text.as_bytes()),
    };
    parsed.map_err(|error| ApiError::bad_request(format!("error decoding YAML: {error}")))
}

fn check_kind(request: &Request, applied: &Value) -> Result<(), ApiError> {
    let resource = request.resource();
    let (version, kind) = (applied["apiVersion"].as_str(), applied["kind"].as_str());
    if (version, kind) == (Some(resource.api_version().as_str()), Some(resource.kind)) {
        return Ok(());
    }
    let (group, version) = match version.unwrap_or_default().split_once('/') {
        Some((group, version)) => (group, version),
        None => ("", version.unwrap_or_default()),
    };
    let kind = kind.unwrap_or_default();
    Err(ApiError::bad_request(format!("invalid object type: {group}/{version}, Kind={kind}")))
}

/// Merges the applied object into the live one.
fn merge(
    request: &Request,
    now: Timestamp,
    live: Option<&Value>,
    applied: &Value,
) -> Result<Value, ApiError> {
    let resource = request.resource();
    let api_version = resource.api_version();
    let kind = ObjectType { api_version: &api_version, kind: resource.kind };
    let write = Write { manager: request.manager(), subresource: request.subresource(), now };
    let merged = apply::apply(kind, live, applied, write, request.query.flag("force")).map_err(refuse)?;
    let decoded = rules::decode::from_value(&api_version, resource.kind, merged)
        .map_err(|problem| ApiError::unclassified(problem.to_string()))?;
    let mut object = decoded.object;
    create::set_namespace(&mut object, request.path.namespace.as_deref())?;
    resource.strategy.default_object(&mut object);
    Ok(object)
}

fn refuse(error: ApplyError) -> ApiError {
    let message = error.to_string();
    match error {
        ApplyError::BadRequest(_) => ApiError::bad_request(message),
        ApplyError::Untyped(_) => ApiError::unclassified(message),
        ApplyError::Conflicts(conflicts) => {
            let causes = conflicts.iter().map(|conflict| {
                json!({
                    "reason": "FieldManagerConflict", "message": conflict.message(), "field": conflict.field,
                })
            });
            ApiError::apply_conflict(message).with_causes(causes.collect())
        }
    }
}
