//! Warnings about Jobs that are allowed but unwise.

use serde_json::Value;

use super::super::field::Path;
use super::super::pod::warnings as pod_warnings;
use super::is_indexed;

const COMPLETIONS_SOFT_MAX: i64 = 100_000;
const PARALLELISM_SOFT_MAX: i64 = 10_000;

/// Warnings about a new or changed Job.
pub(super) fn of(old: Option<&Value>, job: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    let spec = &job["spec"];
    if old.is_none() {
        let name = job["metadata"]["name"].as_str().unwrap_or_default();
        warnings.extend(pod_warnings::hostname(name, "Pod names and hostnames"));
    }
    of_spec(&mut warnings, &Path::root("spec"), spec);
    warnings
}

/// Warnings about the spec of a Job, be it one of a template.
pub(crate) fn of_spec(warnings: &mut Vec<String>, path: &Path<'_>, spec: &Value) {
    let above = |field: &str, limit| spec[field].as_i64().is_some_and(|number| number > limit);
    if is_indexed(spec)
        && above("completions", COMPLETIONS_SOFT_MAX)
        && above("parallelism", PARALLELISM_SOFT_MAX)
    {
        warnings.push(format!(
            "{path}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, \
             Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
        ));
    }
    pod_warnings::template(warnings, &path.child("template"), &spec["template"]);
}
