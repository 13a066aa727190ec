//! The cluster that Jobs run on: an embedded one, or an existing one that the user selects.

#[cfg(feature = "embedded")]
use std::sync::Arc;

use anyhow::Context;
use k8s_openapi::api::batch::v1::Job;
use kube::api::{Api, DeleteParams, PropagationPolicy};

use super::manifest::Loaded;
#[cfg(feature = "embedded")]
use super::manifest::Manifest;
use super::progress::Progress;
use super::tracker::{Tracked, Tracker};
use super::{Host, RunArgs};
use crate::cli::Failure;
use crate::cli::console::note;
#[cfg(feature = "embedded")]
use crate::cli::embedded::{EmbeddedCluster, claims_folder};
use crate::cli::pod_runtime::PodRuntime;
use crate::cluster::transport::client;
#[cfg(feature = "embedded")]
use crate::job::names::{BUILT_IN_CONTROLLER, EXTERNAL_CONTROLLER};
use crate::telemetry::traces::JobTraces;
#[cfg(feature = "embedded")]
use yardmaster_embedded::kubelet::KubeletConfig;

/// A cluster to run Jobs on.
pub(super) struct TargetCluster {
    /// A client of its API server.
    pub(super) client: kube::Client,
    #[cfg(feature = "embedded")]
    embedded: Option<EmbeddedCluster>,
}

impl TargetCluster {
    /// Connects to the cluster that the flags select, or starts an embedded one with the namespaces of the
    /// manifests.
    pub(super) async fn prepare(
        args: &RunArgs,
        host: &Host,
        loaded: &Loaded,
        traces: &JobTraces,
        progress: &Progress,
    ) -> Result<Self, Failure> {
        let Host::ThisMachine(runtime) = host else {
            let config = args.connection.config().await?;
            let address = config.cluster_url.clone();
            let client = client(config, "run")?;
            client.apiserver_version().await.context("cannot reach the cluster")?;
            note(format_args!("Jobs run on the cluster at {address}"));
            return Ok(Self {
                client,
                #[cfg(feature = "embedded")]
                embedded: None,
            });
        };
        Self::embed(runtime, loaded, traces, progress, args.keep).await
    }

    #[cfg(feature = "embedded")]
    async fn embed(
        runtime: &PodRuntime,
        loaded: &Loaded,
        traces: &JobTraces,
        progress: &Progress,
        has_page: bool,
    ) -> Result<Self, Failure> {
        let has_kubeconfig = std::env::var_os("KUBECONFIG").is_some_and(|files| !files.is_empty());
        let ignored = if has_kubeconfig {
            " KUBECONFIG is ignored: --kubeconfig FILE runs Jobs on its cluster."
        } else {
            ""
        };
        note(format_args!("{}{ignored}", runtime.announcement()));
        if loaded.companions.iter().any(|companion| companion.kind.name == "PersistentVolumeClaim")
            && let Some(folder) = claims_folder()
        {
            note(format_args!("PersistentVolumeClaims are folders in {}, and stay.", folder.display()));
        }
        let kubelet = KubeletConfig { pulls: Arc::new(progress.clone()), ..runtime.kubelet() };
        let embedded =
            EmbeddedCluster::start(&controllers(&loaded.manifests), kubelet, traces, has_page).await?;
        let client = embedded.client();
        let of_jobs = loaded.manifests.iter().map(|manifest| manifest.namespace.as_str());
        let of_others = loaded.companions.iter().filter_map(|companion| companion.namespace.as_deref());
        let namespaces: std::collections::BTreeSet<_> = of_jobs.chain(of_others).collect();
        for namespace in namespaces {
            embedded.create_namespace(namespace).await?;
        }
        Ok(Self { client, embedded: Some(embedded) })
    }

    #[cfg(not(feature = "embedded"))]
    async fn embed(
        runtime: &PodRuntime,
        _: &Loaded,
        _: &JobTraces,
        _: &Progress,
        _: bool,
    ) -> Result<Self, Failure> {
        match *runtime {}
    }

    /// The waterfall of a Job of the embedded cluster.
    pub(super) async fn trace(&self, job: &Tracked) -> String {
        #[cfg(feature = "embedded")]
        if let Some(embedded) = &self.embedded
            && let Some(waterfall) = embedded.trace(job.namespace(), job.name()).await
        {
            return waterfall;
        }
        format!("{}: no trace\n", job.key())
    }

    /// Whether others may resume a suspended Job here, as a queue does. An embedded cluster has no other users.
    pub(super) fn is_shared(&self) -> bool {
        #[cfg(feature = "embedded")]
        return self.embedded.is_none();
        #[cfg(not(feature = "embedded"))]
        true
    }

    /// A text that says how to use the embedded cluster.
    pub(super) fn address(&self) -> anyhow::Result<Option<String>> {
        #[cfg(feature = "embedded")]
        if let Some(embedded) = &self.embedded {
            return embedded.address().map(Some);
        }
        Ok(None)
    }

    /// Shuts the embedded cluster down with all its processes. On another cluster, deletes unfinished Jobs if
    /// interrupted.
    pub(super) async fn leave(self, tracker: &Tracker, interrupted: bool) {
        #[cfg(feature = "embedded")]
        if let Some(embedded) = self.embedded {
            return embedded.shutdown().await;
        }
        if !interrupted {
            return;
        }
        for tracked in tracker.jobs.iter().filter(|tracked| tracked.end.is_none()) {
            let jobs: Api<Job> = Api::namespaced(self.client.clone(), tracked.namespace());
            let params = DeleteParams {
                propagation_policy: Some(PropagationPolicy::Background),
                ..DeleteParams::default()
            };
            if let Err(error) = jobs.delete(tracked.name(), &params).await {
                note(format_args!("cannot delete Job {}: {error}", tracked.key()));
            }
        }
    }
}

/// The controllers that these Jobs need: the replacement of the built-in one, and ours if a Job names it in
/// `spec.managedBy`.
#[cfg(feature = "embedded")]
fn controllers(manifests: &[Manifest]) -> Vec<&'static str> {
    let mut names = vec![BUILT_IN_CONTROLLER];
    let named = |manifest: &Manifest| manifest.job["spec"]["managedBy"] == EXTERNAL_CONTROLLER;
    names.extend(manifests.iter().any(named).then_some(EXTERNAL_CONTROLLER));
    names
}
