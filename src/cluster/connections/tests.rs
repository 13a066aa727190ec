#![allow(clippy::unwrap_used)]
mod network;
mod server;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::StreamExt as _;
use http::Request;
use kube::config::{AuthInfo, ExecConfig, ExecInteractiveMode};
use tempfile::TempDir;
use tokio::time::{Instant, sleep, timeout};

use self::network::{Dead, Proxy, Speaks};
use self::server::{Authority, HOST, Server};
use crate::cluster::transport::{Connection, Transport, connect};

/// Limit for everything that does not take time by design.
const PATIENCE: Duration = Duration::from_secs(60);

fn get(path: &str) -> Request<Bytes> {
    Request::get(path).body(Bytes::new()).unwrap()
}

/// The status of an answer; `None` without one.
async fn status(transport: &dyn Transport) -> Option<u16> {
    let answer = timeout(PATIENCE, transport.send(get("/api"))).await.unwrap();
    answer.ok().map(|answer| answer.status().as_u16())
}

async fn until_ok(transport: &dyn Transport) {
    let deadline = Instant::now() + PATIENCE;
    while status(transport).await != Some(200) {
        assert!(Instant::now() < deadline, "still refused");
        sleep(Duration::from_millis(50)).await;
    }
}

/// Files that are replaced as Kubernetes replaces those of a volume: at once.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> String {
        let new = self.path("new");
        fs::write(&new, text).unwrap();
        fs::rename(&new, self.path(name)).unwrap();
        self.path(name).to_str().unwrap().to_owned()
    }

    /// A plugin that runs this shell script.
    fn plugin(&self, script: &str) -> AuthInfo {
        let file = self.write("plugin", &format!("#!/bin/sh\n{script}\n"));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o700)).unwrap();
        let exec = ExecConfig {
            api_version: Some("client.authentication.k8s.io/v1".into()),
            command: Some(file),
            interactive_mode: Some(ExecInteractiveMode::Never),
            ..ExecConfig::default()
        };
        AuthInfo { exec: Some(exec), ..AuthInfo::default() }
    }
}

fn config(server: &Server, authorities: &Path, auth_info: AuthInfo) -> kube::Config {
    let mut config = kube::Config::new(server.url().parse().unwrap());
    config.root_cert_file = Some(authorities.to_owned());
    config.auth_info = auth_info;
    config
}

#[tokio::test]
async fn when_one_connection_is_found_dead_none_of_its_age_is_used_again() {
    const CONNECTIONS: usize = 6;
    let server = Server::start(None).await;
    let way = Dead::start(server.address()).await;
    let url = format!("http://{}", way.address());
    let transport = connect(kube::Config::new(url.parse().unwrap()), "r").unwrap().transport;
    server.hold(CONNECTIONS);
    let requests = (0..CONNECTIONS).map(|_| status(&*transport));
    assert_eq!(futures::future::join_all(requests).await, [Some(200); CONNECTIONS]);
    assert_eq!(way.connections(), CONNECTIONS);
    // From here on nothing comes back through them, and the first that is used says so.
    way.kill();
    assert_eq!(status(&*transport).await, None);
    for _ in 0..CONNECTIONS {
        assert_eq!(status(&*transport).await, Some(200));
    }
    assert_eq!((way.connections(), way.used_after_death()), (CONNECTIONS + 1, 1));
}

/// A webhook may return 4,096 warnings. Each is a header, and an answer with more than 100 headers cannot be read.
#[tokio::test]
async fn many_warnings_with_an_answer_cost_no_other_connection() {
    let server = Server::start(None).await;
    let way = Dead::start(server.address()).await;
    let url = format!("http://{}", way.address());
    let transport = connect(kube::Config::new(url.parse().unwrap()), "r").unwrap().transport;
    server.hold(2);
    let requests = (0..2).map(|_| status(&*transport));
    assert_eq!(futures::future::join_all(requests).await, [Some(200); 2]);
    assert!(transport.send(get("/warnings/90")).await.is_ok());
    assert!(transport.send(get("/warnings/4096")).await.is_err());
    assert_eq!(status(&*transport).await, Some(200));
    assert_eq!(way.connections(), 2, "the other connection is used again");
}

