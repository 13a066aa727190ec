//! Compares an expectation with the observed state.

use serde_json::{Map, Value};
use similar::TextDiff;

use crate::scenario::indexes;

/// A readable diff of the keys in `expected`. Returns `None` if there is no difference.
pub(crate) fn difference(expected: &Value, actual: &Value) -> Option<String> {
    let keys = expected.as_object()?;
    let differences = keys.iter().filter_map(|(key, expected)| {
        let (expected, actual) = match key.as_str() {
            "delay" => return late_enough(expected, &actual[key]),
            "job" | "job2" => (expected.clone(), only_compared(expected, &actual[key])),
            "pods" => (canonical_pods(expected), canonical_pods(&actual[key])),
            "events" => (canonical(expected), canonical(&with_at_least(expected, &actual[key]))),
            _ => (canonical(expected), canonical(&actual[key])),
        };
        (expected != actual).then(|| diff(key, &expected, &actual))
    });
    let text: String = differences.collect();
    (!text.is_empty()).then_some(text)
}

/// A delay has a lower bound only.
fn late_enough(expected: &Value, actual: &Value) -> Option<String> {
    let least = expected["minSeconds"].as_i64().unwrap_or_default();
    match actual.as_i64() {
        Some(seconds) if seconds >= least => None,
        seconds => Some(format!("delay: expected at least {least} s, found {seconds:?}\n")),
    }
}

/// Removes the actual status if the expectation has none.
fn only_compared(expected: &Value, actual: &Value) -> Value {
    let mut actual = actual.clone();
    if let (Some(expected), Some(actual)) = (expected.as_object(), actual.as_object_mut())
        && !expected.contains_key("status")
    {
        actual.remove("status");
    }
    actual
}

/// Sorts lists, which stand for sets, and removes nulls, which mean absent fields.
fn canonical(list: &Value) -> Value {
    let Some(items) = list.as_array() else { return without_nulls(list) };
    let mut items: Vec<_> = items.iter().map(without_nulls).map(sort_owners).collect();
    items.sort_by_cached_key(Value::to_string);
    items.into()
}

fn canonical_pods(list: &Value) -> Value {
    let Some(groups) = list.as_array() else { return list.clone() };
    let group = |group: &Value| {
        let mut group = group.clone();
        let indexes = group["indexes"].as_str().and_then(|text| indexes::parse(text).ok());
        if let Some(indexes) = indexes {
            group["indexes"] = indexes::render(&indexes).into();
        }
        group
    };
    canonical(&groups.iter().map(group).collect())
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(_, value)| !value.is_null());
            Value::Object(kept.map(|(key, value)| (key.clone(), without_nulls(value))).collect::<Map<_, _>>())
        }
        other => other.clone(),
    }
}

fn sort_owners(mut object: Value) -> Value {
    if let Some(owners) = object.get_mut("owners").and_then(Value::as_array_mut) {
        owners.sort_by_cached_key(Value::to_string);
    }
    object
}

/// The actual events. A count that reaches an expected `countAtLeast` is shown as that bound.
fn with_at_least(expected: &Value, actual: &Value) -> Value {
    let same = |a: &Value, b: &Value| ["on", "type", "reason", "message"].iter().all(|key| a[key] == b[key]);
    let events = actual.as_array().into_iter().flatten().map(|event| {
        let bound = expected.as_array().into_iter().flatten().find(|bound| same(bound, event));
        let least = bound.and_then(|bound| bound["countAtLeast"].as_u64());
        match (bound, least) {
            (Some(bound), Some(least)) if event["count"].as_u64() >= Some(least) => bound.clone(),
            _ => event.clone(),
        }
    });
    events.collect()
}

fn diff(key: &str, expected: &Value, actual: &Value) -> String {
    let [expected, actual] = [expected, actual].map(|value| format!("{value:#}\n"));
    let text = TextDiff::from_lines(&expected, &actual);
    format!("{key}: (- expected, + found)\n{}", text.unified_diff().context_radius(4))
}
