//! The only seam to the network. Every request to the API server goes through a [`Transport`], so that a
//! simulated network can replace the real one.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use futures::stream::{BoxStream, StreamExt, TryStreamExt};
use http::{HeaderName, HeaderValue, Request, Response, Uri, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::{ClientBuilder, ConfigExt};
use tower::util::{BoxCloneSyncService, ServiceExt};
use tower::{BoxError, ServiceBuilder};

use super::departure::FencedBody;
use super::measured::MeasuredLayer;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::metrics::rest_client::{HostMetrics, RestClientMetrics};

/// A body that arrives in pieces.
pub type ByteStream = BoxStream<'static, Result<Bytes, TransportError>>;

/// No answer, or an incomplete one. Whether the request was carried out is unknown.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct TransportError(pub String);

/// Sends requests to one API server. Paths are relative to it. The transport adds the credentials, and it
/// never retries. A request with a [`Departure`](super::departure::Departure) among its extensions leaves only
/// while that allows it.
pub trait Transport: Send + Sync + 'static {
    /// Sends a request and returns once the headers of the response have arrived.
    ///
    /// # Errors
    /// When there is no answer.
    fn open(
        &self,
        request: Request<Bytes>,
    ) -> BoxFuture<'static, Result<Response<ByteStream>, TransportError>>;

    /// Sends a request and returns once the whole body has arrived.
    ///
    /// # Errors
    /// When there is no answer, or it breaks off.
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'static, Result<Response<Bytes>, TransportError>> {
        let response = self.open(request);
        Box::pin(async move {
            let (parts, mut body) = response.await?.into_parts();
            let first = body.try_next().await?.unwrap_or_default();
            let Some(second) = body.try_next().await? else { return Ok(Response::from_parts(parts, first)) };
            let mut whole = BytesMut::from(first);
            whole.extend_from_slice(&second);
            while let Some(piece) = body.try_next().await? {
                whole.extend_from_slice(&piece);
            }
            Ok(Response::from_parts(parts, whole.freeze()))
        })
    }
}

