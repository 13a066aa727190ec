//! `yardmaster reshard`: changes the number of shards while no replica runs.
//!
//! The new number is recorded first, so that no replica starts before the change is complete. Then every pod
//! gets the label of its Job's new shard. The command can be repeated after an interruption.
//!
//! A webhook of a tenant may refuse labels, or take long. Its pods keep the labels of their old shards, and replicas look for
//! those that are not counted. So no tenant keeps the replicas from starting.

use std::collections::BTreeMap;
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use futures::future::join_all;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::Value;
use tokio::time::timeout;

use super::Failure;
use super::connection::ConnectionArgs;
use super::console;
use super::controller::lease_namespace;
use super::job_view::{JobView, all_jobs};
use super::lists::{metadata, objects};
use super::namespace::parse_namespace;
use super::running_replicas::{Beat, Silence, heartbeats};
use crate::actors::ControllerConfig;
use crate::cluster::fair_semaphore::FairSemaphore;
use crate::cluster::transport::client;
use crate::cluster::wire::label_patch;
use crate::job::names::{self, SHARD_LABEL};
use crate::job::short_text::short;
use crate::job::uid::{Uid, UidMap};
use crate::sharding::ShardCount;
use crate::sharding::lease::{Layout, LeaseCodec, LeaseRecord};
use crate::telemetry::printable::OneLine;

