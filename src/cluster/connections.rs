//! The connections to one API server.
//!
//! Webhooks of tenants decide parts of answers to writes: warnings, and the code of a refusal. Neither of these may say
//! anything about connections and credentials.
//!
//! If an idle connection is found dead, all idle ones are closed: they led to the same server, or through the
//! same load balancer. When certificates are renewed, new connections replace all old ones, and requests in
//! flight finish on theirs. Requests about Leases have connections of their own.
//!
//! Connections are HTTP/1.1, with one request or watch each. A dead connection or a lost packet then holds up one request,
//! not all of them and every watch. A slow reader of one watch takes no window from other streams. A load balancer spreads
//! connections, so a replica's requests reach all API servers. The price is a connection for each watch and each write in
//! flight.

use std::error::Error as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use http::{Request, Response, StatusCode, Uri};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Body, Incoming};
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use jiff::Timestamp;
use kube::client::ConfigExt;
use kube::client::middleware::{AuthLayer, BaseUriLayer, ExtraHeadersLayer};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};
use tower::util::{BoxCloneSyncService, ServiceExt};
use tower::{BoxError, Service, ServiceBuilder};

use super::credentials::{Credentials, CredentialsError, PLUGIN_PAUSE};
use super::supervision::supervised;
use crate::net::connector::{Connector, Stream};
use crate::net::proxy::{Proxy, ProxyError};

/// Time until a connection can be used: TCP, a proxy's answer, TLS.
const ESTABLISH_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for which a connection may wait for the next request. API servers end them after 90 s, and a request that meets
/// that end is lost.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// How many connections may wait for the next request: as many as writes may be in flight.
const MAX_IDLE: usize = 256;
/// Shortest time between two renewals of all waiting connections.
const RENEWAL_PAUSE: Duration = Duration::from_secs(1);
/// Beginning of the paths of Leases.
const LEASES: &str = "/apis/coordination.k8s.io/";

type SecureStream = hyper_rustls::MaybeHttpsStream<Stream>;
/// The body of any request.
type RequestBody = UnsyncBoxBody<Bytes, BodyError>;
type HttpClient = legacy::Client<SecureConnector, RequestBody>;
type HttpService = BoxCloneSyncService<Request<RequestBody>, Response<Incoming>, BoxError>;

