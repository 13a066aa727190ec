//! Label selectors of Jobs (`metav1.LabelSelector`).

use std::fmt;

/// `spec.selector`: all requirements must hold. The empty selector matches every pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    /// The requirements of `matchLabels` (as `In` with one value) and `matchExpressions`.
    pub requirements: Vec<Requirement>,
}

/// A requirement on a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// The label.
    pub key: Box<str>,
    /// The requirement on its value.
    pub operator: Operator,
}

/// `operator` and `values` of a requirement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operator {
    /// The label is present and has one of these values.
    In(Vec<Box<str>>),
    /// The label is absent or has none of these values.
    NotIn(Vec<Box<str>>),
    /// The label is present.
    Exists,
    /// The label is absent.
    DoesNotExist,
}

/// Highest [cost](Selector::cost) of a selector that is served. It must fit into a URL, and each pod is compared with it.
pub const LONGEST_SELECTOR: usize = 2 << 10;
/// To look up a label costs as much as to compare so many bytes.
const LOOKUP: usize = 64;
/// A value takes so many bytes of memory, besides its text.
const VALUE: usize = 16;

impl Selector {
    /// The cost of keeping it, and of comparing a pod with it. It is the length of its text in bytes, 64
    /// for each requirement and 16 for each value.
    pub fn cost(&self) -> usize {
        let of_values =
            |values: &[Box<str>]| values.iter().map(|value| VALUE + value.len() + 1).sum::<usize>();
        let of = |Requirement { key, operator }: &Requirement| {
            LOOKUP
                + key.len()
                + match operator {
                    Operator::In(values) => " in ()".len() + of_values(values),
                    Operator::NotIn(values) => " notin ()".len() + of_values(values),
                    Operator::Exists => 1,
                    Operator::DoesNotExist => 2,
                }
        };
        self.requirements.iter().map(of).sum()
    }

    /// Whether labels, looked up through `get`, match.
    pub fn matches<'a>(&self, get: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|requirement| {
            let value = get(&requirement.key);
            let among = |values: &[Box<str>]| value.is_some_and(|v| values.iter().any(|x| **x == *v));
            match &requirement.operator {
                Operator::In(values) => among(values),
                Operator::NotIn(values) => !among(values),
                Operator::Exists => value.is_some(),
                Operator::DoesNotExist => value.is_none(),
            }
        })
    }
}

/// The `labelSelector` parameter of a list.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for Requirement { key, operator } in &self.requirements {
            f.write_str(std::mem::replace(&mut separator, ","))?;
            match operator {
                Operator::In(values) => write!(f, "{key} in ({})", values.join(","))?,
                Operator::NotIn(values) => write!(f, "{key} notin ({})", values.join(","))?,
                Operator::Exists => write!(f, "{key}")?,
                Operator::DoesNotExist => write!(f, "!{key}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;

    #[test]
    fn text_is_the_label_selector_parameter_of_a_list() {
        let requirement = |key: &str, operator| Requirement { key: key.into(), operator };
        let selector = Selector {
            requirements: vec![
                requirement("a", Operator::In(vec!["x".into(), "y".into()])),
                requirement("b", Operator::NotIn(vec!["z".into()])),
                requirement("c", Operator::Exists),
                requirement("d", Operator::DoesNotExist),
            ],
        };
        assert_eq!(selector.to_string(), "a in (x,y),b notin (z),c,!d");
        assert_eq!(Selector::default().to_string(), "");
        let text = selector.to_string().len() + 1;
        assert_eq!(selector.cost(), text + 4 * LOOKUP + 3 * VALUE, "each requirement has a comma");
    }

    #[test]
    fn operators_match_present_other_and_absent_values() {
        let of = |operator| Selector { requirements: vec![Requirement { key: "a".into(), operator }] };
        let values = || vec!["x".into(), "y".into()];
        for (operator, present, other, absent) in [
            (Operator::In(values()), true, false, false),
            (Operator::NotIn(values()), false, true, true),
            (Operator::Exists, true, true, false),
            (Operator::DoesNotExist, false, false, true),
        ] {
            let selector = of(operator);
            assert_eq!(selector.matches(|_| Some("x")), present, "{selector:?}");
            assert_eq!(selector.matches(|_| Some("z")), other, "{selector:?}");
            assert_eq!(selector.matches(|_| None), absent, "{selector:?}");
        }
        assert!(Selector::default().matches(|_| None));
    }
}
