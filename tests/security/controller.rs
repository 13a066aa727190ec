//! The port of a controller: who may read what, and what strangers can cost.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::api::{Api, DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use nix::sys::signal::Signal;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsConnector;
use yardmaster::actors::{Controller, ControllerConfig, DebugAccess, MetricsAccess};
use yardmaster::sharding::ShardCount;
use yardmaster::telemetry::http::{MAX_CONNECTIONS, TlsFiles};
use yardmaster_embedded::{ApiServer, ApiServerConfig, Rbac, User};

use crate::binary::{Background, PATIENCE, until};
use crate::cluster::{Cluster, kube_config};

/// Connections of an attacker, more than the process may have files.
const ATTACK: usize = 300;
/// Files that the attacked process may have.
const FILES: u64 = 192;

fn settings() -> ControllerConfig {
    ControllerConfig {
        controller_name: "kubernetes.io/job-controller".into(),
        shards: ShardCount::new(2).unwrap(),
        listen: Some(([127, 0, 0, 1], 0).into()),
        ..ControllerConfig::default()
    }
}

/// A controller process with few files, and the address of its pages.
fn start_process(cluster: &Cluster, directory: &TempDir) -> (Background, SocketAddr) {
    let mut replica = cluster.replica(directory);
    replica.args(["--shards", "4", "--print-address"]);
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -n {FILES} && exec \"$@\""), "sh"]);
    command.arg(replica.get_program()).args(replica.get_args());
    for (name, value) in replica.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut process = Background::start(&mut command);
    let address = Background::line(process.0.stdout.take().unwrap(), ":");
    (process, address.parse().unwrap())
}

/// The answer to one request on a connection of its own; `None` if there is none in this time.
fn ask(at: SocketAddr, path: &str, headers: &[(&str, &str)], limit: Duration) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect_timeout(&at, limit).ok()?;
    stream.set_read_timeout(Some(limit)).unwrap();
    let host = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host"));
    let mut request = format!("GET {path} HTTP/1.1\r\nConnection: close\r\n");
    if !host {
        request += &format!("Host: {at}\r\n");
    }
    headers.iter().for_each(|(name, value)| request += &format!("{name}: {value}\r\n"));
    stream.write_all((request + "\r\n").as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let code = answer.split(' ').nth(1)?.parse().ok()?;
    Some((code, answer))
}

fn code(at: SocketAddr, path: &str, headers: &[(&str, &str)]) -> u16 {
    ask(at, path, headers, PATIENCE).unwrap_or_else(|| panic!("no answer to {path} {headers:?}")).0
}

fn files_of(process: &Background) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", process.0.id())).unwrap().count()
}

