//! A replica watches pods once, however many shards it has, and a hand-over lists only what changes hands.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use kube::api::ListParams;
use serde_json::json;
use yardmaster::actors::{Controller, ControllerConfig};
use yardmaster::telemetry::metrics::labels::{WatchEventLabels, WatchLabels};

use crate::binary::PATIENCE;
use crate::cluster::{Cluster, REPLACEMENT};

const JOBS: usize = 60;
const SHARDS: usize = 64;

fn replica(identity: &str) -> ControllerConfig {
    ControllerConfig {
        controller_name: REPLACEMENT.into(),
        identity: identity.into(),
        lease_duration: Duration::from_secs(6),
        renew_deadline: Duration::from_secs(4),
        retry_period: Duration::from_secs(1),
        ..ControllerConfig::default()
    }
}

/// Lists of pods that a replica has begun.
fn lists(replica: &Controller) -> u64 {
    replica.metrics().watch_lists.get_or_create(&WatchLabels { resource: "pods" }).get()
}

/// Pods that a replica was shown for the first time.
fn shown(replica: &Controller) -> u64 {
    let labels = WatchEventLabels { resource: "pods", r#type: "ADDED" };
    replica.metrics().watch_events.get_or_create(&labels).get()
}

/// The shards whose pods a replica knows.
async fn shards(replica: &Controller) -> BTreeSet<u32> {
    let shards = replica.shards().await;
    shards.iter().filter(|shard| shard.state == "active").map(|shard| shard.shard).collect()
}

async fn until_shards(replica: &Controller, count: usize) -> BTreeSet<u32> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let shards = shards(replica).await;
        if shards.len() == count {
            return shards;
        }
        assert!(Instant::now() < deadline, "{} shards", shards.len());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The pods of these shards.
async fn pods_of(cluster: &Cluster, shards: &BTreeSet<u32>) -> u64 {
    let pods = cluster.pods.list(&ListParams::default()).await.unwrap().items;
    let label = |labels: &std::collections::BTreeMap<String, String>| labels["yardmaster.dev/shard"].parse();
    let of_shards = pods.iter().filter(|pod| {
        pod.metadata
            .labels
            .as_ref()
            .and_then(|labels| label(labels).ok())
            .is_some_and(|s| shards.contains(&s))
    });
    of_shards.count() as u64
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hand_over_lists_only_what_changes_hands() {
    let cluster = Cluster::start().await;
    let first = cluster.controller(replica("a")).await;
    until_shards(&first, SHARDS).await;
    for job in 0..JOBS {
        cluster.create(&format!("job-{job}"), json!({"completions": 3, "parallelism": 3}), "1h").await;
    }
    let active = |job: &k8s_openapi::api::batch::v1::Job| {
        let status = job.status.clone().unwrap_or_default();
        (status.active, status.ready) == (Some(3), Some(3))
    };
    for job in 0..JOBS {
        cluster.until(&format!("job-{job}"), "all pods run", active).await;
    }
    // The watches of pods: what is listed is counted for each.
    let known = lists(&first);
    assert!(known <= 8, "{known} lists of pods for {SHARDS} shards");

    let second = cluster.controller(replica("b")).await;
    let theirs = until_shards(&second, SHARDS / 2).await;
    until_shards(&first, SHARDS / 2).await;
    assert_eq!(lists(&first), known, "the first knows its pods");
    let of_theirs = pods_of(&cluster, &theirs).await;
    let (all, before) = (JOBS as u64 * 3, shown(&first));
    assert!(of_theirs > 0 && of_theirs < all);

    second.shutdown().await;
    until_shards(&first, SHARDS).await;
    let listed = shown(&first) - before;
    assert!((of_theirs..all).contains(&listed), "{listed} pods listed of {of_theirs} that were not known");
    assert!(lists(&first) - known <= 8, "{} lists for {} shards", lists(&first) - known, theirs.len());
    first.shutdown().await;
}
