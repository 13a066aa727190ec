//! Jobs that were read from a cluster, as `kubectl get job -o yaml` prints them: they contain what that cluster has written.

use serde_json::{Map, Value};

use crate::job::names::{CONTROLLER_UID_LABEL, JOB_NAME_LABEL, STATUS_ANNOTATIONS};

/// The metadata that a cluster writes into every object. Owners are left out with them: the objects with these UIDs are in
/// that cluster. So are the controllers that would remove the finalizers.
const METADATA: [&str; 10] = [
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generation",
    "managedFields",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// Where a cluster writes the labels by which it finds the pods of a Job.
const LABELS: [&str; 2] = ["/metadata/labels", "/spec/template/metadata/labels"];

/// Annotations that controllers and kubectl write into Jobs, besides those of the status.
const ANNOTATIONS: [&str; 3] = [
    "batch.kubernetes.io/cronjob-scheduled-timestamp",
    "batch.kubernetes.io/job-tracking",
    "kubectl.kubernetes.io/last-applied-configuration",
];

/// Labels with the UID of the Job.
const UID_LABELS: [&str; 2] = [CONTROLLER_UID_LABEL, "controller-uid"];
/// Labels with the name of the Job.
const NAME_LABELS: [&str; 2] = [JOB_NAME_LABEL, "job-name"];

/// The fields of a Job from a cluster that keep an API server from creating it again, with a reason for those that name none.
pub(super) fn in_the_way(job: &Value) -> Vec<(&'static str, &'static str)> {
    let is_given = |pointer: &str| job.pointer(pointer).is_some_and(|value| !is_empty(value));
    let has_version = is_given("/metadata/resourceVersion");
    let has_uid = |pointer: &str| {
        let labels = job.pointer(pointer);
        labels.is_some_and(|labels| UID_LABELS.iter().any(|label| !labels[label].is_null()))
    };
    let mut fields = Vec::new();
    if has_version {
        fields.push(("metadata.resourceVersion", ""));
    }
    let is_exported = has_version || is_given("/metadata/uid") || has_uid("/spec/selector/matchLabels");
    if is_exported && !has_own_selector(job) {
        if is_given("/spec/selector") {
            fields.push(("spec.selector", " (not auto-generated for the new Job)"));
        }
        if has_uid(LABELS[1]) {
            fields.push(("spec.template.metadata.labels", " (the UID of the old Job)"));
        }
    }
    fields
}

/// Takes out of an object what a cluster has written into any.
pub(super) fn clean_metadata(object: &mut Value) {
    remove(object, "", &["status"]);
    remove(object, "/metadata", &METADATA);
}

fn remove(object: &mut Value, pointer: &str, fields: &[&str]) {
    if let Some(part) = object.pointer_mut(pointer).and_then(Value::as_object_mut) {
        part.retain(|key, _| !fields.contains(&key.as_str()));
    }
}

/// Takes out of a Job what a cluster has written into it.
pub(super) fn clean(job: &mut Value) {
    let is_generated = !has_own_selector(job);
    clean_metadata(job);
    let mut remove = |pointer: &str, fields: &[&str]| remove(job, pointer, fields);
    remove("/metadata/annotations", &ANNOTATIONS);
    remove("/metadata/annotations", &STATUS_ANNOTATIONS);
    if is_generated {
        remove("/spec", &["selector"]);
        LABELS
            .iter()
            .for_each(|labels| [UID_LABELS, NAME_LABELS].iter().for_each(|names| remove(labels, names)));
    }
}

/// Whether the author of the Job has chosen its selector.
fn has_own_selector(job: &Value) -> bool {
    job["spec"]["manualSelector"] == true
}

fn is_empty(value: &Value) -> bool {
    value.is_null() || value == "" || value.as_object().is_some_and(Map::is_empty)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::job::names::{NAMES_USED_ANNOTATION, RESULTS_ANNOTATION};

    #[test]
    fn a_job_keeps_what_its_author_wrote() {
        let annotations = json!({
            NAMES_USED_ANNOTATION: "7", RESULTS_ANNOTATION: "1=0", ANNOTATIONS[2]: "{}", "yardmaster.dev/max-restarts": "3",
        });
        let metadata = json!({"name": "train", "uid": "u", "finalizers": ["example.com/hold"], "annotations": annotations});
        let mut job = json!({"metadata": metadata, "spec": {"completions": 2}, "status": {"failed": 1}});
        clean(&mut job);
        let metadata = json!({"name": "train", "annotations": {"yardmaster.dev/max-restarts": "3"}});
        assert_eq!(job, json!({"metadata": metadata, "spec": {"completions": 2}}));
    }
}
