//! Queries of the conditions in a Job's status.

use serde_json::Value;

/// Whether the status has a condition of this type with status `True`.
pub(super) fn is_true(status: &Value, kind: &str) -> bool {
    has(status, kind, "True")
}

/// Whether the status has a condition of this type with this status, among others of the type or not.
pub(super) fn has(status: &Value, kind: &str, value: &str) -> bool {
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == *kind && condition["status"] == *value)
}

/// Whether the Job is complete or failed.
pub(super) fn is_finished(status: &Value) -> bool {
    is_true(status, "Complete") || is_true(status, "Failed")
}
