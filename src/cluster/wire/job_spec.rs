//! `spec` of a Job.
//!
//! The API server has validated and defaulted it, so only JSON of a wrong type fails here. Values that a
//! newer API server accepts and this release does not know are read so that they match nothing, and are
//! reported by name.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::observed_job::Unserved;
use super::selector::{WireSelector, read_selector};
use super::text::Text;
use crate::job::index_set::IndexSet;
use crate::job::pod_failure_policy::LONGEST_FAILURE_POLICY;
use crate::job::selector::{LONGEST_SELECTOR, Selector};
use crate::job::spec::{
    Completion, JobSpec, PerIndexLimit, PodFailureAction, PodFailurePattern, PodFailureRule, SuccessRule,
};
use crate::job::success_policy::LONGEST_SUCCESS_POLICY;
use crate::job::template::PodTemplate;
use crate::mutants::{Mutant, is};

/// The API server's default for `backoffLimit`.
const DEFAULT_BACKOFF_LIMIT: i64 = 6;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WireJobSpec<'a> {
    parallelism: Option<i64>,
    completions: Option<i64>,
    #[serde(borrow)]
    completion_mode: Option<Text<'a>>,
    suspend: Option<bool>,
    backoff_limit: Option<i64>,
    backoff_limit_per_index: Option<i64>,
    max_failed_indexes: Option<i64>,
    active_deadline_seconds: Option<i64>,
    ttl_seconds_after_finished: Option<i64>,
    #[serde(borrow)]
    pod_replacement_policy: Option<Text<'a>>,
    #[serde(borrow)]
    pod_failure_policy: Option<Rules<WireFailureRule<'a>>>,
    #[serde(borrow)]
    success_policy: Option<Rules<WireSuccessRule<'a>>>,
    #[serde(borrow)]
    selector: Option<WireSelector<'a>>,
    #[serde(borrow)]
    pub(super) managed_by: Option<Text<'a>>,
    #[serde(borrow)]
    template: &'a RawValue,
}

#[derive(Debug, Deserialize)]
struct Rules<R> {
    rules: Option<Vec<R>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireFailureRule<'a> {
    #[serde(borrow)]
    action: Text<'a>,
    #[serde(borrow)]
    on_exit_codes: Option<WireExitCodes<'a>>,
    #[serde(borrow)]
    on_pod_conditions: Option<Vec<WirePodCondition<'a>>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireExitCodes<'a> {
    #[serde(borrow)]
    container_name: Option<Text<'a>>,
    #[serde(borrow)]
    operator: Text<'a>,
    values: Option<Vec<i32>>,
}

#[derive(Debug, Deserialize)]
struct WirePodCondition<'a> {
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
    #[serde(borrow)]
    status: Option<Text<'a>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireSuccessRule<'a> {
    #[serde(borrow)]
    succeeded_indexes: Option<Text<'a>>,
    succeeded_count: Option<i64>,
}

/// A decoded spec, with the values that are unknown.
pub(super) struct SpecReading {
    pub(super) spec: Result<JobSpec, Unserved>,
    /// The values that were not understood, as `FIELD: VALUE`.
    pub(super) skipped: Vec<String>,
}

impl WireJobSpec<'_> {
    /// Reads it. `longest`: the template is kept up to this length, in bytes.
    pub(super) fn read(self, longest: usize) -> SpecReading {
        let keeps_template = self.template.get().len() <= longest;
        let mut skipped = Vec::new();
        let completion = match self.completion() {
            Ok(completion) => completion,
            Err(unknown) => return SpecReading { spec: Err(unknown), skipped },
        };
        let selector = match served(read_selector(self.selector, &mut skipped)) {
            Ok(selector) => selector,
            Err(long) => return SpecReading { spec: Err(long), skipped },
        };
        let success_policy = match self.success_policy.map(success_rules).transpose() {
            Ok(rules) => rules.unwrap_or_default(),
            Err(long) => return SpecReading { spec: Err(long), skipped },
        };
        let pod_failure_policy =
            match self.pod_failure_policy.map(|policy| failure_rules(policy, &mut skipped)).transpose() {
                Ok(rules) => rules,
                Err(long) => return SpecReading { spec: Err(long), skipped },
            };
        let spec = JobSpec {
            parallelism: self.parallelism.map_or(1, count),
            completion,
            suspend: self.suspend.unwrap_or(false),
            backoff_limit: self.backoff_limit.map_or_else(
                || {
                    if self.backoff_limit_per_index.is_some() {
                        i32::MAX as u32
                    } else {
                        count(DEFAULT_BACKOFF_LIMIT)
                    }
                },
                count,
            ),
            per_index: self.backoff_limit_per_index.map(|limit| PerIndexLimit {
                backoff_limit: count(limit),
                max_failed_indexes: self.max_failed_indexes.map(count),
            }),
            active_deadline: self.active_deadline_seconds.map(seconds),
            ttl_after_finished: self.ttl_seconds_after_finished.map(seconds),
            replace_only_failed: !is(Mutant::ReplacementPolicyIgnored)
                && (pod_failure_policy.is_some() || self.pod_replacement_policy.as_deref() == Some("Failed")),
            pod_failure_policy,
            success_policy,
            selector: Arc::new(selector),
            template: if keeps_template {
                PodTemplate::new(self.template)
            } else {
                PodTemplate::unkept(self.template)
            },
        };
        SpecReading { spec: Ok(spec), skipped }
    }

