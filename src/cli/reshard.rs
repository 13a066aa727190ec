//! `yardmaster reshard`: changes the number of shards while no replica runs.
//!
//! The new number is recorded first, so that no replica starts before the change is complete. Then every pod
//! gets the label of its Job's new shard. The command can be repeated after an interruption.

use std::pin::pin;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::Resource as _;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::PartialObjectMeta;
use serde_json::Value;

use super::Failure;
use super::connection::ConnectionArgs;
use super::console;
use super::controller::lease_namespace;
use super::pages::{metadata_pages, pages};
use super::running_replicas::{Beat, heartbeats, until_no_replica_runs};
use crate::actors::ControllerConfig;
use crate::cluster::transport::client;
use crate::cluster::wire::label_patch;
use crate::job::names::{self, SHARD_LABEL};
use crate::job::uid::{Uid, UidMap};
use crate::sharding::ShardCount;
use crate::sharding::lease::{Layout, LeaseCodec, LeaseRecord};

/// Pods that are labelled concurrently.
const AT_ONCE: usize = 16;

/// Flags of `reshard`.
#[derive(Debug, Args)]
pub(super) struct ReshardArgs {
    /// New number of shards, a power of two up to 4096.
    #[arg(long, value_name = "N")]
    to: ShardCount,
    /// The --controller-name of the replicas.
    #[arg(long, value_name = "NAME", default_value = names::EXTERNAL_CONTROLLER)]
    controller_name: String,
    /// Namespace of the replicas' Leases [default: the pod's namespace, else default].
    #[arg(long, value_name = "NAME")]
    lease_namespace: Option<String>,
    /// Go on although replicas run, no number of shards is recorded, or other namespaces cannot be searched for
    /// replicas. A replica that still runs with its Leases in another namespace loses sight of its pods.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
}

/// Changes the number of shards.
pub(super) async fn run(args: ReshardArgs) -> Result<ExitCode, Failure> {
    let client = client(args.connection.config().await?, "reshard")?;
    let namespace = lease_namespace(args.lease_namespace.as_deref());
    let resharding = Resharding {
        leases: Api::namespaced(client.clone(), &namespace),
        namespace,
        force: args.force,
        client,
        codec: LeaseCodec::new(&args.controller_name, names::EXTERNAL_CONTROLLER),
        controller: ControllerConfig { controller_name: args.controller_name, ..ControllerConfig::default() },
        to: args.to,
    };
    console::print(resharding.run().await?)?;
    Ok(ExitCode::SUCCESS)
}

struct Resharding {
    client: kube::Client,
    leases: Api<Lease>,
    /// Where the replicas' Leases should be.
    namespace: String,
    force: bool,
    codec: LeaseCodec,
    controller: ControllerConfig,
    to: ShardCount,
}

impl Resharding {
    async fn run(&self) -> anyhow::Result<String> {
        let to = self.to.get();
        let before = self.layout().await?;
        if before.is_some_and(|layout| layout.shards == self.to && layout.resharding_to.is_none()) {
            return Ok(format!("There are {to} shards already."));
        }
        if !self.force {
            self.wait_until_no_replica_runs().await?;
            anyhow::ensure!(
                before.is_some(),
                "no number of shards is recorded in namespace {}: give the --lease-namespace of the replicas, or \
                 --force if there have never been any",
                self.namespace
            );
        }
        let from = before.map_or(self.to, |layout| layout.shards);
        let mark = Layout {
            version: before.map_or(0, |layout| layout.version),
            shards: from,
            resharding_to: Some(self.to),
        };
        let marked = self.write(&mark).await?;
        // A replica may have started before the mark was written; it sees the mark, and ends.
        self.wait_until_no_replica_runs().await?;
        let labelled = self.label_pods().await?;
        self.delete_claims_beyond().await?;
        self.write(&Layout { version: marked, shards: self.to, resharding_to: None }).await?;
        Ok(format!(
            "Changed from {} to {to} shards and relabelled {labelled} pods. Start replicas with --shards {to}.",
            from.get()
        ))
    }

    async fn layout(&self) -> anyhow::Result<Option<Layout>> {
        let name = self.codec.layout_name();
        let Some(lease) = self.leases.get_opt(&name).await? else { return Ok(None) };
        match self.codec.read(&lease) {
            Some(LeaseRecord::Layout(layout)) => Ok(Some(layout)),
            _ => anyhow::bail!(
                "Lease {name} does not contain the number of shards; delete it if no replica runs"
            ),
        }
    }

    /// Writes the layout over the version that it carries. Returns the new version.
    async fn write(&self, layout: &Layout) -> anyhow::Result<u64> {
        let (lease, parameters) = (self.codec.layout(layout), PostParams::default());
        let written = match &lease.metadata.resource_version {
            Some(_) => self.leases.replace(&self.codec.layout_name(), &parameters, &lease).await?,
            None => self.leases.create(&parameters, &lease).await?,
        };
        let version = written.metadata.resource_version.as_deref().unwrap_or_default();
        version.parse().with_context(|| format!("resourceVersion {version:?} is not a number"))
    }

