//! The three patch formats without field ownership: JSON patch, merge patch, strategic merge patch.

mod json;
mod strategic;

use json_patch::PatchOperation;
use json_patch::jsonptr::Pointer;
use serde_json::Value;

use super::error::ApiError;
use super::exchange::decode;
use super::resources::Resource;
use super::rules::schema::Types;

/// A decoded patch.
pub(crate) enum Patch {
    /// RFC 6902.
    Json(json_patch::Patch),
    /// RFC 7396.
    Merge(Value),
    /// Kubernetes' own merge patch, which merges lists by key.
    Strategic(Value),
}

impl Patch {
    /// Decodes a body by its media type.
    pub(crate) fn parse(media_type: &str, body: &[u8]) -> Result<Self, ApiError> {
        match media_type {
            "application/json-patch+json" => {
                let operations = decode::json(body)
                    .and_then(|value| match value {
                        Value::Array(_) => serde_json::from_value(value).map_err(|error| error.to_string()),
                        other => Err(format!(
                            "json: cannot unmarshal {} into Go value of type []handlers.jsonPatchOp",
                            decode::type_name(&other)
                        )),
                    })
                    .map_err(|problem| ApiError::bad_request(format!("error decoding patch: {problem}")))?;
                json::check_length(&operations)?;
                Ok(Self::Json(operations))
            }
            "application/merge-patch+json" => match map(body) {
                Ok(Value::Null) => Err(ApiError::bad_request("Invalid JSON Patch")),
                Ok(patch) => Ok(Self::Merge(patch)),
                Err(problem) => Err(ApiError::bad_request(format!("error decoding patch: {problem}"))),
            },
            "application/strategic-merge-patch+json" => {
                Ok(Self::Strategic(map(body).map_err(ApiError::bad_request)?))
            }
            _ => Err(ApiError::unsupported_patch_type()),
        }
    }

    /// Whether the patch may change this top-level field of an object.
    pub(crate) fn may_change(&self, field: &str) -> bool {
        match self {
            Self::Json(operations) => operations.iter().any(|operation| match operation {
                PatchOperation::Test(_) => false,
                PatchOperation::Move(moved) => leads_to(&moved.from, field) || leads_to(&moved.path, field),
                other => leads_to(other.path(), field),
            }),
            Self::Merge(patch) => patch.as_object().is_none_or(|patch| patch.contains_key(field)),
            Self::Strategic(patch) => patch
                .as_object()
                .is_none_or(|patch| patch.keys().any(|key| key == field || key.starts_with('$'))),
        }
    }

    /// Applies the patch to an object of this kind.
    pub(crate) fn apply(&self, resource: &Resource, object: &Value) -> Result<Value, ApiError> {
        let mut patched = object.clone();
        match self {
            Self::Json(operations) => {
                json::apply(&mut patched, operations).map_err(|_| ApiError::inapplicable_patch())?;
            }
            Self::Merge(patch) => json_patch::merge(&mut patched, patch),
            Self::Strategic(patch) => {
                let ty = Types::get().of_kind(&resource.api_version(), resource.kind);
                strategic::apply(&mut patched, patch, ty).map_err(ApiError::unclassified)?;
            }
        }
        Ok(patched)
    }
}

/// Whether a pointer leads to a top-level field or below it, or to the whole object.
fn leads_to(pointer: &Pointer, field: &str) -> bool {
    pointer.first().is_none_or(|token| token.decoded() == field)
}

/// A patch that must be a map; null counts as one.
fn map(body: &[u8]) -> Result<Value, String> {
    match decode::json(body)? {
        value @ (Value::Object(_) | Value::Null) => Ok(value),
        other => Err(format!(
            "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            decode::type_name(&other)
        )),
    }
}
