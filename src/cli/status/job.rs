//! The part of a report about one Job.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1 as batch;
use serde::Serialize;

use super::index_map::IndexMap;
use super::results::IndexResult;
use super::wait_reasons::Waiting;
use crate::actors::overview::{Interest, JobEnd};
use crate::cli::failures::Failures;
use crate::cli::job_phase::JobPhase;
use crate::cli::ownership::{Ownership, Replica, ReplicaState};
use crate::cli::untrusted::Untrusted;
use crate::job::names::BUILT_IN_CONTROLLER;
use crate::telemetry::traces::trace_id_of;

/// A Job with its progress. The names of the fields are documented in `docs/commands.md`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct JobReport {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) state: JobPhase,
    /// `spec.managedBy`, or the built-in controller.
    pub(super) controller: String,
    /// The shard, if the controller has recorded how many there are.
    pub(super) shard: Option<u32>,
    /// The replica that owns the shard.
    pub(super) owner: Option<String>,
    /// How often the shard has been claimed.
    pub(super) epoch: Option<u64>,
    pub(super) trace_id: String,
    pub(super) completions: Option<i32>,
    pub(super) parallelism: Option<i32>,
    pub(super) active: i32,
    pub(super) ready: i32,
    pub(super) succeeded: i32,
    pub(super) failed: i32,
    /// Successes per second since the start.
    pub(super) rate: Option<f64>,
    /// Seconds until the completions are reached at this rate.
    pub(super) seconds_left: Option<f64>,
    pub(super) start_time: Option<Timestamp>,
    /// When the Job became Complete or Failed.
    pub(super) end_time: Option<Timestamp>,
    /// Why no pod is created although the Job has not finished.
    pub(super) waiting: Option<Waiting>,
    pub(super) conditions: Vec<Condition>,
    /// How many pods there are by phase; known of a Job that was asked for by name.
    pub(super) pods: Option<BTreeMap<String, u64>>,
    /// `status.completedIndexes`.
    pub(super) completed_indexes: Option<Untrusted>,
    /// `status.failedIndexes`.
    pub(super) failed_indexes: Option<Untrusted>,
    /// Failed pods that the Job may have, if it limits them.
    pub(super) backoff_limit: Option<i32>,
    /// Failed pods that each index may have, if the Job limits them.
    pub(super) backoff_limit_per_index: Option<i32>,
    /// Failed indexes that the Job may have, if it limits them.
    pub(super) max_failed_indexes: Option<i32>,
    /// How indexes have ended; known of a Job that was asked for by name, and that keeps results.
    pub(super) index_results: Option<Vec<IndexResult>>,
    /// Why pods failed; known of a Job that was asked for by name.
    pub(super) failures: Option<Failures>,
    /// The state of each index; known of an Indexed Job that was asked for by name.
    #[serde(skip)]
    pub(super) index_map: Option<IndexMap>,
    #[serde(skip)]
    pub(super) is_indexed: bool,
    /// The replica that owns the shard has not renewed its heartbeat in time.
    #[serde(skip)]
    pub(super) owner_is_silent: bool,
    /// No replica runs for the controller that `spec.managedBy` names.
    #[serde(skip)]
    pub(super) has_no_replica: bool,
    /// When this was read.
    #[serde(skip)]
    pub(super) now: Timestamp,
}

/// A condition of a Job.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Condition {
    #[serde(rename = "type")]
    pub(super) type_: Untrusted,
    pub(super) status: Untrusted,
    pub(super) reason: Option<Untrusted>,
    pub(super) message: Option<Untrusted>,
    pub(super) last_transition_time: Option<Timestamp>,
}

impl From<&batch::JobCondition> for Condition {
    fn from(condition: &batch::JobCondition) -> Self {
        let given =
            |text: &Option<String>| text.as_deref().filter(|text| !text.is_empty()).map(Untrusted::from);
        Self {
            type_: condition.type_.as_str().into(),
            status: condition.status.as_str().into(),
            reason: given(&condition.reason),
            message: given(&condition.message),
            last_transition_time: condition.last_transition_time.as_ref().map(|time| time.0),
        }
    }
}