#[tokio::test(flavor = "multi_thread")]
async fn half_open_connections_do_not_stop_a_replica() {
    let (cluster, directory) = (Cluster::start().await, tempfile::tempdir().unwrap());
    let (mut process, at) = start_process(&cluster, &directory);
    until("the replica is ready", || ask(at, "/readyz", &[], PATIENCE).is_some_and(|(code, _)| code == 200));
    let before = files_of(&process);

    let attack: Vec<TcpStream> = (0..ATTACK)
        .map(|number| {
            let mut stream = TcpStream::connect_timeout(&at, PATIENCE).unwrap();
            // Half of them send nothing, the others half a request. If the replica has closed a connection
            // already, the write fails.
            let _sent =
                if number % 2 == 0 { Ok(()) } else { stream.write_all(b"GET /livez HTTP/1.1\r\nHost: x") };
            stream
        })
        .collect();
    // Probes get through while all of them are held, and the replica goes on with its work.
    for path in ["/livez", "/readyz", "/healthz"] {
        assert_eq!(code(at, path, &[]), 200, "{path}");
    }
    let held = files_of(&process);
    assert!(held <= before + MAX_CONNECTIONS + 8, "{held} files, {before} before the attack");
    cluster.create("works", json!({"completions": 20, "parallelism": 10}), "0s").await;
    cluster.completes("works").await;

    // Each of them is closed after seconds, whether its client notices or not. The replica keeps connections of its
    // own to the API server, for the next Job.
    until("the connections are closed", || files_of(&process) <= before + 24);
    for mut stream in attack {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut rest = Vec::new();
        let closed = stream.read_to_end(&mut rest);
        assert!(
            closed.is_ok() || closed.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset)
        );
    }
    assert_eq!(code(at, "/readyz", &[]), 200);
    process.signal(Signal::SIGTERM);
    assert_eq!(process.exit_code(), Some(0));
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_never_ends_its_header_is_cut_off() {
    let cluster = Cluster::start().await;
    let controller = cluster.controller(settings()).await;
    let at = controller.address().unwrap();
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    stream.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n").unwrap();
    let started = Instant::now();
    let mut byte = [0];
    // A line now and again keeps idle timers happy, but not the one for the whole header.
    while !matches!(stream.read(&mut byte), Ok(0)) {
        if stream.write_all(b"X-Slow: yes\r\n").is_err() {
            break;
        }
        assert!(started.elapsed() < PATIENCE, "the connection is still open");
    }
    controller.shutdown().await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn web_sites_do_not_read_what_is_for_this_host() {
    let cluster = Cluster::start().await;
    let controller = cluster.controller(settings()).await;
    let at = controller.address().unwrap();
    let host = at.to_string();
    for path in ["/", "/debug/shards", "/debug/overview"] {
        for (headers, expected) in [
            (vec![], 200),
            (vec![("Host", "localhost")], 200),
            (vec![("Host", &*host), ("Sec-Fetch-Site", "same-origin")], 200),
            (vec![("Host", "rebound.example")], 403),
            (vec![("Host", "127.0.0.1.rebound.example:8080")], 403),
            (vec![("Host", &*host), ("Origin", "https://evil.example")], 403),
            (vec![("Host", &*host), ("Sec-Fetch-Site", "cross-site")], 403),
        ] {
            assert_eq!(code(at, path, &headers), expected, "{path} {headers:?}");
        }
    }
    // Probes and metrics need no rights.
    for path in ["/livez", "/healthz", "/metrics"] {
        assert_eq!(
            code(at, path, &[("Host", "10.1.2.3:8080"), ("Origin", "https://grafana.example")]),
            200,
            "{path}"
        );
    }
    controller.shutdown().await;
    cluster.end().await;
}

/// An API server with three users: an operator, who may read everything, a scraper, who may read metrics, and
/// a user without rights.
async fn server_with_users() -> ApiServer {
    let user = |name: &str| User::service_account("default", name);
    let users: BTreeMap<_, _> =
        ["operator", "scraper", "nobody"].map(|name| (format!("token-of-{name}"), user(name))).into();
    let rbac = Some(Rbac { users, denials: None });
    let server = ApiServer::start(ApiServerConfig { rbac, ..ApiServerConfig::default() }).await.unwrap();
    let client = kube::Client::try_from(kube_config(server.kubeconfig()).await).unwrap();
    let create = async |kind: &str, object: Value| {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("rbac.authorization.k8s.io", "v1", kind));
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    };
    for (name, urls) in [("operator", json!(["/debug/*", "/metrics"])), ("scraper", json!(["/metrics"]))] {
        let rules = json!([{"nonResourceURLs": urls, "verbs": ["get"]}]);
        create("ClusterRole", json!({"metadata": {"name": name}, "rules": rules})).await;
        let subjects = json!([{"kind": "ServiceAccount", "name": name, "namespace": "default"}]);
        let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name});
        create(
            "ClusterRoleBinding",
            json!({"metadata": {"name": name}, "subjects": subjects, "roleRef": role}),
        )
        .await;
    }
    server
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cluster_says_who_may_read_the_pages() {
    let server = server_with_users().await;
    let settings = ControllerConfig {
        metrics_access: MetricsAccess::Authorized,
        debug_access: DebugAccess::Authorized,
        ..settings()
    };
    let controller = Controller::start(settings, kube_config(server.kubeconfig()).await).await.unwrap();
    let at = controller.address().unwrap();
    for (token, metrics, debug) in [
        (None, 401, 401),
        (Some("Bearer stolen"), 401, 401),
        (Some("Bearer token-of-nobody"), 403, 403),
        (Some("Bearer token-of-scraper"), 200, 403),
        (Some("Bearer token-of-operator"), 200, 200),
        (Some("Basic token-of-operator"), 401, 401),
    ] {
        let headers: Vec<_> = token.map(|token| ("Authorization", token)).into_iter().collect();
        for (path, expected) in [
            ("/metrics", metrics),
            ("/debug/shards", debug),
            ("/debug/overview", debug),
            // No traces are kept.
            ("/debug/trace?namespace=n&job=j", if debug == 200 { 404 } else { debug }),
            ("/livez", 200),
            ("/readyz", 200),
        ] {
            let got = code(at, path, &headers);
            let starting = path == "/readyz" && got == 503;
            assert!(got == expected || starting, "{path} {token:?}: {got}");
        }
    }
    // Without an API server to ask, no new token is accepted.
    server.shutdown().await;
    assert_eq!(
        code(at, "/metrics", &[("Authorization", "Bearer token-of-operator")]),
        200,
        "it is remembered"
    );
    assert_eq!(code(at, "/metrics", &[("Authorization", "Bearer another")]), 503);
    controller.abort().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_that_are_off_do_not_exist() {
    let cluster = Cluster::start().await;
    let controller =
        cluster.controller(ControllerConfig { debug_access: DebugAccess::Off, ..settings() }).await;
    let at = controller.address().unwrap();
    for (path, expected) in [
        ("/", 404),
        ("/debug/shards", 404),
        ("/debug/overview", 404),
        ("/debug/trace?namespace=n&job=j", 404),
        ("/metrics", 200),
    ] {
        assert_eq!(code(at, path, &[]), expected, "{path}");
    }
    controller.shutdown().await;
    cluster.end().await;
}

/// Each connection is worth a warning where the certificate of the API server is not checked. There are dozens.
#[tokio::test(flavor = "multi_thread")]
async fn certificates_that_are_not_checked_make_few_lines() {
    let (cluster, directory) = (Cluster::start().await, tempfile::tempdir().unwrap());
    let mut kubeconfig = cluster.server.secure_kubeconfig();
    for known in kubeconfig.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
        (known.certificate_authority_data, known.insecure_skip_tls_verify) = (None, Some(true));
    }
    let log = directory.path().join("log");
    let mut replica = cluster.replica(&directory);
    std::fs::write(directory.path().join("kubeconfig"), serde_json::to_string(&kubeconfig).unwrap()).unwrap();
    let mut process = Background::start(replica.stderr(std::fs::File::create(&log).unwrap()));
    cluster.create("works", json!({"completions": 20, "parallelism": 10}), "0s").await;
    cluster.completes("works").await;
    assert!(files_of(&process) > 32, "connections of many watches");
    process.signal(Signal::SIGTERM);
    assert_eq!(process.exit_code(), Some(0));
    let log = std::fs::read_to_string(log).unwrap();
    let lines = log.lines().filter(|line| line.contains("Server cert bypassed")).count();
    // A warning in ten seconds; a busy machine takes its time.
    assert!((1..=8).contains(&lines), "{lines} lines: {log}");
    cluster.end().await;
}

