//! Pod templates: `spec.template` of Jobs.

use serde_json::Value;

use super::super::field::{Causes, Path};
use super::super::metadata::{self, as_object, child};
use super::{annotations, defaults, spec};

/// The defaults of a template.
pub(crate) fn default_template(template: &mut Value) {
    let template = as_object(template);
    as_object(child(template, "metadata"));
    defaults::default_spec(as_object(child(template, "spec")));
}

/// Checks a template (`ValidatePodTemplateSpec`). As in Kubernetes, the paths of its labels and annotations
/// do not contain `metadata`.
pub(crate) fn validate(causes: &mut Causes, path: &Path<'_>, template: &Value) {
    let metadata = &template["metadata"];
    metadata::labels(causes, &path.child("labels"), &metadata["labels"]);
    metadata::annotations(causes, &path.child("annotations"), &metadata["annotations"]);
    annotations::validate(causes, &path.child("annotations"), &metadata["annotations"], &template["spec"]);
    let spec_path = path.child("spec");
    spec::validate(causes, &spec_path, &template["spec"], false);
    if template["spec"]["ephemeralContainers"].as_array().is_some_and(|list| !list.is_empty()) {
        let detail = "ephemeral containers not allowed in pod template";
        causes.forbidden(&spec_path.child("ephemeralContainers"), detail);
    }
}
