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
//! another write came first. `authentication` finds the user of a request, and `authorization` decides
//! whether that user may make it. `connections` bounds what clients of a port can hold. `controllers` has the
//! garbage collector, the namespace controller and the CronJob controller, and keeps the objects that every
//! cluster has. `in_process` is the server without all this: no network, no controllers, and the caller's
//! clock.

mod admission;
mod audit;
mod authentication;
mod authorization;
mod connections;
mod controllers;
mod credentials;
mod data_dir;
mod discovery;
mod door;
mod endpoint;
mod entrance;
mod error;
mod exchange;
mod faults;
mod host_names;
mod http;
mod in_process;
pub mod kubelet;
mod labels;
mod object;
mod open_files;
mod patch;
mod platform;
mod pod_entrance;
mod protobuf;
mod resources;
mod restarts;
mod restore;
pub mod rules;
mod secret_file;
mod selectors;
mod server;
mod signal;
mod start_error;
mod store;
mod table;
mod time;
mod tls;
mod verbs;
mod views;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use kube::config::Kubeconfig;
use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use secrecy::SecretString;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

pub use audit::{AuditRecord, AuditSink};
pub use authentication::{Authentication, Token, TokenError};
pub use authorization::{Denial, DenialSink, Rbac, User};
pub use connections::HttpLimits;
pub use credentials::CredentialsError;
pub use data_dir::ClaimError;
pub use exchange::reply::Body;
pub use faults::{Fault, FaultId, FaultScope, Faults};
pub use host_names::is_host;
pub use http::BODY_LIMIT;
pub use in_process::{InProcess, InProcessConfig, Snapshot};
pub use pod_entrance::PodEntrance;
pub use protobuf::{
    decode as decode_protobuf, decode_event as decode_watch_event, is_encoded as is_in_protobuf,
    write_event as encode_watch_event, write_list as encode_list,
};
pub use resources::is_created;
pub use secret_file::SecretFileError;
pub use start_error::EmbeddedError;
pub use store::DataDirError;
pub use time::Clock;
pub use tls::TlsError;

use authentication::{AccountKey, Authenticator};
use authorization::Authorizer;
use connections::{Places, Port};
use controllers::SystemObjects;
use endpoint::Endpoint;
use entrance::Entrance;
use server::{Network, Server};
use store::{HistoryLimits, Store};
use time::SystemClock;

/// The server's own port takes no more than a half of the files that this process may open.
const PART_OF_FILES: u64 = 2;

/// Configuration of the API server.
#[derive(Clone, Debug)]
pub struct ApiServerConfig {
    /// Listen address; port 0 picks a free one. An address other than loopback needs a token, and is served
    /// over TLS alone.
    pub listen: SocketAddr,
    /// Host names and addresses of the server besides its own, for its certificate and the `Host` header.
    pub host_names: Vec<String>,
    /// The token that requests need, if any.
    pub authentication: Authentication,
    /// Bounds of what clients can hold.
    pub limits: HttpLimits,
    /// Users beside the owner of the token, who is an administrator, and the ServiceAccounts of the cluster.
    /// Roles say what users and ServiceAccounts may do.
    pub rbac: Option<Rbac>,
    /// Whether the admission plugin OwnerReferencesPermissionEnforcement is on, which needs `rbac`. Then a
    /// user who changes owner references needs the right to delete the object. A user who sets
    /// `blockOwnerDeletion` needs the right to `update` the owner's `finalizers`.
    pub owner_references_permission_enforcement: bool,
    /// Directory that keeps objects across restarts and crashes; in memory only if absent. With a directory,
    /// a write is acknowledged and becomes visible to clients once it is on disk. The directory also keeps
    /// the generated token and the certificate authority, so that a kubeconfig stays valid.
    pub data_dir: Option<PathBuf>,
    /// Whether to do only what kube-apiserver does. Then there is no garbage collector, no namespace
    /// controller and no CronJob controller, and namespaces get no ServiceAccount and no ConfigMap.
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
            host_names: Vec::new(),
            authentication: Authentication::default(),
            limits: HttpLimits::default(),
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
    server: Arc<Server>,
    endpoint: Endpoint,
    pods: Option<PodEntrance>,
    tasks: TaskTracker,
    listener: JoinHandle<()>,
}

