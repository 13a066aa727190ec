//! `spec.podFailurePolicy` of a Job.

use std::collections::HashSet;

use serde_json::Value;

use super::super::field::{Causes, Path};
use super::super::names;

const RULES_MAX: usize = 20;
const EXIT_CODES_MAX: usize = 255;
const PATTERNS_MAX: usize = 20;

const ACTIONS: [&str; 4] = ["Count", "FailIndex", "FailJob", "Ignore"];
const OPERATORS: [&str; 2] = ["In", "NotIn"];
const CONDITION_STATUSES: [&str; 3] = ["False", "True", "Unknown"];

/// A list of values in the form of messages about a missing one.
fn valid_values(values: &[&str]) -> String {
    let quoted: Vec<String> = values.iter().map(|value| format!("{value:?}")).collect();
    format!("valid values: [{}]", quoted.join(" "))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Checks the policy of `spec`.
pub(super) fn validate(causes: &mut Causes, path: &Path<'_>, spec: &Value) {
    let path = path.child("podFailurePolicy");
    let path = path.child("rules");
    let rules = list(&spec["podFailurePolicy"]["rules"]);
    if rules.len() > RULES_MAX {
        causes.too_many(&path, rules.len(), RULES_MAX);
    }
    let pod = &spec["template"]["spec"];
    let containers = list(&pod["containers"]).iter().chain(list(&pod["initContainers"]));
    let containers: HashSet<&str> = containers.filter_map(|container| container["name"].as_str()).collect();
    for (index, rule) in rules.iter().enumerate() {
        validate_rule(causes, &path.index(index), spec, &containers, rule);
    }
}

fn validate_rule(
    causes: &mut Causes,
    path: &Path<'_>,
    spec: &Value,
    containers: &HashSet<&str>,
    rule: &Value,
) {
    let action_path = path.child("action");
    match rule["action"].as_str().unwrap_or_default() {
        "" => causes.required(&action_path, &valid_values(&ACTIONS)),
        "FailIndex" if spec["backoffLimitPerIndex"].is_null() => {
            causes.invalid(&action_path, &rule["action"], "requires the backoffLimitPerIndex to be set");
        }
        action if !ACTIONS.contains(&action) => causes.not_supported(&action_path, &rule["action"], &ACTIONS),
        _ => {}
    }
    let exit_codes = &rule["onExitCodes"];
    let patterns = list(&rule["onPodConditions"]);
    if !exit_codes.is_null() {
        validate_exit_codes(causes, &path.child("onExitCodes"), containers, exit_codes);
    }
    validate_patterns(causes, &path.child("onPodConditions"), patterns);
    match (exit_codes.is_null(), patterns.is_empty()) {
        (false, false) => {
            causes.invalid_omitted(path, "specifying both OnExitCodes and OnPodConditions is not supported");
        }
        (true, true) => {
            causes.invalid_omitted(path, "specifying one of OnExitCodes and OnPodConditions is required");
        }
        _ => {}
    }
}

fn validate_exit_codes(
    causes: &mut Causes,
    path: &Path<'_>,
    containers: &HashSet<&str>,
    requirement: &Value,
) {
    let operator = &requirement["operator"];
    match operator.as_str().unwrap_or_default() {
        "" => causes.required(&path.child("operator"), &valid_values(&OPERATORS)),
        given if !OPERATORS.contains(&given) => {
            causes.not_supported(&path.child("operator"), operator, &OPERATORS)
        }
        _ => {}
    }
    if let Some(name) = requirement["containerName"].as_str()
        && !containers.contains(name)
    {
        let detail = "must be one of the container or initContainer names in the pod template";
        causes.invalid_str(&path.child("containerName"), name, detail);
    }
    let values = list(&requirement["values"]);
    let path = path.child("values");
    if values.is_empty() {
        causes.invalid(&path, &requirement["values"], "at least one value is required");
    } else if values.len() > EXIT_CODES_MAX {
        causes.too_many(&path, values.len(), EXIT_CODES_MAX);
    }
    validate_exit_code_values(causes, &path, operator == "In", values);
}

fn validate_exit_code_values(causes: &mut Causes, path: &Path<'_>, is_in: bool, values: &[Value]) {
    let (mut ordered, mut known) = (true, HashSet::new());
    for (index, value) in values.iter().enumerate() {
        if is_in && *value == 0 {
            causes.invalid(&path.index(index), value, "must not be 0 for the In operator");
        }
        if !known.insert(value) {
            causes.duplicate(&path.index(index), value);
        }
        if index > 0 && values[index - 1].as_i64() > value.as_i64() {
            ordered = false;
        }
    }
    if !ordered {
        causes.invalid(path, &Value::Array(values.to_vec()), "must be ordered");
    }
}

fn validate_patterns(causes: &mut Causes, path: &Path<'_>, patterns: &[Value]) {
    if patterns.len() > PATTERNS_MAX {
        causes.too_many(path, patterns.len(), PATTERNS_MAX);
    }
    for (index, pattern) in patterns.iter().enumerate() {
        let path = path.index(index);
        let kind = pattern["type"].as_str().unwrap_or_default();
        causes.invalid_each(&path.child("type"), kind, names::qualified_name(kind));
        let status = &pattern["status"];
        match status.as_str().unwrap_or_default() {
            "" => causes.required(&path.child("status"), &valid_values(&CONDITION_STATUSES)),
            given if !CONDITION_STATUSES.contains(&given) => {
                causes.not_supported(&path.child("status"), status, &CONDITION_STATUSES);
            }
            _ => {}
        }
    }
}
