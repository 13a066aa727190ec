//! Options about pods of lost nodes, and about what is left of pods.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use crate::stage::{Stage, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_of_a_lost_node_is_replaced_and_counts_once() {
    let stage = Stage::start().await;
    let options = [("lost-node-timeout", "1s"), ("backoff-initial", "1s")];
    stage.create("lost", &options, json!({"podReplacementPolicy": "Failed"})).await;
    let lost = stage.active_pod("lost").await;
    let now = Timestamp::now().round(jiff::Unit::Second).unwrap().to_string();
    let condition =
        |kind: &str, status: &str| json!({"type": kind, "status": status, "lastTransitionTime": now});
    let conditions = [condition("Ready", "False"), condition("ContainersReady", "True")];
    let patch = json!({"status": {"phase": "Running", "conditions": conditions}});
    let pods: Api<Pod> = stage.api();
    pods.patch_status(&lost, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    let next = until("another pod", async || {
        let pods = stage.names("lost", "Pending").await;
        pods.into_iter().find(|pod| *pod != lost)
    })
    .await;
    until("the lost pod is gone", async || pods.get_opt(&lost).await.unwrap().is_none().then_some(())).await;
    stage.end(&next, "Succeeded").await;
    let status = stage.complete("lost").await.status.unwrap();
    assert_eq!((status.succeeded, status.failed), (Some(1), Some(1)));
    assert_eq!(stage.events("lost", "NodeLost").await.len(), 1);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn results_outlive_the_pods() {
    let stage = Stage::start().await;
    let options = [("index-results", "true"), ("max-finished-pods", "1"), ("backoff-initial", "1s")];
    let spec = json!({"completionMode": "Indexed", "completions": 2, "parallelism": 1});
    stage.create("sweep", &options, spec).await;
    for phase in ["Failed", "Succeeded", "Succeeded"] {
        let pod = stage.active_pod("sweep").await;
        stage.end(&pod, phase).await;
    }
    let job = stage.complete("sweep").await;
    let results = &job.metadata.annotations.unwrap()["yardmaster.dev/results"];
    let runs: Vec<&str> = results.split(' ').filter_map(|run| run.split('@').next()).collect();
    assert_eq!(runs, ["0:0x2", "1:0"], "{results}");
    until("one pod is left", async || (stage.pods("sweep").await.len() == 1).then_some(())).await;
    stage.stop().await;
}
