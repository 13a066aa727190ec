//! A Job's trace, as a collector gets it from real replicas, shows what happened to the Job.

mod waits;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use nix::sys::signal::Signal;
use serde_json::json;
use tempfile::TempDir;

use crate::binary::{Background, PATIENCE, until, yardmaster};
use crate::cluster::{Cluster, REPLACEMENT, has, index_of, succeeded};
use crate::collector::{Authority, Collector, Received, silent};

/// A replica that sends traces soon.
fn replica(cluster: &Cluster, directory: &TempDir, name: &str, endpoint: &str) -> Command {
    let mut command = cluster.replica(directory);
    command.args(["--identity", name, "--shards", "4", "--pod-failure-backoff", "2s"]);
    command.args(["--lease-duration", "6s", "--renew-deadline", "4s", "--retry-period", "1s"]);
    command.args(["--otlp-endpoint", endpoint]).env("OTEL_BSP_SCHEDULE_DELAY", "200");
    command
}

fn stop(mut replica: Background) {
    replica.signal(Signal::SIGTERM);
    assert_eq!(replica.exit_code(), Some(0));
}

/// The spans of one name.
fn named<'a>(spans: &'a [Received], name: &str) -> Vec<&'a Received> {
    spans.iter().filter(|received| received.span.name == name).collect()
}

/// The only span of a name.
fn only<'a>(spans: &'a [Received], name: &str) -> &'a Received {
    let [one] = named(spans, name)[..] else { panic!("{name}: {:#?}", named(spans, name)) };
    one
}

fn unix(time: Timestamp) -> f64 {
    time.as_second() as f64
}

