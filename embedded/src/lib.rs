//! A Kubernetes API server in memory and a local kubelet.
//!
//! This crate knows nothing of the controller: both meet only through the Kubernetes API.
//!
//! # Map
//!
//! `http` receives a request, determines its resource and verb, and passes it to one of the `verbs`. The
//! verbs are the same for every kind; differences between kinds are in the table of `resources` and in the
//! strategies of [`rules`]. The `store` holds objects as compact text, and a verb decodes them only when it
//! needs to. A write decodes the old object, builds the new one without holding a lock, and stores it unless
//! another write came first. `authorization` decides whether a user may make a request. `controllers` are the garbage collector and the namespace controller of a
//! cluster.

mod admission;
mod audit;
mod authorization;
mod controllers;
mod data_dir;
mod discovery;
mod error;
mod exchange;
mod faults;
mod http;
pub mod kubelet;
mod labels;
mod object;
mod patch;
mod protobuf;
mod resources;
mod restore;
pub mod rules;
mod selectors;
mod server;
mod start_error;
mod store;
mod table;
mod time;
mod verbs;
mod views;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use kube::config::{AuthInfo, Cluster, Context, Kubeconfig, NamedAuthInfo, NamedCluster, NamedContext};
use parking_lot::Mutex;
use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use audit::{AuditRecord, AuditSink};
pub use authorization::{Denial, DenialSink, Rbac, User};
pub use data_dir::ClaimError;
pub use faults::{Fault, FaultId, FaultScope, Faults};
pub use protobuf::{decode as decode_protobuf, write_event as encode_watch_event};
pub use start_error::EmbeddedError;
pub use store::DataDirError;

use authorization::Authorizer;
use server::Server;
use store::{HistoryLimits, Store};

/// Time for requests in flight to finish when the server stops.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);

/// Configuration of the API server.
#[derive(Clone, Debug)]
pub struct ApiServerConfig {
    /// Listen address; port 0 picks a free one. An address other than loopback needs a `token`.
    pub listen: SocketAddr,
    /// The bearer token that every request must carry.
    pub token: Option<String>,
    /// Access control by roles; without it, every client may do everything. With it, the bearer
    /// token above is an administrator's, and is generated if absent.
    pub rbac: Option<Rbac>,
    /// Whether a user who sets `blockOwnerDeletion` needs the right to `update` the owner's `finalizers`, and
    /// one who changes owner references the right to delete the object: the admission plugin
    /// OwnerReferencesPermissionEnforcement. It has no effect without `rbac`.
    pub owner_references_permission_enforcement: bool,
    /// Directory that keeps objects across restarts and crashes; in memory only if absent. With a directory,
    /// a write is acknowledged and becomes visible to clients once it is on disk.
    pub data_dir: Option<PathBuf>,
    /// Whether to run without the garbage collector and the namespace controller.
    pub api_only: bool,
    /// Maximum number of requests in flight, not counting watches; further requests get a 429 with
    /// `Retry-After`.
    pub max_inflight: Option<usize>,
    /// Feature gates that differ from their default, such as `GenericWorkload`.
    pub feature_gates: BTreeMap<String, bool>,
    /// Whether to maintain `metadata.managedFields`, which server-side apply needs; writes are faster
    /// without.
    pub track_managed_fields: bool,
    /// The `gitVersion` at `/version`, such as `v1.31.0`, in place of the server's own:
    /// for tests of what clients do on other versions. The API stays the same.
    pub git_version: Option<String>,
    /// Seed for uids and generated names; random if absent.
    pub seed: Option<u64>,
    /// Sink that receives a record of every requested write.
    pub audit: Option<AuditSink>,
}

impl Default for ApiServerConfig {
    fn default() -> Self {
        Self {
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            token: None,
            rbac: None,
            owner_references_permission_enforcement: false,
            data_dir: None,
            api_only: false,
            max_inflight: None,
            feature_gates: BTreeMap::new(),
            track_managed_fields: true,
            git_version: None,
            seed: None,
            audit: None,
        }
    }
}

/// A running API server. Dropping it stops it at once; [`shutdown`](Self::shutdown) stops it gracefully.
pub struct ApiServer {
    address: SocketAddr,
    server: Arc<Server>,
    tasks: TaskTracker,
    listener: JoinHandle<()>,
}

