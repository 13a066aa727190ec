//! Resuming a pod that a previous kubelet ran, as after a node restart. The processes are gone; only the
//! status and the logs show their progress.

use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;

use super::{ContainerRecord, PodRecord, State, Termination};
use crate::kubelet::leftovers::Leftovers;
use crate::kubelet::pod::{PodSpec, PodStatus, RestartPolicy};

impl PodRecord {
    /// The record of a pod with this status and these logs, and whether the pod is over. Then no container may
    /// start, and only its end is reported. A pod without any started container is treated as new.
    ///
    /// As in Kubernetes, a pod with restart policy `Never` is over once any container has run. A pod with
    /// `OnFailure` is over when all its containers have succeeded. A pod with `Always` is never over.
    pub(in crate::kubelet) fn resume(
        spec: &PodSpec,
        status: &PodStatus,
        left: &Leftovers,
        now: Timestamp,
    ) -> (Self, bool) {
        let mut record = Self::new(spec, status.start_time.as_ref().map_or(now, |time| time.0));
        let init = spec.init_containers.iter().zip(&mut record.init);
        let main = spec.containers.iter().zip(&mut record.main);
        for ((container, record), statuses) in init
            .map(|pair| (pair, &status.init_container_statuses))
            .chain(main.map(|pair| (pair, &status.container_statuses)))
        {
            if let Some(status) = statuses.iter().find(|status| status.name == container.name) {
                record.restore(status, now);
            }
            record.account_for_starts(left.starts(&container.name), now);
        }
        let mut all = record.init.iter().chain(&record.main);
        let started = all.any(|container| !container.never_started());
        let over = match spec.restart_policy {
            RestartPolicy::Never => true,
            RestartPolicy::OnFailure => record.main.iter().all(ContainerRecord::succeeded),
            RestartPolicy::Always => false,
        };
        (record, started && over)
    }
}

impl ContainerRecord {
    fn restore(&mut self, status: &core::ContainerStatus, now: Timestamp) {
        let ended = |state: &Option<core::ContainerState>| {
            state.as_ref().and_then(|state| state.terminated.as_ref()).map(|ended| termination(ended, now))
        };
        self.last = ended(&status.last_state);
        self.restarts = status.restart_count;
        self.container_id = status.container_id.clone();
        let running = status.state.as_ref().and_then(|state| state.running.as_ref());
        if let Some(running) = running {
            let started_at = running.started_at.as_ref().map(|time| time.0);
            self.state = State::Terminated(Termination { started_at, ..Termination::unknown(now) });
            return;
        }
        if let Some(ended) = ended(&status.state) {
            self.state = State::Terminated(ended);
        }
    }

    /// Accounts for starts that the status does not include. The termination of such a run is unknown.
    fn account_for_starts(&mut self, starts: u32, now: Timestamp) {
        let starts = i32::try_from(starts).unwrap_or(i32::MAX);
        let known = if self.never_started() { 0 } else { self.restarts + 1 };
        if starts > known {
            self.last = self.termination().cloned().or(self.last.take());
            self.state = State::Terminated(Termination::unknown(now));
            self.restarts = starts - 1;
        }
    }
}

