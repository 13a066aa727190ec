//! The local kubelet: runs the containers of pods by a container engine, or as processes of this host.
//!
//! It is an ordinary client of the Kubernetes API. It registers one Node, assigns pods to it as long as they
//! fit (there is no other scheduler), runs them and writes their status. Images have no effect on plain
//! processes. If a process would take something else for its own, such as a mount that cannot be made, its
//! pod is refused.

mod action;
mod attend;
mod claims;
mod client;
mod context;
pub mod engine;
mod environment;
mod events;
mod evictions;
mod folder;
mod gpus;
mod host_path;
mod host_ports;
mod images;
mod leftovers;
mod lifecycle;
mod logs;
mod lookup;
mod manager;
mod mounting;
mod node;
mod pod;
mod pod_folder;
mod pod_names;
pub mod preflight;
mod probes;
mod process;
mod pulls;
mod quantity;
mod refusals;
mod reporter;
mod restart_delays;
mod runtime;
mod scheduling;
mod server;
mod service_account;
mod setup;
mod status;
mod stop;
mod stragglers;
mod sub_path;
mod supervisor;
#[cfg(test)]
mod test_mounts;
mod token_renewal;
mod unverified_tls;
mod view;
mod volumes;
mod worker;
mod workspace;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;

use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use self::claims::Claims;
use self::context::Context;
use self::engine::Engine;
use self::events::Events;
use self::gpus::Gpus;
use self::logs::LogIndex;
use self::manager::Manager;
pub use self::mounting::Mounting;
use self::pod_folder::{PodFolder, PodFolders};
use self::pulls::Unobserved;
pub use self::pulls::{PullObserver, PullSize, PullStage};
use self::server::LogServer;
use self::service_account::Accounts;
use self::stragglers::Stragglers;
use self::supervisor::Supervisor;
pub use self::supervisor::{START_MOUNTED, SUPERVISE, start_mounted, supervise};
pub use self::workspace::Workspace;
use crate::data_dir::ClaimError;
use crate::open_files;
use crate::pod_entrance::PodEntrance;

/// The usual name of the Node.
pub const NODE: &str = "yardmaster-local";

/// How containers are run.
#[derive(Clone, Debug, Default)]
pub enum KubeletMode {
    /// As processes of this host.
    #[default]
    Process,
    /// By a container engine.
    Containers(Engine),
    /// Not at all: pods run for the time in the annotation `yardmaster.dev/simulated-run-time` (such as `2s`;
    /// default 1 s). They end with the exit code in `yardmaster.dev/simulated-exit-code` (default 0).
    Simulated,
}

/// Configuration of the kubelet.
#[derive(Clone, Debug)]
pub struct KubeletConfig {
    /// Name of the Node.
    pub node_name: String,
    /// Labels of the Node beside its own: its name, system and architecture.
    pub node_labels: BTreeMap<String, String>,
    /// How containers are run.
    pub mode: KubeletMode,
    /// Directory for the volumes and logs of existing pods; a temporary directory by default. With a
    /// directory from a previous kubelet, this kubelet continues pods that may be restarted, and reports the end
    /// of the others. It removes the files of pods that no longer exist.
    pub data_dir: Option<PathBuf>,
    /// The way of pods to the API server. Without one they get no tokens beside those that they ask for
    /// themselves.
    pub api: Option<PodEntrance>,
    /// Where the data of PersistentVolumeClaims is.
    pub claims: Claims,
    /// The folders in which pods work. Not used without processes.
    pub workspace: Workspace,
    /// Where processes find the volumes of their pods; as the kernel lets it be by default. Not used without
    /// processes.
    pub mounting: Option<Mounting>,
    /// Observes the pulls of images. Not used without containers.
    pub pulls: Arc<dyn PullObserver>,
    /// The program that supervises processes: started with the argument [`SUPERVISE`], it calls
    /// [`supervise`], and with [`START_MOUNTED`] [`start_mounted`]. This program itself by default. Not used
    /// without processes.
    pub supervisor: Option<PathBuf>,
}

