//! The HTTP pages of a replica: `/`, `/metrics`, `/livez`, `/readyz`, `/healthz` and `/debug`.
//!
//! [`server`] bounds the cost of clients, [`access`] says which client may read which page.

mod access;
mod live;
mod metrics_page;
mod page;
mod reviews;
mod secret;
mod server;
mod tls;

use std::sync::Arc;

use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{from_fn_with_state, map_response};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::access::Access;
pub use self::live::{ActionAsk, JobAction, JobAsk, JobKey, Live, LiveAnswer, LiveJobs, LiveRefusal, LogAsk};
use self::metrics_page::MetricsPage;
pub use self::reviews::{Client, Reviewer, Reviews, Verdict};
pub use self::secret::Secret;
pub use self::server::{HEADER_TIMEOUT, MAX_CONNECTIONS, bind, serve};
pub use self::tls::{Tls, TlsError, TlsFiles};
use super::metrics::{Format, Metrics};
use super::traces::otlp::OtlpTraces;

/// The state of a replica, as its pages show it.
pub trait Probe: Overviews {
    /// Whether the process works at all.
    ///
    /// # Errors
    /// Names the part that does not work.
    fn healthy(&self) -> Result<(), String>;

    /// Whether the caches of all owned shards are synced and the heartbeat is valid.
    ///
    /// # Errors
    /// Names the missing part.
    fn ready(&self) -> Result<(), String>;

    /// The owned shards, each with shard, epoch, state, jobs and pods.
    fn shards(&self) -> BoxFuture<'_, Value>;

    /// Updates metrics that are measured on request, such as the age of the heartbeat.
    fn measure(&self, _metrics: &Metrics) {}
}

/// The source of the page at `/`.
pub trait Overviews: Send + Sync + 'static {
    /// Everything that the page shows now, with the Jobs that a query selects.
    fn overview(&self, query: JobQuery) -> BoxFuture<'_, Value>;

    /// The latest spans of the latest Job that has or had a name; `None` if no traces are kept.
    fn trace(&self, _job: TraceQuery) -> BoxFuture<'_, Option<OtlpTraces>> {
        Box::pin(async { None })
    }
}

/// The Job whose trace is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct TraceQuery {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub job: String,
}

/// The phases of Jobs that a query may ask for.
pub const PHASES: [&str; 5] = ["running", "waiting", "suspended", "failed", "complete"];

/// Jobs that an overview lists if the query does not say how many.
const LISTED: usize = 100;

/// Which Jobs an overview lists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobQuery {
    /// A part of `NAMESPACE/NAME`; empty for all.
    pub search: String,
    /// The phase; empty for all.
    pub phase: String,
    /// Jobs to skip.
    pub offset: usize,
    /// Most Jobs to list.
    pub limit: usize,
    /// `NAMESPACE/NAME` of a Job that is shown besides; empty for none.
    pub job: String,
}

impl Default for JobQuery {
    fn default() -> Self {
        Self { search: String::new(), phase: String::new(), offset: 0, limit: LISTED, job: String::new() }
    }
}

/// The rules for reading the pages that are not public.
#[derive(Clone)]
pub struct AccessRules {
    /// `/metrics`.
    pub metrics: Access,
    /// `/` and `/debug`.
    pub debug: Access,
}

struct Pages {
    metrics: MetricsPage,
    probe: Arc<dyn Probe>,
}

/// A router that serves the pages.
pub fn router(metrics: Arc<Metrics>, probe: Arc<dyn Probe>, access: AccessRules, live: Live) -> Router {
    let AccessRules { metrics: metrics_access, debug } = access;
    let overviews: Arc<dyn Overviews> = probe.clone();
    let for_operators = Router::new()
        .route("/debug/shards", get(shards_page))
        .route_layer(from_fn_with_state(debug.clone(), access::guard));
    Router::new()
        .route("/metrics", get(metrics_page))
        .route_layer(from_fn_with_state(metrics_access, access::guard))
        .route("/healthz", get(alive))
        .route("/livez", get(alive))
        .route("/readyz", get(|State(pages): State<Arc<Pages>>| async move { verdict(pages.probe.ready()) }))
        .merge(for_operators)
        .with_state(Arc::new(Pages { metrics: MetricsPage::new(metrics), probe }))
        .layer(map_response(with_headers))
        .merge(page_router(overviews, live, debug))
}

/// A router for the page at `/` alone, with the data that it reads.
pub fn page_router(overviews: Arc<dyn Overviews>, live: Live, access: Access) -> Router {
    // The document says nothing of the cluster, and a browser has no way to send a token for it. The token
    // protects the data that the page then reads.
    let document = match &access {
        Access::Secret(_) | Access::Authorized(_) => Access::Everyone,
        other => other.clone(),
    };
    let data = Router::new()
        .route("/debug/overview", get(overview))
        .route("/debug/trace", get(trace))
        .with_state(overviews)
        .merge(live.routes(&access))
        .route_layer(from_fn_with_state(access, access::guard));
    Router::new()
        .route("/", get(page::page))
        .route_layer(from_fn_with_state(document, access::guard))
        .merge(data)
        .layer(map_response(with_headers))
}