/// Writes a new certificate for `localhost` and its key, and returns the certificate.
fn write_certificate(directory: &Path) -> CertificateDer<'static> {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(directory.join("tls.key"), signing_key.serialize_pem()).unwrap();
    std::fs::write(directory.join("tls.crt"), cert.pem()).unwrap();
    cert.der().clone()
}

/// The first line of the answer over TLS, if the server has this certificate.
async fn ask_over_tls(at: SocketAddr, trusted: &CertificateDer<'static>) -> Option<String> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let stream = tokio::net::TcpStream::connect(at).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.ok()?;
    stream.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8(answer).unwrap().lines().next().map(str::to_owned)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_port_speaks_tls_and_follows_its_certificate() {
    let (cluster, directory) = (Cluster::start().await, tempfile::tempdir().unwrap());
    let first = write_certificate(directory.path());
    let files =
        TlsFiles { certificate: directory.path().join("tls.crt"), key: directory.path().join("tls.key") };
    let controller = cluster.controller(ControllerConfig { tls: Some(files), ..settings() }).await;
    let at = controller.address().unwrap();
    assert_eq!(ask_over_tls(at, &first).await.as_deref(), Some("HTTP/1.1 200 OK"));
    assert_eq!(ask(at, "/livez", &[], PATIENCE), None, "not in clear");

    // Rubbish changes nothing.
    std::fs::write(directory.path().join("tls.crt"), "rubbish").unwrap();
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert!(ask_over_tls(at, &first).await.is_some());
    let second = write_certificate(directory.path());
    let deadline = Instant::now() + PATIENCE;
    while ask_over_tls(at, &second).await.is_none() {
        assert!(Instant::now() < deadline, "still the old certificate");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert_eq!(ask_over_tls(at, &first).await, None, "the old certificate is gone");
    controller.shutdown().await;
    cluster.end().await;
}
