//! The part of a Pod that the kubelet reads.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::{ApiResource, Object};
use serde::{Deserialize, Serialize};

use crate::admission::pods::DEFAULT_ACCOUNT;

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

/// The longest host name, in bytes.
const HOST_NAME_MAX: usize = 63;

/// `spec` of a pod.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodSpec {
    pub(super) node_name: Option<String>,
    pub(super) hostname: Option<String>,
    pub(super) subdomain: Option<String>,
    pub(super) host_aliases: Vec<core::HostAlias>,
    #[serde(rename = "hostIPC")]
    pub(super) host_ipc: bool,
    pub(super) host_network: bool,
    #[serde(rename = "hostPID")]
    pub(super) host_pid: bool,
    pub(super) share_process_namespace: bool,
    pub(super) restart_policy: RestartPolicy,
    pub(super) init_containers: Vec<Container>,
    pub(super) containers: Vec<Container>,
    pub(super) volumes: Vec<Volume>,
    pub(super) active_deadline_seconds: Option<i64>,
    pub(super) termination_grace_period_seconds: Option<i64>,
    pub(super) scheduling_gates: Vec<core::PodSchedulingGate>,
    pub(super) priority: Option<i32>,
    pub(super) priority_class_name: Option<String>,
    pub(super) node_selector: BTreeMap<String, String>,
    pub(super) affinity: Option<core::Affinity>,
    pub(super) tolerations: Vec<core::Toleration>,
    pub(super) service_account_name: Option<String>,
    pub(super) automount_service_account_token: Option<bool>,
    pub(super) image_pull_secrets: Vec<core::LocalObjectReference>,
    pub(super) security_context: SecurityContext,
    pub(super) resources: Option<core::ResourceRequirements>,
    pub(super) resource_claims: Vec<core::PodResourceClaim>,
}

impl PodSpec {
    /// The host name in a pod of this name, cut to what a host name may have, as Kubernetes does.
    pub(super) fn host_name(&self, pod: &str) -> String {
        let name = self.hostname.as_deref().unwrap_or(pod);
        let cut = name.get(..HOST_NAME_MAX).unwrap_or(name);
        cut.trim_end_matches(['-', '.']).to_owned()
    }

    /// Whether the pod names an account other than the usual one.
    pub(super) fn names_account(&self) -> bool {
        self.account() != DEFAULT_ACCOUNT
    }

    /// The name of the ServiceAccount. Pods here need not name the usual one.
    pub(super) fn account(&self) -> &str {
        self.service_account_name.as_deref().filter(|name| !name.is_empty()).unwrap_or(DEFAULT_ACCOUNT)
    }

    /// The volume of a mount, if the pod has it.
    pub(super) fn volume(&self, mount: &VolumeMount) -> Option<&Volume> {
        self.volumes.iter().find(|volume| volume.name == mount.name)
    }

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
            (_, Some(policy), _) => policy,
            // "Always" of the pod applies to main containers: an init container that succeeded is not
            // restarted.
            (Slot::Init(_), None, RestartPolicy::Always) => RestartPolicy::OnFailure,
            (_, _, policy) => policy,
        }
    }

    /// Whether the container in this slot runs again after an end with this exit code: its own rules come first, in their order.
    pub(super) fn restarts(&self, slot: Slot, exit_code: i32) -> bool {
        let container = self.container(slot);
        let matches = |rule: &core::ContainerRestartRule| {
            let Some(codes) = &rule.exit_codes else { return false };
            let is_named = codes.values.iter().flatten().any(|code| *code == exit_code);
            match codes.operator.as_str() {
                "In" => is_named,
                "NotIn" => !is_named,
                _ => false,
            }
        };
        let rule = container.restart_policy_rules.iter().find(|rule| matches(rule));
        if container.restart_policy.is_some() && rule.is_some_and(|rule| rule.action == "Restart") {
            return true;
        }
        match self.restart_policy(slot) {
            RestartPolicy::Never => false,
            RestartPolicy::OnFailure => exit_code != 0,
            RestartPolicy::Always => true,
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

/// A container of a pod.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Container {
    pub(super) name: String,
    pub(super) image: String,
    pub(super) image_pull_policy: Option<String>,
    pub(super) command: Vec<String>,
    pub(super) args: Vec<String>,
    pub(super) working_dir: Option<String>,
    pub(super) env: Vec<core::EnvVar>,
    pub(super) env_from: Vec<core::EnvFromSource>,
    pub(super) resources: core::ResourceRequirements,
    pub(super) volume_mounts: Vec<VolumeMount>,
    pub(super) restart_policy: Option<RestartPolicy>,
    pub(super) restart_policy_rules: Vec<core::ContainerRestartRule>,
    pub(super) ports: Vec<core::ContainerPort>,
    pub(super) startup_probe: Option<core::Probe>,
    pub(super) liveness_probe: Option<core::Probe>,
    pub(super) readiness_probe: Option<core::Probe>,
    pub(super) lifecycle: Option<core::Lifecycle>,
    pub(super) termination_message_path: Option<String>,
    pub(super) termination_message_policy: Option<String>,
    pub(super) security_context: SecurityContext,
}

impl Container {
    /// The file that the container writes its termination message into.
    pub(super) fn termination_message_path(&self) -> &str {
        let given = self.termination_message_path.as_deref().filter(|path| !path.is_empty());
        given.unwrap_or("/dev/termination-log")
    }
}

/// The relevant part of a volume mount.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct VolumeMount {
    pub(super) name: String,
    pub(super) mount_path: String,
    pub(super) read_only: bool,
    pub(super) sub_path: String,
    pub(super) sub_path_expr: String,
}

