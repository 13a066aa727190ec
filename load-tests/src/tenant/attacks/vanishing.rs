//! Pods that vanish, so that their Jobs look for them again and again.

use std::time::Duration;

use serde_json::json;

use super::sizes::heavy_pod;
use crate::tenant::user::Tenant;

const SHARD: &str = "yardmaster.dev/shard";
/// Time between two rounds.
const AGAIN: Duration = Duration::from_millis(50);
/// Pods that vanish in each.
const AT_ONCE: usize = 5;
/// Pods that are large by their labels.
const HEAVY: usize = 4;

/// Jobs with many pods, and large pods with the labels of shards.
pub(super) async fn begin(tenant: &Tenant) {
    let jobs = (0..tenant.scale.of(4, 20)).map(|number| {
        let mut job = tenant.job(&format!("vanishing-{number}"));
        let pods = tenant.scale.of(10, 50);
        (job["spec"]["completions"], job["spec"]["parallelism"]) = (json!(pods), json!(pods));
        job["spec"]["backoffLimit"] = json!(i32::MAX);
        job["metadata"]["annotations"]["yardmaster.dev/backoff-initial"] = json!("0s");
        job
    });
    tenant.create_all("jobs", jobs).await;
    let heavy = (0..HEAVY).map(|number| {
        let mut pod = heavy_pod(tenant, &format!("heavy-{number}"));
        pod["metadata"]["labels"][SHARD] = json!(number.to_string());
        pod
    });
    tenant.create_all("pods", heavy).await;
}

/// Deletes pods of the Jobs and takes their finalizers off at once, and changes the large pods.
pub(super) async fn go_on(tenant: &Tenant) {
    for round in 0_u64.. {
        let pods = tenant.list("pods").await.unwrap_or_default();
        let of_jobs = pods.iter().filter(|pod| !pod["metadata"]["finalizers"].is_null());
        let names = of_jobs.filter_map(|pod| pod["metadata"]["name"].as_str()).take(AT_ONCE);
        for name in names {
            tenant.delete("pods", name).await;
            tenant.patch("pods", name, &json!({"metadata": {"finalizers": null}})).await;
        }
        let heavy = format!("heavy-{}", round % HEAVY as u64);
        tenant.patch("pods", &heavy, &json!({"metadata": {"labels": {"round": round.to_string()}}})).await;
        tokio::time::sleep(AGAIN).await;
    }
}
