//! Classes of pods. Pods of one class are alike, so an act may choose any of them, on both sides.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The annotation with the completion index.
pub(super) const INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// The label by which the selector of a Job finds its pods.
pub(super) const OWNER_LABEL: &str = "batch.kubernetes.io/controller-uid";
const JOB_LABEL: &str = "batch.kubernetes.io/job-name";
const FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
const IGNORED: &str = "batch.kubernetes.io/job-index-ignored-failure-count";

/// Everything about a pod that both controllers must agree on.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(super) struct Class {
    /// Name of the Job that the pod was created for.
    pub(super) job: String,
    /// The index annotation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) index: Option<String>,
    pub(super) phase: String,
    pub(super) terminating: bool,
    /// Whether it has the tracking finalizer.
    pub(super) tracked: bool,
    /// Whether it has a controller reference.
    pub(super) owned: bool,
    /// Whether the selector of the Job finds it.
    pub(super) labelled: bool,
    pub(super) ready: bool,
    /// Whether it is bound to a node.
    pub(super) scheduled: bool,
    /// Annotations of the per-index back-off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) failures: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ignored: Option<String>,
}

impl Class {
    /// The class of a pod, where this is the tracking finalizer.
    pub(super) fn of(pod: &Value, finalizer: &str) -> Self {
        let metadata = &pod["metadata"];
        let annotation = |key: &str| metadata["annotations"][key].as_str().map(str::to_owned);
        let owner = owner(pod);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let finalizers = metadata["finalizers"].as_array();
        Self {
            job: text(owner.map_or(&metadata["labels"][JOB_LABEL], |owner| &owner["name"])),
            index: annotation(INDEX),
            phase: text(&pod["status"]["phase"]),
            terminating: metadata["deletionTimestamp"].is_string(),
            tracked: finalizers.is_some_and(|all| all.iter().any(|name| name == finalizer)),
            owned: owner.is_some(),
            labelled: metadata["labels"][OWNER_LABEL].is_string(),
            ready: is_ready(pod),
            scheduled: pod["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty()),
            failures: annotation(FAILURES),
            ignored: annotation(IGNORED),
        }
    }

    /// Whether a pod of this class has not ended.
    pub(super) fn is_live(&self) -> bool {
        !matches!(&*self.phase, "Succeeded" | "Failed")
    }

    /// Whether a Job counts a pod of this class as active.
    pub(super) fn is_active(&self) -> bool {
        self.is_live() && !self.terminating
    }
}

/// Whether a pod has the condition Ready.
pub(super) fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|one| one["type"] == "Ready" && one["status"] == "True")
}

/// The controller reference of a pod.
pub(super) fn owner(pod: &Value) -> Option<&Value> {
    let owners = pod["metadata"]["ownerReferences"].as_array()?;
    owners.iter().find(|owner| owner["controller"] == true)
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let index = self.index.as_ref().map(|index| format!(" index {index}")).unwrap_or_default();
        write!(f, "{}{index} {}", self.job, self.phase)?;
        let words = [
            (self.terminating, "terminating"),
            (self.ready, "ready"),
            (self.tracked, "tracked"),
            (!self.owned, "without owner"),
            (!self.labelled, "without label"),
            (!self.scheduled, "unscheduled"),
        ];
        words.iter().filter(|(is, _)| *is).try_for_each(|(_, word)| write!(f, " {word}"))?;
        for (name, count) in [("failures", &self.failures), ("ignored", &self.ignored)] {
            if let Some(count) = count.as_ref().filter(|count| *count != "0") {
                write!(f, " {name} {count}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod() -> Value {
        json!({
            "metadata": {
                "finalizers": ["f"], "annotations": {INDEX: "1"}, "labels": {OWNER_LABEL: "u", JOB_LABEL: "j1"},
                "ownerReferences": [{"kind": "Job", "name": "j1", "controller": true}],
            },
            "spec": {"nodeName": "n1"},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        })
    }

    #[test]
    fn a_class_has_what_controllers_agree_on() {
        let class = Class::of(&pod(), "f");
        assert_eq!(class.to_string(), "j1 index 1 Running ready tracked");
        assert!(class.is_active());
        let mut changed = pod();
        changed["metadata"]["ownerReferences"] = Value::Null;
        changed["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let class = Class::of(&changed, "another");
        assert_eq!(class.to_string(), "j1 index 1 Running terminating ready without owner");
        assert!(class.is_live() && !class.is_active());
    }

    #[test]
    fn names_and_versions_make_no_difference() {
        let mut other = pod();
        other["metadata"]["name"] = json!("j1-1-x");
        other["metadata"]["resourceVersion"] = json!("7");
        assert_eq!(Class::of(&other, "f"), Class::of(&pod(), "f"));
    }
}
