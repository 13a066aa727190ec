//! The Job that a CronJob's template describes.

use serde_json::{Value, json};

/// The Job of a template, `spec.jobTemplate`, without a name. It has the template's spec, labels and
/// annotations, and one more annotation that names its source. Other metadata of the template does not count.
#[must_use]
pub fn job_of_template(template: &Value, (annotation, value): (&str, &str)) -> Value {
    let mut annotations = template["metadata"]["annotations"].clone();
    if annotations.is_null() {
        annotations = json!({});
    }
    // Annotations of a wrong type stay, so that they are refused.
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.insert(annotation.to_owned(), value.into());
    }
    let mut metadata = json!({ "annotations": annotations });
    let labels = &template["metadata"]["labels"];
    if !labels.is_null() {
        metadata["labels"] = labels.clone();
    }
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": template["spec"]})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_has_spec_labels_and_annotations_of_its_template() {
        let spec = json!({"template": {"spec": {"restartPolicy": "Never"}}});
        let template = json!({
            "metadata": {"name": "other", "finalizers": ["f"], "labels": {"a": "b"}, "annotations": {"c": "d"}},
            "spec": spec,
        });
        let expected = json!({
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d", "made": "so"}},
            "spec": spec,
        });
        assert_eq!(job_of_template(&template, ("made", "so")), expected);
        let wrong = json!({"metadata": {"annotations": "text"}});
        assert_eq!(job_of_template(&wrong, ("made", "so"))["metadata"], json!({"annotations": "text"}));
        assert_eq!(
            job_of_template(&json!({}), ("made", "so"))["metadata"],
            json!({"annotations": {"made": "so"}})
        );
    }
}