#[tokio::test]
async fn a_refusal_that_a_webhook_may_have_worded_says_nothing_about_the_token() {
    let (files, server) = (Files::new(), Server::start(None).await);
    let token_file = Some(files.write("token", "first"));
    server.admit_token("first");
    let mut config = kube::Config::new(server.url().parse().unwrap());
    config.auth_info = AuthInfo { token_file, ..AuthInfo::default() };
    let transport = connect(config, "r").unwrap().transport;
    server.admit_token("second");
    files.write("token", "second");
    let post = Request::post("/api").body(Bytes::new()).unwrap();
    assert_eq!(transport.send(post).await.unwrap().status().as_u16(), 401);
    sleep(Duration::from_millis(1500)).await;
    assert_eq!(status(&*transport).await, Some(401), "it was not read again");
    until_ok(&*transport).await;
}

#[tokio::test]
async fn a_server_with_certificates_of_a_new_authority_is_reached_once_the_file_has_it() {
    let (files, old) = (Files::new(), Authority::new());
    files.write("ca.crt", &old.pem());
    let server = Server::start(Some(&old)).await;
    let config = config(&server, &files.path("ca.crt"), AuthInfo::default());
    let Connection { transport, client } = connect(config, "r").unwrap();
    let mut watch = transport.open(get("/watch")).await.unwrap().into_body();
    assert_eq!(watch.next().await.unwrap().unwrap(), "event");
    assert_eq!(status(&*transport).await, Some(200));

    let new = Authority::new();
    server.present(&new);
    assert_eq!(status(&*transport).await, Some(200), "connections go on");
    server.close_idle();
    assert_eq!(status(&*transport).await, None, "this is not the server that we know");
    files.write("ca.crt", &new.pem());
    until_ok(&*transport).await;
    client.request_text(Request::get("/api").body(Vec::new()).unwrap()).await.unwrap();
    server.say("more");
    assert_eq!(watch.next().await.unwrap().unwrap(), "more", "what was under way has gone on");
}

#[tokio::test]
async fn a_client_certificate_that_was_replaced_is_used_on_new_connections() {
    let (files, authority) = (Files::new(), Authority::new());
    files.write("ca.crt", &authority.pem());
    let (first, second) = (authority.client("first"), authority.client("second"));
    let auth = AuthInfo {
        client_certificate: Some(files.write("tls.crt", &first.certificate)),
        client_key: Some(files.write("tls.key", &first.key)),
        ..AuthInfo::default()
    };
    let server = Server::start(Some(&authority)).await;
    server.admit_certificate(&first);
    let transport = connect(config(&server, &files.path("ca.crt"), auth), "r").unwrap().transport;
    assert_eq!(status(&*transport).await, Some(200));

    server.admit_certificate(&second);
    assert_eq!(status(&*transport).await, Some(401));
    files.write("tls.key", &second.key);
    // A certificate without its key is of no use: the pair before goes on.
    sleep(Duration::from_millis(1500)).await;
    assert_eq!(status(&*transport).await, Some(401));
    files.write("tls.crt", &second.certificate);
    until_ok(&*transport).await;
}

#[tokio::test]
async fn a_token_is_read_again_and_a_plugin_is_run_again_when_the_server_refuses() {
    let files = Files::new();
    let answer =
        r#"{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "#;
    let script = format!("printf '%s\"%s\"}}}}' '{answer}' \"$(cat {})\"", files.path("token").display());
    let plugin = files.plugin(&script);
    let file = AuthInfo {
        token_file: Some(files.path("token").to_str().unwrap().to_owned()),
        ..AuthInfo::default()
    };
    for auth in [file, plugin] {
        files.write("token", "first\n");
        let server = Server::start(None).await;
        server.admit_token("first");
        let mut config = kube::Config::new(server.url().parse().unwrap());
        config.auth_info = auth;
        let Connection { transport, client } = connect(config, "r").unwrap();
        assert_eq!(status(&*transport).await, Some(200));
        server.admit_token("second");
        files.write("token", "second\n");
        until_ok(&*transport).await;
        client.request_text(Request::get("/api").body(Vec::new()).unwrap()).await.unwrap();
    }
}

