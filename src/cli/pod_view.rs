//! The fields of pods that commands read.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::core::Object;
use serde::{Deserialize, Serialize};

use super::untrusted::Untrusted;
use crate::cluster::wire::lenient;
use crate::job::names::{COMPLETION_INDEX, INDEX_FAILURE_COUNT};

/// A pod with the fields that commands read.
pub(super) type PodView = Object<PodSpec, PodStatus>;

/// The completion index of a pod.
pub(super) fn index(pod: &PodView) -> Option<u32> {
    pod.metadata.annotations.as_ref()?.get(COMPLETION_INDEX)?.parse().ok()
}

/// The number of the try at its index, from 1, if the Job limits failures by index.
pub(super) fn attempt(pod: &PodView) -> Option<u32> {
    let failures: u32 = pod.metadata.annotations.as_ref()?.get(INDEX_FAILURE_COUNT)?.parse().ok()?;
    Some(failures.saturating_add(1))
}

/// The UID of the controller of a pod. Its author has chosen it: only pods of the Job's own namespace are asked.
pub(super) fn controller_uid(pod: &PodView) -> Option<&str> {
    let mut owners = pod.metadata.owner_references.iter().flatten();
    owners.find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.as_str())
}

/// The fields of a pod's `spec` that commands read.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodSpec {
    pub(super) node_name: Option<Untrusted>,
    pub(super) containers: Vec<Named>,
    pub(super) restart_policy: String,
}

/// An object whose name alone is read.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct Named {
    pub(super) name: String,
}

/// The fields of a pod's `status` that commands read.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodStatus {
    pub(super) phase: Untrusted,
    pub(super) reason: Option<Untrusted>,
    pub(super) message: Option<Untrusted>,
    pub(super) conditions: Vec<PodCondition>,
    pub(super) init_container_statuses: Vec<ContainerStatus>,
    pub(super) container_statuses: Vec<ContainerStatus>,
}

/// A condition of a pod.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct PodCondition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
    reason: Option<Untrusted>,
    message: Option<Untrusted>,
}

impl PodStatus {
    /// Why no node takes the pod: reason and message.
    pub(super) fn unschedulable(&self) -> Option<(&Untrusted, &Untrusted)> {
        let is_refused =
            |condition: &&PodCondition| condition.type_ == "PodScheduled" && condition.status == "False";
        let refused = self.conditions.iter().find(is_refused)?;
        Some((refused.reason.as_ref()?, refused.message.as_ref()?))
    }

    /// All containers, init containers first.
    pub(super) fn containers(&self) -> impl Iterator<Item = &ContainerStatus> {
        self.init_container_statuses.iter().chain(&self.container_statuses)
    }
}

/// The state of one container.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ContainerStatus {
    pub(super) name: Untrusted,
    #[serde(deserialize_with = "lenient::count")]
    pub(super) restart_count: u32,
    pub(super) state: BTreeMap<String, ContainerState>,
    pub(super) last_state: BTreeMap<String, ContainerState>,
}

/// The details of a container's state; the fields set depend on the state.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ContainerState {
    pub(super) reason: Option<Untrusted>,
    pub(super) message: Option<Untrusted>,
    pub(super) exit_code: Option<i32>,
    pub(super) started_at: Option<String>,
    pub(super) finished_at: Option<String>,
}

/// The state of a container's current run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunState {
    /// It has not started.
    NotStarted,
    /// It runs.
    Running,
    /// It has ended; another may follow.
    Ended,
}

impl ContainerStatus {
    /// When its last run ended, if it has ended.
    pub(super) fn ended_at(&self) -> Option<Timestamp> {
        self.state.get("terminated")?.finished_at.as_ref()?.parse().ok()
    }

    /// The run that `restart_count` counts: the newest that has started, or that starts next.
    pub(super) fn run_state(&self) -> RunState {
        let ended = |states: &BTreeMap<String, ContainerState>| {
            states.get("terminated").is_some_and(|state| state.started_at.is_some())
        };
        if self.state.contains_key("running") {
            RunState::Running
        } else if ended(&self.state) || self.state.contains_key("waiting") && ended(&self.last_state) {
            RunState::Ended
        } else {
            RunState::NotStarted
        }
    }
}
