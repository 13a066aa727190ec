//! The cluster that a command connects to.

use std::error::Error;
use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;
use http::{HeaderValue, Uri};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use secrecy::ExposeSecret as _;

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
        let config = self.any_config().await?;
        // kube would panic.
        let token = config.auth_info.token.as_ref().map(|token| HeaderValue::try_from(token.expose_secret()));
        if let Some(Err(_)) = token {
            let named = |file: &PathBuf| format!("--kubeconfig {}", file.display());
            let place = self.kubeconfig.as_ref().map_or_else(|| "kubeconfig".to_owned(), named);
            let problem = format!("{place}: the token must be one line of visible ASCII characters");
            return Err(Failure::bad_input(problem));
        }
        Ok(without_proxy_on_loopback(config))
    }

    async fn any_config(&self) -> Result<kube::Config, Failure> {
        if !self.is_given() {
            return kube::Config::infer().await.map_err(|error| {
                let kubeconfig = error.source().and_then(|source| source.downcast_ref());
                let reason = kubeconfig.map_or_else(|| error.to_string(), reason);
                anyhow!("no cluster is configured: {reason}").into()
            });
        }
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let Some(file) = &self.kubeconfig else {
            let config = kube::Config::from_kubeconfig(&options).await;
            return config.map_err(|error| self.refuse("--context", &reason(&error)));
        };
        // The errors of kube below do not say why the file cannot be opened.
        std::fs::File::open(file).map_err(|error| self.refuse("--kubeconfig", &error))?;
        let refuse = |error| self.refuse("--kubeconfig", &reason(&error));
        let kubeconfig = Kubeconfig::read_from(file).map_err(refuse)?;
        kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(refuse)
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

/// Why a kubeconfig cannot be used, without the lines of the file: they may hold tokens and keys.
fn reason(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::Parse(error) => format!("no valid kubeconfig: {}", error.without_snippet()),
        other => other.to_string(),
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
