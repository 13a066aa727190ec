//! A question that only Podman's own API answers.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::time::timeout;

/// Longest wait for an answer about a container that has ended.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// The exit code of a container that has ended; absent if Podman does not say.
///
/// If a container ends while it is started, Podman 4.3 may keep it as created, with the exit code 0. Its answers by Docker's API are
/// wrong then. Its own API has the true code, unless Podman was killed meanwhile.
pub(super) async fn exit_code(socket: &Path, id: &str) -> Option<i64> {
    timeout(ANSWERS_WITHIN, ask(socket, id)).await.ok()?
}

async fn ask(socket: &Path, id: &str) -> Option<i64> {
    let stream = UnixStream::connect(socket).await.ok()?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.ok()?;
    // It ends with the sender.
    tokio::spawn(connection);
    let request = Request::post(format!("/v4.0.0/libpod/containers/{id}/wait"))
        .header(http::header::HOST, "podman")
        .body(Empty::<Bytes>::new());
    let answer = sender.send_request(request.ok()?).await.ok()?;
    let body = answer.into_body().collect().await.ok()?.to_bytes();
    let code: i64 = str::from_utf8(&body).ok()?.trim().parse().ok()?;
    (code >= 0).then_some(code)
}
