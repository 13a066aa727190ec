//! The rules of PersistentVolumeClaims.

use serde_json::{Value, json};

use super::core_kinds::{keep_other_part, validated, validated_update};
use super::field::{Causes, Path};
use super::metadata::{self, MetadataRule, default_text, object_at};
use super::quantity::Quantity;
use super::{Cause, Strategy, Subresource, names};

const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
const VOLUME_MODES: [&str; 2] = ["Block", "Filesystem"];
/// The access mode that excludes all others.
const ONE_POD: &str = "ReadWriteOncePod";

/// The rules of PersistentVolumeClaims, except those of data sources.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClaimStrategy;

impl Strategy for ClaimStrategy {
    fn default_object(&self, object: &mut Value) {
        default_text(object_at(object, "spec"), "volumeMode", "Filesystem");
    }

    fn prepare_create(&self, object: &mut Value) {
        object["status"] = json!({ "phase": "Pending" });
    }

    fn validate_create(&self, object: &Value) -> Vec<Cause> {
        let rule = MetadataRule { namespaced: true, name: names::dns_subdomain };
        validated(object, rule, |causes| spec(causes, &object["spec"]))
    }

    fn prepare_update(&self, subresource: Subresource, old: &Value, new: &mut Value) {
        metadata::carry_over(old, new);
        keep_other_part(subresource, old, new);
    }

    fn validate_update(&self, _: Subresource, old: &Value, new: &Value) -> Vec<Cause> {
        validated_update(old, new, |causes| {
            spec(causes, &new["spec"]);
            if fixed(&new["spec"], old) != fixed(&old["spec"], old) {
                let detail = "spec is immutable after creation except resources.requests and \
                              volumeAttributesClassName for bound claims";
                causes.forbidden(&Path::root("spec"), detail);
            }
        })
    }
}

/// The part of a claim's spec that an update cannot change.
fn fixed(spec: &Value, old: &Value) -> Value {
    let mut fixed = spec.clone();
    if let Some(fields) = fixed.as_object_mut()
        && old["status"]["phase"] == "Bound"
    {
        fields.remove("resources");
        fields.remove("volumeAttributesClassName");
    }
    // Binding sets the name of the volume.
    if let Some(fields) = fixed.as_object_mut()
        && old["spec"]["volumeName"].as_str().unwrap_or_default().is_empty()
    {
        fields.remove("volumeName");
    }
    fixed
}

fn spec(causes: &mut Causes, spec: &Value) {
    let path = Path::root("spec");
    let modes_path = path.child("accessModes");
    let modes: Vec<_> = spec["accessModes"].as_array().into_iter().flatten().collect();
    if modes.is_empty() {
        causes.required(&modes_path, "at least 1 access mode is required");
    }
    let is_known = |mode: &&Value| mode.as_str().is_some_and(|mode| ACCESS_MODES.contains(&mode));
    for mode in modes.iter().filter(|mode| !is_known(mode)) {
        causes.not_supported(&modes_path, mode, &ACCESS_MODES);
    }
    let is_mixed = modes.iter().any(|mode| **mode == ONE_POD)
        && modes.iter().any(|mode| is_known(mode) && **mode != ONE_POD);
    if is_mixed {
        causes.forbidden(&modes_path, "may not use ReadWriteOncePod with other access modes");
    }
    let resources = path.child("resources");
    let storage = resources.key("storage");
    match spec["resources"]["requests"]["storage"].as_str() {
        None => causes.required(&storage, ""),
        // A text that is no quantity was refused before.
        Some(given) => {
            if Quantity::parse(given).is_ok_and(|amount| !amount.is_positive()) {
                causes.invalid_str(&storage, given, "must be greater than zero");
            }
        }
    }
    if let Some(mode) = spec["volumeMode"].as_str().filter(|mode| !VOLUME_MODES.contains(mode)) {
        causes.not_supported_str(&path.child("volumeMode"), mode, &VOLUME_MODES);
    }
}
