//! `metav1.LabelSelector`: validation and matching.

use serde_json::Value;

use super::field::{Causes, Path};
use super::{metadata, names};

/// Checks a label selector.
pub(crate) fn validate(causes: &mut Causes, path: &Path<'_>, selector: &Value) {
    metadata::labels(causes, &path.child("matchLabels"), &selector["matchLabels"]);
    let expressions_path = path.child("matchExpressions");
    for (index, expression) in selector["matchExpressions"].as_array().into_iter().flatten().enumerate() {
        expression_rules(causes, &expressions_path.index(index), expression);
    }
}

fn expression_rules(causes: &mut Causes, path: &Path<'_>, expression: &Value) {
    let values = expression["values"].as_array().map_or(&[][..], Vec::as_slice);
    let operator = &expression["operator"];
    match operator.as_str().unwrap_or_default() {
        "In" | "NotIn" if values.is_empty() => {
            causes.required(&path.child("values"), "must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            causes.forbidden(
                &path.child("values"),
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            );
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        given => causes.invalid(&path.child("operator"), &given.into(), "not a valid selector operator"),
    }
    let key = expression["key"].as_str().unwrap_or_default();
    causes.invalid_each(&path.child("key"), key, names::qualified_name(key));
    for (index, value) in values.iter().enumerate() {
        let value = value.as_str().unwrap_or_default();
        causes.invalid_each(&path.child("values").index(index), value, names::label_value(value));
    }
}

/// Whether the selector matches the labels: an absent selector matches nothing, an empty one everything.
/// Returns `None` if the selector is malformed.
pub(crate) fn matches(selector: &Value, labels: &Value) -> Option<bool> {
    if selector.is_null() {
        return Some(false);
    }
    let valid = |key: &str, value: &Value| {
        names::qualified_name(key).is_empty()
            && value.as_str().is_some_and(|value| names::label_value(value).is_empty())
    };
    if !selector["matchLabels"].as_object().into_iter().flatten().all(|(key, value)| valid(key, value)) {
        return None;
    }
    let by_labels =
        selector["matchLabels"].as_object().into_iter().flatten().all(|(key, value)| labels[key] == *value);
    let mut matched = by_labels;
    for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
        matched &= expression_matches(expression, labels)?;
    }
    Some(matched)
}

fn expression_matches(expression: &Value, labels: &Value) -> Option<bool> {
    let key = expression["key"].as_str()?;
    let value = &labels[key];
    let values = expression["values"].as_array().map_or(&[][..], Vec::as_slice);
    let valid = |value: &Value| value.as_str().is_some_and(|value| names::label_value(value).is_empty());
    if !names::qualified_name(key).is_empty() || !values.iter().all(valid) {
        return None;
    }
    match expression["operator"].as_str()? {
        "In" if !values.is_empty() => Some(values.contains(value)),
        "NotIn" if !values.is_empty() => Some(!values.contains(value)),
        "Exists" if values.is_empty() => Some(!value.is_null()),
        "DoesNotExist" if values.is_empty() => Some(value.is_null()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn expressions_and_labels_must_all_match() {
        let labels = json!({"a": "b", "c": "d"});
        let expression = |key: &str, operator: &str, values: Value| {
            matches(
                &json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]}),
                &labels,
            )
        };
        assert_eq!(expression("a", "In", json!(["b", "x"])), Some(true));
        assert_eq!(expression("z", "NotIn", json!(["b"])), Some(true));
        assert_eq!(expression("z", "Exists", json!([])), Some(false));
        assert_eq!(expression("z", "DoesNotExist", json!([])), Some(true));
        assert_eq!(matches(&json!({"matchLabels": {"a": "b", "c": "x"}}), &labels), Some(false));
        assert_eq!(matches(&json!({}), &labels), Some(true));
        assert_eq!(matches(&Value::Null, &labels), Some(false));
    }

    #[test]
    fn malformed_selectors_neither_match_nor_mismatch() {
        let labels = json!({"a": "b"});
        let malformed = [
            json!({"matchLabels": {"a b": "c"}}),
            json!({"matchLabels": {"a": "b c"}}),
            json!({"matchExpressions": [{"key": "a", "operator": "In"}]}),
            json!({"matchExpressions": [{"key": "a", "operator": "Near", "values": ["b"]}]}),
        ];
        for selector in malformed {
            assert_eq!(matches(&selector, &labels), None, "{selector}");
        }
    }
}
