//! The kubelet's HTTP endpoint for container logs, which the API server proxies.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures::stream;

use super::logs::reader::{Options, Reader};
use super::logs::{Found, LogIndex};

/// The routes.
pub(super) fn router(logs: Arc<LogIndex>) -> Router {
    Router::new()
        .route("/containerLogs/{namespace}/{pod}/{container}", get(container_logs))
        .route("/healthz", get(|| async { "ok" }))
        .with_state(logs)
}

async fn container_logs(
    State(logs): State<Arc<LogIndex>>,
    Path((namespace, pod, container)): Path<(String, String, String)>,
    Query(options): Query<Options>,
) -> Response {
    let log = match logs.find(&namespace, &pod, &container, options.previous) {
        Found::Log(log) => log,
        Found::NoPod => {
            let message = format!("pod \"{namespace}/{pod}\" not found");
            return (StatusCode::NOT_FOUND, message).into_response();
        }
        Found::NotStarted => {
            let message = if options.previous {
                format!("previous terminated container \"{container}\" in pod \"{pod}\" not found")
            } else {
                format!("container \"{container}\" in pod \"{pod}\" is waiting to start: ContainerCreating")
            };
            return (StatusCode::BAD_REQUEST, message).into_response();
        }
    };
    match Reader::open(log, options).await {
        Ok(reader) => {
            let chunks = stream::try_unfold(reader, |mut reader| async move {
                Ok::<_, std::io::Error>(reader.next().await?.map(|chunk| (chunk, reader)))
            });
            ([(header::CONTENT_TYPE, "text/plain")], Body::from_stream(chunks)).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