    /// If both fields are absent they default to 1. If only completions is absent, the Job is a work queue.
    fn completion(&self) -> Result<Completion, Unserved> {
        let completions = self.completions.map(count);
        Ok(match (completion_mode(self.completion_mode.as_deref())?, completions) {
            (CompletionMode::Indexed, wanted) => Completion::Indexed(wanted.unwrap_or(1)),
            (CompletionMode::NonIndexed, Some(wanted)) => Completion::Count(wanted),
            (CompletionMode::NonIndexed, None) if self.parallelism.is_some() => Completion::WorkQueue,
            (CompletionMode::NonIndexed, None) => Completion::Count(1),
        })
    }
}

/// A selector that is short enough to be served.
pub(super) fn served(selector: Selector) -> Result<Selector, Unserved> {
    match selector.cost() {
        cost if cost > LONGEST_SELECTOR => Err(Unserved::LongSelector { cost }),
        _ => Ok(selector),
    }
}

pub(super) enum CompletionMode {
    NonIndexed,
    Indexed,
}

pub(super) fn completion_mode(name: Option<&str>) -> Result<CompletionMode, Unserved> {
    match name {
        None | Some("NonIndexed") => Ok(CompletionMode::NonIndexed),
        Some("Indexed") => Ok(CompletionMode::Indexed),
        Some(other) => Err(Unserved::UnknownCompletionMode(other.into())),
    }
}

/// Counts are validated to lie between 0 and the largest int32.
fn count(n: i64) -> u32 {
    u32::try_from(n.max(0)).unwrap_or(u32::MAX)
}

fn seconds(n: i64) -> Duration {
    Duration::from_secs(n.max(0).unsigned_abs())
}

/// The rules, if they are short enough to be served. They keep their indexes, since messages name them by index.
fn failure_rules(
    policy: Rules<WireFailureRule<'_>>,
    skipped: &mut Vec<String>,
) -> Result<Vec<PodFailureRule>, Unserved> {
    let rules = policy.rules.unwrap_or_default();
    let bytes = rules.iter().map(WireFailureRule::name_bytes).sum();
    if bytes > LONGEST_FAILURE_POLICY {
        return Err(Unserved::LongFailurePolicy { bytes });
    }
    Ok(rules.iter().enumerate().map(|(index, rule)| failure_rule(index, rule, skipped)).collect())
}

impl WireFailureRule<'_> {
    /// The length of the names that it is kept with.
    fn name_bytes(&self) -> usize {
        let container = self.on_exit_codes.as_ref().and_then(|codes| codes.container_name.as_deref());
        let conditions = self.on_pod_conditions.iter().flatten();
        let names = conditions.flat_map(|c| [Some(&*c.kind), c.status.as_deref()]).chain([container]);
        names.flatten().map(str::len).sum()
    }
}

fn failure_rule(index: usize, rule: &WireFailureRule<'_>, skipped: &mut Vec<String>) -> PodFailureRule {
    let never = PodFailurePattern::PodConditions(Box::default());
    let mut skip = |field: &str, value: &str| {
        skipped.push(format!("spec.podFailurePolicy.rules[{index}].{field}: {value}"))
    };
    let action = match &*rule.action {
        "FailJob" => PodFailureAction::FailJob,
        "FailIndex" => PodFailureAction::FailIndex,
        "Ignore" => PodFailureAction::Ignore,
        "Count" => PodFailureAction::Count,
        other => {
            skip("action", other);
            return PodFailureRule { action: PodFailureAction::Count, on: never };
        }
    };
    let on = match (&rule.on_exit_codes, &rule.on_pod_conditions) {
        (Some(codes), _) => match &*codes.operator {
            operator @ ("In" | "NotIn") => PodFailurePattern::ExitCodes {
                container: codes.container_name.as_deref().map(Box::from),
                inside: operator == "In",
                values: sorted(codes.values.clone().unwrap_or_default()),
            },
            other => {
                skip("onExitCodes.operator", other);
                never
            }
        },
        (None, Some(conditions)) => PodFailurePattern::PodConditions(
            conditions
                .iter()
                .map(|c| ((*c.kind).into(), c.status.as_deref().unwrap_or("True").into()))
                .collect(),
        ),
        (None, None) => {
            skip("onExitCodes", "none, nor onPodConditions");
            never
        }
    };
    PodFailureRule { action, on }
}

/// API servers accept ascending values only. They are looked up for each exit code, so they must be.
fn sorted(mut values: Vec<i32>) -> Box<[i32]> {
    values.sort_unstable();
    values.into()
}

/// The rules, if they are short enough to be served: as intervals, each byte of them takes several bytes of memory.
fn success_rules(policy: Rules<WireSuccessRule<'_>>) -> Result<Vec<SuccessRule>, Unserved> {
    let rules = policy.rules.unwrap_or_default();
    let bytes = rules.iter().filter_map(|rule| rule.succeeded_indexes.as_deref()).map(str::len).sum();
    if bytes > LONGEST_SUCCESS_POLICY {
        return Err(Unserved::LongSuccessPolicy { bytes });
    }
    let rules = rules.iter().map(|rule| SuccessRule {
        indexes: rule.succeeded_indexes.as_deref().map(IndexSet::parse_strict),
        count: rule.succeeded_count.map(count),
    });
    Ok(rules.collect())
}
