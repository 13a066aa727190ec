//! The local kubelet: runs the containers of pods as processes of this host.
//!
//! It is an ordinary client of the Kubernetes API. It registers one Node, assigns pods to it (there is no
//! other scheduler), runs them and writes their status. Resource requests, node selectors and affinities have
//! no effect on the only node. Probes, lifecycle hooks, ports and images have no effect on plain processes.

mod client;
mod environment;
mod events;
mod leftovers;
mod logs;
mod manager;
mod node;
mod pod;
mod process;
mod quantity;
mod reporter;
mod runtime;
mod server;
mod setup;
mod status;
mod stop;
mod stragglers;
mod volumes;
mod worker;

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;

use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::events::Events;
use self::logs::LogIndex;
use self::manager::Manager;
use self::server::LogServer;
use self::stragglers::Stragglers;
use self::worker::Context;
use crate::open_files;

/// How containers are run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KubeletMode {
    /// As processes of this host.
    #[default]
    Process,
    /// Not at all: pods run for the time in the annotation `yardmaster.dev/simulated-run-time` (such as `2s`;
    /// default 1 s) and end with the exit code in `yardmaster.dev/simulated-exit-code` (default 0).
    Simulated,
}

/// Configuration of the kubelet.
#[derive(Clone, Debug)]
pub struct KubeletConfig {
    /// Name of the Node.
    pub node_name: String,
    /// How containers are run.
    pub mode: KubeletMode,
    /// Directory for the volumes and logs of existing pods; a temporary directory by default. With a
    /// directory from a previous kubelet, this kubelet continues pods that may be restarted, reports the end
    /// of the others, and removes the files of pods that no longer exist.
    pub data_dir: Option<PathBuf>,
}

impl Default for KubeletConfig {
    fn default() -> Self {
        Self { node_name: "yardmaster-local".into(), mode: KubeletMode::default(), data_dir: None }
    }
}

/// Why the kubelet could not start.
#[derive(Debug, thiserror::Error)]
pub enum KubeletError {
    /// The API server refused the Node or could not be reached.
    #[error("cannot register the node: {0}")]
    Register(#[source] kube::Error),
    /// The directory for volumes and logs cannot be used.
    #[error("cannot use the data directory {0}: {1}")]
    DataDir(PathBuf, #[source] std::io::Error),
    /// The endpoint for logs cannot be opened.
    #[error("cannot listen on the loopback interface: {0}")]
    Listen(#[source] std::io::Error),
}

/// A running kubelet. Dropping it kills the processes of all pods at once.
#[derive(Debug)]
pub struct Kubelet {
    stop: CancellationToken,
    manager: JoinSet<()>,
    server: LogServer,
    // Removed after the tasks that use it.
    _data_dir: Option<TempDir>,
}

impl Kubelet {
    /// Registers the node and starts to run pods.
    pub async fn start(client: kube::Client, config: KubeletConfig) -> Result<Self, KubeletError> {
        open_files::raise_limit();
        let (directory, data_dir) = data_dir(config.data_dir)?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(KubeletError::Listen)?;
        let port = listener.local_addr().map_err(KubeletError::Listen)?.port();
        node::register(client.clone(), &config.node_name, port).await.map_err(KubeletError::Register)?;

        let logs = Arc::new(LogIndex::default());
        let server = LogServer::start(listener, Arc::clone(&logs), client.clone());

        let stop = CancellationToken::new();
        let context = Context {
            events: Events::new(client.clone(), &config.node_name),
            client,
            node_name: config.node_name,
            mode: config.mode,
            directory,
            logs,
            stragglers: Stragglers::start(),
        };
        let mut manager = JoinSet::new();
        manager.spawn(Manager::new(context).run(stop.clone()));
        Ok(Self { stop, manager, server, _data_dir: data_dir })
    }

    /// Stops the processes of all pods (SIGTERM, then SIGKILL after at most two seconds) and waits for them.
    ///
    /// The pods' status stays unchanged.
    pub async fn shutdown(mut self) {
        self.stop.cancel();
        while self.manager.join_next().await.is_some() {}
        self.server.shutdown().await;
    }
}

fn data_dir(given: Option<PathBuf>) -> Result<(PathBuf, Option<TempDir>), KubeletError> {
    match given {
        Some(directory) => match std::fs::create_dir_all(&directory) {
            Ok(()) => Ok((directory, None)),
            Err(error) => Err(KubeletError::DataDir(directory, error)),
        },
        None => {
            let directory = tempfile::Builder::new()
                .prefix("yardmaster-")
                .tempdir()
                .map_err(|error| KubeletError::DataDir(std::env::temp_dir(), error))?;
            Ok((directory.path().to_owned(), Some(directory)))
        }
    }
}
