//! The consequences of `podFailurePolicy` for a pod, read from the Job as users see it.

use serde_json::Value;

use crate::ledger::{JobFacts, PodFacts, conditions};

/// The consequence of a pod's failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Consequence {
    /// The Job fails.
    FailJob,
    /// Its index fails.
    FailIndex,
    /// Nothing.
    Ignore,
    /// It counts.
    Count,
}

/// The consequence of a failed pod.
pub(super) fn consequence(job: &JobFacts, pod: &PodFacts) -> Consequence {
    let rules = job.object["spec"]["podFailurePolicy"]["rules"].as_array();
    let first = rules.into_iter().flatten().find(|rule| matches(rule, &pod.object));
    match first.and_then(|rule| rule["action"].as_str()) {
        Some("FailJob") => Consequence::FailJob,
        Some("FailIndex") => Consequence::FailIndex,
        Some("Ignore") => Consequence::Ignore,
        _ => Consequence::Count,
    }
}

fn matches(rule: &Value, pod: &Value) -> bool {
    let codes = &rule["onExitCodes"];
    if let Some(values) = codes["values"].as_array() {
        let containers = pod["status"]["containerStatuses"].as_array();
        let exits = containers
            .into_iter()
            .flatten()
            .filter_map(|container| container["state"]["terminated"]["exitCode"].as_i64())
            .filter(|code| *code != 0);
        let inside = codes["operator"] == "In";
        return exits.into_iter().any(|code| values.iter().any(|value| *value == code) == inside);
    }
    let patterns = rule["onPodConditions"].as_array();
    patterns.into_iter().flatten().any(|pattern| {
        conditions(pod).any(|is| is["type"] == pattern["type"] && is["status"] == pattern["status"])
    })
}
