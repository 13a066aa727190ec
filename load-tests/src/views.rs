//! Partial objects: the fields that the load tests need. Other fields are skipped while parsing.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;

/// Something with metadata.
pub(crate) trait Viewed: serde::de::DeserializeOwned + Send + Sync + 'static {
    /// The metadata.
    fn meta(&self) -> &Meta;
}

/// `metadata`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Meta {
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) uid: String,
    pub(crate) resource_version: String,
    pub(crate) labels: Labels,
    pub(crate) annotations: Annotations,
    pub(crate) creation_timestamp: Option<jiff::Timestamp>,
    pub(crate) deletion_timestamp: Option<IgnoredAny>,
    pub(crate) finalizers: Vec<String>,
}

/// Labels of pods (Job, index, shard) and of Leases.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Labels {
    #[serde(rename = "batch.kubernetes.io/job-name")]
    pub(crate) job: Option<String>,
    #[serde(rename = "batch.kubernetes.io/job-completion-index")]
    pub(crate) index: Option<String>,
    #[serde(rename = "yardmaster.dev/shard")]
    pub(crate) shard: Option<String>,
    #[serde(rename = "yardmaster.dev/lease")]
    pub(crate) lease: Option<String>,
}

/// Annotations for the simulator.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Annotations {
    #[serde(rename = "yardmaster.dev/simulated-run-time")]
    pub(crate) run_time: Option<String>,
    #[serde(rename = "yardmaster.dev/simulated-exit-code")]
    pub(crate) exit_code: Option<String>,
    #[serde(rename = "yardmaster.dev/simulated-fail-ratio")]
    pub(crate) fail_ratio: Option<String>,
}

/// A pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Pod {
    pub(crate) metadata: Meta,
    pub(crate) spec: PodSpec,
    pub(crate) status: PodStatus,
}

/// `spec` of a pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodSpec {
    pub(crate) containers: Vec<Container>,
    pub(crate) scheduling_gates: Vec<IgnoredAny>,
}

/// A container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Container {
    pub(crate) name: String,
    pub(crate) image: String,
}

/// `status` of a pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PodStatus {
    pub(crate) phase: Phase,
}

/// `status.phase` of a pod.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
pub(crate) enum Phase {
    #[default]
    Pending,
    Running,
    Succeeded,
    Failed,
    #[serde(other)]
    Unknown,
}

/// A Job.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Job {
    pub(crate) metadata: Meta,
    pub(crate) spec: JobSpec,
    pub(crate) status: JobStatus,
}

/// `spec` of a Job.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct JobSpec {
    pub(crate) completions: u32,
    pub(crate) parallelism: u32,
}

/// `status` of a Job.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct JobStatus {
    pub(crate) start_time: Option<jiff::Timestamp>,
    pub(crate) completion_time: Option<jiff::Timestamp>,
    pub(crate) succeeded: u64,
    pub(crate) failed: u64,
    pub(crate) conditions: Vec<Condition>,
}

/// A condition.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Condition {
    pub(crate) r#type: String,
    pub(crate) status: String,
}

impl JobStatus {
    /// Whether the Job is Complete or Failed.
    pub(crate) fn is_finished(&self) -> bool {
        let ends = |condition: &Condition| {
            matches!(&*condition.r#type, "Complete" | "Failed") && condition.status == "True"
        };
        self.conditions.iter().any(ends)
    }
}

/// A Lease.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Lease {
    pub(crate) metadata: Meta,
    pub(crate) spec: LeaseSpec,
}

/// `spec` of a Lease.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct LeaseSpec {
    pub(crate) holder_identity: Option<String>,
    pub(crate) lease_transitions: i64,
}

impl Lease {
    /// The holder, if there is one.
    pub(crate) fn holder(&self) -> Option<&str> {
        self.spec.holder_identity.as_deref().filter(|holder| !holder.is_empty())
    }
}

impl Viewed for Pod {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl Viewed for Job {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl Viewed for Lease {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// A page of a list.
#[derive(Debug, Deserialize)]
pub(crate) struct Page<T> {
    pub(crate) metadata: PageMeta,
    pub(crate) items: Vec<T>,
}

/// `metadata` of a list.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PageMeta {
    pub(crate) resource_version: String,
    pub(crate) r#continue: String,
}

/// Counts by some key.
pub(crate) type Counts<K> = BTreeMap<K, u64>;
