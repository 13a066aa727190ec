//! Finished Jobs are passivated: their shard holds them without an actor and still acts on later changes.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod binary;
mod cluster;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::future::join_all;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Resource as _, ResourceExt as _};
use serde_json::{Value, json};
use yardmaster::actors::test_hooks::{ReconcileHook, TestHooks};
use yardmaster::actors::{Controller, ControllerConfig};
use yardmaster::job::names::BUILT_IN_FINALIZER;
use yardmaster::sharding::ShardCount;
use yardmaster::telemetry::metrics::labels::WatchLabels;
use yardmaster_embedded::AuditRecord;

use crate::binary::PATIENCE;
use crate::cluster::{Cluster, REPLACEMENT};

const SHARDS: u32 = 4;

fn settings() -> ControllerConfig {
    ControllerConfig {
        controller_name: REPLACEMENT.into(),
        shards: ShardCount::new(SHARDS).unwrap(),
        lease_duration: Duration::from_secs(2),
        renew_deadline: Duration::from_millis(1500),
        retry_period: Duration::from_millis(300),
        api_backoff: Duration::from_millis(50),
        api_backoff_max: Duration::from_millis(200),
        arbiters: 2,
        ttl_controller: true,
        ..ControllerConfig::default()
    }
}

/// Number of Jobs that the controller holds, and number of passivated ones.
async fn held(controller: &Controller) -> (usize, usize) {
    let shards = controller.shards().await;
    (shards.iter().map(|shard| shard.jobs).sum(), shards.iter().map(|shard| shard.passivated).sum())
}