/// Pods that are labelled concurrently, and those of one namespace.
const AT_ONCE: usize = 64;
const SHARE: usize = 8;
/// How long the pods of a namespace may take: so long, and for each pod so much more as it takes where only one at a time is
/// labelled. Replicas find the rest. The webhooks of the namespace may take half a minute for each.
const PATIENCE: Duration = Duration::from_secs(60);
const PER_POD: Duration = Duration::from_millis(10);

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
    #[arg(long, value_name = "NAME", value_parser = parse_namespace)]
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
        let mut silence = Silence::begin();
        if !self.force {
            self.wait_until_no_replica_runs(&mut silence).await?;
            anyhow::ensure!(
                before.is_some(),
                "no number of shards is recorded in namespace {}: give the --lease-namespace of the replicas, or \
                 --force if there have never been any",
                self.namespace
            );
        }
        let owners = self.managers().await?;
        let from = before.map_or(self.to, |layout| layout.shards);
        let mark = Layout {
            version: before.map_or(0, |layout| layout.version),
            shards: from,
            resharding_to: Some(self.to),
        };
        let marked = self.write(&mark).await?;
        // A replica may have started before the mark was written; it sees the mark, and ends.
        self.wait_until_no_replica_runs(&mut silence).await?;
        let Labelled { pods, refused } = self.label_pods(&owners).await?;
        self.delete_claims_beyond().await?;
        self.write(&Layout { version: marked, shards: self.to, resharding_to: None }).await?;
        let from = from.get();
        let done = format!(
            "Changed from {from} to {to} shards and relabelled {pods} pods. Start replicas with --shards {to}."
        );
        let refused = refused
            .into_iter()
            .map(|why| format!("{why}. Replicas find the pods of that namespace that are not counted yet."));
        Ok(refused.chain([done]).collect::<Vec<_>>().join("\n"))
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

    /// Waits until no replica runs. A replica whose Leases are listed may not have seen the mark yet.
    async fn wait_until_no_replica_runs(&self, silence: &mut Silence) -> anyhow::Result<()> {
        let ends = async |namespace: &str| Ok(namespace == self.namespace && self.is_marked().await?);
        silence.until_no_replica_runs(async || self.heartbeats().await, ends).await
    }

    /// Whether the layout says that the number is being changed, so that replicas end.
    async fn is_marked(&self) -> anyhow::Result<bool> {
        Ok(self.layout().await?.is_some_and(|layout| layout.resharding_to.is_some()))
    }

    /// Gives every pod of our Jobs the label of its Job's new shard. Namespaces take turns.
    async fn label_pods(&self, owners: &UidMap<Option<String>>) -> anyhow::Result<Labelled> {
        let pods: Api<Pod> = Api::all(self.client.clone());
        let mut pods = pin!(metadata(pods, &ListParams::default().labels(SHARD_LABEL)));
        let mut labels: BTreeMap<Arc<str>, Vec<Label>> = BTreeMap::new();
        while let Some(pod) = pods.try_next().await? {
            if let Some((namespace, label)) = self.new_label(&pod, owners) {
                labels.entry(namespace).or_default().push(label);
            }
        }
        let turns = FairSemaphore::new(AT_ONCE, SHARE).with_one_for_each();
        let all =
            labels.into_iter().map(|(namespace, labels)| self.label_namespace(&turns, namespace, labels));
        Ok(join_all(all).await.into_iter().fold(Labelled::default(), Labelled::and))
    }

    /// Labels the pods of a namespace, and gives up after [`PATIENCE`].
    async fn label_namespace(
        &self,
        turns: &FairSemaphore,
        namespace: Arc<str>,
        labels: Vec<Label>,
    ) -> Labelled {
        let number = u32::try_from(labels.len()).unwrap_or(u32::MAX);
        let answers = stream::iter(labels).map(async |label| {
            let _turn = turns.acquire(Some(&namespace), None).await;
            self.label(&namespace, label).await
        });
        let mut answers = pin!(answers.buffer_unordered(SHARE));
        let mut labelled = Labelled::default();
        let all = async {
            while let Some(answer) = answers.next().await {
                match answer {
                    Ok(pods) => labelled.pods += pods,
                    Err(why) if labelled.refused.is_empty() => labelled.refused.push(why),
                    Err(_) => {}
                }
            }
        };
        let patience = PATIENCE + number * PER_POD;
        if timeout(patience, all).await.is_err() {
            let limit = patience.as_secs();
            labelled
                .refused
                .push(format!("Not all pods of namespace {namespace} have their label after {limit} s"));
        }
        labelled
    }

    /// `spec.managedBy` of all Jobs, by UID.
    async fn managers(&self) -> anyhow::Result<UidMap<Option<String>>> {
        let jobs = objects(all_jobs(&self.client), &ListParams::default());
        let manager = |job: JobView| Some((Uid::from(job.metadata.uid?.as_str()), job.spec.managed_by));
        Ok(jobs.try_filter_map(async |job| Ok(manager(job))).try_collect().await?)
    }

    /// The label to put on a pod, if it has another one. Pods of other controllers' Jobs are labelled by
    /// those controllers. If a pod's Job is gone, its controller is unknown, so the pod is labelled, too.
    fn new_label(&self, meta: &ObjectMeta, owners: &UidMap<Option<String>>) -> Option<(Arc<str>, Label)> {
        let job = meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))?;
        let managed_by = owners.get(&Uid::from(job.uid.as_str()));
        if managed_by.is_some_and(|name| !self.controller.manages(name.as_deref())) {
            return None;
        }
        let shard = self.to.shard_of(&job.uid);
        let current = meta.labels.as_ref()?.get(SHARD_LABEL)?;
        (*current != shard.to_string()).then_some(())?;
        let patch = serde_json::from_slice(&label_patch(&Uid::from(meta.uid.as_deref()?), shard.0)).ok()?;
        Some((meta.namespace.as_deref()?.into(), Label { name: meta.name.clone()?, patch }))
    }

    /// Labels a pod; 0 if it is gone. Otherwise says why it has no label.
    async fn label(&self, namespace: &str, Label { name, patch }: Label) -> Result<usize, String> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let (parameters, patch) = (PatchParams::default(), Patch::Strategic(patch));
        let why = match pods.patch_metadata(&name, &parameters, &patch).await {
            Ok(_) => return Ok(1),
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => return Ok(0),
            Err(kube::Error::Api(status)) => status.message,
            Err(_) => "there is no answer".into(),
        };
        Err(format!("Cannot label pod {namespace}/{name}: {}", OneLine(&short(&why))))
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

/// The outcome of labelling.
#[derive(Default)]
struct Labelled {
    pods: usize,
    /// Why pods were left, once for each namespace.
    refused: Vec<String>,
}

impl Labelled {
    fn and(mut self, more: Self) -> Self {
        self.pods += more.pods;
        self.refused.extend(more.refused);
        self
    }
}

/// A label to put on a pod.
struct Label {
    name: String,
    patch: Value,
}
