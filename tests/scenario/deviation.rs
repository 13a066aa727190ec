//! Intended differences between Yardmaster and the reference. All other values must be the same.

use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::{Value, json};

/// A named difference in one `settle` step of one scenario.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Deviation {
    scenario: String,
    /// Index of the `settle` step among all steps.
    step: usize,
    /// Why Yardmaster differs.
    #[serde(rename = "reason")]
    _reason: String,
    /// A merge patch over the recorded expectation.
    expect: Value,
}

static DEVIATIONS: LazyLock<Vec<Deviation>> = LazyLock::new(|| {
    #[expect(clippy::expect_used, reason = "the file is part of the test")]
    serde_json::from_str(include_str!("deviations.json")).expect("deviations.json")
});

/// Scenario and step of every deviation.
pub(crate) fn named() -> impl Iterator<Item = (&'static str, usize)> {
    DEVIATIONS.iter().map(|deviation| (deviation.scenario.as_str(), deviation.step))
}

/// The expected state at a `settle` step, with its deviation applied.
pub(crate) fn right(scenario: &str, step: usize, recorded: &Value) -> Value {
    let mut right = with_true_counts(recorded);
    if let Some(deviation) = DEVIATIONS.iter().find(|d| d.scenario == scenario && d.step == step) {
        json_patch::merge(&mut right, &deviation.expect);
    }
    right
}

/// The expectation with `active` and `ready` counted from its own pods. The reference reports active 0 while
/// a replacement waits for its back-off, although other pods are active.
fn with_true_counts(recorded: &Value) -> Value {
    let count = |holds: fn(&Value) -> bool| -> u64 {
        let active = |pod: &&Value| {
            matches!(pod["phase"].as_str(), Some("Pending" | "Running"))
                && pod["terminating"] != true
                && pod["owners"].as_array().into_iter().flatten().any(|owner| owner["of"] == "job")
        };
        let pods = recorded["pods"].as_array().into_iter().flatten();
        pods.filter(active).filter(|pod| holds(pod)).filter_map(|pod| pod["count"].as_u64()).sum()
    };
    let active = Some(count(|_| true)).filter(|active| *active > 0);
    let counts = json!({"job": {"status": {"active": active, "ready": count(|pod| pod["ready"] == true)}}});
    let mut right = recorded.clone();
    if right["pods"].is_array() && right.pointer("/job/status/ready").is_some() {
        json_patch::merge(&mut right, &counts);
    }
    right
}
