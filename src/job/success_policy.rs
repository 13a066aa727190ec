//! `spec.successPolicy`: success of an Indexed Job before all of its indexes have succeeded.

use super::index_set::IndexSet;
use super::spec::SuccessRule;
use crate::mutants::{Mutant, is};

/// Position of the first rule that these succeeded indexes meet.
pub fn first_met(rules: &[SuccessRule], succeeded: &IndexSet) -> Option<usize> {
    if succeeded.is_empty() || is(Mutant::SuccessPolicyIgnored) {
        return None;
    }
    rules.iter().position(|rule| match (&rule.indexes, rule.count) {
        (None, count) => count.is_some_and(|count| succeeded.len() >= count),
        (Some(None), _) => false,
        (Some(Some(listed)), count) => succeeded.overlap(listed) >= count.unwrap_or(listed.len()),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;

    #[test]
    fn the_first_rule_that_is_met_decides() {
        let rule = |indexes: Option<&str>, count| SuccessRule {
            indexes: indexes.map(IndexSet::parse_strict),
            count,
        };
        for (rules, succeeded, expected) in [
            (vec![rule(None, Some(0))], "", None),
            (vec![rule(None, Some(2))], "3", None),
            (vec![rule(None, Some(2))], "3,7", Some(0)),
            (vec![rule(Some("0,2"), None)], "0,1", None),
            (vec![rule(Some("0,2"), None)], "0-2", Some(0)),
            (vec![rule(Some("0-4"), Some(2))], "4-9", None),
            (vec![rule(Some("0-4"), Some(2))], "3-9", Some(0)),
            (vec![rule(Some("x"), None), rule(Some("1"), None)], "1", Some(1)),
        ] {
            assert_eq!(
                first_met(&rules, &IndexSet::parse_lenient(succeeded, 100)),
                expected,
                "{rules:?} {succeeded}"
            );
        }
    }
}
