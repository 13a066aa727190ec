//! The content of the page at `/`: replicas, shards, hand-overs, the write gate, and a part of the Jobs.
//!
//! A replica knows all Leases, and so the owners of all shards, and all Jobs. Why a Job waits is known to the
//! owner of its shard alone. [`merge`] puts the overviews of several replicas together.

mod interest;
mod jobs;
mod merge;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

pub use self::interest::{Interest, JobEnd};
pub(super) use self::jobs::{Selected, select};
pub use self::merge::{merge, whole_pages};
use crate::actors::config::ControllerConfig;
pub use crate::actors::known_jobs::last_failures::LastFailure;
use crate::actors::leases::{SeenLeases, View};
use crate::cluster::gate::Priority;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::metrics::labels::QueueLabels;

/// Most hand-overs in an overview.
const MAX_HANDOVERS: usize = 256;

/// Everything that the page shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overview {
    /// The release of the program.
    pub version: String,
    /// When the overview was made.
    pub at: Timestamp,
    /// The replicas that it comes from.
    pub from: Vec<String>,
    /// All replicas, by identity.
    pub replicas: Vec<ReplicaOverview>,
    /// All shards, by number.
    pub shards: Vec<ShardOverview>,
    /// Recent hand-overs, the latest first.
    pub handovers: Vec<HandoverOverview>,
    /// The write gates of the replicas that it comes from.
    pub gates: Vec<GateOverview>,
    /// Jobs.
    pub jobs: JobsOverview,
    /// The Job that was asked for by name, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobOverview>,
}

/// A replica, as its heartbeat shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaOverview {
    /// Its name.
    pub identity: String,
    /// Milliseconds since its last heartbeat.
    pub heartbeat_age_ms: u64,
    /// After this many milliseconds without a heartbeat, others take its shards over.
    pub lease_duration_ms: u64,
    /// The replica hands its shards over, and ends.
    pub leaving: bool,
}

/// A shard, as its claim shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardOverview {
    /// Its number.
    pub shard: u32,
    /// The replica that owns it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// How often it has been claimed.
    pub epoch: u64,
    /// Its state at the replica that the overview comes from, if that one has to do with it: `claiming`,
    /// `syncing`, `active`, `draining` or `lost`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// The number of its Jobs, where they are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jobs: Option<usize>,
}

/// A shard that has got another owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandoverOverview {
    /// The shard.
    pub shard: u32,
    /// The epoch of the new owner's claim.
    pub epoch: u64,
    /// The owner before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The new owner.
    pub to: String,
    /// When the claim was seen.
    pub at: Timestamp,
    /// Milliseconds from the release to the claim; absent if the shard was not released.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unowned_ms: Option<u64>,
    /// Milliseconds from the claim until the new owner had listed Jobs and pods; the new owner alone knows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub syncing_ms: Option<u64>,
}

/// A write gate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateOverview {
    /// Its replica.
    pub replica: String,
    /// Waiting writes by priority.
    pub queued: BTreeMap<String, u64>,
    /// Writes in flight.
    pub in_flight: u64,
    /// Writes that may be in flight at once.
    pub window: u64,
    /// Writes per second at most; 0 is no limit.
    pub qps: u32,
    /// Writes refused because the shard was no longer owned.
    pub fenced: u64,
}

/// The Jobs that were asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobsOverview {
    /// All of them.
    pub total: usize,
    /// Jobs that the search finds, by phase.
    pub phases: BTreeMap<Phase, usize>,
    /// Jobs of the phase that was asked for, of which `items` is a part.
    pub matching: usize,
    /// By [`Interest`], then finished Jobs by their end, the latest first, and others by namespace and name.
    pub items: Vec<JobOverview>,
}

/// The phase of a Job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Pods are active.
    Running,
    /// No pod is active, and the Job is not finished.
    Waiting,
    /// The Job is suspended.
    Suspended,
    /// The Job has failed.
    Failed,
    /// The Job is complete.
    Complete,
}

/// A Job, as the API server shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobOverview {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// Its shard.
    pub shard: u32,
    /// Its phase.
    pub phase: Phase,
    /// `spec.completions`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completions: Option<u32>,
    /// `spec.parallelism`.
    pub parallelism: u32,
    /// `status.succeeded`.
    pub succeeded: u32,
    /// `status.failed`.
    pub failed: u32,
    /// `status.active`.
    pub active: u32,
    /// `status.ready`.
    pub ready: u32,
    /// When it was created.
    pub created: Timestamp,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished: Option<Timestamp>,
    /// Why it waits or has failed, in one word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Until when it waits, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// More about the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The pods that failed last, the newest first, as far as an owner of the shard has seen them fail.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub last_failures: Vec<LastFailure>,
}

/// The part of an overview that Leases show at this instant of the boot clock; `view` is this replica's own
/// part.
pub(super) fn of_leases(
    config: &ControllerConfig,
    leases: &SeenLeases,
    view: &View,
    now: Instant,
) -> Overview {
    let own = &*config.identity;
    let replicas = leases.replicas.iter().map(|(identity, replica)| {
        let renewed = view.renewed().filter(|_| **identity == *own).unwrap_or(replica.renewed);
        ReplicaOverview {
            identity: identity.to_string(),
            heartbeat_age_ms: millis(now.saturating_duration_since(renewed)),
            lease_duration_ms: millis(replica.lease_duration),
            leaving: replica.leaving,
        }
    });
    let shards = config.shards.shards().map(|id| {
        let claim = leases.claims.get(&id);
        ShardOverview {
            shard: id.0,
            owner: claim.and_then(|claim| claim.owner.as_deref()).map(str::to_owned),
            epoch: claim.map_or(0, |claim| claim.epoch),
            state: view.state(id).map(|state| state.as_str().to_owned()),
            jobs: None,
        }
    });
    let handovers = leases.handovers.iter().rev().take(MAX_HANDOVERS).map(|seen| HandoverOverview {
        shard: seen.shard.0,
        epoch: seen.epoch,
        from: seen.from.as_deref().map(str::to_owned),
        to: seen.to.to_string(),
        at: seen.at,
        unowned_ms: seen.unowned.map(millis),
        syncing_ms: seen.syncing.map(millis),
    });
    Overview {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        at: Timestamp::now(),
        from: vec![own.to_owned()],
        replicas: replicas.collect(),
        shards: shards.collect(),
        handovers: handovers.collect(),
        gates: Vec::new(),
        jobs: JobsOverview::default(),
        job: None,
    }
}

/// The write gate of a replica, as its metrics show it.
pub(super) fn gate(config: &ControllerConfig, metrics: &Metrics) -> GateOverview {
    let unsigned = |value: i64| u64::try_from(value).unwrap_or_default();
    let queued = Priority::ALL.map(|priority| {
        let labels = QueueLabels { priority: priority.as_str() };
        (priority.as_str().to_owned(), unsigned(metrics.write_queue_depth.get_or_create(&labels).get()))
    });
    GateOverview {
        replica: config.identity.clone(),
        queued: queued.into(),
        in_flight: unsigned(metrics.writes_in_flight.get()),
        window: unsigned(metrics.write_window.get()),
        qps: config.kube_api_qps,
        fenced: metrics.fenced_writes.get(),
    }
}

fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
