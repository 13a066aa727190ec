//! Annotations that mean something to pods.

use serde_json::Value;

use super::super::field::{Causes, Path};
use super::{text, volume};

const MIRROR: &str = "kubernetes.io/config.mirror";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const SECCOMP_OF_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_OF_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
const SECCOMP_PROFILES: [&str; 3] = ["runtime/default", "docker/default", "unconfined"];

/// Checks the annotations of a pod or template with this spec (`ValidatePodSpecificAnnotations`).
pub(super) fn validate(causes: &mut Causes, path: &Path<'_>, annotations: &Value, spec: &Value) {
    if let Some(value) = annotations[MIRROR].as_str()
        && text(&spec["nodeName"]).is_empty()
    {
        causes.invalid_str(
            &path.key(MIRROR),
            value,
            "must set spec.nodeName if mirror pod annotation is set",
        );
    }
    if let Some(cost) = annotations[DELETION_COST].as_str()
        && !is_cost(cost)
    {
        causes.invalid_str(&path.key(DELETION_COST), cost, "must be a 32bit integer");
    }
    if let Some(profile) = annotations[SECCOMP_OF_POD].as_str() {
        seccomp(causes, &path.child(SECCOMP_OF_POD), profile);
    }
    for (key, profile) in annotations.as_object().into_iter().flatten() {
        if key.starts_with(SECCOMP_OF_CONTAINER) {
            seccomp(causes, &path.child(key), text(profile));
        }
    }
}

/// A number without a plus sign and leading zeros.
fn is_cost(text: &str) -> bool {
    text.parse::<i32>().is_ok() && (text == "0" || !text.starts_with(['+', '0']))
}

fn seccomp(causes: &mut Causes, path: &Path<'_>, profile: &str) {
    match profile.strip_prefix("localhost/") {
        Some(file) => volume::relative_path(causes, path, file),
        None if SECCOMP_PROFILES.contains(&profile) => {}
        None => causes.invalid_str(path, profile, "must be a valid seccomp profile"),
    }
}
