//! The rules of `successPolicy`, read from the Job as users see it.

use std::collections::BTreeSet;

use serde_json::Value;

/// Whether these completed indexes meet a rule of the policy.
pub(super) fn is_met(policy: &Value, completed: &Value) -> bool {
    let completed = indexes(completed.as_str().unwrap_or_default());
    let rules = policy["rules"].as_array().into_iter().flatten();
    !completed.is_empty() && rules.into_iter().any(|rule| meets(rule, &completed))
}

fn meets(rule: &Value, completed: &BTreeSet<u64>) -> bool {
    let listed = rule["succeededIndexes"].as_str().map(indexes);
    let count = rule["succeededCount"].as_u64();
    let (found, all) = match &listed {
        Some(listed) => (listed.intersection(completed).count(), Some(listed.len() as u64)),
        None => (completed.len(), None),
    };
    count.or(all).is_some_and(|wanted| found as u64 >= wanted)
}

/// The indexes of a text such as `0,2-4`.
fn indexes(text: &str) -> BTreeSet<u64> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    text.split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_policy_is_met_by_its_indexes_or_by_enough_of_them() {
        for (rules, completed, met) in [
            (json!([{"succeededCount": 2}]), "0,4", true),
            (json!([{"succeededCount": 3}]), "0,4", false),
            (json!([{"succeededIndexes": "0-2"}]), "0-2,7", true),
            (json!([{"succeededIndexes": "0-2"}]), "0,2-7", false),
            (json!([{"succeededIndexes": "0-2,9", "succeededCount": 2}]), "1,9", true),
            (json!([{"succeededIndexes": "0-2,9", "succeededCount": 2}]), "1,8", false),
            (json!([{"succeededIndexes": "3"}, {"succeededIndexes": "1"}]), "1", true),
            (json!([{"succeededCount": 0}]), "", false),
        ] {
            assert_eq!(is_met(&json!({"rules": rules}), &json!(completed)), met, "{rules} {completed}");
        }
    }
}
