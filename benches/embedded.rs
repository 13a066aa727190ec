//! Throughput and memory of the embedded API server. Pods are created and patched over HTTP while clients
//! watch, pages are read from many pods, and the memory of these pods is measured.
//!
//! Clients and server share this process and its cores. Unless stated otherwise, the server has its default
//! settings, with garbage collector and `managedFields`. CPU time is reported besides rates, because it
//! depends less on the other load of the machine.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::net::SocketAddr;
use std::sync::LazyLock;
use std::time::Duration;

use bytes::Bytes;
use divan::Bencher;
use divan::counter::ItemsCount;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::task::{JoinHandle, JoinSet};
use yardmaster_embedded::{ApiServer, ApiServerConfig, Authentication, Token};

/// The allocator of the `yardmaster` command.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Pods written in one sample.
const WRITTEN: usize = 10_000;
/// Pods in the list that is read in pages.
const MANY: usize = 100_000;
/// Clients that write at the same time.
const CLIENTS: usize = 16;
/// Shards of the pods, by label.
const SHARDS: usize = 64;
const PODS: &str = "/api/v1/namespaces/default/pods";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

fn main() {
    let benches = std::env::args().any(|argument| argument == "--bench");
    if benches {
        for watches in [Watches::One, Watches::Sharded] {
            RUNTIME.block_on(report_cpu(watches));
        }
        let before = resident();
        LazyLock::force(&MANY_PODS);
        println!("{MANY} pods, each created and patched twice: {} MiB", (resident() - before) >> 20);
    }
    divan::main();
}

/// Prints the CPU time of clients and server for each write.
async fn report_cpu(watches: Watches) {
    for (what, pods, write) in [("create", 0, create as Write), ("patch", WRITTEN, report)] {
        let (cluster, watchers) = Cluster::watched(true, watches, pods, WRITTEN).await;
        let before = cpu_time();
        cluster.write(WRITTEN, write).await;
        for watcher in watchers {
            watcher.await.unwrap();
        }
        let each = (cpu_time() - before).as_micros() / WRITTEN as u128;
        println!("{what}, {watches:?}: {each} µs of CPU");
    }
}

/// CPU time of this process so far.
fn cpu_time() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_SELF).unwrap();
    [usage.user_time(), usage.system_time()]
        .map(|time| Duration::from_micros(time.num_microseconds().try_into().unwrap()))
        .into_iter()
        .sum()
}

/// Memory of this process, in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    let kibibytes: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kibibytes << 10
}

/// The watches of pods.
#[derive(Clone, Copy, Debug)]
enum Watches {
    /// A single client watches all pods.
    One,
    /// A client watches all pods, and one more client for each shard watches the pods with the label of the
    /// shard.
    Sharded,
}

/// The request for the pod with this number, of the Job with this UID.
type Write = fn(usize, &str) -> Request<Full<Bytes>>;

/// The token of all servers.
const TOKEN: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// A server that is never shut down.
struct Cluster {
    address: SocketAddr,
    /// The Job that owns all pods.
    job: String,
    _server: ApiServer,
}

static MANY_PODS: LazyLock<Cluster> = LazyLock::new(|| {
    RUNTIME.block_on(async {
        let cluster = Cluster::start(true).await;
        cluster.write(MANY, create).await;
        cluster.write(MANY, report).await;
        cluster.write(MANY, finish).await;
        cluster
    })
});

impl Cluster {
    async fn start(track_managed_fields: bool) -> Self {
        let authentication = Authentication::Token(Token::new(TOKEN).unwrap());
        let config = ApiServerConfig { track_managed_fields, authentication, ..ApiServerConfig::default() };
        let server = ApiServer::start(config).await.unwrap();
        let address = server.url().strip_prefix("http://").unwrap().parse().unwrap();
        let job = Client::connect(address).await.create_job().await;
        Self { address, job, _server: server }
    }