#[tokio::test]
async fn a_certificate_that_a_plugin_gives_is_replaced_before_it_ends() {
    let (files, authority) = (Files::new(), Authority::new());
    files.write("ca.crt", &authority.pem());
    let (first, second) = (authority.client("first"), authority.client("second"));
    let answer = |client: &server::Client| {
        let until = jiff::Timestamp::now() + Duration::from_secs(5);
        let status = serde_json::json!({
            "clientCertificateData": client.certificate, "clientKeyData": client.key,
            "expirationTimestamp": until.to_string(),
        });
        serde_json::json!({"kind": "ExecCredential", "status": status}).to_string()
    };
    files.write("answer", &answer(&first));
    let auth = files.plugin(&format!("cat {}", files.path("answer").display()));
    let server = Server::start(Some(&authority)).await;
    let transport = connect(config(&server, &files.path("ca.crt"), auth), "r").unwrap().transport;
    assert_eq!(status(&*transport).await, Some(200));
    assert!(server.has_seen(&first));
    files.write("answer", &answer(&second));
    let deadline = Instant::now() + PATIENCE;
    while !server.has_seen(&second) {
        assert!(Instant::now() < deadline, "still with the first certificate");
        sleep(Duration::from_millis(200)).await;
        assert_eq!(status(&*transport).await, Some(200), "no request meets a refusal");
    }
}

#[tokio::test]
async fn a_plugin_that_fails_says_why_in_one_line_and_never_what_it_answered() {
    let files = Files::new();
    for (script, expected) in [
        ("echo first >&2; echo 'log in first' >&2; exit 7", "failed (exit status: 7): log in first"),
        (
            "echo '{\"kind\": \"ExecCredential\", \"status\": {\"clientKeyData\": \"secret\"}}'",
            "no ExecCredential",
        ),
        ("echo secret", "no ExecCredential"),
    ] {
        let mut config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        config.auth_info = files.plugin(script);
        let error = connect(config, "r").err().unwrap().to_string();
        assert!(
            error.contains(expected) && !error.contains("secret") && error.lines().count() == 1,
            "{error}"
        );
    }
}

#[tokio::test]
async fn all_requests_go_through_the_proxy() {
    let authority = Authority::new();
    for (scheme, speaks, credentials) in [
        ("http", Speaks::Http, ""),
        ("http", Speaks::Http, "user:p%40ss@"),
        ("https", Speaks::HttpOverTls, "user:p%40ss@"),
        ("socks5", Speaks::Socks5, ""),
        ("socks5h", Speaks::Socks5, "user:p%40ss@"),
    ] {
        let server = Server::start(Some(&authority)).await;
        let proxy = Proxy::start(speaks, server.address(), &authority).await;
        // No name service knows the host: the proxy has to resolve it.
        let mut config = kube::Config::new(format!("https://{HOST}:6443").parse().unwrap());
        config.root_cert = Some(vec![authority.der()]);
        config.proxy_url = Some(format!("{scheme}://{credentials}{}", proxy.address()).parse().unwrap());
        let Connection { transport, client } = connect(config, "r").unwrap();
        assert_eq!(status(&*transport).await, Some(200), "{scheme}");
        let mut watch = transport.open(get("/watch")).await.unwrap().into_body();
        assert_eq!(watch.next().await.unwrap().unwrap(), "event");
        let lease = "/apis/coordination.k8s.io/v1/namespaces/n/leases/l";
        transport.send(get(lease)).await.unwrap();
        client.request_text(Request::get("/api").body(Vec::new()).unwrap()).await.unwrap();
        let asked = proxy.asked();
        assert!(asked.len() >= 3, "a write, a watch and a Lease: {asked:?}");
        let authorized = if credentials.is_empty() { "" } else { " user:p@ss" };
        assert_eq!(asked[0], format!("{HOST}:6443{authorized}"), "{scheme}");
    }
}

#[tokio::test]
async fn a_proxy_that_refuses_or_does_not_answer_is_an_error() {
    let authority = Authority::new();
    let server = Server::start(Some(&authority)).await;
    for speaks in [Speaks::Refusal, Speaks::Nothing] {
        let proxy = Proxy::start(speaks, server.address(), &authority).await;
        let mut config = kube::Config::new(format!("https://{HOST}:6443").parse().unwrap());
        config.proxy_url = Some(format!("http://{}", proxy.address()).parse().unwrap());
        let transport = connect(config, "r").unwrap().transport;
        assert_eq!(status(&*transport).await, None);
    }
    let mut config = kube::Config::new(server.url().parse().unwrap());
    config.proxy_url = Some("ftp://u:secret@proxy".parse().unwrap());
    let error = connect(config, "r").err().unwrap().to_string();
    assert!(error.contains("proxy-url") && !error.contains("secret"), "{error}");
}
