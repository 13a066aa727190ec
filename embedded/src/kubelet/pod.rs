//! The part of a Pod that the kubelet reads.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::{ApiResource, Object};
use serde::{Deserialize, Serialize};

/// A pod as the kubelet decodes it: other fields are dropped while parsing.
pub(super) type Pod = Object<PodSpec, PodStatus>;

/// The API resource of [`Pod`].
pub(super) fn resource() -> ApiResource {
    ApiResource::erase::<core::Pod>(&())
}

/// The unique identity of a pod: names are reused, uids are not.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PodKey {
    /// Namespace of the pod.
    pub(super) namespace: String,
    /// Name of the pod.
    pub(super) name: String,
    /// Uid of the pod.
    pub(super) uid: String,
}

impl PodKey {
    /// The key of a pod that a server returned.
    pub(super) fn of(pod: &Pod) -> Self {
        let metadata = pod.metadata.clone();
        Self {
            namespace: metadata.namespace.unwrap_or_default(),
            name: metadata.name.unwrap_or_default(),
            uid: metadata.uid.unwrap_or_default(),
        }
    }
}

impl std::fmt::Display for PodKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// `spec` of a pod.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodSpec {
    pub(super) node_name: Option<String>,
    pub(super) hostname: Option<String>,
    pub(super) restart_policy: RestartPolicy,
    pub(super) init_containers: Vec<Container>,
    pub(super) containers: Vec<Container>,
    pub(super) volumes: Vec<Volume>,
    pub(super) active_deadline_seconds: Option<i64>,
    pub(super) termination_grace_period_seconds: Option<i64>,
    pub(super) scheduling_gates: Vec<core::PodSchedulingGate>,
    pub(super) service_account_name: Option<String>,
    pub(super) security_context: SecurityContext,
    pub(super) resources: Option<core::ResourceRequirements>,
    pub(super) resource_claims: Vec<core::PodResourceClaim>,
}

impl PodSpec {
    /// Time between SIGTERM and SIGKILL; Kubernetes' default is 30 s.
    pub(super) fn grace(&self) -> Duration {
        grace(self.termination_grace_period_seconds.unwrap_or(30))
    }

    /// The container in this slot.
    pub(super) fn container(&self, slot: Slot) -> &Container {
        match slot {
            Slot::Init(index) => &self.init_containers[index],
            Slot::Main(index) => &self.containers[index],
        }
    }

    /// All containers, in the order in which they start.
    pub(super) fn slots(&self) -> impl Iterator<Item = Slot> + use<> {
        (0..self.init_containers.len()).map(Slot::Init).chain((0..self.containers.len()).map(Slot::Main))
    }

    /// The restart policy of the container in this slot.
    pub(super) fn restart_policy(&self, slot: Slot) -> RestartPolicy {
        match (slot, self.container(slot).restart_policy, self.restart_policy) {
            (Slot::Init(_), Some(policy), _) => policy,
            // "Always" of the pod applies to main containers: an init container that succeeded is not
            // restarted.
            (Slot::Init(_), None, RestartPolicy::Always) => RestartPolicy::OnFailure,
            (_, _, policy) => policy,
        }
    }

    /// Whether this init container runs beside the main containers instead of before them.
    pub(super) fn is_sidecar(&self, slot: Slot) -> bool {
        matches!(slot, Slot::Init(_)) && self.restart_policy(slot) == RestartPolicy::Always
    }
}

/// A grace period from the API: negative values mean one second.
pub(super) fn grace(seconds: i64) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or(1))
}

/// The position of a container in its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Slot {
    /// Index in `spec.initContainers`.
    Init(usize),
    /// Index in `spec.containers`.
    Main(usize),
}

/// `restartPolicy` of a pod or of an init container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(super) enum RestartPolicy {
    #[default]
    Always,
    OnFailure,
    Never,
}

/// One container of a pod.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Container {
    pub(super) name: String,
    pub(super) image: String,
    pub(super) command: Vec<String>,
    pub(super) args: Vec<String>,
    pub(super) working_dir: Option<String>,
    pub(super) env: Vec<core::EnvVar>,
    pub(super) env_from: Vec<core::EnvFromSource>,
    pub(super) resources: core::ResourceRequirements,
    pub(super) volume_mounts: Vec<VolumeMount>,
    pub(super) restart_policy: Option<RestartPolicy>,
    pub(super) termination_message_policy: Option<String>,
    pub(super) security_context: SecurityContext,
}

/// The relevant part of a volume mount.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct VolumeMount {
    pub(super) name: String,
    pub(super) mount_path: String,
    pub(super) sub_path: String,
    pub(super) sub_path_expr: String,
}

/// The user that a pod or container requires.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct SecurityContext {
    pub(super) run_as_user: Option<i64>,
    pub(super) run_as_non_root: Option<bool>,
}

/// One volume of a pod: the kinds that a directory of this host can represent.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Volume {
    pub(super) name: String,
    pub(super) empty_dir: Option<core::EmptyDirVolumeSource>,
    pub(super) host_path: Option<core::HostPathVolumeSource>,
    pub(super) config_map: Option<core::ConfigMapVolumeSource>,
    pub(super) secret: Option<core::SecretVolumeSource>,
    #[serde(rename = "downwardAPI")]
    pub(super) downward_api: Option<core::DownwardAPIVolumeSource>,
    pub(super) projected: Option<core::ProjectedVolumeSource>,
    /// Any other kind, by its field name.
    #[serde(flatten)]
    pub(super) other: BTreeMap<String, serde_json::Value>,
}

/// The part of `status` that determines which containers still have to run.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodStatus {
    pub(super) phase: Option<String>,
    pub(super) start_time: Option<Time>,
    pub(super) conditions: Vec<core::PodCondition>,
    pub(super) init_container_statuses: Vec<core::ContainerStatus>,
    pub(super) container_statuses: Vec<core::ContainerStatus>,
}

impl PodStatus {
    /// Whether the pod is Succeeded or Failed.
    pub(super) fn is_terminal(&self) -> bool {
        matches!(self.phase.as_deref(), Some("Succeeded" | "Failed"))
    }
}
