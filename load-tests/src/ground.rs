//! The environment of a load: an API server and a namespace.

mod count;
mod metrics;
mod server;

use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use http::Request;
use http::header::{HeaderName, HeaderValue, USER_AGENT};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use tempfile::TempDir;

pub(crate) use self::metrics::Reading;
use self::server::Server;
pub(crate) use self::server::Storage;
use crate::faults::TimedFault;
use crate::namespaces;
use crate::usage::Usage;

/// An API server with a namespace for one load.
pub(crate) struct Ground {
    /// Kubeconfig of the API server.
    pub(crate) kubeconfig: PathBuf,
    /// The load's namespace.
    pub(crate) namespace: String,
    /// Directory of temporary files, removed at the end.
    pub(crate) directory: TempDir,
    /// The embedded API server.
    server: Option<Server>,
}

impl Ground {
    /// The API server of this kubeconfig, or an embedded one.
    pub(crate) async fn prepare(kubeconfig: Option<&Path>, storage: Storage) -> Result<Self> {
        Self::prepare_for(kubeconfig, storage, None).await
    }

    /// The API server of this kubeconfig, or an embedded one that controls access by roles. The user is known there
    /// by a token equal to their name.
    pub(crate) async fn prepare_for(
        kubeconfig: Option<&Path>,
        storage: Storage,
        user: Option<&str>,
    ) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("yardmaster-load-").tempdir()?;
        // The name is new each time, since a deleted namespace may take a while to disappear.
        let name = format!("load-{}", jiff::Timestamp::now().as_millisecond());
        let (kubeconfig, server) = match kubeconfig {
            Some(file) => (file.to_owned(), None),
            None => {
                let server = Server::start(directory.path(), storage, user).await?;
                (server.kubeconfig(), Some(server))
            }
        };
        let ground = Self { kubeconfig, namespace: name, directory, server };
        namespaces::create(&ground.client("load-tests").await?, &ground.namespace).await?;
        Ok(ground)
    }

    /// A client with this name as User-Agent.
    pub(crate) async fn client(&self, name: &str) -> Result<kube::Client> {
        client(Some(&self.kubeconfig), name).await
    }

    /// A client that acts as this user: on the embedded API server by token, on another one by impersonation.
    /// The kubeconfig needs the right to impersonate.
    pub(crate) async fn client_as(&self, user: &str) -> Result<kube::Client> {
        let mut read = Kubeconfig::read_from(&self.kubeconfig)?;
        if self.is_embedded() {
            let info = AuthInfo { token: Some(user.to_owned().into()), ..AuthInfo::default() };
            read.auth_infos.iter_mut().for_each(|named| named.auth_info = Some(info.clone()));
        }
        let mut config = kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
        if !self.is_embedded() {
            let name = HeaderName::from_static("impersonate-user");
            config.headers.push((name, HeaderValue::from_str(user)?));
        }
        of_config(config, user)
    }

    /// Whether the API server is embedded. Only an embedded one has a record of writes and faults.
    pub(crate) fn is_embedded(&self) -> bool {
        self.server.is_some()
    }

    /// The embedded API server.
    ///
    /// # Errors
    ///
    /// If the API server is another one.
    pub(crate) fn server(&mut self) -> Result<&mut Server> {
        let Some(server) = &mut self.server else { bail!("this needs the embedded API server") };
        Ok(server)
    }

    /// Whether the API server is up, as far as is known: another one than the embedded one always is.
    pub(crate) fn is_up(&self) -> bool {
        self.server.as_ref().is_none_or(Server::is_up)
    }

    /// An error if the embedded API server has ended without being asked.
    pub(crate) fn check(&mut self) -> Result<()> {
        self.server.as_mut().map_or(Ok(()), Server::check)
    }

    /// Address of the API server.
    ///
    /// # Errors
    ///
    /// If the kubeconfig names no server, or the server's name has no address.
    pub(crate) fn address(&self) -> Result<SocketAddr> {
        self.server.as_ref().map_or_else(|| address(&self.kubeconfig), |server| Ok(server.address()))
    }

    /// Injects a fault into the API server now.
    pub(crate) async fn inject(&mut self, fault: &TimedFault) -> Result<()> {
        self.server()?.inject(fault).await
    }

    /// The path of a resource in the load's namespace, such as `/api/v1` and `pods`.
    pub(crate) fn path(&self, version: &str, plural: &str) -> String {
        format!("{version}/namespaces/{}/{plural}", self.namespace)
    }

    /// Waits until no Event has been created in the load's namespace for a while.
    pub(crate) async fn events_at_rest(&self, client: &kube::Client) -> Result<()> {
        count::at_rest(client, &self.path("/api/v1", "events")).await
    }

    /// CPU time and memory of the embedded API server.
    pub(crate) fn usage(&self) -> Option<Usage> {
        self.server.as_ref().map(Server::usage)
    }

    /// Ends the embedded API server and returns its record of writes. On another API server, deletes the
    /// load's pods, Jobs and namespace, and returns `None`. If no garbage collector runs, leftovers would add
    /// to the cost of the next load.
    pub(crate) async fn end(self) -> Result<Option<Record>> {
        let client = self.client("load-tests").await?;
        let Some(mut server) = self.server else {
            for path in [self.path("/apis/batch/v1", "jobs"), self.path("/api/v1", "pods")] {
                if let Err(error) = self::clear(&client, &path).await {
                    // The report of the load counts for more.
                    eprintln!("{path}: not all objects are gone: {error:#}");
                }
            }
            let path = format!("/api/v1/namespaces/{}", self.namespace);
            let _deleted: serde_json::Value = client.request(Request::delete(path).body(Vec::new())?).await?;
            return Ok(None);
        };
        server.stop().await?;
        Ok(Some(Record { file: server.record(), _directory: self.directory }))
    }
}