/// `Retry-After` of an answer, in seconds.
pub(super) fn retry_after<B>(response: &Response<B>) -> Option<Duration> {
    let seconds = response.headers().get(header::RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// Why no client could be built.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The identity is not valid in a header.
    #[error("the identity {0:?} must be visible ASCII")]
    Identity(String),
    /// The configuration is not usable.
    #[error("cannot connect to the API server: {0}")]
    Config(#[from] kube::Error),
}

/// Clients of one API server, with the user agent `yardmaster/VERSION (IDENTITY)`.
pub struct Connection {
    /// The client for libraries that need one.
    pub client: kube::Client,
    /// The transport for everything else.
    pub transport: Arc<dyn Transport>,
}

/// Builds the clients of the API server in this configuration. None of them retries by itself, since only the
/// caller knows what may be repeated. kube's own client would repeat a request up to 15 times after 429, 503
/// and 504, POST included.
///
/// # Errors
/// When the identity is not a valid header value, or the configuration (addresses, certificates, credentials)
/// is not usable.
pub fn connect(config: kube::Config, identity: &str) -> Result<Connection, ConnectError> {
    connect_measured(config, identity, &Metrics::new().rest_client)
}

/// As [`connect`], with metrics of all requests of both clients.
///
/// # Errors
/// As for [`connect`].
pub fn connect_measured(
    mut config: kube::Config,
    identity: &str,
    metrics: &RestClientMetrics,
) -> Result<Connection, ConnectError> {
    let user_agent = format!("yardmaster/{} ({identity})", env!("CARGO_PKG_VERSION"));
    let value = HeaderValue::try_from(user_agent).map_err(|_| ConnectError::Identity(identity.to_owned()))?;
    config.headers.retain(|(name, _): &(HeaderName, HeaderValue)| name != header::USER_AGENT);
    config.headers.push((header::USER_AGENT, value));
    // Otherwise hyper formats the Host header again for each request.
    let host = config.cluster_url.authority().and_then(|at| at.as_str().rsplit('@').next());
    config.headers.extend(host.and_then(|host| Some((header::HOST, HeaderValue::try_from(host).ok()?))));
    config.default_retry = false;
    let url = &config.cluster_url;
    let port = url.port_u16().unwrap_or(if url.scheme_str() == Some("http") { 80 } else { 443 });
    let metrics = metrics.of_host(&format!("{}:{port}", url.host().unwrap_or_default()));
    let transport = Arc::new(HttpTransport::new(&config, metrics.clone())?);
    let client = ClientBuilder::try_from(config)?.with_layer(&MeasuredLayer(metrics)).build();
    Ok(Connection { client, transport })
}

/// Time until a connection is made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time without traffic after which the system asks whether the other side is still there.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// Time between two such questions.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// Time for which sent bytes, or such questions, may stay without acknowledgement before the connection is given up:
/// the API server may have died without a word.
const UNACKNOWLEDGED: Duration = Duration::from_secs(15);
/// Beginning of the paths of Leases.
const LEASES: &str = "/apis/coordination.k8s.io/";

/// HTTP, with kube's layers for addresses, TLS and credentials. kube's own client also passes every request
/// through one shared task, which is measurable at thousands of requests a second.
struct HttpTransport {
    service: HttpService,
    /// For Leases, which have connections of their own: a dead one that others have left behind must not delay a
    /// heartbeat.
    leases: HttpService,
    metrics: HostMetrics,
}

type HttpService = BoxCloneSyncService<Request<FencedBody>, Response<Incoming>, BoxError>;

impl HttpTransport {
    fn new(config: &kube::Config, metrics: HostMetrics) -> Result<Self, kube::Error> {
        Ok(Self { service: Self::service(config)?, leases: Self::service(config)?, metrics })
    }

    /// A service with a pool of connections of its own.
    fn service(config: &kube::Config) -> Result<HttpService, kube::Error> {
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        connector.set_keepalive(Some(KEEPALIVE));
        connector.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
        #[cfg(target_os = "linux")]
        connector.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
        let connector = config.rustls_https_connector_with_connector(connector)?;
        let client = hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build(connector);
        let url = config.cluster_url.clone();
        let below_root = !matches!(url.path(), "" | "/");
        let service = ServiceBuilder::new()
            .option_layer(below_root.then(|| config.base_uri_layer()))
            .map_request(move |request| if below_root { request } else { with_server(&url, request) })
            .option_layer(config.auth_layer()?)
            .layer(config.extra_headers_layer()?)
            .map_err(BoxError::from)
            .service(client);
        Ok(BoxCloneSyncService::new(service))
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

impl Transport for HttpTransport {
    fn open(
        &self,
        request: Request<Bytes>,
    ) -> BoxFuture<'static, Result<Response<ByteStream>, TransportError>> {
        let sent = self.metrics.send(request.method());
        let is_of_leases = request.uri().path().starts_with(LEASES);
        let service = if is_of_leases { &self.leases } else { &self.service };
        let answer = service.clone().oneshot(FencedBody::of(request));
        Box::pin(async move {
            let answer = answer.await;
            sent.answered(answer.as_ref().ok().map(Response::status));
            let response = answer.map_err(|e| TransportError(causes(&*e)))?;
            Ok(response.map(|body| body.into_data_stream().map_err(|e| TransportError(causes(&e))).boxed()))
        })
    }
}

/// An error with its causes: hyper's own message says little.
fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    let chain = std::iter::successors(Some(error), |error| error.source());
    chain.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Mutex;

    use axum::Router;
    use axum::body::Body;
    use axum::extract::State;
    use tokio::net::TcpListener;

    use super::*;

    type Seen = Arc<Mutex<Vec<(String, String)>>>;

    /// Serves `/busy` (503), `/stream` (two pieces, then silence) and `/broken` (two pieces, then a broken
    /// connection). Records method, path and user agent of each request.
    async fn server() -> (kube::Config, Seen) {
        let seen = Seen::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let answer = |State(seen): State<Seen>, request: Request<Body>| async move {
            let agent = request.headers()[header::USER_AGENT].to_str().unwrap().to_owned();
            let path = request.uri().path().to_owned();
            seen.lock().unwrap().push((format!("{} {path}", request.method()), agent));
            let pieces = futures::stream::iter(
                ["one\n", "two\n"].map(|piece| Ok::<_, std::io::Error>(piece.to_owned())),
            );
            match &*path {
                "/stream" => {
                    let silence = futures::stream::pending();
                    Response::new(Body::from_stream(pieces.chain(silence)))
                }
                "/broken" => {
                    let reset = futures::stream::iter([Err(std::io::Error::other("reset"))]);
                    Response::new(Body::from_stream(pieces.chain(reset)))
                }
                _ => Response::builder()
                    .status(503)
                    .header("retry-after", "0")
                    .body(Body::from("busy"))
                    .unwrap(),
            }
        };
        let app = Router::new().fallback(answer).with_state(seen.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        (kube::Config::new(format!("http://{address}").parse().unwrap()), seen)
    }

    #[tokio::test]
    async fn a_request_is_sent_once_even_if_the_server_asks_for_a_retry() {
        let (config, seen) = server().await;
        let transport = connect(config, "replica-1").unwrap().transport;
        let request = Request::post("/busy").body(Bytes::from_static(b"{}")).unwrap();
        let response = transport.send(request).await.unwrap();
        assert_eq!((response.status().as_u16(), &**response.body()), (503, &b"busy"[..]));
        assert_eq!(retry_after(&response), Some(Duration::ZERO));
        let agent = format!("yardmaster/{} (replica-1)", env!("CARGO_PKG_VERSION"));
        assert_eq!(*seen.lock().unwrap(), [("POST /busy".to_owned(), agent)]);
    }

    #[tokio::test]
    async fn a_stream_arrives_while_it_is_open_and_a_broken_one_is_an_error() {
        let (config, _) = server().await;
        let transport = connect(config, "r").unwrap().transport;
        let get = |path: &str| Request::get(path).body(Bytes::new()).unwrap();
        let mut body = transport.open(get("/stream")).await.unwrap().into_body();
        let mut text = Vec::new();
        while text.len() < 8 {
            text.extend(body.next().await.unwrap().unwrap());
        }
        assert_eq!(text, b"one\ntwo\n");
        assert!(transport.send(get("/broken")).await.is_err());
    }

    #[tokio::test]
    async fn an_unreachable_server_and_an_invalid_identity_are_errors() {
        let unreachable = |scheme| kube::Config::new(format!("{scheme}://127.0.0.1:1").parse().unwrap());
        for scheme in ["http", "https"] {
            let transport = connect(unreachable(scheme), "r").unwrap().transport;
            assert!(
                transport.open(Request::get("/x").body(Bytes::new()).unwrap()).await.is_err(),
                "{scheme}"
            );
        }
        assert!(matches!(connect(unreachable("http"), "line\nbreak"), Err(ConnectError::Identity(_))));
    }
}
