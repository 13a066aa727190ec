//! PATCH.

use http::StatusCode;
use serde_json::{Map, Value};

use super::{Writer, apply_patch, update};
use crate::error::ApiError;
use crate::exchange::decode;
use crate::exchange::reply::Reply;
use crate::exchange::request::Request;
use crate::exchange::{media, options};
use crate::object::meta;
use crate::patch::Patch;
use crate::resources::Resource;
use crate::rules::decode::{DecodeError, Decoded};
use crate::rules::{self, FieldValidation};
use crate::server::Server;

/// PATCH of an object or of its status.
pub(crate) fn patch(server: &Server, request: &Request) -> Result<Reply, ApiError> {
    if options::APPLY_TYPES.contains(&media::essence(&request.content_type)) {
        return apply_patch::apply(server, request);
    }
    let resource = request.resource();
    let rows = request.rows()?;
    let validation = request.field_validation();
    let mut unknown = Vec::new();
    let patch = Patch::parse(media::essence(&request.content_type), &request.body)?;
    let refuse = |why: &str| ApiError::invalid_patch(&String::from_utf8_lossy(&request.body), why);
    let (key, subresource, writer) = (request.key(), request.subresource(), Writer::of(server, request));
    let (stored, warnings) = update::modify(server, resource, &key, subresource, writer, |old| {
        let patched = patch.apply(resource, old)?;
        if let Some(why) = decode::changed_kind(resource, &patched) {
            return Err(refuse(&why));
        }
        check_identity(request, &patched)?;
        let decoded =
            decode_changes(resource, &patch, patched).map_err(|problem| refuse(&problem.to_string()))?;
        match validation {
            FieldValidation::Strict if !decoded.strict.is_empty() => {
                return Err(refuse(&format!("strict decoding error: {}", decoded.strict.join(", "))));
            }
            FieldValidation::Warn => unknown = decoded.strict,
            FieldValidation::Strict | FieldValidation::Ignore => {}
        }
        let mut patched = decoded.object;
        resource.strategy.default_object(&mut patched);
        Ok(patched)
    })?;
    let reply = Reply::object(StatusCode::OK, request.accept, resource, &stored, rows)?;
    Ok(reply.with_warnings(unknown).with_warnings(warnings))
}

/// Decodes a patched object as its type. Fields outside the patch were validated when stored.
fn decode_changes(resource: &Resource, patch: &Patch, patched: Value) -> Result<Decoded, DecodeError> {
    let api_version = resource.api_version();
    let Value::Object(fields) = patched else {
        return rules::decode::from_value(&api_version, resource.kind, patched);
    };
    let (changed, kept): (Map<String, Value>, Map<String, Value>) =
        fields.into_iter().partition(|(field, _)| patch.may_change(field));
    let mut decoded = rules::decode::from_value(&api_version, resource.kind, Value::Object(changed))?;
    if let Some(object) = decoded.object.as_object_mut() {
        object.extend(kept);
    }
    Ok(decoded)
}

/// Refuses a patch that changes the name or namespace.
fn check_identity(request: &Request, patched: &Value) -> Result<(), ApiError> {
    let name = meta(patched, "name");
    if name != request.name() {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            request.name()
        )));
    }
    let namespace = request.path.namespace.as_deref().unwrap_or_default();
    if meta(patched, "namespace") != namespace {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}