/// Adds the headers that restrict a browser's use of an answer.
async fn with_headers(mut response: Response) -> Response {
    const OWN_SITE: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
        (OWN_SITE, "same-origin"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

async fn alive(State(pages): State<Arc<Pages>>) -> impl IntoResponse {
    verdict(pages.probe.healthy())
}

async fn overview(State(overviews): State<Arc<dyn Overviews>>, Query(query): Query<JobQuery>) -> Response {
    if !query.phase.is_empty() && !PHASES.contains(&query.phase.as_str()) {
        let problem = format!("phase: expected one of {}", PHASES.join(", "));
        return (StatusCode::BAD_REQUEST, problem).into_response();
    }
    ([(header::CONTENT_TYPE, "application/json")], overviews.overview(query).await.to_string())
        .into_response()
}

async fn trace(State(overviews): State<Arc<dyn Overviews>>, Query(job): Query<TraceQuery>) -> Response {
    match overviews.trace(job).await {
        Some(traces) => Json(traces).into_response(),
        None => (StatusCode::NOT_FOUND, "no traces are kept: see --trace-memory\n").into_response(),
    }
}

async fn metrics_page(State(pages): State<Arc<Pages>>, headers: HeaderMap) -> impl IntoResponse {
    let format = Format::negotiate(headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()));
    let text = pages.metrics.read(format, |metrics| pages.probe.measure(metrics)).await;
    ([(header::CONTENT_TYPE, format.content_type())], text)
}

async fn shards_page(State(pages): State<Arc<Pages>>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], pages.probe.shards().await.to_string())
}

fn verdict(result: Result<(), String>) -> (StatusCode, String) {
    match result {
        Ok(()) => (StatusCode::OK, "ok".to_owned()),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, why),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::oneshot;

    use super::*;

    struct Starting;

    impl Overviews for Starting {
        fn overview(&self, query: JobQuery) -> BoxFuture<'_, Value> {
            Box::pin(async move { serde_json::json!({"search": query.search, "limit": query.limit}) })
        }

        fn trace(&self, job: TraceQuery) -> BoxFuture<'_, Option<OtlpTraces>> {
            let kept = (job.namespace != "off").then(OtlpTraces::default);
            Box::pin(async { kept })
        }
    }

    impl Probe for Starting {
        fn healthy(&self) -> Result<(), String> {
            Ok(())
        }

        fn ready(&self) -> Result<(), String> {
            Err("shard 3 is not synced".into())
        }

        fn shards(&self) -> BoxFuture<'_, Value> {
            Box::pin(async { serde_json::json!([{"shard": 3}]) })
        }

        fn measure(&self, metrics: &Metrics) {
            metrics.heartbeat_age.set(1.5);
        }
    }

    async fn get(address: std::net::SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn pages_show_the_probe_and_the_metrics() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (end, ended) = oneshot::channel::<()>();
        let access = AccessRules { metrics: Access::Everyone, debug: Access::Loopback };
        let pages = router(Arc::new(Metrics::new()), Arc::new(Starting), access, Live::default());
        let server = tokio::spawn(serve(listener, pages, None, async { drop(ended.await) }));
        for (path, status, part) in [
            ("/healthz", "200 OK", "ok"),
            ("/livez", "200 OK", "ok"),
            ("/readyz", "503 Service Unavailable", "shard 3 is not synced"),
            ("/debug/shards", "200 OK", r#"[{"shard":3}]"#),
            ("/metrics", "200 OK", "yardmaster_heartbeat_age_seconds 1.5\n"),
            ("/metrics", "200 OK", "content-type: text/plain; version=0.0.4"),
            ("/debug/overview?search=a%2Fb&limit=7", "200 OK", r#"{"limit":7,"search":"a/b"}"#),
            ("/debug/overview", "200 OK", r#"{"limit":100,"search":""}"#),
            ("/debug/overview?limit=many", "400 Bad Request", ""),
            ("/debug/overview?phase=nope", "400 Bad Request", "phase: expected one of running, waiting"),
            ("/debug/trace?namespace=a&job=b", "200 OK", r#"{"resourceSpans":[]}"#),
            ("/debug/trace?namespace=off&job=b", "404 Not Found", "--trace-memory"),
            ("/debug/trace?job=b", "400 Bad Request", ""),
            ("/", "200 OK", "content-security-policy: default-src 'none'"),
            ("/", "200 OK", "x-content-type-options: nosniff"),
            ("/nothing", "404 Not Found", ""),
        ] {
            let answer = get(address, path).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{path}: {answer}");
            assert!(answer.contains(part), "{path}: {answer}");
        }
        end.send(()).unwrap();
        server.await.unwrap();
    }
}
