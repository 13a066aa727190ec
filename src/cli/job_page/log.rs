//! A part of a pod's log. The page follows a log by asking for what came after its last line.

use axum::http::StatusCode;
use futures::io::AsyncReadExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, LogParams};

use super::{refusal, refuse};
use crate::job::job_id::is_subdomain;
use crate::telemetry::http::{LiveRefusal, LogAsk};

/// Lines at the end of a log with which the page begins.
const LINES: i64 = 1_000;
/// Most bytes of one answer.
const BYTES: i64 = 256 << 10;

/// Reads the lines that are asked for, each with its time.
pub(super) async fn read(client: &Client, namespace: &str, ask: LogAsk) -> Result<String, LiveRefusal> {
    if !is_subdomain(&ask.pod) {
        return Err(refuse(StatusCode::BAD_REQUEST, "pod: no name of a pod"));
    }
    let since = ask.since.as_deref().map(str::parse).transpose();
    let since_time =
        since.map_err(|_| refuse(StatusCode::BAD_REQUEST, "since: no time in RFC 3339 format"))?;
    let params = LogParams {
        container: ask.container,
        previous: ask.previous,
        timestamps: true,
        tail_lines: since_time.is_none().then_some(LINES),
        since_time,
        limit_bytes: Some(BYTES),
        ..LogParams::default()
    };
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let stream = pods.log_stream(&ask.pod, &params).await.map_err(refusal)?;
    let mut bytes = Vec::new();
    // A server that ignores the limit must not fill the memory.
    let limit = u64::try_from(BYTES).unwrap_or_default();
    let read = stream.take(limit).read_to_end(&mut bytes).await;
    read.map_err(|error| refuse(StatusCode::BAD_GATEWAY, &error.to_string()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