impl JobReport {
    /// The progress of this Job at `now`; neither its wait nor its pods.
    pub(super) fn of(job: &batch::Job, ownership: &Ownership, now: Timestamp) -> Self {
        let spec = job.spec.clone().unwrap_or_default();
        let status = job.status.clone().unwrap_or_default();
        let succeeded = status.succeeded.unwrap_or_default();
        let state = JobPhase::of(job);
        let start_time = status.start_time.map(|start| start.0);
        let rate = start_time
            .map(|start| now.duration_since(start).as_secs_f64())
            .filter(|seconds| state == JobPhase::Running && *seconds > 0.0 && succeeded > 0)
            .map(|seconds| f64::from(succeeded) / seconds);
        let left = spec.completions.map(|completions| f64::from((completions - succeeded).max(0)));
        let uid = job.metadata.uid.clone().unwrap_or_default();
        let controller = spec.managed_by.unwrap_or_else(|| BUILT_IN_CONTROLLER.to_owned());
        let shard = ownership.shard_of(&controller, &uid);
        let claim = shard.and_then(|(_, claim)| claim);
        let owner = claim.and_then(|claim| claim.owner.clone());
        let is_its = |replica: &&Replica| replica.controller == controller;
        let mut replicas = ownership.replicas.iter().filter(is_its);
        let has_no_replica = controller != BUILT_IN_CONTROLLER && replicas.clone().next().is_none();
        let owner_is_silent = replicas.any(|replica| {
            Some(&replica.identity) == owner.as_ref() && replica.state == ReplicaState::Silent
        });
        let conditions: Vec<_> = status.conditions.iter().flatten().map(Condition::from).collect();
        let end = |condition: &&Condition| condition.type_ == state.name() && state.is_finished();
        let end_time = conditions.iter().find(end).and_then(|condition| condition.last_transition_time);
        let given = |text: Option<String>| text.filter(|text| !text.is_empty()).map(Untrusted::from);
        Self {
            namespace: job.metadata.namespace.clone().unwrap_or_default(),
            name: job.metadata.name.clone().unwrap_or_default(),
            state,
            controller,
            shard: shard.map(|(number, _)| number),
            owner,
            owner_is_silent,
            has_no_replica,
            epoch: claim.map(|claim| claim.epoch),
            trace_id: trace_id_of(&uid).to_string(),
            uid,
            completions: spec.completions,
            parallelism: spec.parallelism,
            active: status.active.unwrap_or_default(),
            ready: status.ready.unwrap_or_default(),
            succeeded,
            failed: status.failed.unwrap_or_default(),
            rate,
            seconds_left: rate.zip(left).map(|(rate, left)| left / rate),
            start_time,
            now,
            end_time,
            waiting: None,
            conditions,
            pods: None,
            completed_indexes: given(status.completed_indexes),
            failed_indexes: given(status.failed_indexes),
            // The default of the API is no limit that anybody has chosen.
            backoff_limit: spec.backoff_limit.filter(|limit| *limit != i32::MAX),
            backoff_limit_per_index: spec.backoff_limit_per_index,
            max_failed_indexes: spec.max_failed_indexes,
            index_results: None,
            failures: None,
            index_map: None,
            is_indexed: spec.completion_mode.as_deref() == Some("Indexed"),
        }
    }

    /// Whether the Job has ended.
    pub(super) fn is_finished(&self) -> bool {
        self.state.is_finished()
    }

    /// `NAMESPACE/NAME`.
    pub(super) fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Whether it became Failed a short time ago.
    pub(super) fn failed_lately(&self) -> bool {
        self.interest() == Interest::Failed
    }

