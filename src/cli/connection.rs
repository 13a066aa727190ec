//! The cluster that a command connects to.

use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use http::Uri;
use kube::config::{KubeConfigOptions, Kubeconfig};

use super::Failure;

/// Flags that select a cluster.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct ConnectionArgs {
    /// Path of the cluster's kubeconfig file.
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,
    /// Kubeconfig context to use [default: its current context].
    #[arg(long, value_name = "NAME")]
    pub(super) context: Option<String>,
}

impl ConnectionArgs {
    /// Whether the user has selected a cluster.
    pub(super) fn is_given(&self) -> bool {
        self.kubeconfig.is_some() || self.context.is_some()
    }

    /// The configuration of the selected cluster, else of the default one (`KUBECONFIG`, `~/.kube/config`,
    /// in-cluster).
    pub(super) async fn config(&self) -> Result<kube::Config, Failure> {
        self.any_config().await.map(without_proxy_on_loopback)
    }

    async fn any_config(&self) -> Result<kube::Config, Failure> {
        if !self.is_given() {
            return Ok(kube::Config::infer().await.context("no cluster is configured")?);
        }
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let Some(file) = &self.kubeconfig else {
            let config = kube::Config::from_kubeconfig(&options).await;
            return config.map_err(|error| self.refuse("--context", &error));
        };
        // The errors of kube below do not say why the file cannot be opened.
        std::fs::File::open(file).map_err(|error| self.refuse("--kubeconfig", &error))?;
        let kubeconfig = Kubeconfig::read_from(file).map_err(|error| self.refuse("--kubeconfig", &error))?;
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await;
        config.map_err(|error| self.refuse("--kubeconfig", &error))
    }

    /// The same, except that the in-cluster configuration comes before the default files.
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

/// The environment's proxy is for other hosts: nobody but this machine sees requests to it, and their token. kube
/// does not know `NO_PROXY`.
fn without_proxy_on_loopback(mut config: kube::Config) -> kube::Config {
    let host = config.cluster_url.host().unwrap_or_default().trim_matches(['[', ']']);
    let on_loopback =
        host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    let from_environment = |proxy: &Uri| {
        let named = |name| std::env::var(name).ok().and_then(|text| text.parse::<Uri>().ok());
        ["HTTPS_PROXY", "https_proxy"].into_iter().filter_map(named).any(|named| named == *proxy)
    };
    config.proxy_url = config.proxy_url.filter(|proxy| !on_loopback || !from_environment(proxy));
    config
}
