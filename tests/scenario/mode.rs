//! The two modes of the controller. Scenarios were recorded with the built-in controller. Beside it,
//! Yardmaster differs in a few names.

use serde_json::{Map, Value};

/// The finalizer of the built-in controller, as in the recordings.
const BUILT_IN_FINALIZER: &str = "batch.kubernetes.io/job-tracking";

/// Yardmaster's relation to the built-in Job controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mode {
    /// In place of the built-in controller, under its names.
    Replacement,
    /// Beside it, for Jobs whose `spec.managedBy` names Yardmaster.
    External,
}

impl Mode {
    pub(crate) const ALL: [Self; 2] = [Self::Replacement, Self::External];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Replacement => "replacement",
            Self::External => "external",
        }
    }

    /// The controller's name in `spec.managedBy`.
    pub(crate) fn controller_name(self) -> &'static str {
        match self {
            Self::Replacement => "kubernetes.io/job-controller",
            Self::External => "yardmaster.dev/job-controller",
        }
    }

    /// The finalizer that holds a pod until it is counted.
    pub(crate) fn finalizer(self) -> &'static str {
        match self {
            Self::Replacement => BUILT_IN_FINALIZER,
            Self::External => "yardmaster.dev/job-tracking",
        }
    }

    /// The source component of the controller's events.
    pub(crate) fn event_source(self) -> &'static str {
        match self {
            Self::Replacement => "job-controller",
            Self::External => "yardmaster",
        }
    }

    /// Puts this mode's names into a scenario file.
    pub(crate) fn rewrite(self, file: &mut Value) {
        if self == Self::Replacement {
            return;
        }
        replace_strings(file, BUILT_IN_FINALIZER, self.finalizer());
        for job in ["job", "job2"] {
            if let Some(manifest) = file.get_mut(job) {
                self.claim(manifest);
            }
        }
        for step in file.get_mut("steps").and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(manifest) = step.pointer_mut("/reject/create") {
                self.claim(manifest);
            }
        }
    }

    fn claim(self, manifest: &mut Value) {
        if let Some(spec) = manifest.get_mut("spec").and_then(Value::as_object_mut) {
            spec.entry("managedBy").or_insert_with(|| self.controller_name().into());
        }
    }
}

/// Replaces every string that is exactly `from`.
fn replace_strings(value: &mut Value, from: &str, to: &str) {
    match value {
        Value::String(text) if text == from => to.clone_into(text),
        Value::Array(items) => items.iter_mut().for_each(|item| replace_strings(item, from, to)),
        Value::Object(fields) => fields.values_mut().for_each(|field| replace_strings(field, from, to)),
        _ => {}
    }
}

/// Removes Yardmaster's own labels or annotations.
pub(crate) fn without_own_keys(keys: &Map<String, Value>) -> Map<String, Value> {
    let foreign = |key: &str| !key.starts_with("yardmaster.dev/");
    keys.iter().filter(|(key, _)| foreign(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
}