    /// A server with clients that watch pods until they have seen their share of `events`.
    async fn watched(
        track_managed_fields: bool,
        watches: Watches,
        pods: usize,
        events: usize,
    ) -> (Self, Vec<JoinHandle<()>>) {
        let cluster = Self::start(track_managed_fields).await;
        cluster.write(pods, create).await;
        let mut watchers = vec![cluster.watch("", events).await];
        if let Watches::Sharded = watches {
            for shard in 0..SHARDS {
                let events = (shard..events).step_by(SHARDS).count();
                let selector = format!("&labelSelector=yardmaster.dev/shard%3D{shard}");
                watchers.push(cluster.watch(&selector, events).await);
            }
        }
        (cluster, watchers)
    }

    /// A client that watches from now on.
    async fn watch(&self, selector: &str, events: usize) -> JoinHandle<()> {
        let mut client = Client::connect(self.address).await;
        let revision = client.revision().await;
        let path = format!("{PODS}?watch=1&resourceVersion={revision}{selector}");
        let answer = client.send(request(Method::GET, &path, "", Bytes::new())).await;
        assert_eq!(answer.status(), StatusCode::OK);
        let mut stream = answer.into_body();
        tokio::spawn(async move {
            // Each event is a line.
            let mut seen = 0;
            while seen < events {
                let frame = stream.frame().await.expect("the watch goes on").unwrap();
                seen += frame.into_data().unwrap_or_default().iter().filter(|byte| **byte == b'\n').count();
            }
            assert_eq!(seen, events);
            drop(client);
        })
    }

    /// Sends `count` requests from several clients at the same time.
    async fn write(&self, count: usize, write: Write) {
        let mut clients = JoinSet::new();
        for first in 0..CLIENTS {
            let (address, job) = (self.address, self.job.clone());
            clients.spawn(async move {
                let mut client = Client::connect(address).await;
                for number in (first..count).step_by(CLIENTS) {
                    let answer = client.send(write(number, &job)).await;
                    assert!(answer.status().is_success(), "{}", answer.status());
                    answer.into_body().collect().await.unwrap();
                }
            });
        }
        clients.join_all().await;
    }
}

/// A connection.
struct Client(SendRequest<Full<Bytes>>);

impl Client {
    async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Self(sender)
    }

    async fn send(&mut self, request: Request<Full<Bytes>>) -> http::Response<Incoming> {
        self.0.ready().await.unwrap();
        self.0.send_request(request).await.unwrap()
    }

    async fn get(&mut self, path: &str) -> Bytes {
        let answer = self.send(request(Method::GET, path, "", Bytes::new())).await;
        assert_eq!(answer.status(), StatusCode::OK);
        answer.into_body().collect().await.unwrap().to_bytes()
    }

    /// Creates a Job without pods; returns its UID.
    async fn create_job(&mut self) -> String {
        let job = json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "training"},
            "spec": {"template": {"spec": {
                "restartPolicy": "Never", "containers": [{"name": "main", "image": "registry.example.com/training:1"}],
            }}},
        });
        let answer = self.send(request(Method::POST, JOBS, "application/json", job.to_string().into())).await;
        let job: Value =
            serde_json::from_slice(&answer.into_body().collect().await.unwrap().to_bytes()).unwrap();
        job["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    async fn revision(&mut self) -> String {
        list_field(&self.get(&format!("{PODS}?limit=1")).await, "resourceVersion")
    }
}

fn list_field(list: &[u8], field: &str) -> String {
    #[derive(serde::Deserialize)]
    struct List {
        metadata: Value,
    }
    let list: List = serde_json::from_slice(list).unwrap();
    list.metadata[field].as_str().unwrap().to_owned()
}

fn request(method: Method, path: &str, content_type: &str, body: Bytes) -> Request<Full<Bytes>> {
    let request = Request::builder().method(method).uri(path).header(header::HOST, "localhost");
    let request =
        if content_type.is_empty() { request } else { request.header(header::CONTENT_TYPE, content_type) };
    let request = request.header(header::AUTHORIZATION, format!("Bearer {TOKEN}"));
    request.header(header::USER_AGENT, "bench/1").body(Full::new(body)).unwrap()
}

fn body(value: &Value) -> Bytes {
    serde_json::to_vec(value).unwrap().into()
}

fn name(number: usize) -> String {
    format!("training-{number:06}-x7k2p")
}

