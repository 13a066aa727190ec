//! The status patch that a kubelet would write for a `set`.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use crate::scenario::{
    file::{ContainerSet, Set},
    pod::{phase, ready},
};

/// An RFC 3339 time of whole seconds, `ago` seconds before `now`.
fn seconds_before(now: Timestamp, ago: i64) -> String {
    let time = now - SignedDuration::from_secs(ago);
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

impl Set {
    /// A strategic merge patch of the pod's status. Returns `None` if only a node is given.
    pub(crate) fn status_patch(&self, pod: &Value, now: Timestamp) -> Option<Value> {
        let phase = self.phase.as_deref().unwrap_or_else(|| phase(pod));
        let mut status = Map::new();
        if self.phase.is_some() {
            status.insert("phase".into(), phase.into());
        }
        if let Some(reason) = &self.reason {
            status.insert("reason".into(), reason.as_str().into());
        }
        let conditions = self.conditions(pod, now);
        if !conditions.is_empty() {
            status.insert("conditions".into(), conditions.into());
        }
        let node_only = status.is_empty()
            && self.restart_count.is_none()
            && self.exit_code.is_none()
            && self.containers.is_empty()
            && self.init_containers.is_none();
        if node_only {
            return None;
        }
        let says_nothing = phase == "Pending" && self.restart_count.is_none() && self.containers.is_empty();
        if !self.no_statuses && !says_nothing {
            let statuses = self.statuses(pod, "/spec/containers", phase, Some(&self.containers), now);
            status.insert("containerStatuses".into(), statuses);
        }
        if let (Some(given), false) = (&self.init_containers, self.no_statuses) {
            let statuses = self.statuses(pod, "/spec/initContainers", phase, Some(given), now);
            status.insert("initContainerStatuses".into(), statuses);
        }
        Some(json!({ "status": status }))
    }

    /// The conditions that change.
    fn conditions(&self, pod: &Value, now: Timestamp) -> Vec<Value> {
        let finished = matches!(self.phase.as_deref(), Some("Succeeded" | "Failed"));
        let ready = match self.ready {
            Some(is) => Some((is, self.ready_ago)),
            None if finished && ready(pod) => Some((false, self.finished_ago)),
            None => None,
        };
        let ready = ready.map(|(is, ago)| {
            let status = if is { "True" } else { "False" };
            json!({"type": "Ready", "status": status, "lastTransitionTime": seconds_before(now, ago)})
        });
        let given = self.conditions.iter().map(|condition| {
            let mut condition = condition.clone();
            condition.entry("lastTransitionTime").or_insert_with(|| seconds_before(now, 0).into());
            Value::Object(condition)
        });
        ready.into_iter().chain(given).collect()
    }

    fn statuses(
        &self,
        pod: &Value,
        containers: &str,
        phase: &str,
        given: Option<&BTreeMap<String, ContainerSet>>,
        now: Timestamp,
    ) -> Value {
        let main = containers == "/spec/containers";
        let containers = pod.pointer(containers).and_then(Value::as_array);
        let status = |container: &Value| {
            let name = container["name"].as_str().unwrap_or_default();
            let set = given.and_then(|given| given.get(name)).cloned();
            let set = set.unwrap_or_else(|| if main { self.by_phase(name, phase) } else { done() });
            let ready = set.running && self.ready.unwrap_or_else(|| ready(pod));
            json!({
                "name": name,
                "image": container["image"],
                "imageID": "",
                "ready": ready,
                "restartCount": set.restart_count.or(self.restart_count).unwrap_or(0),
                "state": self.state(&set, now),
            })
        };
        containers.into_iter().flatten().map(status).collect()
    }

    /// The state of a container that is not listed in the `set`, from the pod's phase.
    fn by_phase(&self, name: &str, phase: &str) -> ContainerSet {
        let guilty = self.container.as_deref().is_none_or(|guilty| guilty == name);
        match phase {
            "Running" => ContainerSet { running: true, ..ContainerSet::default() },
            "Failed" if guilty => {
                ContainerSet { exit_code: Some(self.exit_code.unwrap_or(1)), ..ContainerSet::default() }
            }
            "Failed" | "Succeeded" => done(),
            _ => ContainerSet::default(),
        }
    }

    fn state(&self, set: &ContainerSet, now: Timestamp) -> Value {
        match set.exit_code {
            Some(code) => {
                let time = seconds_before(now, self.finished_ago);
                let reason = if code == 0 { "Completed" } else { "Error" };
                json!({"terminated": {"exitCode": code, "reason": reason, "startedAt": time, "finishedAt": time}})
            }
            None if set.running => json!({"running": {"startedAt": seconds_before(now, 0)}}),
            None => json!({"waiting": {"reason": "ContainerCreating"}}),
        }
    }
}

fn done() -> ContainerSet {
    ContainerSet { exit_code: Some(0), ..ContainerSet::default() }
}
