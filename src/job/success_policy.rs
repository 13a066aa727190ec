//! `spec.successPolicy`: success of an Indexed Job before all of its indexes have succeeded.

use super::index_set::IndexSet;
use super::spec::SuccessRule;
use crate::mutants::{Mutant, is};

/// Most bytes of the texts of all `succeededIndexes` of a policy that is served. Kubernetes allows 20 of 64 KiB.
pub const LONGEST_SUCCESS_POLICY: usize = 16 << 10;

/// Position of the first rule that these succeeded indexes meet.
pub fn first_met(rules: &[SuccessRule], succeeded: &IndexSet) -> Option<usize> {
    if succeeded.is_empty() || is(Mutant::SuccessPolicyIgnored) {
        return None;
    }
    rules.iter().position(|rule| match (&rule.indexes, rule.count) {
        (None, count) => count.is_some_and(|count| succeeded.len() >= count),
        (Some(None), _) => false,
        (Some(Some(listed)), count) => meets(succeeded, listed, count.unwrap_or(listed.len()).into()),
    })
}

/// Whether this many of the listed indexes have succeeded. The overlap is counted only where both sets have as many: a policy may
/// have thousands of intervals, and each plan asks.
fn meets(succeeded: &IndexSet, listed: &IndexSet, wanted: u64) -> bool {
    let most = succeeded.len().min(listed.len());
    wanted <= most.into() && wanted <= succeeded.overlap(listed).into()
}

/// Whether these succeeded indexes meet a rule, or would with this many more.
pub fn is_in_reach(rules: &[SuccessRule], succeeded: &IndexSet, more: usize) -> bool {
    let with_more = |indexes: u32| u64::from(indexes).saturating_add(more as u64);
    rules.iter().any(|rule| match (&rule.indexes, rule.count) {
        (None, count) => count.is_some_and(|count| with_more(succeeded.len()) >= count.into()),
        (Some(None), _) => false,
        (Some(Some(listed)), count) => {
            let wanted = u64::from(count.unwrap_or(listed.len()));
            meets(succeeded, listed, wanted.saturating_sub(more as u64))
        }
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

    #[test]
    fn a_rule_is_in_reach_if_the_active_pods_can_meet_it() {
        let rule = |indexes: Option<&str>, count| SuccessRule {
            indexes: indexes.map(IndexSet::parse_strict),
            count,
        };
        for (rules, succeeded, more, expected) in [
            (vec![], "0-9", 9, false),
            (vec![rule(None, Some(3))], "3", 1, false),
            (vec![rule(None, Some(3))], "3", 2, true),
            (vec![rule(Some("0-2"), None)], "0,7", 1, false),
            (vec![rule(Some("0-2"), None)], "0,7", 2, true),
            (vec![rule(Some("0-2"), Some(1))], "7", 1, true),
            (vec![rule(Some("x"), None)], "0-9", 9, false),
        ] {
            let succeeded = IndexSet::parse_lenient(succeeded, 100);
            assert_eq!(is_in_reach(&rules, &succeeded, more), expected, "{rules:?} {succeeded} {more}");
        }
    }
}