/// Why there can be no connections.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionsError {
    /// The configuration is not usable.
    #[error("cannot connect to the API server: {0}")]
    Config(#[from] kube::Error),
    /// The credentials are not to be had.
    #[error("cannot connect to the API server: {0}")]
    Credentials(#[from] CredentialsError),
    /// The proxy's address is none.
    #[error("cannot connect to the API server: {0}")]
    Proxy(#[from] ProxyError),
}

/// The body of a request failed, and the request did not leave.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
struct BodyError(BoxError);

/// The connections to one API server. Clones share them.
#[derive(Clone)]
pub(super) struct Connections(Arc<Shared>);

struct Shared {
    /// As it was given: with the names of files.
    config: kube::Config,
    proxy: Option<Proxy>,
    current: RwLock<Current>,
    /// The API server has refused our credentials.
    refused: AtomicBool,
    /// Ends the wait for the next look at the credentials.
    look: Arc<Notify>,
}

/// The credentials and connections of the next request.
struct Current {
    access: Access,
    pools: Pools,
    services: Services,
}

/// Makes connections. The client clones it for every request, and needs it for few.
#[derive(Clone)]
struct SecureConnector(Arc<dyn Fn(Uri) -> BoxFuture<'static, Result<SecureStream, BoxError>> + Send + Sync>);

impl Service<Uri> for SecureConnector {
    type Response = SecureStream;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<SecureStream, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        (self.0)(server)
    }
}

/// Makes connections, and adds headers to requests.
#[derive(Clone)]
struct Access {
    credentials: Credentials,
    connector: SecureConnector,
    server: Uri,
    auth: Arc<Option<AuthLayer>>,
    headers: ExtraHeadersLayer,
}

/// Connections that wait for the next request.
#[derive(Clone)]
struct Pools {
    others: HttpClient,
    /// Leases have connections of their own: a dead one that others have left behind must not delay a heartbeat.
    leases: HttpClient,
    renewal: Renewal,
}

/// Which of the pools that followed each other.
#[derive(Clone, Copy)]
struct Renewal {
    number: u64,
    /// When those before them were given up.
    at: Option<Instant>,
}

/// Names the pools that a request went through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PoolId(u64);

struct Services {
    others: HttpService,
    leases: HttpService,
}

impl Connections {
    /// The connections for a configuration, whose proxy alone counts: the environment is not asked. Reads the files
    /// that it names and runs its plugin, which blocks.
    pub(super) fn new(config: kube::Config) -> Result<Self, ConnectionsError> {
        let address = config.proxy_url.as_ref().map(Uri::to_string);
        let proxy = address.map(|address| Proxy::read(&address, "proxy-url")).transpose()?;
        let credentials = Credentials::load(&config, None)?;
        let access = Access::new(&config, proxy.as_ref(), credentials)?;
        let is_renewable = Credentials::are_outside(&config);
        let shared = Arc::new(Shared {
            config,
            proxy,
            current: RwLock::new(Current::begin(access, 0)),
            refused: AtomicBool::new(false),
            look: Arc::new(Notify::new()),
        });
        if is_renewable {
            let (weak, look) = (Arc::downgrade(&shared), shared.look.clone());
            let renewal = move || keep_renewed(weak.clone(), look.clone());
            tokio::spawn(supervised("the renewal of credentials", renewal));
        }
        Ok(Self(shared))
    }

    /// Sends a request to a path. Says through which pools it goes, for [`Self::failed`].
    pub(super) fn send<B>(
        &self,
        request: Request<B>,
    ) -> (PoolId, impl Future<Output = Result<Response<Incoming>, BoxError>> + Send + use<B>)
    where
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let shared = self.0.clone();
        let request = request.map(|body| body.map_err(|error| BodyError(error.into())).boxed_unsync());
        let path = request.uri().path();
        let (service, pools) = shared.service(path);
        let asks_no_webhook = request.method().is_safe() || path.starts_with(LEASES);
        let answered = async move {
            let answer = service.oneshot(request).await;
            match &answer {
                Err(error) if is_of_connection(error) => shared.failed(pools),
                Ok(answer) if asks_no_webhook && answer.status() == StatusCode::UNAUTHORIZED => {
                    shared.refuse()
                }
                _ => {}
            }
            answer
        };
        (pools, answered)
    }

    /// Records that a connection of these pools was found dead.
    pub(super) fn failed(&self, pools: PoolId) {
        self.0.failed(pools);
    }
}

/// Whether a connection failed. If an answer came that cannot be parsed, only its own connection is of no more use. So it is with
/// a request that was kept back at the last moment.
fn is_of_connection(error: &BoxError) -> bool {
    let Some(error) = error.downcast_ref::<legacy::Error>() else { return false };
    let cause = error.source().and_then(|cause| cause.downcast_ref::<hyper::Error>());
    !cause.is_some_and(|cause| cause.is_parse() || cause.is_user())
}

impl Shared {
    fn service(&self, path: &str) -> (HttpService, PoolId) {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        let services = &current.services;
        let service = if path.starts_with(LEASES) { &services.leases } else { &services.others };
        (service.clone(), PoolId(current.pools.renewal.number))
    }

    fn replace(&self, next: impl FnOnce(&Current) -> Current) {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        *current = next(&current);
    }

    fn failed(&self, pools: PoolId) {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let Renewal { number, at } = current.pools.renewal;
        if pools != PoolId(number) || at.is_some_and(|at| at.elapsed() < RENEWAL_PAUSE) {
            return;
        }
        *current = Current::begin(current.access.clone(), number + 1);
        drop(current);
        // The certificates may be the reason.
        self.look.notify_one();
    }

    fn refuse(&self) {
        self.refused.store(true, Ordering::Relaxed);
        self.look.notify_one();
    }

    /// Loads the credentials again. Says whether the plugin was run.
    async fn renew(&self, may_run_plugin: bool) -> Result<bool, ConnectionsError> {
        let access = self.current.read().unwrap_or_else(PoisonError::into_inner).access.clone();
        let refused = self.refused.swap(false, Ordering::Relaxed);
        let runs = may_run_plugin && (refused || access.credentials.are_due(Timestamp::now()));
        let (config, before) = (self.config.clone(), access.credentials.clone());
        let load = move || Credentials::load(&config, (!runs).then_some(&before));
        let loaded = tokio::task::spawn_blocking(load).await;
        let loaded = loaded.map_err(CredentialsError::Broken)??;
        if !loaded.connect_as(&access.credentials) {
            tracing::info!("certificates have changed: new connections are made");
            let access = Access::new(&self.config, self.proxy.as_ref(), loaded)?;
            self.replace(|before| Current::begin(access, before.pools.renewal.number + 1));
        } else if runs || !loaded.send_as(&access.credentials) {
            tracing::debug!("the token was renewed");
            let access = Access::new(&self.config, self.proxy.as_ref(), loaded)?;
            self.replace(|before| Current::with(access, before.pools.clone()));
        }
        Ok(runs)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.look.notify_one();
    }
}

/// Looks at the credentials when they are due, when files may have changed, and when something failed.
async fn keep_renewed(shared: Weak<Shared>, look: Arc<Notify>) {
    let (mut problem, mut plugin_from) = (None, Instant::now());
    loop {
        let Some(pause) = shared.upgrade().map(|shared| shared.next_look()) else { return };
        // Something that is due and not to be had is tried again, but not at once.
        let _elapsed = timeout(pause.max(RENEWAL_PAUSE), look.notified()).await;
        let Some(at) = shared.upgrade() else { return };
        match at.renew(plugin_from <= Instant::now()).await {
            Ok(ran) => {
                problem = None;
                if ran {
                    plugin_from = Instant::now() + PLUGIN_PAUSE;
                }
            }
            Err(error) => {
                plugin_from = Instant::now() + PLUGIN_PAUSE;
                let error = error.to_string();
                if problem.as_ref() != Some(&error) {
                    tracing::warn!(%error, "the credentials cannot be renewed: those before are used on");
                    problem = Some(error);
                }
            }
        }
        drop(at);
        sleep(RENEWAL_PAUSE).await;
    }
}

impl Shared {
    fn next_look(&self) -> Duration {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        current.access.credentials.next_look(Timestamp::now())
    }
}

impl Access {
    fn new(
        config: &kube::Config,
        proxy: Option<&Proxy>,
        credentials: Credentials,
    ) -> Result<Self, ConnectionsError> {
        let config = credentials.put_into(config);
        let connector = Connector::new(proxy, &config.rustls_client_config()?);
        let connector = config.rustls_https_connector_with_connector(connector)?;
        let connector = SecureConnector(Arc::new(move |server: Uri| {
            let connected = connector.clone().call(server);
            let in_time = timeout(ESTABLISH_TIMEOUT, connected).map(|connected| {
                connected
                    .unwrap_or_else(|_| Err(format!("no connection within {ESTABLISH_TIMEOUT:?}").into()))
            });
            in_time.boxed()
        }));
        let auth = Arc::new(config.auth_layer()?);
        let headers = config.extra_headers_layer()?;
        Ok(Self { credentials, connector, server: config.cluster_url, auth, headers })
    }

    fn client(&self) -> HttpClient {
        legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(MAX_IDLE)
            .build(self.connector.clone())
    }

    fn service(&self, client: &HttpClient) -> HttpService {
        let server = self.server.clone();
        let below_root = !matches!(server.path(), "" | "/");
        let base = below_root.then(|| BaseUriLayer::new(server.clone()));
        let service = ServiceBuilder::new()
            .option_layer(base)
            .map_request(move |request| if below_root { request } else { with_server(&server, request) })
            .option_layer(self.auth.as_ref().as_ref())
            .layer(self.headers.clone())
            .map_err(BoxError::from)
            .service(client.clone());
        BoxCloneSyncService::new(service)
    }
}

impl Current {
    /// With pools that have no connections yet.
    fn begin(access: Access, number: u64) -> Self {
        let renewal = Renewal { number, at: (number > 0).then(Instant::now) };
        let pools = Pools { others: access.client(), leases: access.client(), renewal };
        Self::with(access, pools)
    }

    fn with(access: Access, pools: Pools) -> Self {
        let services =
            Services { others: access.service(&pools.others), leases: access.service(&pools.leases) };
        Self { access, pools, services }
    }
}

/// Adds the address of an API server without a base path to a request. kube's layer would format each address
/// as text and parse it again.
fn with_server<B>(server: &Uri, mut request: Request<B>) -> Request<B> {
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    parts.scheme = server.scheme().cloned();
    parts.authority = server.authority().cloned();
    // A path with a scheme and an authority is always a valid address.
    *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
    request
}

#[cfg(test)]
mod tests;
