//! Which cluster a command talks to.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use kube::config::{KubeConfigOptions, Kubeconfig};

use super::Failure;

/// The flags that choose a cluster.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct ConnectionArgs {
    /// Kubeconfig file of the cluster.
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: its current context].
    #[arg(long, value_name = "NAME")]
    pub(super) context: Option<String>,
}

impl ConnectionArgs {
    /// Whether the user names a cluster at all.
    pub(super) fn is_given(&self) -> bool {
        self.kubeconfig.is_some() || self.context.is_some()
    }

    /// The configuration of the named cluster, else of the usual one (`KUBECONFIG`, `~/.kube/config`, in-cluster).
    pub(super) async fn config(&self) -> Result<kube::Config, Failure> {
        if !self.is_given() {
            return Ok(kube::Config::infer().await.context("no cluster is configured")?);
        }
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let Some(file) = &self.kubeconfig else {
            let config = kube::Config::from_kubeconfig(&options).await;
            return config.map_err(|error| self.refuse("--context", &error));
        };
        // The errors below do not tell what is wrong with the file itself.
        std::fs::File::open(file).map_err(|error| self.refuse("--kubeconfig", &error))?;
        let kubeconfig = Kubeconfig::read_from(file).map_err(|error| self.refuse("--kubeconfig", &error))?;
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await;
        config.map_err(|error| self.refuse("--kubeconfig", &error))
    }

    /// The same, except that a cluster in whose pod this process runs comes before the usual files.
    pub(super) async fn in_cluster_first(&self) -> Result<kube::Config, Failure> {
        if !self.is_given()
            && let Ok(config) = kube::Config::incluster()
        {
            return Ok(config);
        }
        self.config().await
    }

    fn refuse(&self, flag: &str, error: &dyn std::fmt::Display) -> Failure {
        let value = match (flag, &self.context, &self.kubeconfig) {
            ("--context", Some(context), _) => context.clone(),
            (_, _, Some(file)) => file.display().to_string(),
            _ => String::new(),
        };
        Failure::bad_input(format!("{flag} {value}: {error}"))
    }
}
