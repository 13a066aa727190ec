//! The only seam to the network. Every request to the API server goes through a [`Transport`], so that a
//! simulated network can replace the real one.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::StreamExt;
use futures::stream::TryStreamExt as _;
use http::{HeaderName, HeaderValue, Request, Response, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use kube::client::retry::RetryPolicy;
use kube::client::{Body, ClientBuilder};
use kube::config::AuthInfo;
use tokio::time::timeout;
use tower::retry::RetryLayer;
use tower::util::MapRequestLayer;
use tower::{BoxError, Service, service_fn};

use super::answer_body;
pub use super::answer_body::{ByteStream, TransportError};
use super::connections::{Connections, ConnectionsError};
use super::departure::FencedBody;
use super::impersonation;
use super::measured::MeasuredLayer;
use super::wire::{LONGEST_REFUSAL, Refusal};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::metrics::rest_client::{HostMetrics, RestClientMetrics};

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

    /// Sends a request of the replica itself and returns once the whole body has arrived: at most
    /// [`LONGEST_ANSWER`](answer_body::LONGEST_ANSWER).
    ///
    /// # Errors
    /// When there is no answer, or it breaks off, or is longer.
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'static, Result<Response<Bytes>, TransportError>> {
        let answer = self.open(request);
        Box::pin(async move { answer_body::read_trusted(answer.await?).await })
    }
}