/// The creation of a pod as the Job controller sends it.
fn create(number: usize, job: &str) -> Request<Full<Bytes>> {
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name(number),
            "generateName": "training-",
            "annotations": {"batch.kubernetes.io/job-completion-index": number.to_string()},
            "labels": {
                "batch.kubernetes.io/controller-uid": job, "batch.kubernetes.io/job-name": "training",
                "batch.kubernetes.io/job-completion-index": number.to_string(), "controller-uid": job,
                "job-name": "training", "yardmaster.dev/shard": (number % SHARDS).to_string(),
            },
            "finalizers": ["batch.kubernetes.io/job-tracking"],
            "ownerReferences": [{
                "apiVersion": "batch/v1", "kind": "Job", "name": "training", "uid": job, "controller": true,
                "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "restartPolicy": "Never",
            "containers": [{
                "name": "main", "image": "registry.example.com/training:1.2.3", "command": ["train", "--epochs=3"],
                "env": [{"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": {
                    "fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']",
                }}}],
                "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
            }],
        },
    });
    request(Method::POST, PODS, "application/json", body(&pod))
}

/// The status that a kubelet reports for a running pod.
fn report(number: usize, _job: &str) -> Request<Full<Bytes>> {
    let status = json!({"status": {
        "phase": "Running", "podIP": "10.0.0.1", "startTime": "2026-01-01T00:00:00Z",
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
    }});
    patch_status(number, &status)
}

/// The status that a kubelet reports for a succeeded pod.
fn finish(number: usize, _job: &str) -> Request<Full<Bytes>> {
    let status = json!({"status": {
        "phase": "Succeeded",
        "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:01:00Z"}],
        "containerStatuses": [{
            "name": "main", "image": "registry.example.com/training:1.2.3", "imageID": "", "ready": false,
            "restartCount": 0, "state": {"terminated": {"exitCode": 0, "finishedAt": "2026-01-01T00:01:00Z"}},
        }],
    }});
    patch_status(number, &status)
}

fn patch_status(number: usize, status: &Value) -> Request<Full<Bytes>> {
    let path = format!("{PODS}/{}/status", name(number));
    request(Method::PATCH, &path, "application/strategic-merge-patch+json", body(status))
}

/// Pods created per second over HTTP while one client watches; with and without `managedFields`.
#[divan::bench(args = [true, false], sample_count = 5, sample_size = 1)]
fn creates(bencher: Bencher<'_, '_>, track_managed_fields: bool) {
    bencher
        .counter(ItemsCount::new(WRITTEN))
        .with_inputs(|| RUNTIME.block_on(Cluster::watched(track_managed_fields, Watches::One, 0, WRITTEN)))
        .bench_local_values(|(cluster, watchers)| {
            RUNTIME.block_on(async {
                cluster.write(WRITTEN, create).await;
                for watcher in watchers {
                    watcher.await.unwrap();
                }
            });
        });
}

/// Status patches per second over HTTP while one client watches; with and without `managedFields`.
#[divan::bench(args = [true, false], sample_count = 5, sample_size = 1)]
fn patches(bencher: Bencher<'_, '_>, track_managed_fields: bool) {
    bencher
        .counter(ItemsCount::new(WRITTEN))
        .with_inputs(|| {
            RUNTIME.block_on(Cluster::watched(track_managed_fields, Watches::One, WRITTEN, WRITTEN))
        })
        .bench_local_values(|(cluster, watchers)| {
            RUNTIME.block_on(async {
                cluster.write(WRITTEN, report).await;
                for watcher in watchers {
                    watcher.await.unwrap();
                }
            });
        });
}

/// A page of 500 pods from the middle of 100,000.
#[divan::bench(sample_count = 50, sample_size = 1)]
fn page_of_500(bencher: Bencher<'_, '_>) {
    let (mut client, path) = RUNTIME.block_on(async {
        let mut client = Client::connect(MANY_PODS.address).await;
        let half = client.get(&format!("{PODS}?limit={}", MANY / 2)).await;
        let token = list_field(&half, "continue");
        (client, format!("{PODS}?limit=500&continue={token}"))
    });
    bencher.bench_local(|| RUNTIME.block_on(client.get(&path)));
}
