//! The program on a real control plane: `KUBEBUILDER_ASSETS=FOLDER cargo test --test envtest`.
//!
//! The folder holds etcd and kube-apiserver, as `setup-envtest` brings them, and kube-controller-manager for the tests that
//! need controllers of Kubernetes. There is no kubelet: [`player`] moves pods and knows what became of each.
//!
//! The version does not matter: it is printed. If the API server does not serve the API of a test, the test
//! is skipped with a line that says so.
#![allow(clippy::unwrap_used, missing_docs)]

mod binary;
#[path = "envtest/control_plane.rs"]
mod control_plane;
#[path = "envtest/player.rs"]
mod player;

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use nix::sys::signal::Signal;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::binary::Background;
use crate::control_plane::ControlPlane;
use crate::player::Player;

const BUILT_IN: &str = "kubernetes.io/job-controller";
const OURS: &str = "yardmaster.dev/job-controller";
/// Times that the Jobs change their controller.
const HAND_OVERS: usize = 10;

fn object<K: DeserializeOwned>(json: Value) -> K {
    serde_json::from_value(json).unwrap()
}

fn job(name: &str, spec: Value) -> Job {
    let mut job = json!({"metadata": {"name": name}, "spec": {"template": {
        "metadata": {"labels": {"app": name}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
    }}});
    job["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    object(job)
}

async fn create(plane: &ControlPlane, name: &str, spec: Value) {
    plane.api::<Job>().create(&PostParams::default(), &job(name, spec)).await.unwrap();
}

async fn status(plane: &ControlPlane, name: &str) -> k8s_openapi::api::batch::v1::JobStatus {
    plane.api::<Job>().get(name).await.unwrap().status.unwrap_or_default()
}

fn is_finished(status: &k8s_openapi::api::batch::v1::JobStatus) -> bool {
    let conditions = status.conditions.iter().flatten();
    conditions.into_iter().any(|one| matches!(&*one.type_, "Complete" | "Failed") && one.status == "True")
}

fn pods_of(job: &str) -> ListParams {
    ListParams::default().labels(&format!("batch.kubernetes.io/job-name={job}"))
}

/// The Jobs change between the built-in controller and a replica, under load. Controllers end in order or by a kill.
#[tokio::test(flavor = "multi_thread")]
async fn jobs_go_back_and_forth_between_the_built_in_controller_and_replicas() {
    let Some(plane) = ControlPlane::start(&["kube-controller-manager"]).await else { return };
    let player = Player::start(&plane, |number| number % 7 == 3, Duration::from_millis(700));
    let mut jobs = Vec::new();
    for number in 0..8 {
        let name = format!("work-{number}");
        let mode = if number % 2 == 0 { "Indexed" } else { "NonIndexed" };
        let spec =
            json!({"completions": 150, "parallelism": 15, "completionMode": mode, "backoffLimit": 1000});
        create(&plane, &name, spec).await;
        jobs.push(name);
    }
    for turn in 0..HAND_OVERS {
        let controller =
            if turn % 2 == 0 { plane.built_in(&["job-controller"]) } else { plane.replica(BUILT_IN) };
        tokio::time::sleep(Duration::from_secs(5)).await;
        let signal = if turn % 4 < 2 { Signal::SIGKILL } else { Signal::SIGTERM };
        end(controller, signal);
    }
    let _last = plane.replica(BUILT_IN);
    for name in &jobs {
        plane.until(&format!("{name} has ended"), async || is_finished(&status(&plane, name).await)).await;
        let status = status(&plane, name).await;
        let fates = player.fates(name);
        assert_eq!(fates.deleted, 0, "{name}: a pod was deleted before it had ended");
        assert_eq!(
            (status.succeeded, status.failed.unwrap_or(0)),
            (Some(150), fates.failed),
            "{name}: {fates:?}"
        );
        assert_eq!(fates.succeeded, 150, "{name}: surplus pods: {fates:?}");
        assert_eq!(fates.running, 0, "{name}: surplus pods: {fates:?}");
    }
    player.stop();
}

/// Ends a process, and waits for its end.
fn end(mut process: Background, signal: Signal) {
    process.signal(signal);
    process.exit_code();
}

/// Everything is running, ended or recorded when the built-in controller goes.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_takes_over_what_the_built_in_controller_has_left() {
    let Some(plane) = ControlPlane::start(&["kube-controller-manager"]).await else { return };
    let player = Player::start(&plane, |_| false, Duration::from_hours(1));
    let built_in = plane.built_in(&["job-controller"]);
    let indexed = json!({"completions": 120, "parallelism": 100, "completionMode": "Indexed"});
    create(&plane, "indexed", indexed).await;
    create(&plane, "queue", json!({"parallelism": 40})).await;
    plane.until("140 pods run", async || player.running() == 140).await;
    end(built_in, Signal::SIGKILL);
    // Some pods end while there is no controller to count them.
    player.end_some("indexed", 30).await;

    let replica = plane.replica(BUILT_IN);
    plane.until("they are counted", async || status(&plane, "indexed").await.succeeded == Some(30)).await;
    plane.until("they are replaced", async || player.fates("indexed").running == 90).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let (indexed, queue) = (player.fates("indexed"), player.fates("queue"));
    assert_eq!((indexed.running, indexed.deleted), (90, 0), "{indexed:?}");
    assert_eq!((queue.running, queue.deleted), (40, 0), "{queue:?}");
    end(replica, Signal::SIGTERM);
    player.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn orphans_are_adopted_and_others_pods_are_not() {
    let Some(plane) = ControlPlane::start(&[]).await else { return };
    let player = Player::start(&plane, |_| false, Duration::from_hours(1));
    let pod = |name: &str, owner: Option<Value>| -> Pod {
        object(json!({
            "metadata": {"name": name, "labels": {"app": "adopts"}, "ownerReferences": owner.into_iter().collect::<Value>()},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
        }))
    };
    let other =
        json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u", "controller": true});
    let pods = plane.api::<Pod>();
    pods.create(&PostParams::default(), &pod("orphan", None)).await.unwrap();
    pods.create(&PostParams::default(), &pod("theirs", Some(other))).await.unwrap();
    let selector = json!({"matchLabels": {"app": "adopts"}});
    create(
        &plane,
        "adopts",
        json!({"parallelism": 2, "completions": 2, "manualSelector": true, "selector": selector}),
    )
    .await;
    let _replica = plane.replica(BUILT_IN);
    plane.until("the Job has two pods", async || status(&plane, "adopts").await.active == Some(2)).await;
    let adopted = pods.get("orphan").await.unwrap().metadata;
    assert_eq!(adopted.owner_references.unwrap()[0].name, "adopts");
    assert!(adopted.finalizers.unwrap().contains(&"batch.kubernetes.io/job-tracking".to_owned()));
    let theirs = pods.get("theirs").await.unwrap().metadata;
    assert_eq!((theirs.owner_references.unwrap()[0].kind.as_str(), theirs.finalizers), ("ReplicaSet", None));
    player.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ended_pod_makes_room_in_a_quota() {
    let Some(plane) = ControlPlane::start(&["kube-controller-manager"]).await else { return };
    let player = Player::start(&plane, |_| false, Duration::from_millis(500));
    let _quotas = plane.built_in(&["resourcequota-controller"]);
    let quota: ResourceQuota =
        object(json!({"metadata": {"name": "three"}, "spec": {"hard": {"pods": "3"}}}));
    let quotas = plane.api::<ResourceQuota>();
    quotas.create(&PostParams::default(), &quota).await.unwrap();
    let is_known =
        async || quotas.get("three").await.unwrap().status.is_some_and(|status| status.hard.is_some());
    plane.until("the quota is in force", is_known).await;
    let _replica = plane.replica(BUILT_IN);
    create(&plane, "tight", json!({"completions": 24, "parallelism": 6})).await;
    plane.until("all have had their turn", async || is_finished(&status(&plane, "tight").await)).await;
    assert_eq!(status(&plane, "tight").await.succeeded, Some(24));
    assert!(player.most_running() <= 3, "{} pods ran at once", player.most_running());
    player.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn release_leaves_no_finalizer() {
    let Some(plane) = ControlPlane::start(&[]).await else { return };
    if !plane.keeps("managedBy", OURS).await {
        return;
    }
    let player = Player::start(&plane, |_| false, Duration::from_hours(1));
    let replica = plane.replica(OURS);
    create(&plane, "left", json!({"completions": 60, "parallelism": 50, "managedBy": OURS})).await;
    create(&plane, "gone", json!({"completions": 10, "parallelism": 10, "managedBy": OURS})).await;
    plane.until("all run", async || player.running() == 60).await;
    end(replica, Signal::SIGTERM);
    player.end_some("left", 20).await;
    plane.api::<Job>().delete("gone", &DeleteParams::background()).await.unwrap();

    let mut release = crate::binary::yardmaster();
    let output = release.args(["release", "-A", "--kubeconfig"]).arg(plane.kubeconfig()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(
        text.starts_with("Counted 20 pods, and released 50 pods of 1 Job and 10 without a Job"),
        "{text}"
    );
    let pods = plane.api::<Pod>();
    let held = pods.list(&pods_of("left")).await.unwrap().items;
    assert!(held.iter().all(|pod| pod.metadata.finalizers.is_none()));
    assert_eq!(status(&plane, "left").await.succeeded, Some(20));
    player.stop();
}

/// A status that a kubelet would write.
async fn patch_status(pods: &Api<Pod>, name: &str, status: Value) -> bool {
    pods.patch_status(name, &PatchParams::default(), &Patch::Merge(json!({"status": status}))).await.is_ok()
}

/// A replica has a watch of the pods of all its shards; the leader has another one of all other pods. While
/// shards change hands, there may be more.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_of_64_shards_watches_pods_once() {
    let Some(plane) = ControlPlane::start(&[]).await else { return };
    let open = async || {
        let labels = [r#"resource="pods""#, r#"verb="WATCH""#];
        plane.metric("apiserver_longrunning_requests", &labels).await
    };
    // The API server has one of its own.
    let own = open().await;
    let watches = async || open().await - own;
    let first = plane.replica_of_shards(BUILT_IN, 64);
    for number in 0..20 {
        create(&plane, &format!("j-{number}"), json!({"completions": 5, "parallelism": 5})).await;
    }
    let have_pods = async || {
        let pods = plane.api::<Pod>().list(&ListParams::default()).await.unwrap();
        pods.items.len() == 100
    };
    plane.until("all pods exist", have_pods).await;
    plane.until("one replica has two watches", async || watches().await == 2.0).await;
    let second = plane.replica_of_shards(BUILT_IN, 64);
    plane.until("two replicas have more", async || watches().await > 2.0).await;
    plane.until("two replicas have three", async || watches().await == 3.0).await;
    end(second, Signal::SIGTERM);
    plane.until("one replica has two again", async || watches().await == 2.0).await;
    end(first, Signal::SIGTERM);
}

/// Each shard with its owner, and how often it has changed.
async fn owners(plane: &ControlPlane) -> Vec<(String, Option<String>, Option<i32>)> {
    let leases: Api<Lease> = Api::all(plane.client.clone());
    let shards = leases.list(&ListParams::default().labels("yardmaster.dev/lease=shard")).await.unwrap();
    let owner = |lease: Lease| {
        let spec = lease.spec.unwrap_or_default();
        (lease.metadata.name.unwrap_or_default(), spec.holder_identity, spec.lease_transitions)
    };
    shards.items.into_iter().map(owner).collect()
}

/// With the lease times of production: 15 s, of which a replica uses 10 s.
#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_stands_still_for_8_s_costs_no_shard_and_no_list() {
    let Some(plane) = ControlPlane::start(&[]).await else { return };
    let player = Player::start(&plane, |_| false, Duration::from_secs(1));
    let replicas = [(); 2].map(|()| plane.replica_with(BUILT_IN, ["--shards=16"]));
    let is_owned = async || {
        let owners = owners(&plane).await;
        let holders: BTreeSet<_> = owners.iter().filter_map(|(_, holder, _)| holder.as_ref()).collect();
        owners.len() == 16 && owners.iter().all(|(_, holder, _)| holder.is_some()) && holders.len() == 2
    };
    plane.until("both replicas own shards", is_owned).await;
    for number in 0..10 {
        create(&plane, &format!("j-{number}"), json!({"completions": 40, "parallelism": 2})).await;
    }
    plane.until("pods run", async || player.running() >= 15).await;
    let lists = async || {
        let of = async |resource: &str| {
            let resource = format!("resource={resource:?}");
            plane.metric("apiserver_request_total", &[&resource, r#"verb="LIST""#]).await
        };
        of("pods").await + of("jobs").await
    };
    let (owned, listed) = (owners(&plane).await, lists().await);
    plane.api_server.signal(Signal::SIGSTOP);
    tokio::time::sleep(Duration::from_secs(8)).await;
    plane.api_server.signal(Signal::SIGCONT);
    for number in 0..10 {
        let name = format!("j-{number}");
        plane.until(&format!("{name} has ended"), async || is_finished(&status(&plane, &name).await)).await;
        assert_eq!(status(&plane, &name).await.succeeded, Some(40));
        assert_eq!(player.fates(&name).succeeded, 40, "surplus pods");
    }
    assert_eq!(owners(&plane).await, owned);
    assert_eq!(lists().await, listed, "pods or Jobs were listed again");
    replicas.into_iter().for_each(|replica| end(replica, Signal::SIGTERM));
    player.stop();
}