/// The refusal in an answer that has one.
pub(super) async fn refusal(response: Response<ByteStream>) -> Result<Refusal, TransportError> {
    let (answer, mut pieces) = response.into_parts();
    let mut body = Vec::new();
    answer_body::read_beyond(LONGEST_REFUSAL, &mut body, &mut pieces).await?;
    Ok(Refusal::of(answer.status, &answer.headers, &body))
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
    /// The user to act as is not valid in a header, or incomplete.
    #[error("{0}")]
    Impersonation(&'static str),
    /// The configuration is not usable.
    #[error(transparent)]
    Connections(#[from] ConnectionsError),
}

/// Clients of one API server, with the user agent `yardmaster/VERSION (IDENTITY)`.
pub struct Connection {
    /// The client for libraries that need one.
    pub client: kube::Client,
    /// The transport for everything else.
    pub transport: Arc<dyn Transport>,
}

/// Builds the clients of the API server in this configuration. The clients never retry, since only the caller
/// knows which requests may be repeated. kube's own client would repeat a request up to 15 times after 429,
/// 503 and 504, POST included.
///
/// Both share their connections. Connections go through the proxy of the configuration, if it has one; the
/// environment is not asked. Certificates, tokens and the answers of credential plugins are renewed as long
/// as one of them exists.
///
/// # Errors
/// When the identity is not a valid header value, or the configuration (addresses, certificates, credentials)
/// is not usable.
///
/// # Panics
/// Outside a tokio runtime.
pub fn connect(config: kube::Config, identity: &str) -> Result<Connection, ConnectError> {
    connect_measured(config, identity, &Metrics::new().rest_client)
}

/// As [`connect`], with metrics of all requests of both clients.
///
/// # Errors
/// As for [`connect`].
///
/// # Panics
/// As [`connect`].
pub fn connect_measured(
    config: kube::Config,
    identity: &str,
    metrics: &RestClientMetrics,
) -> Result<Connection, ConnectError> {
    let url = &config.cluster_url;
    let port = url.port_u16().unwrap_or(if url.scheme_str() == Some("http") { 80 } else { 443 });
    let metrics = metrics.of_host(&format!("{}:{port}", url.host().unwrap_or_default()));
    let (namespace, limit) = (config.default_namespace.clone(), config.read_timeout);
    let connections = Connections::new(with_headers(config, identity)?)?;
    let client = builder(connections.clone(), namespace, limit).with_layer(&MeasuredLayer(metrics.clone()));
    let transport = Arc::new(HttpTransport { connections, metrics });
    Ok(Connection { client: client.build(), transport })
}

/// A client for commands, which repeats requests that the API server has no room for: those with the answers
/// 429, 503 and
/// 504. Connections as of [`connect`].
///
/// # Errors
/// As for [`connect`].
///
/// # Panics
/// As [`connect`].
pub fn client(config: kube::Config, identity: &str) -> Result<kube::Client, ConnectError> {
    let (namespace, limit) = (config.default_namespace.clone(), config.read_timeout);
    let connections = Connections::new(with_headers(config, identity)?)?;
    let retry = RetryLayer::new(RetryPolicy::server_retry());
    Ok(builder(connections, namespace, limit).with_layer(&retry).build())
}

/// Clients that act as the viewers of the page, on connections that carry no credentials of ours. Clones share the connections.
#[derive(Clone)]
pub struct ViewerClients {
    connections: Connections,
    namespace: String,
    limit: Option<Duration>,
}

impl ViewerClients {
    /// Clients of the API server in this configuration, of which only the address, the authorities and the proxy are used.
    ///
    /// # Errors
    /// As for [`connect`].
    ///
    /// # Panics
    /// As [`connect`].
    pub fn new(config: &kube::Config) -> Result<Self, ConnectError> {
        let (namespace, limit) = (config.default_namespace.clone(), config.read_timeout);
        let mut anonymous = config.clone();
        anonymous.auth_info = AuthInfo::default();
        let connections = Connections::new(with_headers(anonymous, "page")?)?;
        Ok(Self { connections, namespace, limit })
    }

    /// A client that sends this bearer token; `None` if no header can hold it.
    ///
    /// # Panics
    /// As [`connect`].
    pub fn of(&self, token: &str) -> Option<kube::Client> {
        let mut value = HeaderValue::try_from(format!("Bearer {token}")).ok()?;
        value.set_sensitive(true);
        let authorize = MapRequestLayer::new(move |mut request: Request<Body>| {
            request.headers_mut().insert(header::AUTHORIZATION, value.clone());
            request
        });
        let client = builder(self.connections.clone(), self.namespace.clone(), self.limit);
        Some(client.with_layer(&authorize).build())
    }
}

/// The configuration with the headers of all requests.
fn with_headers(mut config: kube::Config, identity: &str) -> Result<kube::Config, ConnectError> {
    let user_agent = format!("yardmaster/{} ({identity})", env!("CARGO_PKG_VERSION"));
    let value = HeaderValue::try_from(user_agent).map_err(|_| ConnectError::Identity(identity.to_owned()))?;
    config.headers.retain(|(name, _): &(HeaderName, HeaderValue)| name != header::USER_AGENT);
    config.headers.push((header::USER_AGENT, value));
    // Otherwise hyper formats the Host header again for each request.
    let host = config.cluster_url.authority().and_then(|at| at.as_str().rsplit('@').next());
    config.headers.extend(host.and_then(|host| Some((header::HOST, HeaderValue::try_from(host).ok()?))));
    let impersonated = impersonation::headers(&config.auth_info).map_err(ConnectError::Impersonation)?;
    config.headers.extend(impersonated);
    Ok(config)
}

/// A builder of kube's client on these connections. An answer has to begin within `limit`.
fn builder(
    connections: Connections,
    namespace: String,
    limit: Option<Duration>,
) -> ClientBuilder<
    impl Service<Request<Body>, Response = Response<Incoming>, Error = BoxError, Future: Send> + Clone + Send,
> {
    let service = service_fn(move |request: Request<Body>| {
        let (_, answer) = connections.send(request);
        async move {
            match limit {
                None => answer.await,
                Some(limit) => timeout(limit, answer).await.unwrap_or_else(|elapsed| Err(elapsed.into())),
            }
        }
    });
    ClientBuilder::new(service, namespace)
}

/// HTTP. kube's own client passes every request through one shared task, which is measurable at thousands of
/// requests a second.
struct HttpTransport {
    connections: Connections,
    metrics: HostMetrics,
}

impl Transport for HttpTransport {
    fn open(
        &self,
        request: Request<Bytes>,
    ) -> BoxFuture<'static, Result<Response<ByteStream>, TransportError>> {
        let sent = self.metrics.send(request.method());
        let connections = self.connections.clone();
        let (pools, answer) = connections.send(FencedBody::of(request));
        Box::pin(async move {
            let answer = answer.await;
            sent.answered(answer.as_ref().ok().map(Response::status));
            let response = answer.map_err(|e| TransportError(causes(&*e)))?;
            let broken = move |error: hyper::Error| {
                // The server did not announce the end of this connection, so others may be as dead.
                if is_timeout(&error) {
                    connections.failed(pools);
                }
                TransportError(causes(&error))
            };
            Ok(response.map(|body| body.into_data_stream().map_err(broken).boxed()))
        })
    }
}

/// Whether the system has given a connection up because the other side did not acknowledge anything.
fn is_timeout(error: &hyper::Error) -> bool {
    let mut chain = std::iter::successors(error.source(), |&error| error.source());
    let io = |error: &(dyn Error + 'static)| error.downcast_ref::<io::Error>().map(io::Error::kind);
    chain.any(|error| io(error) == Some(io::ErrorKind::TimedOut))
}

/// An error with its causes: hyper's own message says little.
fn causes(error: &(dyn Error + 'static)) -> String {
    let chain = std::iter::successors(Some(error), |&error| error.source());
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

    /// A replica's own token must not reach the API server in the name of a viewer.
    #[tokio::test]
    async fn a_viewer_acts_with_its_own_token_alone() {
        let tokens = Arc::new(Mutex::new(Vec::new()));
        let answer = |State(tokens): State<Arc<Mutex<Vec<_>>>>, request: Request<Body>| async move {
            let all: Vec<_> = request.headers().get_all(header::AUTHORIZATION).iter().cloned().collect();
            tokens.lock().unwrap().push(all);
            "{}"
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = Router::new().fallback(answer).with_state(tokens.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        let mut config = kube::Config::new(format!("http://{address}").parse().unwrap());
        config.auth_info.token = Some("of-the-replica".to_owned().into());
        config.auth_info.impersonate = Some("admin".into());
        let viewers = ViewerClients::new(&config).unwrap();
        for token in ["one", "other"] {
            let request = Request::get("/x").body(Vec::new()).unwrap();
            let _answer: serde_json::Value = viewers.of(token).unwrap().request(request).await.unwrap();
        }
        assert!(viewers.of("line\nbreak").is_none());
        assert_eq!(*tokens.lock().unwrap(), [["Bearer one"], ["Bearer other"]]);
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
