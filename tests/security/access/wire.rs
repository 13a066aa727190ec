//! Requests byte by byte, as no client library sends them.

use std::net::SocketAddr;
use std::time::Duration;

use http_body_util::BodyExt as _;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use yardmaster_embedded::{ApiServer, ApiServerConfig, Authentication};

/// Limit for everything that does not take time by design.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

pub(super) const PODS: &str = "/api/v1/namespaces/default/pods";
pub(super) const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// The pod of an attacker, in JSON.
pub(super) const POD: &str = r#"{"metadata": {"generateName": "attack-"}, "spec": {"containers": [
    {"name": "c", "image": "i", "command": ["sh", "-c", "id"]}]}}"#;

/// An answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) code: u16,
    /// In lower case.
    pub(super) head: String,
    pub(super) body: String,
}

impl Answer {
    /// The code, which must be that of the `Status` in the body.
    pub(super) fn status(&self) -> u16 {
        let status: Value = serde_json::from_str(&self.body).unwrap();
        assert_eq!((&status["kind"], &status["code"]), (&"Status".into(), &self.code.into()), "{self:?}");
        self.code
    }
}

/// A server that asks for no token, as the site of a request is checked whether or not there is one.
pub(super) async fn open_server(config: ApiServerConfig) -> ApiServer {
    let config = ApiServerConfig { authentication: Authentication::Anonymous, api_only: true, ..config };
    ApiServer::start(config).await.unwrap()
}

pub(super) fn address(server: &ApiServer) -> SocketAddr {
    server.url().rsplit_once("//").unwrap().1.parse().unwrap()
}

/// Opens a connection and sends some bytes.
pub(super) async fn begin(address: SocketAddr, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // The server may have closed it already.
    let _sent = stream.write_all(text.as_bytes()).await;
    stream
}

/// Everything that arrives until the server closes the connection.
pub(super) async fn until_closed(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut bytes)).await;
    // A reset closes it, too.
    let _end = read.expect("the server closes the connection");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Sends bytes that are a whole request, and reads the answer to it.
pub(super) async fn send(address: SocketAddr, text: &str) -> Answer {
    let text = until_closed(&mut begin(address, text).await).await;
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
    let code = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { code, head: head.to_lowercase(), body: body.to_owned() }
}

/// Sends a request with these lines of headers. A `Host` must be among them.
pub(super) async fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[&str],
    body: &str,
) -> Answer {
    let headers: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
    let length = body.len();
    let framing = format!("Content-Length: {length}\r\nConnection: close\r\n");
    send(address, &format!("{method} {path} HTTP/1.1\r\n{headers}{framing}\r\n{body}")).await
}

pub(super) fn bearer(server: &ApiServer) -> String {
    format!("Authorization: Bearer {}", server.token().unwrap().expose())
}

/// The code of a GET with the server's own credentials.
pub(super) async fn get(client: &kube::Client, path: &str) -> u16 {
    let request = http::Request::get(path).body(kube::client::Body::empty()).unwrap();
    let answer = tokio::time::timeout(PATIENCE, client.send(request)).await.expect("an answer").unwrap();
    let code = answer.status().as_u16();
    answer.into_body().collect().await.unwrap();
    code
}

pub(super) fn client(server: &ApiServer) -> kube::Client {
    kube::Client::try_from(server.client_config()).unwrap()
}
