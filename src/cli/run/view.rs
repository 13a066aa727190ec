//! The fields of Jobs that `run` reads.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::hold::Hold;
use crate::cli::failures::{Answer, Failures};
use crate::cli::untrusted::Untrusted;
use crate::cluster::wire::lenient;
use crate::job::index_set::IndexSet;
use crate::job::names::{BUILT_IN_CONTROLLER, EXTERNAL_CONTROLLER};
use crate::job::options::{JobOptions, Predecessors};

/// The `spec` and `status` of a Job, as far as `run` reads them.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct JobView {
    metadata: JobMetadata,
    spec: JobSpec,
    status: JobStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct JobMetadata {
    annotations: BTreeMap<String, Untrusted>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct JobSpec {
    completions: Option<u64>,
    parallelism: Option<u64>,
    suspend: bool,
    managed_by: Option<Untrusted>,
    backoff_limit: Option<i32>,
    backoff_limit_per_index: Option<i32>,
    max_failed_indexes: Option<i32>,
    template: PodTemplate,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct PodTemplate {
    spec: PodSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodSpec {
    scheduling_gates: Vec<Gate>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Gate {
    name: Untrusted,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct JobStatus {
    active: u64,
    succeeded: u64,
    failed: u64,
    failed_indexes: Option<Untrusted>,
    #[serde(deserialize_with = "lenient::time")]
    start_time: Option<Timestamp>,
    conditions: Vec<Condition>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Condition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
    reason: Option<Untrusted>,
    message: Option<Untrusted>,
    #[serde(deserialize_with = "lenient::time")]
    last_transition_time: Option<Timestamp>,
}

/// How a Job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It has the condition Complete.
    Complete,
    /// It has the condition Failed.
    Failed {
        /// The machine-readable reason.
        reason: Untrusted,
        /// The human-readable message.
        message: Untrusted,
    },
}

/// Whether this program runs Jobs under the name.
pub(super) fn is_ours(controller: &str) -> bool {
    [BUILT_IN_CONTROLLER, EXTERNAL_CONTROLLER].contains(&controller)
}

impl JobView {
    /// Reads a Job as returned by the server. A Job that cannot be decoded is read as an empty one.
    pub(super) fn of(job: &Value) -> Self {
        Self::deserialize(job).unwrap_or_default()
    }

    /// How the Job ended, if it did.
    pub(super) fn outcome(&self) -> Option<Outcome> {
        let last = self.last_condition()?;
        Some(if last.type_ == "Complete" {
            Outcome::Complete
        } else {
            Outcome::Failed {
                reason: last.reason.clone().unwrap_or_default(),
                message: last.message.clone().unwrap_or_default(),
            }
        })
    }

    /// The reason why no pod of the Job can run, once its controller has seen it. No pod of a Job that is left
    /// to another controller runs before that has begun.
    pub(super) fn hold(&self) -> Option<Hold> {
        let JobSpec { completions, parallelism, suspend, managed_by, template, .. } = &self.spec;
        let gates = &template.spec.scheduling_gates;
        let is_suspended =
            |condition: &Condition| condition.type_ == "Suspended" && condition.status == "True";
        let has_begun = self.status.start_time.is_some();
        if self.outcome().is_some() {
            None
        } else if *suspend {
            self.status.conditions.iter().any(is_suspended).then_some(Hold::Suspended)
        } else if let (false, Some(other)) =
            (has_begun, managed_by.as_ref().filter(|name| !is_ours(name.raw())))
        {
            Some(Hold::ManagedBy(other.clone()))
        } else if !has_begun {
            None
        } else if *parallelism == Some(0) && *completions != Some(0) {
            Some(Hold::NoParallelism)
        } else {
            let names = || gates.iter().map(|gate| gate.name.clone()).collect();
            (!gates.is_empty()).then(|| Hold::Gated(names()))
        }
    }

    /// The Jobs that it waits for, unless it has begun or ended.
    pub(super) fn after(&self) -> Option<Arc<Predecessors>> {
        let waits = self.status.start_time.is_none() && self.outcome().is_none();
        let annotations = self.metadata.annotations.iter().filter(|_| waits);
        let annotations = annotations.map(|(key, value)| (&**key, value.raw()));
        JobOptions::read(annotations).after.clone()
    }

    /// Whether a controller has begun with the Job, or has seen that it is suspended.
    pub(super) fn has_begun(&self) -> bool {
        self.status.start_time.is_some() || !self.status.conditions.is_empty()
    }

    fn last_condition(&self) -> Option<&Condition> {
        let terminal = |condition: &&Condition| {
            condition.status == "True" && matches!(condition.type_.as_str(), "Complete" | "Failed")
        };
        self.status.conditions.iter().find(terminal)
    }

    /// Time from start to end, in whole seconds like the API's timestamps; `None` before the end.
    pub(super) fn duration(&self) -> Option<jiff::SignedDuration> {
        let end = self.last_condition()?.last_transition_time?;
        Some(end.duration_since(self.status.start_time?))
    }

    /// The number of successes needed, if it is set.
    pub(super) fn completions(&self) -> Option<u64> {
        self.spec.completions
    }

    /// Pods of it that have not ended.
    pub(super) fn active(&self) -> u64 {
        self.status.active
    }

    /// The explanation of its failures, with these pods and these next commands.
    pub(super) fn answer<'a>(&'a self, failures: Option<&'a Failures>, next: Vec<String>) -> Answer<'a> {
        let JobSpec { backoff_limit, backoff_limit_per_index, max_failed_indexes, .. } = self.spec;
        let failed_indexes = self.status.failed_indexes.as_ref().filter(|indexes| !indexes.raw().is_empty());
        Answer {
            failed: self.status.failed,
            // The default of the API is no limit that anybody has chosen.
            backoff_limit: backoff_limit.filter(|limit| *limit != i32::MAX),
            backoff_limit_per_index,
            failed_indexes,
            max_failed_indexes,
            failures,
            next,
        }
    }

    /// Pods that succeeded.
    pub(super) fn succeeded(&self) -> u64 {
        self.status.succeeded
    }

    /// Successes that are still needed, if their number is set.
    pub(super) fn missing(&self) -> Option<u64> {
        self.completions().map(|completions| completions.saturating_sub(self.succeeded()))
    }

    /// Pods that failed.
    pub(super) fn failed(&self) -> u64 {
        self.status.failed
    }

    /// The indexes below this one that failed.
    pub(super) fn failed_indexes(&self, end: u32) -> IndexSet {
        let text = self.status.failed_indexes.as_ref().map(Untrusted::raw).unwrap_or_default();
        IndexSet::parse_lenient(text, end)
    }

    /// Whether the Job needs a single success and runs one pod at a time.
    pub(super) fn is_single(&self) -> bool {
        self.spec.completions.unwrap_or(1) == 1 && self.spec.parallelism.unwrap_or(1) == 1
    }

    /// Successes, as `3/10`, or `3` without completions.
    pub(super) fn progress(&self) -> String {
        let succeeded = self.succeeded();
        self.completions().map_or(succeeded.to_string(), |completions| format!("{succeeded}/{completions}"))
    }

    /// A line about the state of the Job.
    pub(super) fn summary(&self) -> String {
        let mut parts = vec![format!("{} succeeded", self.progress())];
        for (count, what) in [(self.status.active, "active"), (self.status.failed, "failed")] {
            if count > 0 {
                parts.push(format!("{count} {what}"));
            }
        }
        if self.spec.suspend {
            parts.push("suspended".into());
        }
        parts.join(", ")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn a_running_job_has_a_summary_and_no_outcome() {
        let job = JobView::of(&json!({
            "spec": {"completions": 10, "parallelism": 4},
            "status": {"active": 4, "succeeded": 3, "failed": 1, "startTime": "2026-01-01T00:00:00Z"},
        }));
        assert_eq!(job.summary(), "3/10 succeeded, 4 active, 1 failed");
        assert_eq!((job.outcome(), job.duration()), (None, None));
        assert!(!job.is_single());
    }

    #[test]
    fn jobs_that_nobody_lets_run_say_why() {
        let begun = json!({"startTime": "2026-01-01T00:00:00Z"});
        let hold = |spec, status| JobView::of(&json!({"spec": spec, "status": status})).hold();
        let gated = json!({"template": {"spec": {"schedulingGates": [{"name": "g"}]}}});
        let other = json!({"managedBy": "kueue.x-k8s.io/multikueue"});
        let suspended = json!({"conditions": [{"type": "Suspended", "status": "True"}]});
        for (spec, status, held) in [
            (json!({"parallelism": 0, "completions": 3}), begun.clone(), Some(Hold::NoParallelism)),
            (json!({"parallelism": 0}), json!({}), None),
            // It needs no pod.
            (json!({"parallelism": 0, "completions": 0}), begun.clone(), None),
            (gated, begun.clone(), Some(Hold::Gated(vec!["g".into()]))),
            (other.clone(), json!({}), Some(Hold::ManagedBy("kueue.x-k8s.io/multikueue".into()))),
            (other, begun.clone(), None),
            (json!({"managedBy": BUILT_IN_CONTROLLER}), json!({}), None),
            (json!({"managedBy": EXTERNAL_CONTROLLER}), json!({}), None),
            (json!({"suspend": true}), json!({}), None),
            (json!({"suspend": true}), suspended.clone(), Some(Hold::Suspended)),
            (json!({"suspend": false}), suspended, None),
            (json!({"parallelism": 1}), begun, None),
        ] {
            assert_eq!(hold(spec.clone(), status.clone()), held, "{spec} {status}");
        }
    }

    #[test]
    fn a_failed_job_has_an_outcome_and_a_duration() {
        let job = JobView::of(&json!({
            "spec": {"parallelism": 1, "completions": 1},
            "status": {"failed": 1, "startTime": "2026-01-01T00:00:00Z", "conditions": [
                {"type": "FailureTarget", "status": "True", "reason": "BackoffLimitExceeded"},
                {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "too often",
                 "lastTransitionTime": "2026-01-01T00:01:05Z"},
            ]},
        }));
        let (reason, message) = ("BackoffLimitExceeded".into(), "too often".into());
        assert_eq!(job.outcome(), Some(Outcome::Failed { reason, message }));
        assert_eq!(job.duration().unwrap().as_secs(), 65);
        assert!(job.is_single());
    }

    #[test]
    fn a_job_without_completions_shows_successes_only() {
        let job = JobView::of(&json!({"spec": {"parallelism": 3}, "status": {"succeeded": 2, "active": 1}}));
        assert_eq!(job.summary(), "2 succeeded, 1 active");
    }
}