    /// The heartbeats of all replicas: they may have been given another namespace for their Leases than this command.
    async fn heartbeats(&self) -> anyhow::Result<Vec<Beat>> {
        let everywhere: Api<Lease> = Api::all(self.client.clone());
        let searched = if self.force { &self.leases } else { &everywhere };
        heartbeats(searched, &self.codec.selector()).await.context(
            "cannot look for replicas in all namespaces; --force looks only in that of --lease-namespace",
        )
    }

    async fn records(&self) -> anyhow::Result<Vec<LeaseRecord>> {
        let listed = self.leases.list(&ListParams::default().labels(&self.codec.selector())).await?;
        Ok(listed.items.iter().filter_map(|lease| self.codec.read(lease)).collect())
    }

    /// Waits until no replica runs. One that has its Leases where we look may still be about to see the mark.
    async fn wait_until_no_replica_runs(&self) -> anyhow::Result<()> {
        let ends = async |namespace: &str| Ok(namespace == self.namespace && self.is_marked().await?);
        until_no_replica_runs(async || self.heartbeats().await, ends).await
    }

    /// Whether the layout says that the number is being changed, so that replicas end.
    async fn is_marked(&self) -> anyhow::Result<bool> {
        Ok(self.layout().await?.is_some_and(|layout| layout.resharding_to.is_some()))
    }

    /// Gives every pod of our Jobs the label of its Job's new shard. Returns the number of pods that had
    /// another one.
    async fn label_pods(&self) -> anyhow::Result<usize> {
        let owners = self.managers().await?;
        let pods: Api<Pod> = Api::all(self.client.clone());
        let mut pages = pin!(metadata_pages(pods, ListParams::default().labels(SHARD_LABEL)));
        let mut labelled = 0;
        while let Some(page) = pages.try_next().await? {
            let labels = page.iter().filter_map(|pod| self.new_label(pod, &owners));
            labelled += stream::iter(labels)
                .map(|label| self.label(label))
                .buffer_unordered(AT_ONCE)
                .try_fold(0, async |sum, count| Ok(sum + count))
                .await?;
        }
        Ok(labelled)
    }

    /// `spec.managedBy` of all Jobs, by UID.
    async fn managers(&self) -> anyhow::Result<UidMap<Option<String>>> {
        let jobs: Api<Job> = Api::all(self.client.clone());
        let mut pages = pin!(pages(jobs, ListParams::default()));
        let mut managers = UidMap::default();
        while let Some(page) = pages.try_next().await? {
            managers.extend(page.into_iter().filter_map(|job| {
                Some((Uid::from(job.metadata.uid?.as_str()), job.spec.and_then(|spec| spec.managed_by)))
            }));
        }
        Ok(managers)
    }

    /// The label to put on a pod, if it has another one. Pods of other controllers' Jobs are labelled by
    /// those controllers. If a pod's Job is gone, its controller is unknown, so the pod is labelled, too.
    fn new_label(&self, pod: &PartialObjectMeta<Pod>, owners: &UidMap<Option<String>>) -> Option<Label> {
        let meta = pod.meta();
        let job = meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))?;
        let managed_by = owners.get(&Uid::from(job.uid.as_str()));
        if managed_by.is_some_and(|name| !self.controller.manages(name.as_deref())) {
            return None;
        }
        let shard = self.to.shard_of(&job.uid);
        let current = meta.labels.as_ref()?.get(SHARD_LABEL)?;
        (*current != shard.to_string()).then_some(())?;
        Some(Label {
            namespace: meta.namespace.clone()?,
            name: meta.name.clone()?,
            patch: serde_json::from_slice(&label_patch(&Uid::from(meta.uid.as_deref()?), shard.0)).ok()?,
        })
    }

    /// Labels a pod; 0 if it is gone.
    async fn label(&self, Label { namespace, name, patch }: Label) -> anyhow::Result<usize> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &namespace);
        match pods.patch_metadata(&name, &PatchParams::default(), &Patch::Strategic(patch)).await {
            Ok(_) => Ok(1),
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(0),
            Err(error) => Err(error).with_context(|| format!("cannot label pod {namespace}/{name}")),
        }
    }

    /// Deletes the claims of shards that no longer exist.
    async fn delete_claims_beyond(&self) -> anyhow::Result<()> {
        for record in self.records().await? {
            if let LeaseRecord::Claim(claim) = record
                && claim.shard.0 >= self.to.get()
            {
                match self.leases.delete(&self.codec.claim_name(claim.shard), &DeleteParams::default()).await
                {
                    Ok(_) => {}
                    Err(kube::Error::Api(status)) if status.is_not_found() => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }
}

/// A label to put on a pod.
struct Label {
    namespace: String,
    name: String,
    patch: Value,
}
