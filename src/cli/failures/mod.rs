//! Why pods of a Job failed.

mod answer;

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};

use futures::future::join_all;
use jiff::Timestamp;
use kube::Client;
use serde::Serialize;

pub(super) use self::answer::Answer;
use super::log_tail::last_lines;
use super::pod_cause::{FailedRun, causes, failure};
use super::pod_view::{PodView, attempt, index};
use super::untrusted::Untrusted;
use crate::actors::overview::LastFailure;

/// Failed pods that are kept one by one.
const LAST: usize = 8;
/// Failed pods whose logs are read, each with a cause of its own.
const LOGS: usize = 3;
/// Names that are counted one by one: authors of pods choose reasons.
const COUNTED: usize = 16;
/// The name of the others.
const OTHERS: &str = "Others";

/// The failed pods of a Job. The names of the fields are documented in `docs/commands.md`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Failures {
    /// Failed pods that were read.
    pub(super) pods: u64,
    /// Numbers of failed pods by the exit code of their first container that failed.
    pub(super) exit_codes: BTreeMap<i32, u64>,
    /// Numbers of failed pods without an exit code, by reason.
    pub(super) reasons: BTreeMap<String, u64>,
    /// Numbers of failed pods by node.
    pub(super) nodes: BTreeMap<String, u64>,
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
    /// The last lines of the log, if they were read.
    pub(super) log: Option<Vec<Untrusted>>,
    /// Only a controller remembers it.
    #[serde(skip)]
    pub(super) is_gone: bool,
    /// The text that pods with this cause have in common, and the run with the log.
    #[serde(skip)]
    run: Option<(String, FailedRun)>,
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
                count(&mut self.reasons, reason);
            }
        }
        if let Some(node) = &failed.node {
            count(&mut self.nodes, node.to_string());
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
        ranked(codes.chain(reasons))
    }

    /// Nodes with their numbers of failed pods, those with the most first.
    pub(super) fn by_node(&self) -> String {
        ranked(self.nodes.iter().map(|(node, pods)| (node.clone(), *pods)))
    }

    /// Adds pods that are gone, as a controller remembers them.
    pub(super) fn remember(&mut self, gone: &[LastFailure]) {
        let known: HashSet<String> = self.last.iter().map(|failed| failed.pod.clone()).collect();
        let gone = gone.iter().filter(|failed| !known.contains(&*failed.pod));
        self.last.extend(gone.map(FailedPod::from));
        self.last.sort_by_key(|failed| Reverse(failed.ended));
        self.last.truncate(LAST);
    }

    /// Takes the ends of logs over that were read before.
    pub(super) fn keep_logs(&mut self, earlier: &Self) {
        for failed in &mut self.last {
            let same = earlier.last.iter().find(|other| other.pod == failed.pod);
            failed.log = same.and_then(|same| same.log.clone());
        }
    }

    /// Reads the end of the log of the newest pod of each cause, unless it is there.
    pub(super) async fn read_logs(&mut self, client: &Client, namespace: &str) {
        let mut kinds = HashSet::new();
        let newest = self.last.iter_mut().filter_map(|failed| {
            let (kind, run) = failed.run.clone()?;
            kinds.insert(kind).then_some((failed, run))
        });
        let unread = newest.take(LOGS).filter(|(failed, _)| failed.log.is_none());
        let reads = unread.map(async |(failed, run)| {
            failed.log = Some(last_lines(client, namespace, &failed.pod, &run).await);
        });
        join_all(reads).await;
    }
}

/// Counts a name, or one of the others if there are many names.
fn count(counts: &mut BTreeMap<String, u64>, name: String) {
    let is_counted = counts.len() < COUNTED || counts.contains_key(&name);
    let name = if is_counted { name } else { OTHERS.to_owned() };
    *counts.entry(name).or_default() += 1;
}

fn ranked(counts: impl Iterator<Item = (String, u64)>) -> String {
    let mut counts: Vec<_> = counts.collect();
    counts.sort_by_key(|(_, pods)| Reverse(*pods));
    let counts: Vec<_> = counts.into_iter().map(|(name, pods)| format!("{name} ×{pods}")).collect();
    counts.join(", ")
}