/// An Indexed Job has fifty pods. A running pod is deleted, which is a failure with a back-off. Then the
/// replica hands the Job over.
#[tokio::test(flavor = "multi_thread")]
async fn one_trace_tells_a_jobs_whole_story() {
    let (cluster, collector) = (Cluster::start().await, Collector::start().await);
    let directory = tempfile::tempdir().unwrap();
    let first = Background::start(&mut replica(&cluster, &directory, "first", &collector.url()));
    let spec = json!({"completions": 50, "parallelism": 30, "completionMode": "Indexed"});
    cluster.create("story", spec, "8s").await;
    cluster.until_pods(30).await;
    let running = |pods: &[Pod]| {
        let runs = |pod: &&Pod| pod.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Running");
        pods.iter().find(runs).cloned()
    };
    let victim = loop {
        if let Some(pod) = running(&cluster.pods_of("story").await) {
            break pod;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    collector.until("job.start").await;
    assert!(named(&collector.spans(), "job").is_empty(), "the Job runs");
    cluster.pods.delete(victim.metadata.name.as_ref().unwrap(), &Default::default()).await.unwrap();
    // The replacement, and so the back-off, is the first replica's.
    until_replaced(&cluster, &victim).await;
    let second = Background::start(&mut replica(&cluster, &directory, "second", &collector.url()));
    let handed_over = cluster.until("story", "at work", |job| succeeded(job) > 0).await;
    assert!(!has(&handed_over, "Complete"));
    stop(first);
    let job = cluster.completes("story").await;
    collector.until("job").await;
    stop(second);
    let pods = cluster.pods_of("story").await;
    let (of_shards, of_the_job): (Vec<_>, Vec<_>) =
        collector.spans().into_iter().partition(|received| received.span.name.starts_with("shard."));
    check_shards(&of_shards);
    check_story(&distinct(of_the_job), &job, &pods, &victim);
    cluster.end().await;
}

/// Waits until a pod that failed has a successor at its index.
async fn until_replaced(cluster: &Cluster, failed: &Pod) {
    cluster
        .until("story", "aware of the failure", |job| job.status.as_ref().unwrap().failed == Some(1))
        .await;
    let deadline = Instant::now() + PATIENCE;
    let replaces = |pod: &Pod| index_of(pod) == index_of(failed) && pod.metadata.uid != failed.metadata.uid;
    while !cluster.pods_of("story").await.iter().any(replaces) {
        assert!(Instant::now() < deadline, "no replacement");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The spans without duplicates: if a pod ends during a hand-over, both owners may record it, as one span.
fn distinct(spans: Vec<Received>) -> Vec<Received> {
    let mut distinct: HashMap<Vec<u8>, Received> = HashMap::new();
    for received in spans {
        if let Some(twice) = distinct.insert(received.id(), received.clone()) {
            assert!(received.span.name.starts_with("pod"), "{received:?} comes twice");
            assert_ne!(received.instance, twice.instance);
            assert_eq!(received.text("k8s.pod.uid"), twice.text("k8s.pod.uid"));
        }
    }
    distinct.into_values().collect()
}

/// Each hand-over of a shard is a trace of its own, from the replica that takes or gives it.
fn check_shards(spans: &[Received]) {
    assert!(spans.iter().all(|received| received.number("yardmaster.shard").is_some()));
    for (name, instance) in [("shard.takeover", "second"), ("shard.drain", "first")] {
        let from = spans.iter().filter(|received| received.instance == instance);
        assert!(from.into_iter().any(|received| received.span.name == name), "{name} of {instance}");
    }
    let traces: BTreeSet<_> = spans.iter().map(|received| received.span.trace_id.clone()).collect();
    assert_eq!(traces.len(), spans.len());
}

fn check_story(spans: &[Received], job: &Job, pods: &[Pod], victim: &Pod) {
    let uid = job.metadata.uid.clone().unwrap();
    let trace: Vec<u8> = uid::bytes(&uid);
    assert!(spans.iter().all(|received| received.span.trace_id == trace), "one trace");
    let instances: BTreeSet<&str> = spans.iter().map(|received| &*received.instance).collect();
    assert_eq!(instances, BTreeSet::from(["first", "second"]));
    for received in spans {
        assert_eq!(received.text("k8s.job.uid").as_deref(), Some(&*uid), "{received:?}");
        assert_eq!(received.text("k8s.job.name").as_deref(), Some("story"));
        assert_eq!(received.text("k8s.namespace.name").as_deref(), Some("default"));
    }

    let root = only(spans, "job");
    assert!(root.span.parent_span_id.is_empty() && !root.failed());
    let ids: HashMap<Vec<u8>, &Received> = spans.iter().map(|span| (span.id(), span)).collect();
    let (began, ended) = root.seconds();
    for received in spans.iter().filter(|received| received.id() != root.id()) {
        let parent = ids.get(&received.span.parent_span_id);
        let parent = parent.unwrap_or_else(|| panic!("no parent of {received:?}"));
        let expected: &[&str] = match &*received.span.name {
            "pod.pending" | "pod.running" => &["pod"],
            name if name.starts_with("api.") => &["reconcile", "job"],
            _ => &["job"],
        };
        assert!(expected.contains(&&*parent.span.name), "{} below {}", received.span.name, parent.span.name);
        let (start, end) = received.seconds();
        assert!(began <= start && start <= end && end <= ended + 30.0, "{received:?} in {began} {ended}");
    }

    let status = job.status.clone().unwrap();
    assert_eq!(began, unix(job.metadata.creation_timestamp.clone().unwrap().0));
    let complete = unix(status.completion_time.unwrap().0);
    assert!((complete..complete + 1.1).contains(&ended), "{complete} {ended}");
    for (key, expected) in [
        ("yardmaster.succeeded", 50),
        ("yardmaster.failed", 1),
        ("yardmaster.completions", 50),
        ("yardmaster.parallelism", 30),
    ] {
        assert_eq!(root.number(key), Some(expected), "{key}");
    }
    assert_eq!(root.text("yardmaster.reason").as_deref(), Some("CompletionsReached"));
    assert_eq!(root.number("epoch"), root.number("yardmaster.epoch"));

    let start = only(spans, "job.start");
    assert_eq!((&*start.instance, start.seconds().0), ("first", began));
    let (drain, takeover) = (only(spans, "handover.drain"), only(spans, "handover.takeover"));
    assert_eq!((&*drain.instance, &*takeover.instance), ("first", "second"));
    assert_eq!(takeover.number("yardmaster.epoch"), drain.number("yardmaster.epoch").map(|epoch| epoch + 1));
    assert!(drain.seconds().1 <= takeover.seconds().1);
    for (name, instance) in [("first", drain), ("second", takeover)] {
        let acts = named(spans, "reconcile").into_iter().filter(|span| span.instance == name);
        let times: Vec<f64> = acts.map(|span| span.seconds().0).collect();
        assert!(!times.is_empty());
        let (from, to) = instance.seconds();
        let in_time = |at: &f64| if name == "first" { *at <= to } else { *at >= from };
        assert!(times.iter().all(in_time), "{name} acts while it owns the Job");
    }

    // After its end, the failed pod waited for others to fail with it, and then for what was left of a back-off of 2 s.
    let waits = ["wait.FailureDebounce", "wait.PodBackoff"].into_iter().flat_map(|name| named(spans, name));
    let waited: f64 = waits.map(|wait| wait.lasted()).sum();
    assert!((0.9..3.0).contains(&waited), "{waited}");
    assert!(named(spans, "wait.PodBackoff").iter().all(|wait| wait.text("yardmaster.wait.until").is_some()));

    check_pods(spans, pods, victim);
    let left_out: i64 = [root, drain].iter().filter_map(|span| span.number("yardmaster.pods_left_out")).sum();
    // If a pod ends during a hand-over, both owners may leave it out.
    assert!(named(spans, "pod").len() as i64 + left_out >= 51, "all pods are shown or counted");
    check_calls(spans);
}

fn check_pods(spans: &[Received], pods: &[Pod], victim: &Pod) {
    let known: BTreeMap<&str, &Pod> =
        pods.iter().map(|pod| (pod.metadata.uid.as_deref().unwrap(), pod)).collect();
    let gone = victim.metadata.uid.as_deref().unwrap();
    let shown = named(spans, "pod");
    assert!(shown.len() >= 24, "{}", shown.len());
    for received in &shown {
        let uid = received.text("k8s.pod.uid").unwrap();
        let pod = known.get(&*uid).copied().unwrap_or(victim);
        assert!(known.contains_key(&*uid) || uid == gone, "{uid}");
        assert_eq!(received.text("k8s.pod.name"), pod.metadata.name);
        assert_eq!(received.number("yardmaster.pod.index").unwrap().to_string(), index_of(pod));
        let (start, end) = received.seconds();
        let created = unix(pod.metadata.creation_timestamp.clone().unwrap().0);
        assert!((created..created + 1.0).contains(&start), "{created} {start}");
        let parts = |name| {
            let parts = named(spans, name).into_iter();
            parts.filter(|part| part.span.parent_span_id == received.id()).collect::<Vec<_>>()
        };
        let (pending, running) = (parts("pod.pending"), parts("pod.running"));
        assert_eq!((pending.len(), running.len()), (1, 1), "{received:?}");
        assert_eq!((pending[0].seconds().0, running[0].seconds().1), (start, end));
        assert_eq!(pending[0].seconds().1, running[0].seconds().0);
        if uid != gone {
            assert_eq!(received.text("yardmaster.pod.outcome").as_deref(), Some("Succeeded"));
            assert!((6.5..15.0).contains(&running[0].lasted()), "runs 8 s: {}", running[0].lasted());
            assert_eq!(received.number("process.exit.code"), Some(0));
            assert_eq!(received.text("k8s.node.name"), pod.spec.as_ref().unwrap().node_name);
        }
    }
    let failed = shown.iter().find(|received| received.text("k8s.pod.uid").as_deref() == Some(gone));
    let failed = failed.expect("the pod that failed is shown");
    assert_ne!(failed.text("yardmaster.pod.outcome").as_deref(), Some("Succeeded"), "{failed:?}");
    let replacement = shown.iter().find(|received| {
        received.number("yardmaster.pod.index") == failed.number("yardmaster.pod.index")
            && received.number("yardmaster.pod.attempt") == Some(1)
    });
    if let Some(replacement) = replacement {
        assert!(replacement.seconds().0 >= failed.seconds().1 + 0.9);
    }
}

/// Requests are described as OpenTelemetry's conventions for HTTP clients ask.
fn check_calls(spans: &[Received]) {
    let calls: Vec<_> = spans.iter().filter(|received| received.span.name.starts_with("api.")).collect();
    for (name, method, template, code) in [
        ("api.create_pod", "POST", "/api/v1/namespaces/{namespace}/pods", 201),
        ("api.patch_pod", "PATCH", "/api/v1/namespaces/{namespace}/pods/{name}", 200),
        ("api.patch_status", "PATCH", "/apis/batch/v1/namespaces/{namespace}/jobs/{name}/status", 200),
    ] {
        let call = calls.iter().find(|call| call.span.name == name && !call.failed());
        let call = call.unwrap_or_else(|| panic!("no {name}"));
        assert_eq!(call.span.kind, 3, "a client's");
        assert_eq!(call.text("http.request.method").as_deref(), Some(method));
        assert_eq!(call.text("url.template").as_deref(), Some(template));
        assert_eq!(call.number("http.response.status_code"), Some(code));
        assert_eq!(call.text("server.address").as_deref(), Some("127.0.0.1"));
        assert!(call.number("server.port").is_some() && call.text("error.type").is_none());
        assert_eq!(call.text("k8s.pod.name").is_some(), name != "api.patch_status");
    }
}

mod uid {
    /// The bytes of a UUID.
    pub(super) fn bytes(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(|digit| *digit != b'-').collect();
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        digits.chunks(2).map(byte).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_job_makes_few_spans_and_says_how_many_pods_it_leaves_out() {
    let (cluster, collector) = (Cluster::start().await, Collector::start().await);
    let directory = tempfile::tempdir().unwrap();
    let running = Background::start(&mut replica(&cluster, &directory, "one", &collector.url()));
    cluster.create("large", json!({"completions": 300, "parallelism": 50}), "10ms").await;
    cluster.completes("large").await;
    collector.until("job").await;
    stop(running);
    let spans = collector.spans();
    assert!(spans.len() < 300, "{:?}", collector.counts());
    let root = only(&spans, "job");
    let shown = named(&spans, "pod").len() as i64;
    // On a busy machine an export may be late, so that its spans are lost.
    assert!((24..=24 + 16).contains(&shown), "{:?}", collector.counts());
    assert_eq!(root.number("yardmaster.pods_left_out"), Some(300 - 24 - 16));
    cluster.end().await;
}

/// Runs a Job of two pods, and waits for the end of its trace.
async fn traced_job(cluster: &Cluster, collector: &Collector, name: &str) {
    cluster.create(name, json!({"completions": 2, "parallelism": 2}), "10ms").await;
    cluster.completes(name).await;
    collector.until("job").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn traces_go_over_http_and_tls_with_headers_and_certificates() {
    let cluster = Cluster::start().await;
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::make(directory.path());
    for (protocol, tls) in [("grpc", true), ("http/protobuf", true), ("http/protobuf", false)] {
        let collector = Collector::at("127.0.0.1:0", tls.then(|| authority.acceptor())).await;
        let scheme = if tls { "https" } else { "http" };
        let endpoint = format!("{scheme}://localhost:{}", collector.address.port());
        let name = format!("{}-{scheme}", &protocol[..4]);
        let mut command = replica(&cluster, &directory, &name, &endpoint);
        command.env("OTEL_EXPORTER_OTLP_PROTOCOL", protocol);
        command.env("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20s3cret");
        for (variable, file) in
            [("CERTIFICATE", "ca.pem"), ("CLIENT_CERTIFICATE", "client.pem"), ("CLIENT_KEY", "client.key")]
        {
            command.env(format!("OTEL_EXPORTER_OTLP_{variable}"), authority.file(file));
        }
        let running = Background::start(&mut command);
        traced_job(&cluster, &collector, &name).await;
        assert_eq!(collector.exports(), [format!("{} Bearer s3cret", &protocol[..4])]);
        stop(running);
    }
    cluster.end().await;
}

/// A value of `/metrics`.
fn metric(address: SocketAddr, name: &str) -> f64 {
    let mut connection = TcpStream::connect(address).unwrap();
    connection.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut text = String::new();
    connection.read_to_string(&mut text).unwrap();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name} in {text}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

fn free_port() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// A replica that writes its log to a file and serves its metrics at an address. An export may take so long, in milliseconds.
fn observed(
    cluster: &Cluster,
    directory: &TempDir,
    endpoint: &str,
    timeout: &str,
    log: &Path,
) -> (Background, SocketAddr) {
    let address = free_port();
    let mut command = yardmaster();
    command.args(["controller", "--controller-name", REPLACEMENT, "--listen", &address.to_string()]);
    command.arg("--kubeconfig").arg(cluster.write_kubeconfig(directory.path()));
    command.args(["--identity", "observed", "--shards", "4", "--otlp-endpoint", endpoint]);
    command.arg("--log-format").arg("json").arg("--log-level").arg("debug");
    command.env("OTEL_BSP_SCHEDULE_DELAY", "100").env("OTEL_EXPORTER_OTLP_TIMEOUT", timeout);
    command.env("OTEL_BSP_MAX_QUEUE_SIZE", "64").env("OTEL_EXPORTER_OTLP_HEADERS", "authorization=s3cret");
    command.stderr(File::create(log).unwrap());
    (Background::start(&mut command), address)
}

fn lines_with(log: &Path, text: &str) -> usize {
    std::fs::read_to_string(log).unwrap().lines().filter(|line| line.contains(text)).count()
}

const DROPPED: &str = "yardmaster_spans_dropped_total";
const FAILS: &str = "takes no traces";
const RECOVERS: &str = "takes traces again";

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_gone_costs_a_log_line_until_it_is_back() {
    let cluster = Cluster::start().await;
    let directory = tempfile::tempdir().unwrap();
    let (log, at) = (directory.path().join("log"), free_port());
    let (running, metrics) = observed(&cluster, &directory, &format!("http://{at}"), "10000", &log);
    for name in ["a", "b", "c"] {
        cluster.create(name, json!({"completions": 5, "parallelism": 5}), "10ms").await;
        cluster.completes(name).await;
        until("spans are dropped", || lines_with(&log, FAILS) > 0 && metric(metrics, DROPPED) > 0.0);
    }
    let dropped = metric(metrics, DROPPED);
    let collector = Collector::at(&at.to_string(), None).await;
    traced_job(&cluster, &collector, "back").await;
    until("the log says so", || lines_with(&log, RECOVERS) > 0);
    assert!(dropped >= 15.0, "{dropped}");
    drop(collector);
    cluster.create("again", json!({"completions": 5, "parallelism": 5}), "10ms").await;
    cluster.completes("again").await;
    until("the collector is missed again", || lines_with(&log, FAILS) == 2);
    assert_eq!(lines_with(&log, RECOVERS), 1);
    assert_eq!(lines_with(&log, "s3cret"), 0, "nothing secret is logged");
    assert!(lines_with(&log, "\"trace_id\"") > 0, "lines about Jobs name their trace");
    stop(running);
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_hangs_delays_no_job() {
    let cluster = Cluster::start().await;
    let directory = tempfile::tempdir().unwrap();
    let (address, _held) = silent().await;
    let log = directory.path().join("log");
    let (running, metrics) = observed(&cluster, &directory, &format!("http://{address}"), "300", &log);
    for job in 0..20 {
        cluster.create(&format!("job-{job}"), json!({"completions": 10, "parallelism": 10}), "10ms").await;
    }
    for job in 0..20 {
        cluster.assert_exact(&format!("job-{job}"), 10).await;
    }
    until("spans are dropped", || metric(metrics, DROPPED) > 0.0);
    assert_eq!(lines_with(&log, FAILS), 1);
    stop(running);
    cluster.end().await;
}
