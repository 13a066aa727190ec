//! Why pods of a Job failed, from the failed pods that are still there.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;

use super::pod_cause::{causes, failure};
use super::pod_view::{PodView, index};
use super::untrusted::Untrusted;
use crate::job::names::INDEX_FAILURE_COUNT;

/// Failed pods that are kept one by one.
const LAST: usize = 8;
/// Reasons that are counted one by one: authors of pods choose them.
const REASONS: usize = 16;
/// The reason of the others.
const OTHERS: &str = "Others";

/// The failed pods of a Job. The names of the fields are documented in `docs/commands.md`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Failures {
    /// Failed pods that are still there.
    pub(super) pods: u64,
    /// Numbers of failed pods by the exit code of their first container that failed.
    pub(super) exit_codes: BTreeMap<i32, u64>,
    /// Numbers of failed pods without an exit code, by reason.
    pub(super) reasons: BTreeMap<String, u64>,
    /// The pods that failed last, the newest first.
    pub(super) last: Vec<FailedPod>,
}

/// A failed pod.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FailedPod {
    pub(super) pod: String,
    /// The completion index.
    pub(super) index: Option<u32>,
    /// The number of the try of its index, from 1, if the Job limits failures by index.
    pub(super) attempt: Option<u32>,
    pub(super) node: Option<Untrusted>,
    /// When its last container ended.
    pub(super) ended: Option<Timestamp>,
    pub(super) exit_code: Option<i32>,
    /// The causes, such as `container main: exit code 3 (Error)`.
    pub(super) cause: Untrusted,
}

impl Failures {
    /// Records a pod of the Job, if it has failed.
    pub(super) fn record(&mut self, pod: &PodView) {
        let Some(failed) = FailedPod::of(pod) else { return };
        self.pods += 1;
        match failed.exit_code {
            Some(code) => *self.exit_codes.entry(code).or_default() += 1,
            None => {
                let reason = pod.status.as_ref().and_then(|status| status.reason.as_ref());
                let reason = reason.map_or_else(|| "Unknown".to_owned(), Untrusted::to_string);
                let is_counted = self.reasons.len() < REASONS || self.reasons.contains_key(&reason);
                let reason = if is_counted { reason } else { OTHERS.to_owned() };
                *self.reasons.entry(reason).or_default() += 1;
            }
        }
        let newer = |other: &FailedPod| other.ended >= failed.ended;
        let at = self.last.partition_point(newer);
        self.last.insert(at, failed);
        self.last.truncate(LAST);
    }

    /// Exit codes and reasons with their numbers of pods, the most frequent first: `exit code 137 ×13, Evicted ×2`.
    pub(super) fn histogram(&self) -> String {
        let codes = self.exit_codes.iter().map(|(code, pods)| (format!("exit code {code}"), *pods));
        let reasons = self.reasons.iter().map(|(reason, pods)| (reason.clone(), *pods));
        let mut kinds: Vec<_> = codes.chain(reasons).collect();
        kinds.sort_by_key(|(_, pods)| Reverse(*pods));
        let kinds: Vec<_> = kinds.into_iter().map(|(kind, pods)| format!("{kind} ×{pods}")).collect();
        kinds.join(", ")
    }
}

impl FailedPod {
    fn of(pod: &PodView) -> Option<Self> {
        let causes = causes(pod);
        let cause = failure(pod, &causes)?;
        let annotations = pod.metadata.annotations.as_ref();
        let failures = annotations.and_then(|all| all.get(INDEX_FAILURE_COUNT)?.parse::<u32>().ok());
        Some(Self {
            pod: pod.metadata.name.clone().unwrap_or_default(),
            index: index(pod),
            attempt: failures.map(|failures| failures.saturating_add(1)),
            node: pod.spec.node_name.clone(),
            ended: pod.status.as_ref()?.containers().filter_map(|container| container.ended_at()).max(),
            exit_code: causes.iter().find_map(|cause| cause.exit_code),
            cause: cause.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, status: Value) -> PodView {
        let annotations = json!({"batch.kubernetes.io/job-completion-index": "3", INDEX_FAILURE_COUNT: "1"});
        let metadata = json!({"name": name, "annotations": annotations});
        let pod = json!({"metadata": metadata, "spec": {"nodeName": "gpu-7"}, "status": status});
        serde_json::from_value(pod).unwrap()
    }

    fn ended(code: i32, second: usize) -> Value {
        let time = format!("2026-01-01T00:00:{second:02}Z");
        let end = json!({"exitCode": code, "reason": "Error", "finishedAt": time});
        json!({"phase": "Failed", "containerStatuses": [{"name": "main", "state": {"terminated": end}}]})
    }

    #[test]
    fn failed_pods_are_counted_by_exit_code_or_reason_and_the_last_are_kept() {
        let mut failures = Failures::default();
        failures.record(&pod("runs", json!({"phase": "Running"})));
        assert_eq!(failures, Failures::default());
        for second in 0..12 {
            failures.record(&pod(&format!("p{second}"), ended(137, second)));
        }
        failures.record(&pod("other", ended(1, 5)));
        failures.record(&pod("evicted", json!({"phase": "Failed", "reason": "Evicted", "message": "disk"})));
        assert_eq!(failures.pods, 14);
        assert_eq!(failures.histogram(), "exit code 137 ×12, exit code 1 ×1, Evicted ×1");
        let names: Vec<_> = failures.last.iter().map(|failed| failed.pod.as_str()).collect();
        assert_eq!(names, ["p11", "p10", "p9", "p8", "p7", "p6", "p5", "other"]);
        let newest = &failures.last[0];
        assert_eq!((newest.index, newest.attempt, newest.exit_code), (Some(3), Some(2), Some(137)));
        assert_eq!(newest.node.as_ref().map(Untrusted::to_string).as_deref(), Some("gpu-7"));
        assert_eq!(newest.cause, "container main: exit code 137 (Error)");
    }

    /// Anybody who may write statuses chooses reasons.
    #[test]
    fn reasons_without_end_take_no_memory_without_end() {
        let mut failures = Failures::default();
        for number in 0..1_000 {
            let reason = format!("Reason{number}");
            failures.record(&pod("p", json!({"phase": "Failed", "reason": reason})));
        }
        assert_eq!((failures.pods, failures.reasons.len()), (1_000, REASONS + 1));
        assert_eq!(failures.reasons[OTHERS], 1_000 - REASONS as u64);
    }
}