impl FailedPod {
    fn of(pod: &PodView) -> Option<Self> {
        let causes = causes(pod);
        let cause = failure(pod, &causes)?;
        Some(Self {
            pod: pod.metadata.name.clone().unwrap_or_default(),
            index: index(pod),
            attempt: attempt(pod),
            node: pod.spec.node_name.clone(),
            ended: pod.status.as_ref()?.containers().filter_map(|container| container.ended_at()).max(),
            exit_code: causes.iter().find_map(|cause| cause.exit_code),
            cause: cause.into(),
            log: None,
            is_gone: false,
            run: causes.iter().find_map(|cause| Some((cause.kind.clone(), cause.run.clone()?))),
        })
    }
}

impl From<&LastFailure> for FailedPod {
    fn from(failure: &LastFailure) -> Self {
        let reason = failure.reason.as_deref().unwrap_or("Unknown");
        let kind = match failure.exit_code {
            Some(code) => format!("exit code {code} ({reason})"),
            None => reason.to_owned(),
        };
        let message = failure.message.as_ref().map(|message| format!(": {message}")).unwrap_or_default();
        Self {
            pod: failure.pod.to_string(),
            index: failure.index,
            attempt: None,
            node: failure.node.as_deref().map(Untrusted::from),
            ended: Some(failure.ended),
            exit_code: failure.exit_code,
            cause: (kind + &message).into(),
            log: None,
            is_gone: true,
            run: None,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;
    use crate::job::names::INDEX_FAILURE_COUNT;

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
        assert_eq!(failures.by_node(), "gpu-7 ×14");
        let names: Vec<_> = failures.last.iter().map(|failed| failed.pod.as_str()).collect();
        assert_eq!(names, ["p11", "p10", "p9", "p8", "p7", "p6", "p5", "other"]);
        let newest = &failures.last[0];
        assert_eq!((newest.index, newest.attempt, newest.exit_code), (Some(3), Some(2), Some(137)));
        assert_eq!(newest.node.as_ref().map(Untrusted::to_string).as_deref(), Some("gpu-7"));
        assert_eq!(newest.cause, "container main: exit code 137 (Error)");
    }

    #[test]
    fn pods_that_are_gone_are_remembered_once_beside_those_that_are_left() {
        let mut failures = Failures::default();
        failures.record(&pod("left", ended(1, 5)));
        let gone = |pod: &str, second: u32, exit_code| LastFailure {
            pod: pod.into(),
            index: Some(3),
            node: Some("gpu-7".into()),
            ended: format!("2026-01-01T00:00:{second:02}Z").parse().unwrap(),
            exit_code,
            reason: Some("OOMKilled".into()),
            message: Some("out\nof memory".into()),
        };
        failures.remember(&[gone("left", 5, Some(1)), gone("later", 9, Some(137)), gone("earlier", 1, None)]);
        let seen: Vec<_> =
            failures.last.iter().map(|failed| (&*failed.pod, failed.cause.to_string())).collect();
        assert_eq!(seen[0], ("later", "exit code 137 (OOMKilled): out of memory".to_owned()));
        assert_eq!(seen[1], ("left", "container main: exit code 1 (Error)".to_owned()));
        assert_eq!(seen[2], ("earlier", "OOMKilled: out of memory".to_owned()));
        assert_eq!((seen.len(), failures.pods), (3, 1));
    }

    /// Anybody who may write statuses chooses reasons.
    #[test]
    fn reasons_without_end_take_no_memory_without_end() {
        let mut failures = Failures::default();
        for number in 0..1_000 {
            let reason = format!("Reason{number}");
            failures.record(&pod("p", json!({"phase": "Failed", "reason": reason})));
        }
        assert_eq!((failures.pods, failures.reasons.len()), (1_000, COUNTED + 1));
        assert_eq!(failures.reasons[OTHERS], 1_000 - COUNTED as u64);
    }
}