impl ApiServer {
    /// Starts a server with the contents of its data directory, or with only the namespaces of a new cluster.
    ///
    /// # Errors
    ///
    /// If the address cannot be bound, or can be reached from outside while there is no token. If the data
    /// directory or the credentials in it cannot be used.
    pub async fn start(config: ApiServerConfig) -> Result<Self, EmbeddedError> {
        if entrance::is_remote(config.listen) && matches!(config.authentication, Authentication::Anonymous) {
            return Err(EmbeddedError::TokenRequired(config.listen));
        }
        let failed = |source| EmbeddedError::Listen { address: config.listen, source };
        let listener = TcpListener::bind(config.listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let random = config.seed.map_or_else(SmallRng::from_os_rng, SmallRng::seed_from_u64);
        let store = open_store(config.data_dir.clone()).await?;
        // After the store, which checks that the directory is a data directory.
        let entrance = Entrance::open(&config, address)?;
        let protects_owners = config.owner_references_permission_enforcement && config.rbac.is_some();
        let (users, authorizer) = match config.rbac {
            Some(rbac) => (rbac.users, Authorizer::new(rbac.denials)),
            None => (BTreeMap::new(), Authorizer::of_accounts()),
        };
        let network =
            Network { authenticator: Authenticator::new(entrance.owner, users)?, limits: config.limits };
        let server = Arc::new(Server {
            gates: config.feature_gates,
            track_managed_fields: config.track_managed_fields,
            git_version: config.git_version,
            account_key: AccountKey::new(&entrance.account_secret),
            network: Some(network),
            authorizer: Some(authorizer),
            protects_owners,
            inflight: config.max_inflight.map(Semaphore::new),
            audit: config.audit,
            ..Server::new(store, Arc::new(SystemClock), random)
        });
        let objects = SystemObjects::new(&entrance.endpoint, !config.api_only);
        let bootstrap = |server| -> Result<(), EmbeddedError> {
            verbs::bootstrap(server).map_err(|error| EmbeddedError::Bootstrap(error.message.clone()))?;
            objects.ensure(server);
            Ok(())
        };
        if server.store.is_new() {
            bootstrap(&server)?;
            // There are no watchers yet, so watches begin after the objects of a new cluster.
            server.store.forget();
        } else {
            restore::finish_deletions(&server);
            restore::forget_kubelets(&server);
            bootstrap(&server)?;
        }
        let tasks = TaskTracker::new();
        controllers::keep(objects, &server, &tasks);
        if !config.api_only {
            controllers::start(&server, &tasks);
        }
        let port = Port {
            listener,
            transport: entrance.transport,
            limits: config.limits,
            places: Places::new(&config.limits, PART_OF_FILES),
            stop: server.stop.clone(),
            tasks: tasks.clone(),
        };
        let (serving, door) = (Arc::clone(&server), Arc::new(entrance.door));
        let handle = move |request, connection| {
            self::http::handle(Arc::clone(&serving), request, connection, Arc::clone(&door))
        };
        let listener = tokio::spawn(port.serve(handle));
        let (endpoint, limits) = (entrance.endpoint, config.limits);
        let way = |authority| {
            PodEntrance::new(Arc::clone(&server), authority, endpoint.address(), limits, tasks.clone())
        };
        let pods = entrance.authority.map(way);
        Ok(Self { server, endpoint, pods, tasks, listener })
    }

    /// The address, such as `http://127.0.0.1:34567`: in clear on loopback.
    pub fn url(&self) -> String {
        self.endpoint.url()
    }

    /// The address, such as `https://127.0.0.1:34567`: over TLS if a token is needed, also on loopback.
    pub fn secure_url(&self) -> String {
        self.endpoint.secure_url()
    }

    /// The token of the server's owner; `None` if requests need no token.
    pub fn token(&self) -> Option<&Token> {
        self.server.network.as_ref()?.authenticator.owner()
    }

    /// A configuration for clients in this process, with the owner's token. Nothing in the environment
    /// changes it: no proxy sees the requests.
    pub fn client_config(&self) -> kube::Config {
        self.endpoint.client_config(self.token().map(Token::secret))
    }

    /// A kubeconfig for this server, with the owner's token if it has one: in clear on loopback, for clients
    /// that send a token there.
    pub fn kubeconfig(&self) -> Kubeconfig {
        self.kubeconfig_of(&self.url(), self.token().map(Token::secret))
    }

    /// The same over TLS, for all clients: without TLS, kubectl and other clients in Go send no token.
    pub fn secure_kubeconfig(&self) -> Kubeconfig {
        self.kubeconfig_of(&self.secure_url(), self.token().map(Token::secret))
    }

    /// A kubeconfig for this server with a bearer token, such as one of [`Rbac::users`].
    pub fn kubeconfig_with(&self, token: Option<&str>) -> Kubeconfig {
        self.kubeconfig_of(&self.url(), token.map(|token| token.to_owned().into()))
    }

    fn kubeconfig_of(&self, url: &str, token: Option<SecretString>) -> Kubeconfig {
        self.endpoint.kubeconfig(url, token)
    }

    /// The way of pods to this server, for a kubelet; `None` without TLS.
    pub fn pod_entrance(&self) -> Option<PodEntrance> {
        self.pods.clone()
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