/// The record of writes of an API server that has ended.
pub(crate) struct Record {
    /// Its file.
    pub(crate) file: PathBuf,
    _directory: TempDir,
}

/// The address of the server in a kubeconfig.
fn address(kubeconfig: &Path) -> Result<SocketAddr> {
    let config = Kubeconfig::read_from(kubeconfig)?;
    let server = config.clusters.first().and_then(|named| named.cluster.as_ref()?.server.clone());
    let url: http::Uri = server.context("a kubeconfig without server")?.parse()?;
    let host = url.host().context("a server without address")?.trim_matches(['[', ']']);
    let port = url.port_u16().unwrap_or(if url.scheme_str() == Some("http") { 80 } else { 443 });
    let mut addresses = (host, port).to_socket_addrs().with_context(|| format!("no address of {host}"))?;
    addresses.next().with_context(|| format!("no address of {host}"))
}

/// Deletes all objects under this path, some at a time: a request for all could time out.
async fn clear(client: &kube::Client, path: &str) -> Result<()> {
    let mut before = u64::MAX;
    loop {
        let few = format!("{path}?limit=1000&gracePeriodSeconds=0&propagationPolicy=Background");
        let _deleted: serde_json::Value = client.request(Request::delete(few).body(Vec::new())?).await?;
        match count::objects(client, path).await? {
            0 => return Ok(()),
            left if left < before => before = left,
            left => {
                eprintln!("{left} objects under {path} are still there");
                return Ok(());
            }
        }
    }
}

/// A client with this name as User-Agent, without automatic retries.
pub(crate) async fn client(kubeconfig: Option<&Path>, name: &str) -> Result<kube::Client> {
    let config = match kubeconfig {
        Some(file) => {
            let read = Kubeconfig::read_from(file).with_context(|| file.display().to_string())?;
            kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?
        }
        None => kube::Config::infer().await?,
    };
    of_config(config, name)
}

fn of_config(mut config: kube::Config, name: &str) -> Result<kube::Client> {
    // kube takes the environment's proxy also for loopback, where no other host's proxy leads.
    let host = config.cluster_url.host().unwrap_or_default().trim_matches(['[', ']']);
    if host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback()) {
        config.proxy_url = None;
    }
    config.default_retry = false;
    config.headers.push((USER_AGENT, HeaderValue::from_str(name)?));
    Ok(kube::Client::try_from(config)?)
}
