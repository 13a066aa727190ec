//! GET of a pod's log, proxied to the kubelet of the pod's node. The kubelet's address counts only if it was
//! written since this server started. Another process may have the port of an earlier kubelet, and must not
//! get the token.

use std::time::Duration;

use futures::StreamExt as _;
use http::{HeaderValue, StatusCode, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use crate::authentication::Token;
use crate::error::ApiError;
use crate::exchange::reply::Reply;
use crate::exchange::request::Request;
use crate::server::Server;

/// Maximum length of a kubelet's error in the response, in bytes.
const MAX_ERROR_LENGTH: usize = 10_000;
/// How long a kubelet may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a kubelet may take from then on to the headers of its answer, and for the text of an error. The
/// log itself may take any time.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);

/// GET of `pods/NAME/log`.
pub(crate) async fn log(server: &Server, request: &Request) -> Result<Reply, ApiError> {
    let resource = request.resource();
    let found = server.table(resource).get(&request.key());
    let pod = found.ok_or_else(|| ApiError::not_found(resource, request.name()))?.decode(resource);
    let container = container(request, &pod)?;
    let Some(node) = pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) else {
        // The pod is not scheduled yet, so it has no log.
        return Ok(Reply::full(StatusCode::NO_CONTENT, "", ""));
    };
    let address = kubelet_address(server, node)?;
    let namespace = request.path.namespace.as_deref().unwrap_or_default();
    let path =
        format!("/containerLogs/{namespace}/{}/{container}?{}", request.name(), request.query.encode());
    let answer = match &server.network {
        Some(network) => fetch(&address, &path, network.authenticator.kubelet_client()).await,
        None => Err("the server has no network".into()),
    };
    let (answer, connection) = answer
        .map_err(|problem| ApiError::unclassified(format!("Get \"http://{address}{path}\": {problem}")))?;
    let code = answer.status();
    if !matches!(code.as_u16(), 200..=206) {
        return Err(refusal(request, answer).await);
    }
    // A broken stream ends the response, which has no declared length.
    let frames = http_body_util::BodyStream::new(answer.into_body());
    let frames = frames.filter_map(move |frame| {
        let _connection = &connection;
        std::future::ready(frame.ok().map(Ok))
    });
    let frames = frames.take_until(server.stop.clone().cancelled_owned());
    let body = http_body_util::StreamBody::new(frames).boxed_unsync();
    Ok(Reply { code, content_type: "text/plain", body, warnings: Vec::new() })
}

/// Converts a kubelet's plain-text error to a `Status`.
async fn refusal(request: &Request, answer: http::Response<Incoming>) -> ApiError {
    let code = answer.status();
    let body = Limited::new(answer.into_body(), MAX_ERROR_LENGTH).collect();
    let text = match timeout(HEADER_TIMEOUT, body).await {
        Ok(Ok(body)) => String::from_utf8_lossy(&body.to_bytes()).into_owned(),
        Ok(Err(problem)) => return ApiError::internal(&problem.to_string()),
        Err(_) => return ApiError::internal("timeout reading the error"),
    };
    match code {
        StatusCode::BAD_REQUEST => ApiError::bad_request(text),
        StatusCode::INTERNAL_SERVER_ERROR => ApiError::internal(&text),
        code => ApiError::of_node(request.resource(), request.name(), code),
    }
}

/// The requested container, or the default one, or the only one.
fn container(request: &Request, pod: &Value) -> Result<String, ApiError> {
    let spec = &pod["spec"];
    let names = |field: &str| -> Vec<String> {
        let list = spec[field].as_array().into_iter().flatten();
        list.filter_map(|one| one["name"].as_str().map(str::to_owned)).collect()
    };
    let (containers, init) = (names("containers"), names("initContainers"));
    let name = request.name();
    if let Some(asked) = request.query.get("container") {
        let known =
            containers.iter().chain(&init).chain(&names("ephemeralContainers")).any(|one| one == asked);
        return if known {
            Ok(asked.to_owned())
        } else {
            Err(ApiError::bad_request(format!("container {asked} is not valid for pod {name}")))
        };
    }
    let default = pod["metadata"]["annotations"]["kubectl.kubernetes.io/default-container"].as_str();
    if let Some(default) = default.filter(|default| containers.iter().any(|one| one == default)) {
        return Ok(default.to_owned());
    }
    if let [only] = containers.as_slice() {
        return Ok(only.clone());
    }
    let init = if init.is_empty() {
        String::new()
    } else {
        format!(" or one of the init containers: [{}]", init.join(" "))
    };
    Err(ApiError::bad_request(format!(
        "a container name must be specified for pod {name}, choose one of: [{}]{init}",
        containers.join(" ")
    )))
}

/// Host and port of a node's kubelet, from the node's status.
fn kubelet_address(server: &Server, name: &str) -> Result<String, ApiError> {
    let nodes = super::super::resources::stored("nodes").ok_or_else(ApiError::no_resource)?;
    let node = server.table(nodes).get(name).ok_or_else(|| ApiError::not_found(nodes, name))?.decode(nodes);
    let status = &node["status"];
    let addresses = status["addresses"].as_array().into_iter().flatten();
    let address = addresses
        .filter(|address| address["type"] == "InternalIP")
        .find_map(|address| address["address"].as_str());
    let port = status["daemonEndpoints"]["kubeletEndpoint"]["Port"].as_i64();
    match (address, port) {
        (Some(address), Some(port)) => Ok(format!("{address}:{port}")),
        _ => Err(ApiError::unclassified(format!(
            "no preferred addresses found; known addresses: [] (node {name})"
        ))),
    }
}

/// A connection to a kubelet, which ends when this is dropped.
type Connection = AbortOnDropHandle<hyper::Result<()>>;

/// Sends a request. The answer can be read as long as the connection is kept.
async fn fetch(
    address: &str,
    path: &str,
    token: &Token,
) -> Result<(http::Response<Incoming>, Connection), String> {
    let stream = timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await;
    let stream = stream.map_err(|_| "i/o timeout")?.map_err(|error| error.to_string())?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    let connection = AbortOnDropHandle::new(tokio::spawn(connection));
    let mut request = http::Request::new(Empty::<bytes::Bytes>::new());
    *request.uri_mut() = path.parse().map_err(|error: http::uri::InvalidUri| error.to_string())?;
    let host = HeaderValue::from_str(address).map_err(|error| error.to_string())?;
    request.headers_mut().insert(header::HOST, host);
    let credential = HeaderValue::from_str(&format!("Bearer {}", token.expose()));
    let mut credential = credential.map_err(|error| error.to_string())?;
    credential.set_sensitive(true);
    request.headers_mut().insert(header::AUTHORIZATION, credential);
    let answer = timeout(HEADER_TIMEOUT, sender.send_request(request)).await;
    let answer =
        answer.map_err(|_| "timeout awaiting response headers")?.map_err(|error| error.to_string())?;
    Ok((answer, connection))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_kubelet_that_does_not_answer_is_given_up() {
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, token) = (silent.local_addr().unwrap().to_string(), Token::random());
        let refused = timeout(Duration::from_secs(3600), fetch(&address, "/", &token)).await;
        assert!(refused.unwrap().unwrap_err().contains("timeout"));
    }
}
