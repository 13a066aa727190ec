//! `spec.podFailurePolicy`: the consequences of a pod's failure, by exit codes and conditions.
//!
//! The first rule that matches decides; without a match the failure counts.

use super::pod::{ContainerExit, Outcome};
use super::spec::{PodFailureAction, PodFailurePattern, PodFailureRule};
use crate::mutants::{Mutant, is};

/// Most bytes of the names of containers and the types of conditions in a policy that is served. Kubernetes allows 400 types of
/// 317 bytes.
pub const LONGEST_FAILURE_POLICY: usize = 16 << 10;

/// The rule that a pod matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match<'a> {
    /// Position of the rule in the policy.
    pub rule: usize,
    /// Its action.
    pub action: PodFailureAction,
    /// The container exit or pod condition that matched.
    pub cause: Cause<'a>,
}

/// The container exit or pod condition that a rule matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause<'a> {
    /// A container ended with an exit code.
    Exit(&'a ContainerExit),
    /// The pod has a condition of this type and status.
    Condition(&'a (Box<str>, Box<str>)),
}

/// The first rule that matches.
pub fn judge<'a>(rules: &[PodFailureRule], outcome: &'a Outcome) -> Option<Match<'a>> {
    if is(Mutant::FailurePolicyIgnored) {
        return None;
    }
    rules.iter().enumerate().find_map(|(rule, PodFailureRule { action, on })| {
        let cause = match on {
            PodFailurePattern::ExitCodes { container, inside, values } => outcome
                .containers
                .iter()
                .chain(&outcome.init_containers)
                .filter(|exit| exit.exit_code != 0)
                .filter(|exit| container.as_ref().is_none_or(|name| *name == exit.name))
                .find(|exit| values.binary_search(&exit.exit_code).is_ok() == *inside)
                .map(Cause::Exit),
            PodFailurePattern::PodConditions(patterns) => {
                outcome.conditions.iter().find(|c| patterns.contains(c)).map(Cause::Condition)
            }
        }?;
        Some(Match { rule, action: *action, cause })
    })
}

/// The decisive part of an outcome: the exit or condition that the first rule that matches matches. By
/// these rules it is judged as the whole, since no earlier rule matches a part of it. Rules never change
/// (`spec.podFailurePolicy` is immutable), so nothing else is ever needed, and a Job may have 100,000 pods.
pub fn decisive(rules: &[PodFailureRule], outcome: &Outcome) -> Option<Outcome> {
    Some(match judge(rules, outcome)?.cause {
        Cause::Exit(exit) => Outcome { containers: vec![exit.clone()], ..Outcome::default() },
        Cause::Condition(condition) => Outcome { conditions: vec![condition.clone()], ..Outcome::default() },
    })
}

impl Match<'_> {
    /// The message of the FailureTarget condition after a match of a `FailJob` rule.
    pub fn fail_job_message(&self, namespace: &str, pod: &str) -> String {
        let rule = self.rule;
        match &self.cause {
            Cause::Exit(ContainerExit { name, exit_code, .. }) => format!(
                "Container {name} for pod {namespace}/{pod} failed with exit code {exit_code} matching FailJob rule at index {rule}"
            ),
            Cause::Condition((kind, _)) => {
                format!("Pod {namespace}/{pod} has condition {kind} matching FailJob rule at index {rule}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;
    use PodFailureAction::{Count, FailJob, Ignore};

    fn exits(pairs: &[(&str, i32)]) -> Vec<ContainerExit> {
        pairs
            .iter()
            .map(|(name, exit_code)| ContainerExit {
                name: (*name).into(),
                exit_code: *exit_code,
                out_of_memory: false,
            })
            .collect()
    }

    fn codes(
        action: PodFailureAction,
        container: Option<&str>,
        inside: bool,
        values: &[i32],
    ) -> PodFailureRule {
        let on = PodFailurePattern::ExitCodes {
            container: container.map(Into::into),
            inside,
            values: values.into(),
        };
        PodFailureRule { action, on }
    }

    fn conditions(action: PodFailureAction, patterns: &[(&str, &str)]) -> PodFailureRule {
        let patterns = patterns.iter().map(|(kind, status)| ((*kind).into(), (*status).into())).collect();
        PodFailureRule { action, on: PodFailurePattern::PodConditions(patterns) }
    }

    #[test]
    fn the_first_matching_rule_decides() {
        let outcome = Outcome {
            containers: exits(&[("ok", 0), ("main", 42)]),
            init_containers: exits(&[("setup", 7)]),
            conditions: vec![("DisruptionTarget".into(), "True".into())],
            ..Outcome::default()
        };
        type Case<'a> = (&'a [PodFailureRule], Option<(usize, PodFailureAction)>);
        let cases: &[Case] = &[
            (&[], None),
            (&[codes(FailJob, None, true, &[42])], Some((0, FailJob))),
            (&[codes(FailJob, None, true, &[1]), codes(Ignore, None, true, &[7])], Some((1, Ignore))),
            (&[codes(FailJob, Some("setup"), true, &[42])], None),
            (&[codes(FailJob, Some("ok"), false, &[3])], None),
            (&[codes(FailJob, None, false, &[42])], Some((0, FailJob))),
            (&[codes(FailJob, Some("main"), false, &[42])], None),
            (&[codes(Count, None, true, &[42]), codes(FailJob, None, true, &[42])], Some((0, Count))),
            (&[conditions(Ignore, &[("Ready", "True"), ("DisruptionTarget", "True")])], Some((0, Ignore))),
            (&[conditions(Ignore, &[("DisruptionTarget", "False")])], None),
        ];
        for (rules, expected) in cases {
            assert_eq!(judge(rules, &outcome).map(|m| (m.rule, m.action)), *expected, "{rules:?}");
            let decides = decisive(rules, &outcome);
            let parts = decides
                .iter()
                .map(|part| part.containers.len() + part.init_containers.len() + part.conditions.len());
            assert!(parts.eq(expected.iter().map(|_| 1)), "{decides:?}");
            let verdict = |outcome: &Outcome| {
                judge(rules, outcome).map(|found| (found.rule, found.fail_job_message("ns", "p")))
            };
            assert_eq!(decides.as_ref().and_then(verdict), verdict(&outcome), "{rules:?}");
        }
    }

    #[test]
    fn messages_name_containers_before_init_containers() {
        let outcome = Outcome {
            containers: exits(&[("main", 42)]),
            init_containers: exits(&[("setup", 42)]),
            conditions: vec![("DisruptionTarget".into(), "True".into())],
            ..Outcome::default()
        };
        let by_code = [codes(FailJob, None, true, &[42])];
        assert_eq!(
            judge(&by_code, &outcome).unwrap().fail_job_message("ns", "p"),
            "Container main for pod ns/p failed with exit code 42 matching FailJob rule at index 0"
        );
        let by_condition = [conditions(FailJob, &[("DisruptionTarget", "True")])];
        assert_eq!(
            judge(&by_condition, &outcome).unwrap().fail_job_message("ns", "p"),
            "Pod ns/p has condition DisruptionTarget matching FailJob rule at index 0"
        );
    }
}
