//! A controller replica as a whole: its HTTP pages, its shutdown, exact counts despite panics and crashes,
//! and its end after a restore of etcd.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod binary;
mod cluster;
#[path = "controller/pages.rs"]
mod pages;
#[path = "controller/panics.rs"]
mod panics;
mod refusals;
#[path = "controller/restores.rs"]
mod restores;
mod statuses;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http::Method;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use yardmaster::actors::ControllerConfig;
use yardmaster::sharding::ShardCount;

use crate::binary::{Background, PATIENCE, until};
use crate::cluster::{Cluster, REPLACEMENT, has, succeeded};

fn settings() -> ControllerConfig {
    ControllerConfig {
        controller_name: REPLACEMENT.into(),
        shards: ShardCount::new(4).unwrap(),
        // After a crash, the next replica waits until the leases expire.
        lease_duration: Duration::from_secs(2),
        renew_deadline: Duration::from_millis(1500),
        retry_period: Duration::from_millis(300),
        // A Job is rebuilt this long after a panic.
        api_backoff: Duration::from_millis(50),
        api_backoff_max: Duration::from_millis(200),
        ..ControllerConfig::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ended_pods_lose_the_record_of_their_managers_unless_it_is_to_be_kept() {
    let cluster = Cluster::start().await;
    for (name, keep_managed_fields) in [("reset", false), ("kept", true)] {
        let config = ControllerConfig { keep_managed_fields, ..settings() };
        let controller = cluster.controller(config).await;
        cluster.create(name, json!({"completions": 3, "parallelism": 3}), "10ms").await;
        cluster.assert_exact(name, 3).await;
        for pod in cluster.pods_of(name).await {
            assert_eq!(pod.metadata.managed_fields.is_some(), keep_managed_fields, "{pod:?}");
        }
        controller.shutdown().await;
    }
    cluster.end().await;
}

/// A manager that has applied a finalizer of its own takes it off as it has put it on: by applying.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_applied_to_a_running_pod_can_be_taken_off_by_applying_once_it_has_ended() {
    let cluster = Cluster::start().await;
    let controller = cluster.controller(settings()).await;
    cluster.create("job", json!({"completions": 2, "parallelism": 2}), "1s").await;
    cluster
        .until("job", "running", |job| job.status.as_ref().is_some_and(|status| status.active == Some(2)))
        .await;
    let pods = cluster.pods_of("job").await;
    let swept = pods[0].metadata.name.clone().unwrap();
    let apply = |finalizers: Value| {
        let pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": swept, "finalizers": finalizers}});
        let (cluster, swept) = (&cluster, &swept);
        async move {
            let by = PatchParams::apply("sweeper");
            cluster.pods.patch(swept, &by, &Patch::Apply(pod)).await.unwrap().metadata.finalizers
        }
    };
    apply(json!(["example.com/sweep"])).await;
    cluster.completes("job").await;
    for pod in cluster.pods_of("job").await {
        let is_applied = pod.metadata.name.as_ref() == Some(&swept);
        assert_eq!(pod.metadata.managed_fields.is_some(), is_applied, "the others cost less: {pod:?}");
    }
    assert_eq!(apply(json!([])).await, None, "the finalizer is gone");
    controller.shutdown().await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_first_pods_of_a_large_job_are_created_in_json() {
    let cluster = Cluster::start().await;
    let controller = cluster.controller(settings()).await;
    let spec = json!({"completions": 200, "parallelism": 20, "completionMode": "Indexed"});
    cluster.create("large", spec, "10ms").await;
    cluster.create("small", json!({"completions": 20, "parallelism": 20}), "10ms").await;
    cluster.assert_exact("large", 200).await;
    cluster.assert_exact("small", 20).await;
    let creations = cluster.writes().into_iter().filter(|write| write.method == Method::POST);
    let mut in_protobuf = BTreeMap::new();
    for write in creations.filter(|write| write.path.ends_with("/pods")) {
        let job = write.created.unwrap().split('-').next().unwrap().to_owned();
        in_protobuf.entry(job).or_insert_with(Vec::new).push(write.is_in_protobuf);
    }
    let number = |job: &str| in_protobuf[job].iter().filter(|in_protobuf| **in_protobuf).count();
    assert!(number("large") > 100, "{}", number("large"));
    assert!(!in_protobuf["large"][0]);
    assert_eq!(number("small"), 0);
    controller.shutdown().await;
    cluster.end().await;
}

/// Runs 300 pods through a controller that crashes whenever the count reaches one of `at`.
async fn crash(mode: &str, at: &[i32]) {
    let cluster = Cluster::start().await;
    // A short batch period shows counts soon, so that the crash comes close to the wanted count.
    let settings = || ControllerConfig { batch_period: Duration::from_millis(50), ..settings() };
    let mut controller = cluster.controller(settings()).await;
    let spec = json!({"completions": 300, "parallelism": 20, "completionMode": mode});
    cluster.create("large", spec, "50ms").await;
    for counted in at {
        cluster.until("large", "so far", |job| succeeded(job) >= *counted).await;
        controller.abort().await;
        assert!(!has(&cluster.jobs.get("large").await.unwrap(), "Complete"), "crashed too late");
        controller = cluster.controller(settings()).await;
    }
    cluster.assert_exact("large", 300).await;
    cluster.assert_pods_ever(300).await;
    controller.shutdown().await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_changes_no_count() {
    crash("Indexed", &[60]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_crashes_change_no_count() {
    crash("NonIndexed", &[0, 1, 40, 80, 120]).await;
}

/// A pod of a Job as the controller built into Kubernetes makes it.
fn left_behind(job: &Job, number: u32) -> Pod {
    let (name, uid) = (job.metadata.name.as_deref().unwrap(), job.metadata.uid.as_deref().unwrap());
    let pod = json!({
        "metadata": {
            "name": format!("{name}-{number}-abcde"),
            "labels": {"batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": name},
            "annotations": {"yardmaster.dev/simulated-run-time": "2s"},
            "finalizers": ["batch.kubernetes.io/job-tracking"],
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid,
                "controller": true, "blockOwnerDeletion": true}],
        },
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
    });
    serde_json::from_value(pod).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_take_over_from_the_built_in_controller_creates_nothing_and_counts_all() {
    let cluster = Cluster::start().await;
    let create = PostParams::default();
    let names: Vec<String> = (0..6).map(|number| format!("past-{number}")).collect();
    for name in &names {
        cluster.create(name, json!({"completions": 30, "parallelism": 30}), "2s").await;
        let job = cluster.jobs.get(name).await.unwrap();
        for number in 0..30 {
            cluster.pods.create(&create, &left_behind(&job, number)).await.unwrap();
        }
        let status = json!({"status": {"active": 30, "ready": 0, "startTime": "2026-01-01T00:00:00Z"}});
        let patch = Patch::Merge(status);
        cluster.jobs.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }
    let controller = cluster.controller(settings()).await;
    for name in &names {
        cluster.assert_exact(name, 30).await;
    }
    cluster.assert_pods_ever(6 * 30).await;
    let deletions = cluster.writes().into_iter().filter(|write| write.method == Method::DELETE);
    assert_eq!(deletions.filter(|write| write.path.contains("/pods/")).count(), 0);
    controller.shutdown().await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_loses_its_label_is_neither_replaced_nor_forgotten() {
    let cluster = Cluster::start().await;
    let controller = cluster.controller(settings()).await;
    cluster.create("stripped", json!({"completions": 6, "parallelism": 6}), "3s").await;
    cluster.until_pods(6).await;
    for (number, pod) in cluster.pods_of("stripped").await.into_iter().enumerate() {
        // Of three pods, the first loses the label, the second gets a number without shard, the third that of
        // another shard.
        let label = [Value::Null, "999".into(), "3".into()][number % 3].clone();
        let patch = Patch::Merge(json!({"metadata": {"labels": {"yardmaster.dev/shard": label}}}));
        let name = pod.metadata.name.unwrap();
        cluster.pods.patch(&name, &PatchParams::default(), &patch).await.unwrap();
    }
    cluster.assert_exact("stripped", 6).await;
    cluster.assert_pods_ever(6).await;
    controller.shutdown().await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_layout_that_somebody_deletes_is_written_again() {
    let cluster = Cluster::start().await;
    let controller = cluster.controller(settings()).await;
    controller.ready().await;
    let leases: Api<Lease> = Api::default_namespaced(kube::Client::try_from(cluster.config.clone()).unwrap());
    let layout = ListParams::default().labels("yardmaster.dev/lease=layout");
    let before = leases.list(&layout).await.unwrap().items.remove(0);
    leases.delete(before.metadata.name.as_deref().unwrap(), &DeleteParams::default()).await.unwrap();
    let deadline = Instant::now() + PATIENCE;
    let after = loop {
        assert!(Instant::now() < deadline, "it is not there");
        match leases.list(&layout).await.unwrap().items.pop() {
            Some(lease) => break lease,
            None => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    };
    assert_eq!(after.metadata.annotations, before.metadata.annotations);
    assert_ne!(after.metadata.uid, before.metadata.uid);
    controller.shutdown().await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_finishes_what_was_decided() {
    let cluster = Cluster::start().await;
    let directory = TempDir::new().unwrap();
    let start = || cluster.replica(&directory);
    let mut controller = Background::start(&mut start());
    cluster.create("interrupted", json!({"completions": 8, "parallelism": 2}), "300ms").await;
    cluster.until_pods(3).await;
    controller.signal(Signal::SIGTERM);
    assert_eq!(controller.exit_code(), Some(0));

    // Every pod that it created has its Event.
    let events: Api<Event> = Api::default_namespaced(kube::Client::try_from(cluster.config.clone()).unwrap());
    let created = events.list(&ListParams::default().fields("reason=SuccessfulCreate")).await.unwrap();
    assert_eq!(created.items.len(), cluster.pods_of("interrupted").await.len());
    assert!(!has(&cluster.jobs.get("interrupted").await.unwrap(), "Complete"));

    let mut controller = Background::start(&mut start());
    cluster.assert_exact("interrupted", 8).await;
    cluster.assert_pods_ever(8).await;
    controller.signal(Signal::SIGTERM);
    assert_eq!(controller.exit_code(), Some(0));
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn traces_go_to_the_collector_that_the_flag_names() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let received = Arc::new(Mutex::new(Vec::new()));
    let collected = received.clone();
    std::thread::spawn(move || collect(&listener, &collected));
    let cluster = Cluster::start().await;
    let directory = TempDir::new().unwrap();
    let mut command = cluster.replica(&directory);
    command.args(["--identity", "replica-of-the-test", "--otlp-endpoint", &endpoint]);
    // In milliseconds. The collector never answers.
    command.env("OTEL_EXPORTER_OTLP_TIMEOUT", "500");
    let mut controller = Background::start(&mut command);
    cluster.create("traced", json!({"completions": 1}), "10ms").await;
    cluster.completes("traced").await;
    // Spans not yet exported are sent at shutdown.
    controller.signal(Signal::SIGTERM);
    assert_eq!(controller.exit_code(), Some(0));
    until("the spans have arrived", || {
        let received = received.lock().unwrap();
        let holds = |text: &[u8]| received.windows(text.len()).any(|window| window == text);
        holds(b"replica-of-the-test") && holds(b"k8s.job.name") && holds(b"traced")
    });
    cluster.end().await;
}

/// A collector that reads everything and answers nothing. Spans are plain protobuf on the wire.
fn collect(listener: &TcpListener, received: &Mutex<Vec<u8>>) {
    std::thread::scope(|connections| {
        for stream in listener.incoming() {
            connections.spawn(|| {
                let mut stream = stream.unwrap();
                // The server's HTTP/2 preface: an empty SETTINGS frame.
                stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).unwrap();
                let mut buffer = [0; 4096];
                while let Ok(count @ 1..) = stream.read(&mut buffer) {
                    received.lock().unwrap().extend(&buffer[..count]);
                }
            });
        }
    });
}
