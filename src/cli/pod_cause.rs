//! The causes of a pod's failure.

use super::pod_view::PodView;

/// A run of a container that has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FailedRun {
    /// Name of the container.
    pub(super) container: String,
    /// Whether another run has begun.
    pub(super) previous: bool,
}

/// A cause of failures: one that pods have in common is told once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cause {
    /// The text that pods with this cause have in common.
    pub(super) kind: String,
    /// The whole story.
    pub(super) text: String,
    /// The run with the log.
    pub(super) run: Option<FailedRun>,
    /// The exit code of the container.
    pub(super) exit_code: Option<i32>,
}

/// The failures of a pod so far, of itself and of its containers.
pub(super) fn causes(pod: &PodView) -> Vec<Cause> {
    let Some(status) = &pod.status else { return Vec::new() };
    let mut causes: Vec<Cause> = Vec::new();
    if let Some(reason) = status.reason.as_ref().filter(|_| status.phase == "Failed") {
        let message = status.message.as_ref().map(|message| format!(": {}", message.indented()));
        let text = format!("{reason}{}", message.unwrap_or_default());
        causes.push(Cause { kind: reason.to_string(), text, run: None, exit_code: None });
    }
    let has_failed = status.phase == "Failed";
    for container in status.containers() {
        // Before the pod has failed only runs count that were followed by another: sidecars are stopped.
        let run = if has_failed { container.state.get("terminated").map(|end| (end, false)) } else { None };
        let Some((end, previous)) = run.or_else(|| Some((container.last_state.get("terminated")?, true)))
        else {
            continue;
        };
        let Some(code) = end.exit_code.filter(|code| *code != 0) else { continue };
        let reason = end.reason.clone().unwrap_or_else(|| "Error".into());
        // Of a container that was never found, the reason of its pod or of an earlier container says more.
        if !causes.is_empty() && reason == "ContainerStatusUnknown" {
            continue;
        }
        let kind = format!("container {}: exit code {code} ({reason})", container.name);
        let message = end.message.as_ref().map(|message| format!(": {}", message.indented()));
        let text = format!("{kind}{}", message.unwrap_or_default());
        let run = FailedRun { container: container.name.raw().to_owned(), previous };
        causes.push(Cause { kind, text, run: Some(run), exit_code: Some(code) });
    }
    causes
}

/// How a pod failed, of which these are the causes. Returns `None` unless it did.
pub(super) fn failure(pod: &PodView, causes: &[Cause]) -> Option<String> {
    let status = pod.status.as_ref().filter(|status| status.phase == "Failed")?;
    let mut parts: Vec<String> = causes.iter().map(|cause| cause.text.clone()).collect();
    if parts.is_empty() {
        parts.extend(status.message.iter().map(|message| message.indented().to_string()));
    }
    Some(parts.join("; "))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;

    fn pod(status: Value) -> PodView {
        let pod = json!({"metadata": {"name": "p"}, "spec": {}, "status": status});
        serde_json::from_value(pod).unwrap()
    }

    fn texts(status: Value) -> Vec<String> {
        causes(&pod(status)).into_iter().map(|cause| cause.text).collect()
    }

    fn ended(name: &str, state: &str, code: i32, reason: &str) -> Value {
        json!({"name": name, state: {"terminated": {"exitCode": code, "reason": reason}}})
    }

    #[test]
    fn the_reason_of_a_pod_says_more_than_that_its_containers_were_never_found() {
        let lost = ended("main", "state", 137, "ContainerStatusUnknown");
        let failed = json!({
            "phase": "Failed", "reason": "FailedMount", "message": "volume \"a\"", "containerStatuses": [lost],
        });
        assert_eq!(texts(failed.clone()), ["FailedMount: volume \"a\""]);
        let failure = failure(&pod(failed.clone()), &causes(&pod(failed))).unwrap();
        assert_eq!(failure, "FailedMount: volume \"a\"");
        let init = ended("init", "state", 9, "Error");
        assert_eq!(
            texts(json!({"phase": "Failed", "initContainerStatuses": [init], "containerStatuses": [lost]})),
            ["container init: exit code 9 (Error)"]
        );
        assert_eq!(
            texts(json!({"phase": "Failed", "containerStatuses": [lost]})),
            ["container main: exit code 137 (ContainerStatusUnknown)"]
        );
    }

    #[test]
    fn containers_that_were_stopped_have_no_failure_and_those_that_run_again_have() {
        let stopped = ended("sidecar", "state", 143, "Error");
        assert_eq!(texts(json!({"phase": "Succeeded", "initContainerStatuses": [stopped]})), [""; 0]);
        let again = ended("main", "lastState", 1, "Error");
        let restarted = json!({"phase": "Running", "containerStatuses": [again]});
        assert_eq!(texts(restarted.clone()), ["container main: exit code 1 (Error)"]);
        assert!(causes(&pod(restarted.clone()))[0].run.as_ref().unwrap().previous);
        assert!(failure(&pod(restarted.clone()), &causes(&pod(restarted))).is_none());
    }
}