fn termination(ended: &core::ContainerStateTerminated, now: Timestamp) -> Termination {
    Termination {
        exit_code: ended.exit_code,
        signal: ended.signal,
        reason: ended.reason.clone().unwrap_or_default(),
        message: ended.message.clone(),
        started_at: ended.started_at.as_ref().map(|time| time.0),
        finished_at: ended.finished_at.as_ref().map_or(now, |time| time.0),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;
    use crate::kubelet::pod::{PodKey, Slot};
    use crate::kubelet::pod_folder::PodFolders;
    use crate::kubelet::status::Phase;

    const RUNNING: &str = r#"{"running": {"startedAt": "2026-01-01T00:00:00Z"}}"#;
    const DONE: &str = r#"{"terminated": {"exitCode": 0}}"#;
    const FAILED: &str = r#"{"terminated": {"exitCode": 3}}"#;
    const WAITING: &str = r#"{"waiting": {"reason": "ContainerCreating"}}"#;

    /// A pod with an init container `i` and the main containers `a` and `b`, in these states.
    fn resume(policy: &str, states: [&str; 3]) -> (PodSpec, PodRecord, bool) {
        let spec: PodSpec = serde_json::from_value(json!({
            "restartPolicy": policy,
            "initContainers": [{"name": "i"}],
            "containers": [{"name": "a"}, {"name": "b"}],
        }))
        .unwrap();
        let status = |name: &str, state: &str| {
            let state: Value = serde_json::from_str(state).unwrap();
            json!({
                "name": name, "image": "", "imageID": "", "ready": false, "restartCount": 2, "state": state,
            })
        };
        let [i, a, b] = states;
        let status: PodStatus = serde_json::from_value(json!({
            "phase": "Running", "startTime": "2026-01-01T00:00:00Z",
            "initContainerStatuses": [status("i", i)],
            "containerStatuses": [status("a", a), status("b", b)],
        }))
        .unwrap();
        let (record, over) = PodRecord::resume(&spec, &status, &Leftovers::default(), Timestamp::UNIX_EPOCH);
        (spec, record, over)
    }

    #[test]
    fn whether_a_pod_is_over_depends_on_the_restart_policy() {
        for (policy, states, over, phase) in [
            ("Never", [WAITING, WAITING, WAITING], false, None),
            ("Never", [RUNNING, WAITING, WAITING], true, Some(Phase::Failed)),
            ("Never", [DONE, RUNNING, WAITING], true, Some(Phase::Failed)),
            ("Never", [DONE, DONE, RUNNING], true, Some(Phase::Failed)),
            ("Never", [DONE, DONE, DONE], true, Some(Phase::Succeeded)),
            ("OnFailure", [DONE, DONE, RUNNING], false, None),
            ("OnFailure", [DONE, DONE, FAILED], false, None),
            ("OnFailure", [DONE, DONE, DONE], true, Some(Phase::Succeeded)),
            ("Always", [DONE, DONE, DONE], false, None),
        ] {
            let (spec, mut record, is_over) = resume(policy, states);
            assert_eq!(is_over, over, "{policy} {states:?}");
            if let Some(phase) = phase {
                record.finish(Timestamp::UNIX_EPOCH);
                assert_eq!(record.phase(&spec), phase, "{policy} {states:?}");
            }
        }
    }

    #[tokio::test]
    async fn an_unreported_start_counts() {
        let directory = tempfile::tempdir().unwrap();
        let spec: PodSpec =
            serde_json::from_value(json!({"restartPolicy": "Never", "containers": [{"name": "a"}]})).unwrap();
        let key = PodKey { namespace: "n".into(), name: "p".into(), uid: "u".into() };
        let pod = PodFolders::claim(directory.path()).unwrap().of(&key);
        let resume = async || {
            let left = Leftovers::of(pod.clone()).await;
            PodRecord::resume(&spec, &PodStatus::default(), &left, Timestamp::UNIX_EPOCH).1
        };
        assert!(!resume().await, "nothing ran");
        pod.create_logs("a").unwrap().create_file("0.log").unwrap();
        assert!(resume().await, "it ran, and nobody knows how it ended");
    }

    #[test]
    fn a_lost_container_is_reported_as_kubernetes_does() {
        let (spec, mut record, _) = resume("Never", [DONE, RUNNING, DONE]);
        record.finish(Timestamp::UNIX_EPOCH);
        let status = record.to_status(&spec, &[], Timestamp::UNIX_EPOCH);
        let lost = &status.container_statuses.unwrap()[0];
        let state = lost.state.clone().unwrap().terminated.unwrap();
        assert_eq!((state.exit_code, state.reason.as_deref()), (137, Some("ContainerStatusUnknown")));
        assert_eq!(lost.restart_count, 2);
        let started = state.started_at.unwrap().0.to_string();
        assert_eq!(started, "2026-01-01T00:00:00Z");
        assert_eq!(status.start_time.unwrap().0.to_string(), started);
    }

    #[test]
    fn a_restart_after_a_loss_is_counted() {
        let (_, mut record, _) = resume("OnFailure", [DONE, DONE, RUNNING]);
        let (a, b) = (Slot::Main(0), Slot::Main(1));
        assert!(record.has_succeeded(a) && !record.has_succeeded(b));
        assert_eq!(record.starts(b), 3);
        record.running(b, "id".into(), String::new(), Timestamp::UNIX_EPOCH);
        assert_eq!(record.starts(b), 4);
    }
}
