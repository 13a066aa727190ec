//! JSON patch (RFC 6902) within limits: a small body must not make a large or deep object.

use json_patch::{Patch, PatchOperation};
use serde_json::Value;

use crate::error::ApiError;
use crate::rules::decode::DEPTH_MAX;

/// Maximum number of operations, as in Kubernetes.
const OPERATIONS_MAX: usize = 10_000;
/// Maximum size of all copied values together, in bytes of JSON, as in Kubernetes (`JSONPatchMaxCopyBytes`).
const COPIED_BYTES_MAX: usize = 3 << 20;

/// Why a patch cannot be applied. As in Kubernetes, clients do not see the reason.
#[derive(Debug, thiserror::Error)]
pub(super) enum Inapplicable {
    /// An operation does not fit the object.
    #[error(transparent)]
    Operation(#[from] json_patch::PatchError),
    /// The copied values are too large.
    #[error("the copied values have more than {COPIED_BYTES_MAX} bytes")]
    Copied,
    /// The object would be nested too deep.
    #[error("the object would be nested more than {DEPTH_MAX} levels deep")]
    Depth,
}

/// Refuses a patch of too many operations.
pub(super) fn check_length(patch: &Patch) -> Result<(), ApiError> {
    if patch.len() <= OPERATIONS_MAX {
        return Ok(());
    }
    Err(ApiError::too_large(&format!(
        "The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {}",
        patch.len()
    )))
}

/// Applies a patch. After an error, the object is in an undefined state.
pub(super) fn apply(object: &mut Value, patch: &Patch) -> Result<(), Inapplicable> {
    // An upper bound of the object's depth, which is exact only where that matters.
    let mut deepest = depth(object);
    let mut copied = 0;
    for operation in &patch.0 {
        let added = match operation {
            PatchOperation::Add(added) => Some((&added.path, depth(&added.value))),
            PatchOperation::Replace(replaced) => Some((&replaced.path, depth(&replaced.value))),
            PatchOperation::Copy(copy) => match object.pointer(copy.from.as_str()) {
                Some(value) => {
                    copied += size(value, COPIED_BYTES_MAX - copied).ok_or(Inapplicable::Copied)?;
                    Some((&copy.path, depth(value)))
                }
                None => None,
            },
            PatchOperation::Move(moved) => {
                let mut below = deepest.saturating_sub(moved.from.count());
                // Most moves stay far from the limit, and the value need not be visited.
                if moved.path.count() + below > DEPTH_MAX {
                    below = object.pointer(moved.from.as_str()).map_or(0, depth);
                }
                Some((&moved.path, below))
            }
            PatchOperation::Remove(_) | PatchOperation::Test(_) => None,
        };
        if let Some((path, below)) = added {
            deepest = deepest.max(path.count() + below);
        }
        if deepest > DEPTH_MAX {
            return Err(Inapplicable::Depth);
        }
        json_patch::patch_unsafe(object, std::slice::from_ref(operation))?;
    }
    Ok(())
}

/// The number of maps and lists within each other: 0 for a scalar. No value is nested deeper than the parser
/// or this patch allows.
fn depth(value: &Value) -> usize {
    match value {
        Value::Array(list) => 1 + list.iter().map(depth).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// The size of a value as JSON, in bytes; `None` above `max`, which bounds the work.
fn size(value: &Value, max: usize) -> Option<usize> {
    let mut left = Limited(max);
    serde_json::to_writer(&mut left, value).ok()?;
    Some(max - left.0)
}

/// Counts written bytes down, and fails when none are left.
struct Limited(usize);

impl std::io::Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::FileTooLarge)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn applied(mut object: Value, patch: Value) -> Result<Value, Inapplicable> {
        apply(&mut object, &serde_json::from_value(patch).unwrap()).map(|()| object)
    }

    #[test]
    fn copies_are_bounded_by_their_bytes() {
        let copies = |count| {
            let copy = |n: usize| json!({"op": "copy", "from": "/a", "path": format!("/b{n}")});
            let object = json!({"a": "x".repeat(1 << 20)});
            applied(object, (0..count).map(copy).collect())
        };
        assert!(copies(2).is_ok());
        assert!(matches!(copies(3), Err(Inapplicable::Copied)));
    }

    #[test]
    fn an_object_that_contains_itself_ever_again_is_refused() {
        let copy = json!({"op": "copy", "from": "", "path": "/a"});
        let result = applied(json!({"x": 1}), vec![copy; 1000].into());
        assert!(matches!(result, Err(Inapplicable::Depth)));
    }

    #[test]
    fn no_operation_nests_deeper_than_the_limit() {
        let nested = |levels| (0..levels).fold(json!(1), |inner, _| json!([inner]));
        let path = |levels: usize| "/0".repeat(levels);
        let result = |operation: Value| applied(json!([nested(70), nested(70)]), json!([operation]));
        for (levels, fits) in [(50, true), (51, false)] {
            let path = format!("/0{}", path(levels - 1));
            let value = nested(70);
            assert_eq!(result(json!({"op": "add", "path": path, "value": value})).is_ok(), fits, "{levels}");
            assert_eq!(result(json!({"op": "copy", "from": "/1", "path": path})).is_ok(), fits, "{levels}");
            assert_eq!(result(json!({"op": "move", "from": "/1", "path": path})).is_ok(), fits, "{levels}");
        }
        // Shallow values may be moved far down.
        let back = [
            json!({"op": "add", "path": "/-", "value": 1}),
            json!({"op": "move", "from": "/2", "path": path(71)}),
        ];
        assert!(applied(json!([nested(70), nested(70)]), back.into_iter().collect()).is_ok());
    }
}
