//! Adoption: a Job adopts the pods that its selector selects, and no others.

use serde_json::Value;

use crate::ledger::Ledger;
use crate::time::Time;

/// Checks the adoption of a pod, if it was adopted at this time.
pub(super) fn check(at: Time, ledger: &Ledger, uid: &str) -> Option<String> {
    let pod = ledger.pods.get(uid).filter(|pod| pod.owned == at && pod.created < at)?;
    let job = ledger.jobs.get(pod.job.as_deref()?)?;
    (!selects(&job.object["spec"]["selector"], &pod.object["metadata"]["labels"]))
        .then(|| format!("{} adopts {}, which it does not select", job.name().1, pod.name().1))
}

/// Whether a selector selects these labels.
pub(super) fn selects(selector: &Value, labels: &Value) -> bool {
    let exact = selector["matchLabels"].as_object().into_iter().flatten();
    let mut expressions = selector["matchExpressions"].as_array().into_iter().flatten();
    exact.into_iter().all(|(key, value)| labels[key] == *value)
        && expressions.all(|expression| {
            let label = expression["key"].as_str().map_or(&Value::Null, |key| &labels[key]);
            let listed = || {
                expression["values"].as_array().is_some_and(|values| values.iter().any(|one| one == label))
            };
            match expression["operator"].as_str() {
                Some("In") => listed(),
                Some("NotIn") => !listed(),
                Some("Exists") => label.is_string(),
                _ => label.is_null(),
            }
        })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_selector_selects_by_labels_and_expressions() {
        let labels = json!({"app": "a", "tier": "front"});
        let expression = |key: &str, operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        for (selector, selected) in [
            (json!({"matchLabels": {"app": "a"}}), true),
            (json!({"matchLabels": {"app": "b"}}), false),
            (expression("tier", "In", &["back", "front"]), true),
            (expression("tier", "NotIn", &["front"]), false),
            (expression("other", "NotIn", &["front"]), true),
            (expression("tier", "Exists", &[]), true),
            (expression("other", "Exists", &[]), false),
            (expression("other", "DoesNotExist", &[]), true),
            (expression("tier", "DoesNotExist", &[]), false),
        ] {
            assert_eq!(selects(&selector, &labels), selected, "{selector}");
        }
    }
}