impl Default for KubeletConfig {
    fn default() -> Self {
        Self {
            node_name: NODE.into(),
            node_labels: BTreeMap::new(),
            mode: KubeletMode::default(),
            data_dir: None,
            api: None,
            claims: Claims::default(),
            workspace: Workspace::default(),
            mounting: None,
            pulls: Arc::new(Unobserved),
            supervisor: None,
        }
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
    DataDir(PathBuf, #[source] ClaimError),
    /// The supervisor of processes cannot be started.
    #[error("cannot start the supervisor of processes: {0}")]
    Supervisor(#[source] std::io::Error),
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
    supervisor: Option<Arc<Supervisor>>,
    mode: KubeletMode,
    // Removed after the tasks that use it.
    _data_dir: Option<TempDir>,
}

impl Kubelet {
    /// Registers the node and starts to run pods.
    pub async fn start(client: kube::Client, config: KubeletConfig) -> Result<Self, KubeletError> {
        open_files::raise_limit();
        let (data_dir, pods, left) = tokio::task::spawn_blocking(move || claim(config.data_dir))
            .await
            .unwrap_or_else(|panic| Err((std::env::temp_dir(), ClaimError::Unusable(panic.into()))))
            .map_err(|(directory, error)| KubeletError::DataDir(directory, error))?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(KubeletError::Listen)?;
        let port = listener.local_addr().map_err(KubeletError::Listen)?.port();
        let labels = node::labels(&config.node_name, config.node_labels);
        let node = node::register(client.clone(), &config.node_name, &labels, port, pods.path()).await;
        let node = node.map_err(KubeletError::Register)?;

        let logs = Arc::new(LogIndex::default());
        let server = LogServer::start(listener, Arc::clone(&logs), client.clone());

        let stop = CancellationToken::new();
        let mounting = match (config.mounting, &config.mode) {
            (Some(mounting), _) => mounting,
            (None, KubeletMode::Process) => Mounting::of_this_host(config.supervisor.as_deref()).await,
            // An engine mounts by itself, and simulations mount nothing.
            (None, KubeletMode::Containers(_) | KubeletMode::Simulated) => Mounting::AtPaths,
        };
        let supervisor = match &config.mode {
            KubeletMode::Containers(engine) => {
                engine.sweep().await;
                None
            }
            KubeletMode::Process => {
                tokio::task::spawn_blocking(stragglers::kill_orphans);
                let program = config.supervisor.map_or_else(std::env::current_exe, Ok);
                let supervisor = program.and_then(|program| Supervisor::start(program, &stop));
                Some(Arc::new(supervisor.map_err(KubeletError::Supervisor)?))
            }
            KubeletMode::Simulated => None,
        };
        let context = Context {
            events: Events::new(client.clone(), "kubelet", &config.node_name),
            scheduler_events: Events::new(client.clone(), "default-scheduler", &config.node_name),
            client,
            node_name: config.node_name,
            mode: config.mode.clone(),
            api: config.api,
            accounts: Accounts::default(),
            claims: config.claims,
            workspace: config.workspace,
            mounting,
            pulls: config.pulls,
            pods,
            logs,
            gpus: Gpus::of_this_machine(),
            stragglers: Stragglers::start(),
            supervisor: supervisor.clone(),
            closing: stop.clone(),
        };
        let mut manager = JoinSet::new();
        manager.spawn(Manager::new(Arc::new(context), left, &node).run(stop.clone()));
        Ok(Self { stop, manager, server, supervisor, mode: config.mode, _data_dir: data_dir })
    }

    /// Stops the processes of all pods (SIGTERM, then SIGKILL after at most two seconds) and waits for them.
    ///
    /// The pods' status stays unchanged.
    pub async fn shutdown(mut self) {
        self.stop.cancel();
        while self.manager.join_next().await.is_some() {}
        if let Some(supervisor) = &self.supervisor {
            supervisor.shutdown().await;
        }
        if let KubeletMode::Containers(engine) = &self.mode {
            engine.remove_all().await;
        }
        self.server.shutdown().await;
    }
}

/// The directory if it is a temporary one, the folders of pods, and those that are left of a previous kubelet.
type Claimed = (Option<TempDir>, PodFolders, Vec<PodFolder>);

fn claim(given: Option<PathBuf>) -> Result<Claimed, (PathBuf, ClaimError)> {
    let (directory, temporary) = match given {
        Some(directory) => (directory, None),
        None => {
            let made = tempfile::Builder::new().prefix("yardmaster-").tempdir();
            let made = made.map_err(|error| (std::env::temp_dir(), error.into()))?;
            (made.path().to_owned(), Some(made))
        }
    };
    let pods = PodFolders::claim(&directory).map_err(|error| (directory, error))?;
    let left = pods.all();
    Ok((temporary, pods, left))
}
