//! The cluster that a command connects to.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::Args;
use http::HeaderValue;
use kube::config::{Cluster, KubeConfigOptions, Kubeconfig, KubeconfigError};
use secrecy::ExposeSecret as _;

use super::command_line::quoted;
use super::file_problem::file_problem;
use super::page_client::PageAddress;
use super::{Failure, server_address};
use crate::net::proxy::{Proxy, ProxyError};

/// Flags that select a cluster.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Cluster")]
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

    /// The flags as another command takes them, each with a space before it.
    pub(super) fn flags(&self) -> String {
        let file =
            self.kubeconfig.as_ref().map(|file| format!(" --kubeconfig {}", quoted(&file.to_string_lossy())));
        let context = self.context.as_ref().map(|context| format!(" --context {}", quoted(context)));
        [file, context].into_iter().flatten().collect()
    }

    /// The configuration of the selected cluster, else of the default one (`KUBECONFIG`, `~/.kube/config`,
    /// in-cluster), with the proxy that leads to it.
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
        server_address::set(config.cluster_url.to_string());
        Ok(config)
    }

    async fn any_config(&self) -> Result<kube::Config, Failure> {
        if !self.is_given() {
            let kubeconfig = match of_kubeconfig(Kubeconfig::read(), &KubeConfigOptions::default()).await {
                Ok(config) => return Ok(config),
                Err(error) => error,
            };
            return match kube::Config::incluster() {
                Ok(config) => Ok(with_proxy(config, None)?),
                Err(_) => {
                    Err(anyhow!("no cluster is configured: {kubeconfig}; choose one with --kubeconfig FILE")
                        .into())
                }
            };
        }
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let Some(file) = &self.kubeconfig else {
            let config = of_kubeconfig(Kubeconfig::read(), &options).await;
            return config.map_err(|error| self.refuse("--context", &error));
        };
        // The errors of kube below do not say why the file cannot be opened.
        is_file(file).map_err(|error| self.refuse("--kubeconfig", &file_problem(&error)))?;
        let config = of_kubeconfig(Kubeconfig::read_from(file), &options).await;
        config.map_err(|error| self.refuse("--kubeconfig", &error))
    }

    /// The same, except that the in-cluster configuration comes before the default files.
    pub(super) async fn in_cluster_first(&self) -> Result<kube::Config, Failure> {
        if !self.is_given()
            && let Ok(config) = kube::Config::incluster()
        {
            return Ok(with_proxy(config, None)?);
        }
        self.config().await
    }

    /// The page that the kubeconfig of the selected cluster names, as that of `yardmaster cluster` does.
    pub(super) fn page(&self) -> Option<PageAddress> {
        let kubeconfig = match &self.kubeconfig {
            Some(file) => Kubeconfig::read_from(file),
            None => Kubeconfig::read(),
        };
        PageAddress::of(&kubeconfig.ok()?, self.context.as_deref())
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

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
enum Unusable {
    /// kube's own message would show lines of the file, which may hold tokens and keys.
    #[error("not a kubeconfig{}: `kubectl config view --raw` prints one", place(*.0))]
    Parse(Option<(u64, u64)>),
    #[error("{}: {}", .0.display(), file_problem(.1))]
    Read(PathBuf, io::Error),
    #[error("no context is chosen: set `current-context` in the kubeconfig, or choose one with --context")]
    NoContext,
    #[error("the kubeconfig has no {0} {1:?}: `kubectl config get-contexts` shows what it has")]
    Missing(&'static str, String),
    #[error("{0}")]
    Kubeconfig(KubeconfigError),
    #[error(transparent)]
    Proxy(#[from] ProxyError),
}

impl From<KubeconfigError> for Unusable {
    fn from(error: KubeconfigError) -> Self {
        match error {
            KubeconfigError::Parse(error) => {
                Self::Parse(error.location().map(|place| (place.line(), place.column())))
            }
            KubeconfigError::ReadConfig(error, file) => Self::Read(file, error),
            KubeconfigError::CurrentContextNotSet => Self::NoContext,
            KubeconfigError::LoadContext(name) => Self::Missing("context", name),
            KubeconfigError::LoadClusterOfContext(name) => Self::Missing("cluster", name),
            other => Self::Kubeconfig(other),
        }
    }
}

/// Opens a file, and leaves its content to the next reader, as that of a pipe is read once.
fn is_file(file: &Path) -> io::Result<()> {
    match File::open(file)?.metadata()?.is_dir() {
        true => Err(io::ErrorKind::IsADirectory.into()),
        false => Ok(()),
    }
}

/// Where a file stops to be a kubeconfig.
fn place(place: Option<(u64, u64)>) -> String {
    place.map_or_else(String::new, |(line, column)| {
        format!(": wrong syntax or type in line {line}, column {column}")
    })
}

/// The configuration of a context in a kubeconfig.
async fn of_kubeconfig(
    kubeconfig: Result<Kubeconfig, KubeconfigError>,
    options: &KubeConfigOptions,
) -> Result<kube::Config, Unusable> {
    let mut kubeconfig = kubeconfig?;
    let (mut proxy, mut authorities) = (None, None);
    if let Some(cluster) = cluster_of(&mut kubeconfig, options.context.as_deref()) {
        // kube would forget the file, which may be replaced while we run.
        authorities = cluster.certificate_authority.clone().filter(|file| !file.is_empty());
        authorities = authorities.filter(|_| cluster.certificate_authority_data.is_none());
        // Without one kube would ask the environment, whose NO_PROXY it does not know.
        proxy = cluster.proxy_url.replace("http://not-asked".into()).filter(|proxy| !proxy.is_empty());
    }
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, options).await?;
    config.root_cert_file = authorities.map(PathBuf::from);
    if let Some(told) = config.auth_info.exec.as_mut().and_then(|exec| exec.cluster.as_mut()) {
        told.proxy_url.clone_from(&proxy);
    }
    Ok(with_proxy(config, proxy.as_deref())?)
}

/// The cluster of a context.
fn cluster_of<'a>(kubeconfig: &'a mut Kubeconfig, context: Option<&str>) -> Option<&'a mut Cluster> {
    let context = context.or(kubeconfig.current_context.as_deref())?;
    let named = kubeconfig.contexts.iter().find(|named| named.name == context)?;
    let name = named.context.as_ref()?.cluster.clone();
    kubeconfig.clusters.iter_mut().find(|named| named.name == name)?.cluster.as_mut()
}

/// The configuration with the proxy that a kubeconfig names, else that of the environment. The embedded cluster has
/// a configuration of its own, which never gets one.
fn with_proxy(mut config: kube::Config, named: Option<&str>) -> Result<kube::Config, ProxyError> {
    let proxy = match named {
        Some(address) => Some(Proxy::read(address, "proxy-url")?),
        None => Proxy::of_environment(&config.cluster_url)?,
    };
    config.proxy_url = proxy.map(|proxy| proxy.given().clone());
    Ok(config)
}
