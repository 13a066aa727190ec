//! Reasons for waiting Jobs on the controller's pages and in `yardmaster status`.

use std::collections::BTreeMap;
use std::process::Command;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::stage::{Stage, until};

/// The waits of all Jobs in `yardmaster status -o json`, by name.
async fn status(stage: &Stage) -> BTreeMap<String, Value> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("kubeconfig");
    std::fs::write(&file, serde_json::to_string(&stage.server.kubeconfig()).unwrap()).unwrap();
    let printed = tokio::task::spawn_blocking(move || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_yardmaster"));
        command.args(["status", "-o", "json", "--kubeconfig"]).arg(file).output().unwrap()
    });
    let printed = printed.await.unwrap();
    assert!(printed.status.success(), "{printed:?}");
    let report: Value = serde_json::from_slice(&printed.stdout).unwrap();
    let jobs = report["jobs"].as_array().unwrap().iter();
    jobs.map(|job| (job["name"].as_str().unwrap().to_owned(), job["waiting"].clone())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_wait_shows_why_and_until_when() {
    let stage = Stage::start().await;
    stage.create("suspended", &[], json!({"suspend": true})).await;
    stage.create("backs-off", &[("backoff-initial", "40m"), ("backoff-max", "1h")], json!({})).await;
    stage.create("runs", &[], json!({})).await;
    let pod = stage.active_pod("backs-off").await;
    let finished = stage.end(&pod, "Failed").await;
    let per_index = json!({
        "completionMode": "Indexed", "completions": 1, "backoffLimitPerIndex": 3, "backoffLimit": 2147483647,
    });
    stage.create("index-backs-off", &[("backoff-initial", "40m"), ("backoff-max", "1h")], per_index).await;
    let pod = stage.active_pod("index-backs-off").await;
    stage.end(&pod, "Failed").await;
    stage.active_pod("runs").await;
    // No pod can be created from here on.
    let quotas = stage.api::<ResourceQuota>();
    let quota = json!({"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}});
    quotas.create(&PostParams::default(), &serde_json::from_value(quota).unwrap()).await.unwrap();
    let used = Patch::Merge(json!({"status": {"hard": {"pods": "0"}, "used": {"pods": "0"}}}));
    quotas.patch_status("none", &PatchParams::default(), &used).await.unwrap();
    stage.create("refused", &[], json!({})).await;

    let backs_off_until = finished + SignedDuration::from_mins(40);
    for (job, reason, ends) in [
        ("suspended", "Suspended", None),
        ("backs-off", "PodBackoff", Some(backs_off_until)),
        ("index-backs-off", "IndexBackoff", None),
        ("refused", "Refused", None),
    ] {
        let wait = until(job, async || stage.wait(job).await.filter(|wait| wait.reason == reason)).await;
        assert!(ends.is_none() || wait.until == ends, "{wait:?}");
        assert_eq!(wait.until.is_some(), reason != "Suspended", "{wait:?}");
        let quota = wait.message.as_deref().is_some_and(|message| message.contains("exceeded quota"));
        assert_eq!(quota, reason == "Refused", "{wait:?}");
    }
    assert_eq!(stage.wait("runs").await, None);

    until("the event", async || stage.events("refused", "FailedCreate").await.pop()).await;
    // A status may lag up to a second behind the pods.
    let waits = until("all waits", async || {
        let waits = status(&stage).await;
        (waits.values().filter(|wait| !wait.is_null()).count() == 4).then_some(waits)
    })
    .await;
    assert_eq!(waits["suspended"], json!({"reason": "Suspended"}));
    assert_eq!(waits["backs-off"], json!({"reason": "PodBackoff", "until": backs_off_until.to_string()}));
    assert_eq!(waits["index-backs-off"]["reason"], "IndexBackoff");
    assert!(waits["index-backs-off"]["until"].as_str().unwrap().parse::<Timestamp>().unwrap() > finished);
    assert_eq!(waits["refused"]["reason"], "Refused");
    assert!(waits["refused"]["message"].as_str().unwrap().contains("exceeded quota"), "{waits:?}");
    assert_eq!(waits["runs"], Value::Null);

    stage.change("suspended", json!({"spec": {"suspend": false, "parallelism": 0}})).await;
    until("no wait", async || stage.wait("suspended").await.is_none().then_some(())).await;
    until("no wait in the status", async || status(&stage).await["suspended"].is_null().then_some(())).await;
    stage.stop().await;
}