/// Waits until the controller holds `jobs` Jobs and all are passivated.
async fn until_passivated(controller: &Controller, jobs: usize) {
    let deadline = Instant::now() + PATIENCE;
    while held(controller).await != (jobs, jobs) {
        assert!(Instant::now() < deadline, "not {jobs} passivated: {:?}", held(controller).await);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Number of lists of a resource that the controller has begun.
fn lists_of(controller: &Controller, resource: &'static str) -> u64 {
    controller.metrics().watch_lists.get_or_create(&WatchLabels { resource }).get()
}

/// Waits until the controller has begun `count` lists of a resource.
async fn until_lists_of(controller: &Controller, resource: &'static str, count: u64) {
    let deadline = Instant::now() + PATIENCE;
    while lists_of(controller, resource) < count {
        assert!(Instant::now() < deadline, "{} lists of {resource}", lists_of(controller, resource));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn until_gone(cluster: &Cluster, name: &str) {
    let deadline = Instant::now() + PATIENCE;
    while cluster.jobs.get_opt(name).await.unwrap().is_some() {
        assert!(Instant::now() < deadline, "{name} is still there");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until a condition holds for a pod.
async fn until_pod(cluster: &Cluster, name: &str, holds: impl Fn(&Pod) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds(&cluster.pods.get(name).await.unwrap()) {
        assert!(Instant::now() < deadline, "{:?}", cluster.pods.get(name).await);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn change(cluster: &Cluster, name: &str, change: Value) -> Job {
    cluster.jobs.patch(name, &PatchParams::default(), &Patch::Merge(change)).await.unwrap()
}

/// Creates a pod that looks as if the Job had created it after its end. `labelled`: with the label of its
/// shard.
async fn add_late_pod(cluster: &Cluster, job: &str, name: &str, labelled: bool, owned: bool) {
    let job = cluster.jobs.get(job).await.unwrap();
    let mut labels = job.spec.clone().unwrap().template.metadata.unwrap().labels.unwrap();
    if labelled {
        let shard = ShardCount::new(SHARDS).unwrap().shard_of(&job.uid().unwrap());
        labels.insert("yardmaster.dev/shard".into(), shard.to_string());
    }
    let mut pod: Pod = serde_json::from_value(json!({
        "metadata": {
            "name": name, "labels": labels, "finalizers": [BUILT_IN_FINALIZER],
            "annotations": {"yardmaster.dev/simulated-run-time": "10ms"},
        },
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
    }))
    .unwrap();
    pod.metadata.owner_references = job.controller_owner_ref(&()).filter(|_| owned).map(|owner| vec![owner]);
    cluster.pods.create(&PostParams::default(), &pod).await.unwrap();
}

fn is_released(pod: &Pod) -> bool {
    pod.finalizers().is_empty()
}

/// The controller's writes since the last call, without those of Leases.
fn controller_writes(cluster: &Cluster) -> Vec<AuditRecord> {
    let writes = cluster.writes().into_iter();
    writes
        .filter(|write| write.user_agent.starts_with("yardmaster/") && !write.path.contains("/leases"))
        .collect()
}

/// Number of Completed Events by Job.
async fn completed_events(cluster: &Cluster) -> BTreeMap<String, i32> {
    let events: Api<Event> = Api::default_namespaced(kube::Client::try_from(cluster.config.clone()).unwrap());
    let completed = events.list(&ListParams::default().fields("reason=Completed")).await.unwrap();
    let mut times = BTreeMap::new();
    for event in completed {
        *times.entry(event.involved_object.name.unwrap()).or_default() += event.count.unwrap_or(1);
    }
    times
}

async fn assert_one_completed_event_each(cluster: &Cluster, jobs: &[String]) {
    let expected: BTreeMap<String, i32> = jobs.iter().map(|job| (job.clone(), 1)).collect();
    let deadline = Instant::now() + PATIENCE;
    while completed_events(cluster).await.len() < expected.len() {
        assert!(Instant::now() < deadline, "some Jobs still have no Completed Event");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(completed_events(cluster).await, expected);
}

/// Creates Jobs of both kinds, and waits until they are complete.
async fn complete_jobs(cluster: &Cluster, count: usize) -> Vec<String> {
    let names: Vec<String> = (0..count).map(|number| format!("job-{number}")).collect();
    for (number, name) in names.iter().enumerate() {
        let mode = if number % 2 == 0 { "Indexed" } else { "NonIndexed" };
        cluster
            .create(name, json!({"completions": 3, "parallelism": 3, "completionMode": mode}), "10ms")
            .await;
    }
    for name in &names {
        cluster.assert_exact(name, 3).await;
    }
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn a_passivated_job_costs_no_reconciles_or_writes_and_completes_once() {
    let cluster = Cluster::start().await;
    let reconciled = Arc::new(AtomicBool::new(false));
    let seen = reconciled.clone();
    let hook = ReconcileHook(Arc::new(move |job| {
        seen.fetch_or(job.status.finished().is_some() && &*job.name != "another", Ordering::SeqCst);
    }));
    let settings = ControllerConfig {
        test_hooks: TestHooks { before_reconcile: Some(hook), ..TestHooks::default() },
        ..settings()
    };
    let controller = cluster.controller(settings).await;
    let jobs = complete_jobs(&cluster, 6).await;
    until_passivated(&controller, 6).await;
    assert_eq!(controller.metrics().held_jobs.get(), 6);
    assert_one_completed_event_each(&cluster, &jobs).await;

    // Changes without effect on the Jobs cause no reconcile.
    reconciled.store(false, Ordering::SeqCst);
    let label = || Patch::Merge(json!({"metadata": {"labels": {"seen": "yes"}}}));
    let _before = controller_writes(&cluster);
    for name in &jobs {
        cluster.jobs.patch(name, &PatchParams::default(), &label()).await.unwrap();
        for pod in cluster.pods_of(name).await {
            cluster.pods.patch(&pod.name_any(), &PatchParams::default(), &label()).await.unwrap();
            cluster.pods.delete(&pod.name_any(), &DeleteParams::default()).await.unwrap();
        }
    }
    // Another Job runs to its end: the controller has seen the changes above by then.
    cluster.create("another", json!({"completions": 1}), "10ms").await;
    cluster.assert_exact("another", 1).await;
    until_passivated(&controller, 7).await;
    assert!(!reconciled.load(Ordering::SeqCst));
    let others: Vec<_> =
        controller_writes(&cluster).into_iter().filter(|write| write.path.contains("/job-")).collect();
    assert!(others.is_empty(), "{others:?}");
    let all = [jobs, vec!["another".into()]].concat();
    assert_one_completed_event_each(&cluster, &all).await;
    cluster.assert_pods_ever(19).await;
    controller.shutdown().await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn late_pods_of_a_finished_job_are_released() {
    let cluster = Cluster::start().await;
    let controller = cluster.controller(settings()).await;
    let jobs = complete_jobs(&cluster, 2).await;
    until_passivated(&controller, 2).await;
    until_lists_of(&controller, "pods", 1).await;
    assert_eq!(lists_of(&controller, "jobs"), 1, "one of all shards");
    let before = cluster.jobs.get("job-0").await.unwrap();
    for (pod, labelled, owned) in
        [("owned", true, true), ("unlabelled", false, true), ("orphan", true, false), ("lost", false, false)]
    {
        add_late_pod(&cluster, "job-0", pod, labelled, owned).await;
        until_pod(&cluster, pod, is_released).await;
        assert_eq!(
            cluster.pods.get(pod).await.unwrap().owner_references().len(),
            usize::from(owned),
            "{pod}"
        );
        until_passivated(&controller, 2).await;
    }
    assert_eq!(lists_of(&controller, "jobs"), 1);
    // Several at once. The first one activates the Job.
    let many: Vec<String> = (0..20).map(|number| format!("late-{number}")).collect();
    join_all(many.iter().map(|pod| add_late_pod(&cluster, "job-1", pod, true, true))).await;
    for pod in &many {
        until_pod(&cluster, pod, is_released).await;
    }
    until_passivated(&controller, 2).await;
    let after = cluster.jobs.get("job-0").await.unwrap();
    assert_eq!(after.status, before.status, "they are not counted");
    assert_one_completed_event_each(&cluster, &jobs).await;
    controller.shutdown().await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_passivated_job_is_deleted_when_its_ttl_ends() {
    let cluster = Cluster::start().await;
    let controller = cluster.controller(settings()).await;
    complete_jobs(&cluster, 2).await;
    cluster.create("short", json!({"ttlSecondsAfterFinished": 2}), "10ms").await;
    cluster.create("long", json!({"ttlSecondsAfterFinished": 3600}), "10ms").await;
    cluster.completes("long").await;
    until_gone(&cluster, "short").await;
    until_passivated(&controller, 3).await;
    // The TTL is set (job-0) or changed (long) while the Job is passivated.
    for name in ["job-0", "long"] {
        change(&cluster, name, json!({"spec": {"ttlSecondsAfterFinished": 0}})).await;
        until_gone(&cluster, name).await;
    }
    until_passivated(&controller, 1).await;
    // The next owner knows the time too.
    let ttl = jiff::Timestamp::now().as_second() - ended(&cluster, "job-1").await + 2;
    change(&cluster, "job-1", json!({"spec": {"ttlSecondsAfterFinished": ttl}})).await;
    controller.shutdown().await;
    let controller = cluster.controller(settings()).await;
    until_gone(&cluster, "job-1").await;
    until_passivated(&controller, 0).await;
    assert!(cluster.pods_of("job-1").await.is_empty());
    controller.shutdown().await;
    cluster.end().await;
}

/// The second in which a Job was complete.
async fn ended(cluster: &Cluster, name: &str) -> i64 {
    cluster.jobs.get(name).await.unwrap().status.unwrap().completion_time.unwrap().0.as_second()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_passivated_job_can_be_deleted_and_orphan_its_pods() {
    let cluster = Cluster::start().await;
    let controller = cluster.controller(settings()).await;
    complete_jobs(&cluster, 3).await;
    until_passivated(&controller, 3).await;
    // The Job must release this pod during its deletion.
    add_late_pod(&cluster, "job-0", "late", true, true).await;
    for (name, policy) in [
        ("job-0", DeleteParams::orphan()),
        ("job-1", DeleteParams::orphan()),
        ("job-2", DeleteParams::background()),
    ] {
        cluster.jobs.delete(name, &policy).await.unwrap();
        until_gone(&cluster, name).await;
    }
    until_passivated(&controller, 0).await;
    until_pod(&cluster, "late", is_released).await;
    for (name, pods) in [("job-0", 4), ("job-1", 3)] {
        let left = cluster.pods_of(name).await;
        assert_eq!(left.len(), pods);
        assert!(left.iter().all(|pod| is_released(pod) && pod.owner_references().is_empty()));
    }
    assert_eq!(controller.metrics().held_jobs.get(), 0);
    controller.shutdown().await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handover_of_passivated_jobs_costs_no_writes_about_them() {
    let cluster = Cluster::start().await;
    let mut controller = cluster.controller(settings()).await;
    let jobs = complete_jobs(&cluster, 4).await;
    until_passivated(&controller, 4).await;
    assert_one_completed_event_each(&cluster, &jobs).await;
    for crash in [false, true] {
        if crash {
            controller.abort().await
        } else {
            controller.shutdown().await
        }
        let _before = controller_writes(&cluster);
        let late = format!("late-{crash}");
        add_late_pod(&cluster, "job-0", &late, true, true).await;
        controller = cluster.controller(settings()).await;
        tokio::time::timeout(PATIENCE, controller.ready()).await.unwrap();
        until_pod(&cluster, &late, is_released).await;
        until_passivated(&controller, 4).await;
        let writes: Vec<_> = controller_writes(&cluster).into_iter().map(|write| write.path).collect();
        let about_jobs: Vec<_> = writes.iter().filter(|path| !path.ends_with(&late)).collect();
        assert!(about_jobs.is_empty(), "{about_jobs:?}");
    }
    assert_one_completed_event_each(&cluster, &jobs).await;
    controller.shutdown().await;
    cluster.end().await;
}

/// All kinds of change while Jobs are being passivated: none is lost between an actor's last reconcile and
/// its end.
#[tokio::test(flavor = "multi_thread")]
async fn changes_during_passivation_are_acted_upon() {
    const JOBS: usize = 24;
    let cluster = Cluster::start().await;
    let panicked = Arc::new(AtomicBool::new(false));
    let hook = ReconcileHook(Arc::new(move |job| {
        let panics = &*job.name == "job-5" && job.status.finished().is_some();
        assert!(!panics || panicked.swap(true, Ordering::SeqCst), "a bug that finished Jobs meet, once");
    }));
    let controller = cluster
        .controller(ControllerConfig {
            test_hooks: TestHooks { before_reconcile: Some(hook), ..TestHooks::default() },
            ..settings()
        })
        .await;
    let names: Vec<String> = (0..JOBS).map(|number| format!("job-{number}")).collect();
    join_all(names.iter().enumerate().map(async |(number, name)| {
        cluster.create(name, json!({"completions": 2, "parallelism": 2}), "10ms").await;
        cluster.completes(name).await;
        tokio::time::sleep(Duration::from_millis(number as u64 % 7)).await;
        match number % 4 {
            0 => _ = change(&cluster, name, json!({"spec": {"ttlSecondsAfterFinished": 0}})).await,
            1 => add_late_pod(&cluster, name, &format!("late-{number}"), true, true).await,
            2 => _ = cluster.jobs.delete(name, &DeleteParams::orphan()).await.unwrap(),
            _ => _ = change(&cluster, name, json!({"metadata": {"labels": {"a": "b"}}})).await,
        }
    }))
    .await;
    for (number, name) in names.iter().enumerate() {
        match number % 4 {
            0 | 2 => until_gone(&cluster, name).await,
            1 => until_pod(&cluster, &format!("late-{number}"), is_released).await,
            _ => {}
        }
    }
    until_passivated(&controller, JOBS / 2).await;
    assert_one_completed_event_each(&cluster, &names).await;
    let left = cluster.pods.list(&ListParams::default()).await.unwrap().items;
    assert!(left.iter().all(is_released));
    controller.shutdown().await;
    cluster.end().await;
}
