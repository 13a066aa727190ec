//! The cluster whose pods are released.

use std::sync::Arc;

use anyhow::Context as _;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::Api;

use super::found::Orphan;
use crate::actors::ControllerConfig;
use crate::cli::Failure;
use crate::cli::ownership::Ownership;
use crate::cli::readable::Readable;
use crate::cli::running_replicas::{Silence, heartbeats};
use crate::cluster::gate::{Answer, Fence, GateConfig, Order, Priority, Write, WriteError, WriteGate};
use crate::cluster::reads::Reader;
use crate::cluster::transport::{Connection, connect};
use crate::cluster::wire::{JobDecoder, orphan_patch};
use crate::job::uid::Uid;
use crate::sharding::lease::{CONTROLLER_LABEL, controller_label};
use crate::telemetry::metrics::Metrics;

/// The name of the command in its user agent.
const IDENTITY: &str = "release";
/// How often a pod is read again that changes between the reading and the removal of its finalizer.
pub(super) const ATTEMPTS: usize = 10;

/// A connection with the controller's own reads and writes.
pub(super) struct Cluster {
    pub(super) client: kube::Client,
    pub(super) reads: Reader,
    pub(super) controller: ControllerConfig,
    /// The Leases among which replicas are looked for.
    leases: Api<Readable<Lease>>,
    gate: WriteGate,
}

impl Cluster {
    /// Replicas are looked for in `lease_namespace`, or in all namespaces.
    pub(super) fn connect(
        config: kube::Config,
        controller: ControllerConfig,
        lease_namespace: Option<&str>,
    ) -> Result<Self, Failure> {
        let Connection { client, transport } = connect(config, IDENTITY)?;
        let leases = Ownership::leases(&client, lease_namespace);
        let (finalizer, metrics) = (controller.finalizer(), Arc::new(Metrics::new()));
        let reads = Reader::new(transport.clone(), finalizer, JobDecoder::new(), metrics.clone());
        let gate = WriteGate::open(transport, GateConfig::default(), finalizer, metrics);
        Ok(Self { client, reads, controller, leases, gate })
    }

    /// Fails if a replica runs: it would take over what is released. Waits for one that has died until its Leases have
    /// ended.
    pub(super) async fn must_have_no_replica(&self) -> anyhow::Result<()> {
        let selector = format!("{CONTROLLER_LABEL}={}", controller_label(&self.controller.controller_name));
        let read = async || {
            let beats = heartbeats(&self.leases, &selector).await;
            beats.context("cannot look for replicas; --lease-namespace names the only namespace to look in")
        };
        Silence::begin().until_no_replica_runs(read, async |_: &str| Ok(false)).await
    }

    /// Sends a write about a Job's pods or status.
    pub(super) async fn write(&self, job: &Uid, write: Write) -> Result<Answer, WriteError> {
        let order = Order::new(Priority::Finalizer, job.clone(), Fence::unlimited());
        self.gate.submit(order, write).await
    }

    /// Takes the finalizer and the shard label off a pod whose Job is gone. False if there was nothing to do.
    pub(super) async fn release_orphan(&self, Orphan { mut pod }: Orphan) -> anyhow::Result<bool> {
        let controller = pod.controller.clone();
        if let Some(job) = pod.job()
            && self.reads.find_job(job).await?.is_some()
        {
            // It is younger than the list of Jobs.
            return Ok(false);
        }
        for _ in 0..ATTEMPTS {
            let body = orphan_patch(&pod.pod.uid, pod.pod.version, self.controller.finalizer());
            let (namespace, name) = (pod.namespace.clone(), pod.pod.name.clone());
            let write = Write::PatchPod { namespace: namespace.clone(), name: name.clone(), body };
            match self.write(&pod.pod.uid, write).await {
                Ok(Answer::Gone) => return Ok(false),
                Ok(_) => return Ok(true),
                Err(WriteError::Conflict(_)) => {}
                Err(error) => return Err(error.into()),
            }
            match self.reads.find_pod(&namespace, &name, &pod.pod.uid).await? {
                // A Job that has adopted it meanwhile counts it.
                Some(now) if now.pod.tracked && now.controller == controller => pod = now,
                _ => return Ok(false),
            }
        }
        anyhow::bail!("it changes all the time")
    }
}
