//! Jobs that wait for the ends of others.

use k8s_openapi::api::batch::v1::Job;
use kube::api::DeleteParams;
use serde_json::json;
use yardmaster::actors::WaitingJob;

use crate::stage::{Stage, until};

async fn waits(stage: &Stage, job: &str, reason: &str) -> WaitingJob {
    until(&format!("{reason} of {job}"), async || stage.wait(job).await.filter(|wait| wait.reason == reason))
        .await
}

async fn ends(stage: &Stage, job: &str, phase: &str) {
    let pod = stage.active_pod(job).await;
    stage.end(&pod, phase).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_begin_in_their_order() {
    let stage = Stage::start().await;
    stage.create("report", &[("after-any", "check")], json!({})).await;
    let missing = waits(&stage, "report", "AfterMissing").await;
    assert_eq!(missing.message.as_deref(), Some("Job check does not exist"));
    stage.create("check", &[("after", "load, transform")], json!({"backoffLimit": 0})).await;
    stage.create("load", &[], json!({})).await;
    stage.create("transform", &[], json!({})).await;
    waits(&stage, "report", "AfterUnfinished").await;
    ends(&stage, "load", "Succeeded").await;
    let unfinished = until("the second Job", async || {
        let wait = stage.wait("check").await?;
        wait.message.filter(|message| message.contains("transform"))
    })
    .await;
    assert_eq!(&*unfinished, "Job transform has not ended");
    for job in ["check", "report"] {
        assert_eq!(stage.pods(job).await.len(), 0, "{job}");
        assert_eq!(stage.job(job).await.status.unwrap_or_default().start_time, None, "{job}");
    }
    ends(&stage, "transform", "Succeeded").await;
    ends(&stage, "check", "Failed").await;
    ends(&stage, "report", "Succeeded").await;
    stage.complete("report").await;
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_predecessor_has_failed_says_so_and_begins_once_that_has_run_again() {
    let stage = Stage::start().await;
    stage.create("first", &[], json!({"backoffLimit": 0})).await;
    stage.create("second", &[("after", "first")], json!({})).await;
    ends(&stage, "first", "Failed").await;
    let failed = waits(&stage, "second", "AfterFailed").await;
    assert_eq!(failed.message.as_deref(), Some("Job first has failed, and has to succeed"));
    let events = until("an event", async || {
        Some(stage.events("second", "AfterFailed").await).filter(|events| !events.is_empty())
    })
    .await;
    assert_eq!(events.len(), 1);
    stage.api::<Job>().delete("first", &DeleteParams::background()).await.unwrap();
    waits(&stage, "second", "AfterMissing").await;
    stage.create("first", &[], json!({})).await;
    ends(&stage, "first", "Succeeded").await;
    ends(&stage, "second", "Succeeded").await;
    stage.complete("second").await;
    stage.stop().await;
}

/// No Job of it is told that another one has closed it. Each searches once more after 10 s.
#[tokio::test(flavor = "multi_thread")]
async fn a_circle_is_named_and_ends_with_a_change() {
    let stage = Stage::start().await;
    stage.create("hen", &[("after", "egg")], json!({})).await;
    stage.create("egg", &[("after", "chick")], json!({})).await;
    stage.create("chick", &[("after", "hen")], json!({})).await;
    for (job, other) in [("hen", "egg"), ("egg", "chick"), ("chick", "hen")] {
        let wait = waits(&stage, job, "AfterCycle").await;
        assert_eq!(wait.message, Some(format!("Job {other} waits for this Job").into()));
    }
    stage.change("chick", json!({"metadata": {"annotations": {"yardmaster.dev/after": null}}})).await;
    ends(&stage, "chick", "Succeeded").await;
    ends(&stage, "egg", "Succeeded").await;
    ends(&stage, "hen", "Succeeded").await;
    stage.complete("hen").await;
    stage.stop().await;
}
