//! Requests that are refused, and watches that are behind, hold back no more than they concern.

use std::time::{Duration, Instant};

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use yardmaster::actors::ControllerConfig;
use yardmaster_embedded::{Fault, FaultScope};

use crate::binary::PATIENCE;
use crate::cluster::{Cluster, has};
use crate::settings;

/// Waits until a condition holds.
pub(crate) async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    // Refused requests are retried after a minute at the latest.
    let deadline = Instant::now() + 3 * PATIENCE;
    while !holds().await {
        assert!(Instant::now() < deadline, "still not: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The requests of the controller with this method and path.
fn requests(method: http::Method, path: &str) -> FaultScope {
    let user_agent = "yardmaster".into();
    FaultScope { user_agent, methods: vec![method], path: path.into(), ..FaultScope::default() }
}

const REFUSED: Fault = Fault::Refuse(http::StatusCode::INTERNAL_SERVER_ERROR);

async fn patch_pod(cluster: &Cluster, name: &str, patch: Value) -> Pod {
    cluster.pods.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap()
}

/// A pod without node, which runs for ever.
async fn stray(cluster: &Cluster, name: &str) {
    let pod = json!({
        "metadata": {"name": name, "labels": {"app": "theirs"}, "annotations": {"yardmaster.dev/simulated-run-time": "1h"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
    });
    cluster.pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
}

fn selecting(spec: Value) -> Value {
    let mut job = json!({"manualSelector": true, "selector": {"matchLabels": {"app": "theirs"}}});
    json_patch::merge(&mut job, &spec);
    job
}

/// Creates a Job whose pods have the label that its selector asks for.
async fn create_selecting(cluster: &Cluster, name: &str, spec: Value) {
    let template = json!({"metadata": {"labels": {"app": "theirs"}, "annotations": {"yardmaster.dev/simulated-run-time": "1h"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let mut spec = selecting(spec);
    spec["template"] = template;
    cluster.create(name, spec, "").await;
}

/// The name of one of the Job's pods.
async fn one_of(cluster: &Cluster) -> String {
    let pods = cluster.pods.list(&ListParams::default().labels("app=theirs")).await.unwrap();
    pods.items[0].metadata.name.clone().unwrap()
}

fn active(count: i32) -> impl Fn(&Job) -> bool {
    move |job| job.status.as_ref().is_some_and(|status| status.active.unwrap_or(0) == count)
}

/// The first pod can be adopted later; another controller takes the second one meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn pods_that_cannot_be_adopted_do_not_hold_their_job_back() {
    let cluster = Cluster::start().await;
    let controller = cluster.controller(settings()).await;
    stray(&cluster, "taken").await;
    stray(&cluster, "late").await;
    let fault = |name: &str| {
        let path = format!("/pods/{name}");
        cluster.server.faults().inject(REFUSED, requests(http::Method::PATCH, &path), None)
    };
    let (taken, late) = (fault("taken"), fault("late"));
    create_selecting(&cluster, "adopts", json!({"completions": 9, "parallelism": 2})).await;
    cluster.until("adopts", "at its parallelism", active(2)).await;

    let theirs = json!({"metadata": {"ownerReferences": [{
        "apiVersion": "example.com/v1", "kind": "Thing", "name": "t", "uid": "1-2-3", "controller": true,
    }]}});
    patch_pod(&cluster, "taken", theirs).await;
    cluster.server.faults().remove(taken);
    cluster.server.faults().remove(late);
    // It is adopted, and then there is one pod too many: any of the three.
    let owned = |pod: &Pod| {
        let owners = pod.metadata.owner_references.iter().flatten();
        pod.metadata.deletion_timestamp.is_none() && owners.into_iter().any(|owner| owner.name == "adopts")
    };
    until("the other pod is adopted, and one of three is removed", async || {
        let late = cluster.pods.get_opt("late").await.unwrap();
        let all = cluster.pods.list(&ListParams::default()).await.unwrap();
        late.as_ref().is_none_or(owned) && all.iter().filter(|pod| owned(pod)).count() == 2
    })
    .await;
    cluster.until("adopts", "at its parallelism again", active(2)).await;
    let owners = cluster.pods.get("taken").await.unwrap().metadata.owner_references.unwrap();
    assert_eq!(owners.into_iter().map(|owner| owner.kind).collect::<Vec<_>>(), ["Thing"]);
    controller.shutdown().await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_is_refused_is_repeated() {
    let cluster = Cluster::start().await;
    let controller = cluster.controller(settings()).await;
    create_selecting(&cluster, "releases", json!({"completions": 9, "parallelism": 1})).await;
    cluster.until("releases", "active", active(1)).await;
    let pod = one_of(&cluster).await;
    let path = format!("/pods/{pod}");
    cluster.server.faults().inject(REFUSED, requests(http::Method::PATCH, &path), Some(3));
    patch_pod(&cluster, &pod, json!({"metadata": {"labels": {"app": "other"}}})).await;
    until("the pod is released", async || {
        let meta = cluster.pods.get(&pod).await.unwrap().metadata;
        meta.owner_references.is_none() && meta.finalizers.is_none()
    })
    .await;
    controller.shutdown().await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_cannot_be_deleted_holds_back_neither_the_condition_nor_other_pods() {
    let cluster = Cluster::start().await;
    let controller = cluster.controller(settings()).await;
    create_selecting(&cluster, "stops", json!({"completions": 9, "parallelism": 3})).await;
    cluster.until("stops", "active", active(3)).await;
    let pod = one_of(&cluster).await;
    let path = format!("/pods/{pod}");
    let fault = cluster.server.faults().inject(REFUSED, requests(http::Method::DELETE, &path), None);
    let suspend = Patch::Merge(json!({"spec": {"suspend": true}}));
    cluster.jobs.patch("stops", &PatchParams::default(), &suspend).await.unwrap();
    let suspended = cluster.until("stops", "suspended", |job| has(job, "Suspended")).await;
    assert_eq!(suspended.status.unwrap().start_time, None);
    cluster.until("stops", "left with one pod", active(1)).await;
    cluster.server.faults().remove(fault);
    cluster.until("stops", "without pods", active(0)).await;
    controller.shutdown().await;
    cluster.end().await;
}

/// The watch is behind: the Job that it shows has outlived its TTL, and the Job on the API server has none.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_ttl_was_taken_away_is_not_deleted() {
    let cluster = Cluster::start().await;
    let controller = cluster.controller(ControllerConfig { ttl_controller: true, ..settings() }).await;
    let of_others = json!({"managedBy": "example.com/their-controller", "ttlSecondsAfterFinished": 6});
    cluster.create("theirs", of_others, "").await;
    cluster.create("ours", json!({"ttlSecondsAfterFinished": 6}), "10ms").await;
    let finished = |second: &str| {
        let of = |kind: &str| {
            json!({"type": kind, "status": "True", "reason": "CompletionsReached", "message": "",
            "lastTransitionTime": second})
        };
        json!({"status": {"startTime": second, "completionTime": second, "succeeded": 1, "uncountedTerminatedPods": {},
            "conditions": [of("SuccessCriteriaMet"), of("Complete")]}})
    };
    cluster.completes("ours").await;
    let now = jiff::Timestamp::now().to_string();
    let status = Patch::Merge(finished(&now));
    cluster.jobs.patch_status("theirs", &PatchParams::default(), &status).await.unwrap();
    // The controller sees both as they are now before its watch stops.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let watches = FaultScope { path: "/jobs".into(), ..requests(http::Method::GET, "") };
    let held = cluster.server.faults().inject(Fault::HoldWatches, watches, None);
    for job in ["ours", "theirs"] {
        let longer = Patch::Merge(json!({"spec": {"ttlSecondsAfterFinished": null}}));
        cluster.jobs.patch(job, &PatchParams::default(), &longer).await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(8)).await;
    for job in ["ours", "theirs"] {
        assert!(cluster.jobs.get(job).await.unwrap().metadata.deletion_timestamp.is_none(), "{job}");
    }
    cluster.server.faults().remove(held);
    for job in ["ours", "theirs"] {
        let short = Patch::Merge(json!({"spec": {"ttlSecondsAfterFinished": 1}}));
        cluster.jobs.patch(job, &PatchParams::default(), &short).await.unwrap();
    }
    until("both are deleted", async || {
        let left = cluster.jobs.list(&ListParams::default()).await.unwrap();
        left.items.is_empty()
    })
    .await;
    controller.shutdown().await;
    cluster.end().await;
}
