//! Effects of a Job's annotations.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp, Unit};
use serde_json::json;
use tokio::time::Instant;

use crate::stage::{Stage, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_short_back_off_replaces_a_failed_pod_soon() {
    let stage = Stage::start().await;
    stage.create("quick", &[("backoff-initial", "100ms"), ("backoff-max", "200ms")], json!({})).await;
    let begin = Instant::now();
    for _ in 0..4 {
        stage.fail_one("quick").await;
    }
    let last = stage.active_pod("quick").await;
    // With the default back-off they would take 10 s + 20 s + 40 s + 80 s.
    assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", begin.elapsed());
    stage.end(&last, "Succeeded").await;
    let status = stage.complete("quick").await.status.unwrap();
    assert_eq!((status.failed, status.succeeded), (Some(4), Some(1)));
    assert_eq!(stage.events("quick", "InvalidAnnotation").await, []);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_values_are_reported_once_and_change_nothing() {
    let stage = Stage::start().await;
    let wrong = [
        ("backoff-initial", "soon"),
        ("failed-pods-limit", "-1"),
        ("prune-succeeded", "maybe"),
        ("other", "x"),
    ];
    stage.create("wrong", &wrong, json!({})).await;
    let pod = stage.active_pod("wrong").await;
    let finished = stage.end(&pod, "Failed").await;
    let wait =
        until("a wait", async || stage.wait("wrong").await.filter(|wait| wait.reason == "PodBackoff")).await;
    assert_eq!(wait.until, Some(finished + SignedDuration::from_secs(10)), "the default back-off");
    let warnings = until("three warnings", async || {
        Some(stage.events("wrong", "InvalidAnnotation").await).filter(|events| events.len() >= 3)
    })
    .await;
    let mut messages: Vec<&str> = warnings.iter().filter_map(|event| event.message.as_deref()).collect();
    messages.sort_unstable();
    let keys: Vec<&str> = messages.iter().filter_map(|message| message.split(": ").next()).collect();
    let expected = ["backoff-initial", "failed-pods-limit", "prune-succeeded"];
    assert_eq!(keys, expected.map(|key| format!("annotation yardmaster.dev/{key}")), "{messages:?}");
    for event in warnings {
        assert_eq!((event.type_.as_deref(), event.count), (Some("Warning"), Some(1)), "{:?}", event.message);
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_newest_failed_pods_are_kept() {
    let stage = Stage::start().await;
    stage.create("picky", &[("backoff-initial", "0s"), ("failed-pods-limit", "2")], json!({})).await;
    let mut failed = Vec::new();
    let begin = Timestamp::now().round(Unit::Minute).unwrap() - SignedDuration::from_hours(1);
    for second in 0..5 {
        let pod = stage.active_pod("picky").await;
        stage.end_at(&pod, "Failed", begin + SignedDuration::from_secs(second)).await;
        failed.push(pod);
    }
    let last = stage.active_pod("picky").await;
    let mut newest = failed.split_off(3);
    newest.sort();
    until("two failed pods", async || (stage.names("picky", "Failed").await == newest).then_some(())).await;
    stage.end(&last, "Succeeded").await;
    let status = stage.complete("picky").await.status.unwrap();
    assert_eq!((status.failed, status.succeeded), (Some(5), Some(1)), "deleted pods were counted");
    assert_eq!(stage.names("picky", "Failed").await, newest);
    assert_eq!(stage.names("picky", "Succeeded").await, [last]);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_set_late_applies_to_earlier_pods() {
    let stage = Stage::start().await;
    stage.create("late", &[("backoff-initial", "0s")], json!({})).await;
    for _ in 0..3 {
        stage.fail_one("late").await;
    }
    let last = stage.active_pod("late").await;
    stage.end(&last, "Succeeded").await;
    stage.complete("late").await;
    assert_eq!(stage.names("late", "Failed").await.len(), 3);
    stage
        .change("late", json!({"metadata": {"annotations": {"yardmaster.dev/failed-pods-limit": "0"}}}))
        .await;
    until("no failed pod", async || stage.names("late", "Failed").await.is_empty().then_some(())).await;
    assert_eq!(stage.names("late", "Succeeded").await, [last]);
    let status = stage.job("late").await.status.unwrap();
    assert_eq!((status.failed, status.succeeded), (Some(3), Some(1)));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn counted_succeeded_pods_of_a_running_job_are_pruned() {
    let stage = Stage::start().await;
    let indexed = json!({"completionMode": "Indexed", "completions": 6, "parallelism": 2});
    stage.create("tidy", &[("prune-succeeded", "true")], indexed.clone()).await;
    stage.create("plain", &[], indexed).await;
    for job in ["tidy", "plain"] {
        for done in 1..=5 {
            let pod = until("an active pod", async || stage.names(job, "Pending").await.pop()).await;
            stage.end(&pod, "Succeeded").await;
            until("the count", async || {
                stage.job(job).await.status.filter(|status| status.succeeded == Some(done))
            })
            .await;
        }
    }
    until("no succeeded pod", async || stage.names("tidy", "Succeeded").await.is_empty().then_some(())).await;
    assert_eq!(stage.names("plain", "Succeeded").await.len(), 5);
    for job in ["tidy", "plain"] {
        let last = stage.active_pod(job).await;
        stage.end(&last, "Succeeded").await;
        let status = stage.complete(job).await.status.unwrap();
        assert_eq!((status.succeeded, status.failed.unwrap_or(0)), (Some(6), 0));
        assert_eq!(status.completed_indexes.as_deref(), Some("0-5"));
    }
    stage.stop().await;
}
