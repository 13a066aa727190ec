//! The HTTP pages of a replica: `/metrics`, `/healthz`, `/readyz`, `/debug/shards`.

use std::io;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;

use futures::future::BoxFuture;
use serde_json::Value;
use tokio::net::TcpListener;

use super::metrics::{Format, Metrics};

/// The state of a replica, as its pages show it.
pub trait Probe: Send + Sync + 'static {
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

struct Pages {
    metrics: Arc<Metrics>,
    probe: Arc<dyn Probe>,
}

/// A router that serves the pages.
pub fn router(metrics: Arc<Metrics>, probe: Arc<dyn Probe>) -> Router {
    Router::new()
        .route("/metrics", get(metrics_page))
        .route(
            "/healthz",
            get(|State(pages): State<Arc<Pages>>| async move { verdict(pages.probe.healthy()) }),
        )
        .route("/readyz", get(|State(pages): State<Arc<Pages>>| async move { verdict(pages.probe.ready()) }))
        .route("/debug/shards", get(shards_page))
        .with_state(Arc::new(Pages { metrics, probe }))
}

/// Serves the pages until `end`. Requests under way still finish.
///
/// # Errors
/// When the listener fails.
pub async fn serve(
    listener: TcpListener,
    pages: Router,
    end: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    axum::serve(listener, pages).with_graceful_shutdown(end).await
}

async fn metrics_page(State(pages): State<Arc<Pages>>, headers: HeaderMap) -> impl IntoResponse {
    pages.probe.measure(&pages.metrics);
    let format = Format::negotiate(headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()));
    ([(header::CONTENT_TYPE, format.content_type())], pages.metrics.render(format))
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
    use tokio::net::TcpStream;
    use tokio::sync::oneshot;

    use super::*;

    struct Starting;

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
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
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
        let pages = router(Arc::new(Metrics::new()), Arc::new(Starting));
        let server = tokio::spawn(serve(listener, pages, async { drop(ended.await) }));
        for (path, status, part) in [
            ("/healthz", "200 OK", "ok"),
            ("/readyz", "503 Service Unavailable", "shard 3 is not synced"),
            ("/debug/shards", "200 OK", r#"[{"shard":3}]"#),
            ("/metrics", "200 OK", "yardmaster_heartbeat_age_seconds 1.5\n"),
            ("/metrics", "200 OK", "content-type: text/plain; version=0.0.4"),
            ("/nothing", "404 Not Found", ""),
        ] {
            let answer = get(address, path).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{path}: {answer}");
            assert!(answer.contains(part), "{path}: {answer}");
        }
        end.send(()).unwrap();
        server.await.unwrap().unwrap();
    }
}