impl ApiServer {
    /// Starts a server with the contents of its data directory, or with only the namespaces of a new cluster.
    ///
    /// # Errors
    ///
    /// If the address cannot be bound, if it is reachable from outside and there is no token, or if the data
    /// directory cannot be used.
    pub async fn start(config: ApiServerConfig) -> Result<Self, EmbeddedError> {
        if !config.listen.ip().is_loopback() && config.token.is_none() {
            return Err(EmbeddedError::TokenRequired(config.listen));
        }
        let failed = |source| EmbeddedError::Listen { address: config.listen, source };
        let listener = TcpListener::bind(config.listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let random = config.seed.map_or_else(SmallRng::from_os_rng, SmallRng::seed_from_u64);
        let store = open_store(config.data_dir).await?;
        let generated = || uuid::Uuid::new_v4().simple().to_string();
        let token = config.token.or_else(|| config.rbac.is_some().then(generated));
        let authorizer = |rbac| Authorizer::new(rbac, token.clone().unwrap_or_default());
        let server = Arc::new(Server {
            store,
            gates: config.feature_gates,
            track_managed_fields: config.track_managed_fields,
            git_version: config.git_version,
            authorizer: config.rbac.map(authorizer),
            protects_owners: config.owner_references_permission_enforcement,
            token,
            inflight: config.max_inflight.map(Semaphore::new),
            faults: Faults::default(),
            audit: config.audit,
            openapi: OnceLock::new(),
            json_only: AtomicBool::new(false),
            stop: CancellationToken::new(),
            random: Mutex::new(random),
        });
        let bootstrap = |server| {
            verbs::namespaces::bootstrap(server)
                .and_then(|()| verbs::roles::bootstrap(server))
                .map_err(|error| EmbeddedError::Bootstrap(error.message.clone()))
        };
        if server.store.is_new() {
            bootstrap(&server)?;
            // There are no watchers yet, so watches begin after the objects of a new cluster.
            server.store.forget();
        } else {
            restore::finish_deletions(&server);
            bootstrap(&server)?;
        }
        let tasks = TaskTracker::new();
        if !config.api_only {
            controllers::start(&server, &tasks);
        }
        let listener = tokio::spawn(accept(listener, Arc::clone(&server), tasks.clone()));
        Ok(Self { address, server, tasks, listener })
    }

    /// The address, such as `http://127.0.0.1:34567`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A kubeconfig for this server, with its own token if it has one.
    pub fn kubeconfig(&self) -> Kubeconfig {
        self.kubeconfig_with(self.server.token.as_deref())
    }

    /// A kubeconfig for this server with a bearer token, such as one of [`Rbac::users`].
    pub fn kubeconfig_with(&self, token: Option<&str>) -> Kubeconfig {
        const NAME: &str = "yardmaster";
        let cluster = Cluster { server: Some(self.url()), ..Cluster::default() };
        let user = AuthInfo { token: token.map(|token| token.to_owned().into()), ..AuthInfo::default() };
        let context = Context { cluster: NAME.into(), user: Some(NAME.into()), ..Context::default() };
        Kubeconfig {
            api_version: Some("v1".into()),
            kind: Some("Config".into()),
            clusters: vec![NamedCluster {
                name: NAME.into(),
                cluster: Some(cluster),
                ..NamedCluster::default()
            }],
            auth_infos: vec![NamedAuthInfo {
                name: NAME.into(),
                auth_info: Some(user),
                ..NamedAuthInfo::default()
            }],
            contexts: vec![NamedContext {
                name: NAME.into(),
                context: Some(context),
                ..NamedContext::default()
            }],
            current_context: Some(NAME.into()),
            ..Kubeconfig::default()
        }
    }

    /// The faults to inject.
    pub fn faults(&self) -> &Faults {
        &self.server.faults
    }

    /// Drops old versions, as a compaction of etcd does: lists and continue tokens at past revisions get a
    /// 410 from now on. Watches continue from memory; [`Fault::ExpireWatches`] ends them.
    pub fn compact(&self) {
        self.server.store.compact();
    }

    /// Resolves with the reason once the data directory refuses a write, and never before. From then on,
    /// every request gets an error.
    pub async fn broken(&self) -> String {
        self.server.store.broken().await.to_string()
    }

    /// Stops the server: refuses new connections, ends watches, answers requests in flight.
    pub async fn shutdown(self) {
        self.server.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        let server = Arc::clone(&self.server);
        if tokio::task::spawn_blocking(move || server.store.close()).await.is_err() {
            tracing::error!("closing the data directory panicked");
        }
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.server.stop.cancel();
        self.listener.abort();
    }
}

async fn open_store(data_dir: Option<PathBuf>) -> Result<Store, EmbeddedError> {
    let limits = HistoryLimits::default();
    let Some(directory) = data_dir else { return Ok(Store::new(&resources::plurals(), limits)) };
    let failed = |source| EmbeddedError::DataDir { directory: directory.clone(), source };
    let path = directory.clone();
    let opened = tokio::task::spawn_blocking(move || restore::open(&path, limits)).await;
    opened.unwrap_or_else(|broken| Err(DataDirError::Damaged(broken.to_string()))).map_err(failed)
}

async fn accept(listener: TcpListener, server: Arc<Server>, connections: TaskTracker) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = server.stop.cancelled() => return,
        };
        match accepted {
            Ok((stream, _)) => {
                // Small responses must not be delayed. A failure here costs only latency.
                let _ = stream.set_nodelay(true);
                connections.spawn(serve(stream, Arc::clone(&server)));
            }
            Err(error) => {
                // Most likely out of file descriptors: other connections will close.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn serve(stream: tokio::net::TcpStream, server: Arc<Server>) {
    let stop = server.stop.clone();
    let service = service_fn(move |request| self::http::handle(Arc::clone(&server), request));
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let result = tokio::select! {
        result = connection.as_mut() => result,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            // A client that never finishes its request must not keep the server running.
            tokio::time::timeout(SHUTDOWN_GRACE, connection).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "connection ended");
    }
}
