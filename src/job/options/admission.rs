//! The rules by which the chart's ValidatingAdmissionPolicy refuses wrong values of options.
//!
//! They are in CEL, and made from [`TABLE`]. The last one says which Jobs may restart together. The policy has the variables
//! `annotations` and `before`: those of the Job, and those that it had before the change.

use std::fmt::Write as _;

use super::restart::RestartTogether;
use super::{JobOption as _, PREFIX, Row, TABLE};

impl Row {
    /// The rule of this option: a value that was there before may stay, whatever it is.
    pub fn rule(&self) -> String {
        let Self { name, pattern, longest, .. } = self;
        let key = format!("'{PREFIX}{name}'");
        let value = format!("variables.annotations[{key}]");
        format!(
            "!({key} in variables.annotations) \
             || ({key} in variables.before && variables.before[{key}] == {value}) \
             || (size({value}) <= {longest} && {value}.matches(r'{pattern}'))"
        )
    }
}

/// The rule that only Jobs without `backoffLimitPerIndex` restart together.
fn rule_of_restarts() -> String {
    let key = format!("'{PREFIX}{}'", RestartTogether::NAME);
    let value = format!("variables.annotations[{key}]");
    format!(
        "!({key} in variables.annotations) || {value} != 'true' \
         || ({key} in variables.before && variables.before[{key}] == {value}) \
         || !has(object.spec.backoffLimitPerIndex)"
    )
}

/// The list `spec.validations` of the policy, in YAML.
pub fn validations() -> String {
    let mut yaml = String::new();
    let values = TABLE.iter().map(|row| (row.rule(), row.name, row.expected));
    let restarts = (rule_of_restarts(), RestartTogether::NAME, RestartTogether::OF);
    for (rule, name, expected) in values.chain([restarts]) {
        // Writing to a string never fails. JSON is YAML, and quotes what needs quotes.
        let _ = writeln!(
            yaml,
            "- expression: {}\n  message: {}",
            serde_json::Value::from(rule),
            serde_json::Value::from(format!("annotation {PREFIX}{name}: {expected} is expected")),
        );
    }
    yaml
}