impl VolumeMount {
    /// Whether it mounts a part of its volume.
    pub(super) fn is_part(&self) -> bool {
        !self.sub_path.is_empty() || !self.sub_path_expr.is_empty()
    }
}

/// The rights and the user of the processes of a pod, or of one container.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct SecurityContext {
    pub(super) run_as_user: Option<i64>,
    pub(super) run_as_group: Option<i64>,
    pub(super) run_as_non_root: Option<bool>,
    pub(super) fs_group: Option<i64>,
    pub(super) supplemental_groups: Vec<i64>,
    pub(super) privileged: Option<bool>,
    pub(super) allow_privilege_escalation: Option<bool>,
    pub(super) read_only_root_filesystem: Option<bool>,
    pub(super) capabilities: Option<core::Capabilities>,
    pub(super) seccomp_profile: Option<core::SeccompProfile>,
}

impl SecurityContext {
    /// The context of a container of a pod, which says what the container does not say itself.
    pub(super) fn over(&self, pod: &Self) -> Self {
        Self {
            run_as_user: self.run_as_user.or(pod.run_as_user),
            run_as_group: self.run_as_group.or(pod.run_as_group),
            run_as_non_root: self.run_as_non_root.or(pod.run_as_non_root),
            seccomp_profile: self.seccomp_profile.clone().or_else(|| pod.seccomp_profile.clone()),
            fs_group: pod.fs_group,
            supplemental_groups: pod.supplemental_groups.clone(),
            ..self.clone()
        }
    }
}

/// A volume of a pod: the kinds that a directory of this host can represent.
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
    pub(super) persistent_volume_claim: Option<core::PersistentVolumeClaimVolumeSource>,
    /// A claim that lives as long as the pod: no more than an empty folder here.
    pub(super) ephemeral: Option<core::EphemeralVolumeSource>,
    /// The files of an image, which only an engine has.
    pub(super) image: Option<core::ImageVolumeSource>,
    /// The access of the pod's account to the API server, which this kubelet has added to the pod.
    #[serde(skip)]
    pub(super) is_access: bool,
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn a_host_name_is_cut() {
        let long = format!("{}-.x", "a".repeat(61));
        assert_eq!(PodSpec::default().host_name(&long), "a".repeat(61));
        let given: PodSpec = serde_json::from_value(json!({"hostname": "given"})).unwrap();
        assert_eq!(given.host_name("pod"), "given");
    }

    #[test]
    fn rules_of_a_container_come_before_its_policy_and_that_before_the_pods() {
        let rule = |operator: &str| json!({"action": "Restart", "exitCodes": {"operator": operator, "values": [42]}});
        let spec = |policy: &str, container: serde_json::Value| -> PodSpec {
            let mut container = container;
            container["name"] = "c".into();
            serde_json::from_value(json!({"restartPolicy": policy, "containers": [container]})).unwrap()
        };
        let never = json!({"restartPolicy": "Never"});
        for (spec, code, restarts) in [
            (spec("OnFailure", json!({})), 1, true),
            (spec("OnFailure", json!({})), 0, false),
            (spec("OnFailure", never.clone()), 1, false),
            (spec("Never", json!({"restartPolicy": "Always"})), 0, true),
            (spec("Never", json!({"restartPolicy": "Never", "restartPolicyRules": [rule("In")]})), 42, true),
            (spec("Never", json!({"restartPolicy": "Never", "restartPolicyRules": [rule("In")]})), 41, false),
            (
                spec("Never", json!({"restartPolicy": "Never", "restartPolicyRules": [rule("NotIn")]})),
                41,
                true,
            ),
        ] {
            assert_eq!(spec.restarts(Slot::Main(0), code), restarts, "{code}: {spec:?}");
        }
    }
}
