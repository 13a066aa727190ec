//! How a container restarts: its own policy and rules, in place of the pod's policy.

use serde_json::Value;

use super::super::field::{Causes, Path};
use super::{list, security};

const POLICIES: [&str; 3] = ["Always", "Never", "OnFailure"];
const ACTIONS: [&str; 2] = ["Restart", "RestartAllContainers"];
const OPERATORS: [&str; 2] = ["In", "NotIn"];
const RULES_MAX: usize = 20;
const EXIT_CODES_MAX: usize = 255;

/// Checks policy and rules of an init container. Without a policy, the rules are not checked.
pub(super) fn validate_init(causes: &mut Causes, path: &Path<'_>, container: &Value) {
    if container["restartPolicy"].is_null() {
        policy_for_rules(causes, path, container);
    } else {
        validate(causes, path, container);
    }
}

/// Rules need a policy for what they do not decide.
fn policy_for_rules(causes: &mut Causes, path: &Path<'_>, container: &Value) {
    if container["restartPolicy"].is_null() && !list(&container["restartPolicyRules"]).is_empty() {
        let detail = "must specify restartPolicy when restart rules are used";
        causes.required(&path.child("restartPolicy"), detail);
    }
}

/// Checks policy and rules of a container.
pub(super) fn validate(causes: &mut Causes, path: &Path<'_>, container: &Value) {
    let rules = list(&container["restartPolicyRules"]);
    policy_for_rules(causes, path, container);
    security::one_of(causes, path, container, "restartPolicy", &POLICIES);
    let path = path.child("restartPolicyRules");
    if rules.len() > RULES_MAX {
        causes.too_many(&path, rules.len(), RULES_MAX);
    }
    for (index, rule) in rules.iter().enumerate() {
        let path = path.index(index);
        security::one_of(causes, &path, rule, "action", &ACTIONS);
        exit_codes(causes, &path.child("exitCodes"), &rule["exitCodes"]);
    }
}

fn exit_codes(causes: &mut Causes, path: &Path<'_>, exit_codes: &Value) {
    if exit_codes.is_null() {
        return causes.required(path, "must be specified");
    }
    security::one_of(causes, path, exit_codes, "operator", &OPERATORS);
    let values = list(&exit_codes["values"]);
    if values.len() > EXIT_CODES_MAX {
        causes.too_many(&path.child("values"), values.len(), EXIT_CODES_MAX);
    }
}
