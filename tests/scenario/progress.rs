//! Statuses that come late: while the API server is busy, a Job writes what only shows its progress less often.

use serde_json::{Map, Value};

use crate::scenario::compare::difference;

/// Whether the next status of a Job may still make this state right.
pub(crate) fn waits_for_status(right: &Value, actual: &Value) -> bool {
    differ_in_progress_only(right, actual) || is_counting(actual)
}

/// Whether the status of a Job lists pods that its next one counts.
fn is_counting(state: &Value) -> bool {
    ["job", "job2"].iter().any(|job| {
        let uncounted = state[job].pointer("/status/uncountedTerminatedPods").and_then(Value::as_object);
        uncounted.is_some_and(|uncounted| !uncounted.is_empty())
    })
}

/// Whether two states of a namespace differ only in the start and the active pods in the statuses of its
/// Jobs.
fn differ_in_progress_only(right: &Value, actual: &Value) -> bool {
    let without_progress = |state: &Value| {
        let mut state = state.clone();
        for job in ["job", "job2"] {
            let status = state.get_mut(job).and_then(|job| job.get_mut("status"));
            if let Some(status) = status.and_then(Value::as_object_mut) {
                status.retain(|field, value| match field.as_str() {
                    "active" | "ready" | "terminating" | "startTime" => false,
                    // Beside the start.
                    "uncountedTerminatedPods" => *value != Value::Object(Map::new()),
                    _ => true,
                });
            }
        }
        state
    };
    difference(&without_progress(right), &without_progress(actual)).is_none()
}
