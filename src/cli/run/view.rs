//! What `run` reads from Jobs and pods.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::core::Object;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How far a Job is, read from its `spec` and `status`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct JobView {
    spec: JobSpec,
    status: JobStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct JobSpec {
    completions: Option<u64>,
    parallelism: Option<u64>,
    suspend: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct JobStatus {
    active: u64,
    succeeded: u64,
    failed: u64,
    start_time: Option<Timestamp>,
    conditions: Vec<Condition>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Condition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
    reason: Option<String>,
    message: Option<String>,
    last_transition_time: Option<Timestamp>,
}

/// How a Job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It did its work.
    Complete,
    /// It did not.
    Failed {
        /// One word for programs.
        reason: String,
        /// A sentence for people.
        message: String,
    },
}

impl JobView {
    /// Reads a Job as the server shows it. Fields that are not as they should be count as absent.
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

    /// Whether the Job is suspended, and the controller has seen to it.
    pub(super) fn is_suspended(&self) -> bool {
        let holds = |condition: &Condition| condition.type_ == "Suspended" && condition.status == "True";
        self.spec.suspend && self.status.conditions.iter().any(holds)
    }

    fn last_condition(&self) -> Option<&Condition> {
        let terminal = |condition: &&Condition| {
            condition.status == "True" && matches!(condition.type_.as_str(), "Complete" | "Failed")
        };
        self.status.conditions.iter().find(terminal)
    }

    /// From the start to the end, in whole seconds as the API gives them; `None` before the end.
    pub(super) fn duration(&self) -> Option<jiff::SignedDuration> {
        let end = self.last_condition()?.last_transition_time?;
        Some(end.duration_since(self.status.start_time?))
    }

    /// Successes needed, if their number is fixed.
    pub(super) fn completions(&self) -> Option<u64> {
        self.spec.completions
    }

    /// Pods that succeeded.
    pub(super) fn succeeded(&self) -> u64 {
        self.status.succeeded
    }

    /// Pods that failed.
    pub(super) fn failed(&self) -> u64 {
        self.status.failed
    }

    /// Whether all of the Job is one pod at a time and one success.
    pub(super) fn is_single(&self) -> bool {
        self.spec.completions.unwrap_or(1) == 1 && self.spec.parallelism.unwrap_or(1) == 1
    }

    /// Successes, as `3/10`, or `3` where the number needed is open.
    pub(super) fn progress(&self) -> String {
        let succeeded = self.succeeded();
        self.completions().map_or(succeeded.to_string(), |completions| format!("{succeeded}/{completions}"))
    }

    /// One line about the state of the Job.
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

/// A pod as `run` decodes it.
pub(super) type PodView = Object<PodSpec, PodStatus>;

/// The part of a pod's `spec` that matters here.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodSpec {
    pub(super) containers: Vec<Named>,
}

/// Something of which only the name matters.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct Named {
    pub(super) name: String,
}

/// The part of a pod's `status` that matters here.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodStatus {
    pub(super) phase: String,
    pub(super) reason: Option<String>,
    pub(super) message: Option<String>,
    pub(super) init_container_statuses: Vec<ContainerStatus>,
    pub(super) container_statuses: Vec<ContainerStatus>,
}

impl PodStatus {
    /// All containers, init containers first.
    pub(super) fn containers(&self) -> impl Iterator<Item = &ContainerStatus> {
        self.init_container_statuses.iter().chain(&self.container_statuses)
    }
}

/// The state of one container.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ContainerStatus {
    pub(super) name: String,
    pub(super) restart_count: u32,
    pub(super) state: BTreeMap<String, ContainerState>,
}

/// The details of a container's state; which of them are set depends on the state.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ContainerState {
    pub(super) reason: Option<String>,
    pub(super) message: Option<String>,
    pub(super) exit_code: Option<i32>,
    pub(super) started_at: Option<String>,
}

impl ContainerStatus {
    /// Whether there may be output of it.
    pub(super) fn has_run(&self) -> bool {
        self.state.contains_key("running")
            || self.state.get("terminated").is_some_and(|state| state.started_at.is_some())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn a_job_on_its_way() {
        let job = JobView::of(&json!({
            "spec": {"completions": 10, "parallelism": 4},
            "status": {"active": 4, "succeeded": 3, "failed": 1, "startTime": "2026-01-01T00:00:00Z"},
        }));
        assert_eq!(job.summary(), "3/10 succeeded, 4 active, 1 failed");
        assert_eq!((job.outcome(), job.duration()), (None, None));
        assert!(!job.is_single());
    }

    #[test]
    fn a_failed_job() {
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
    fn a_work_queue_has_no_number_to_reach() {
        let job = JobView::of(&json!({"spec": {"parallelism": 3}, "status": {"succeeded": 2, "active": 1}}));
        assert_eq!(job.summary(), "2 succeeded, 1 active");
    }
}
