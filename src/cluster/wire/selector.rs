//! Label selectors (`metav1.LabelSelector`).

use serde::Deserialize;

use super::text::{Pairs, Text};
use crate::job::selector::{Operator, Requirement, Selector};

/// A selector in JSON.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WireSelector<'a> {
    #[serde(borrow)]
    match_labels: Option<Pairs<'a>>,
    #[serde(borrow)]
    match_expressions: Option<Vec<WireRequirement<'a>>>,
}

#[derive(Debug, Default, Deserialize)]
struct WireRequirement<'a> {
    #[serde(borrow)]
    key: Text<'a>,
    #[serde(borrow)]
    operator: Text<'a>,
    #[serde(borrow)]
    values: Option<Vec<Text<'a>>>,
}

/// Reads a selector. Unknown operators are added to `skipped`, and match nothing.
pub(super) fn read_selector(selector: Option<WireSelector<'_>>, skipped: &mut Vec<String>) -> Selector {
    let Some(selector) = selector else { return match_nothing() };
    let labels = selector.match_labels.unwrap_or_default();
    let mut requirements: Vec<Requirement> = labels
        .iter()
        .map(|(key, value)| Requirement { key: key.into(), operator: Operator::In(vec![value.into()]) })
        .collect();
    for (index, expression) in selector.match_expressions.unwrap_or_default().into_iter().enumerate() {
        let values = || expression.values.iter().flatten().map(|value| (**value).into()).collect();
        let operator = match &*expression.operator {
            "In" => Operator::In(values()),
            "NotIn" => Operator::NotIn(values()),
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            other => {
                skipped.push(format!("spec.selector.matchExpressions[{index}].operator: {other}"));
                Operator::In(Vec::new())
            }
        };
        requirements.push(Requirement { key: (*expression.key).into(), operator });
    }
    Selector { requirements }
}

/// An absent selector matches nothing, unlike an empty one, which matches everything.
fn match_nothing() -> Selector {
    Selector { requirements: vec![Requirement { key: "".into(), operator: Operator::In(Vec::new()) }] }
}