    fn interest(&self) -> Interest {
        let has_failed = self.state == JobPhase::Failed;
        let end = self.is_finished().then_some(JobEnd { at: self.end_time, has_failed });
        let fails = self.state == JobPhase::FailureTarget;
        let has_trouble = fails || self.waiting.is_some() || self.failed > 0;
        Interest::of(end, self.state == JobPhase::Suspended, has_trouble, self.now)
    }

    /// The most interesting first: what failed a short time ago, trouble, what runs, what is suspended, and what has ended,
    /// newest first.
    pub(super) fn by_interest(&self, other: &Self) -> std::cmp::Ordering {
        let newest_first = |job: &Self| std::cmp::Reverse(job.end_time.filter(|_| job.is_finished()));
        self.interest()
            .cmp(&other.interest())
            .then_with(|| newest_first(self).cmp(&newest_first(other)))
            .then_with(|| self.by_name(other))
    }

    /// By namespace and name.
    pub(super) fn by_name(&self, other: &Self) -> std::cmp::Ordering {
        (&self.namespace, &self.name).cmp(&(&other.namespace, &other.name))
    }

    /// Successes, as `3/10`, or `3` without completions.
    pub(super) fn progress(&self) -> String {
        match self.completions {
            Some(completions) => format!("{}/{completions}", self.succeeded),
            None => self.succeeded.to_string(),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;

    /// The report of a Job with this spec and status, 20 s after midnight.
    pub(in crate::cli::status) fn job(name: &str, spec: Value, status: Value) -> JobReport {
        let mut object = json!({
            "metadata": {"namespace": "n", "name": name, "uid": "6ba7b810-9dad-11d1-80b4-00c04fd430c8"},
            "spec": {"template": {}}, "status": status,
        });
        object["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let now = "2026-01-01T00:00:20Z".parse().unwrap();
        JobReport::of(&serde_json::from_value(object).unwrap(), &Ownership::default(), now)
    }

    /// A status with this condition since this second.
    pub(in crate::cli::status) fn ended(type_: &str, second: u32) -> Value {
        let time = format!("2026-01-01T00:00:{second:02}Z");
        json!({"conditions": [{"type": type_, "status": "True", "lastTransitionTime": time}]})
    }

    #[test]
    fn rate_and_time_left_follow_from_successes_since_the_start() {
        let status = json!({"startTime": "2026-01-01T00:00:00Z", "succeeded": 10, "active": 2});
        let job = job("j", json!({"completions": 30}), status);
        assert_eq!((job.rate, job.seconds_left), (Some(0.5), Some(40.0)));
        assert_eq!((job.state, job.progress().as_str()), (JobPhase::Running, "10/30"));
        assert_eq!(job.trace_id, "6ba7b8109dad11d180b400c04fd430c8");
    }

    #[test]
    fn failures_and_trouble_come_first_and_what_ended_last() {
        let waits = Waiting { reason: "PodBackoff", until: None, message: None };
        let mut jobs = [
            job("complete", json!({}), ended("Complete", 5)),
            job("failed-later", json!({}), ended("Failed", 9)),
            job("suspended", json!({"suspend": true}), json!({})),
            job("runs", json!({}), json!({})),
            JobReport { waiting: Some(waits), ..job("waits", json!({}), json!({})) },
            job("fails", json!({}), ended("FailureTarget", 1)),
            job("a-pod-failed", json!({}), json!({"failed": 1})),
            job("failed-long-ago", json!({}), {
                let time = "2025-12-31T22:00:00Z";
                json!({"conditions": [{"type": "Failed", "status": "True", "lastTransitionTime": time}]})
            }),
        ];
        jobs.sort_by(JobReport::by_interest);
        let names: Vec<_> = jobs.iter().map(|job| job.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "failed-later",
                "a-pod-failed",
                "fails",
                "waits",
                "runs",
                "suspended",
                "complete",
                "failed-long-ago"
            ]
        );
    }
}
