//! `yardmaster cluster --max-inflight N` refuses more than N concurrent requests. Watches and logs do not count.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod binary;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use yardmaster_embedded::{ApiServer, ApiServerConfig, Authentication};

use crate::binary::{Background, PATIENCE, yardmaster};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// The log of a pod on a node whose kubelet never answers.
const SILENT_LOG: &str = "/api/v1/namespaces/default/pods/silent/log";

/// The API server of a cluster with a limit of concurrent requests.
struct Server {
    process: Background,
    address: String,
    /// Accepts connections, and never reads from them.
    _kubelet: TcpListener,
}

impl Server {
    fn start(max_inflight: &str) -> Self {
        let mut command = yardmaster();
        command.args(["cluster", "--api-only", "--insecure-no-token", "--max-inflight", max_inflight]);
        let mut process = Background::start(&mut command);
        let line = Background::line(process.0.stdout.take().unwrap(), "API server");
        let address = line.rsplit_once("http://").unwrap().1.to_owned();
        let kubelet = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = kubelet.local_addr().unwrap().port();
        let server = Self { process, address, _kubelet: kubelet };
        let status = json!({
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        });
        server.create("/api/v1/nodes", &json!({"metadata": {"name": "n"}, "status": status}));
        let spec = json!({"nodeName": "n", "containers": [{"name": "c", "image": "i"}]});
        let pod = json!({"metadata": {"name": "silent"}, "spec": spec});
        server.create("/api/v1/namespaces/default/pods", &pod);
        server
    }

    fn create(&self, path: &str, object: &Value) {
        let (object, json) = (object.to_string(), "Content-Type: application/json");
        let length = object.len();
        let mut stream = self.send(&format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\n{json}\r\nContent-Length: {length}\r\n\r\n{object}"
        ));
        let mut status = String::new();
        stream.read_line(&mut status).unwrap();
        assert!(status.contains(" 201 "), "{status}");
    }

    fn send(&self, text: &str) -> BufReader<TcpStream> {
        send(&self.address, text)
    }

    /// Asks for a log that does not come.
    fn ask_for_silent_log(&self) -> BufReader<TcpStream> {
        self.send(&format!("GET {SILENT_LOG} HTTP/1.1\r\nHost: localhost\r\n\r\n"))
    }

    /// Sends the beginning of a request. It holds no slot.
    fn dawdle(&self) -> BufReader<TcpStream> {
        self.send(&format!(
            "POST {MAPS} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Content-Length: 100\r\n\r\n{{"
        ))
    }

    fn get(&self, path: &str) -> (u16, String, BufReader<TcpStream>) {
        get(&self.address, path)
    }

    fn code(&self, path: &str) -> u16 {
        self.get(path).0
    }

    fn stop(mut self) {
        self.process.signal(Signal::SIGTERM);
        assert_eq!(self.process.exit_code(), Some(0));
    }
}

/// Sends a request or its beginning.
fn send(address: &str, text: &str) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    BufReader::new(stream)
}

/// Status and headers of the answer to a GET. The connection stays open.
fn get(address: &str, path: &str) -> (u16, String, BufReader<TcpStream>) {
    let mut stream = send(address, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(stream.read_line(&mut head).unwrap() > 0, "cut off: {head}");
    }
    let code = head.split(' ').nth(1).unwrap().parse().unwrap();
    (code, head.to_lowercase(), stream)
}

/// If a client or a kubelet makes a request long, it holds no slot: slow bodies, watches, and logs.
#[test]
fn slow_bodies_watches_and_logs_hold_no_slot() {
    let server = Server::start("1");
    let _slow: Vec<_> = (0..5).map(|_| server.dawdle()).collect();
    let _silent: Vec<_> = (0..5).map(|_| server.ask_for_silent_log()).collect();
    let watches: Vec<_> = (0..5).map(|_| server.get(&format!("{MAPS}?watch=true"))).collect();
    assert!(watches.iter().all(|(code, ..)| *code == 200));
    assert_eq!((server.code(MAPS), server.code("/healthz"), server.code("/version")), (200, 200, 200));
    drop(watches);
    server.stop();
}

/// With no slot at all, every request is one too many.
#[tokio::test(flavor = "multi_thread")]
async fn requests_beyond_the_limit_get_429_with_retry_after() {
    let config = ApiServerConfig {
        max_inflight: Some(0),
        authentication: Authentication::Anonymous,
        api_only: true,
        ..ApiServerConfig::default()
    };
    let api = ApiServer::start(config).await.unwrap();
    let address = api.url().trim_start_matches("http://").to_owned();
    let asked = tokio::task::spawn_blocking(move || {
        let (code, head, mut stream) = get(&address, MAPS);
        assert_eq!(code, 429);
        assert!(head.contains("\r\nretry-after: 1\r\n"), "{head}");
        let length = head.split("content-length: ").nth(1).unwrap().split('\r').next().unwrap();
        let mut body = vec![0; length.parse().unwrap()];
        stream.read_exact(&mut body).unwrap();
        let status: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((&status["kind"], &status["code"]), (&"Status".into(), &429.into()));
        assert_eq!(status["reason"], "TooManyRequests");
        // Watches and paths without objects need no slot.
        let watch = get(&address, &format!("{MAPS}?watch=true"));
        assert_eq!((watch.0, get(&address, "/healthz").0, get(&address, "/version").0), (200, 200, 200));
    });
    asked.await.unwrap();
    api.shutdown().await;
}
