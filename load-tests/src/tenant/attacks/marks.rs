//! Marks of the controllers on pods of the tenant: places and shards.

use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use crate::pods::RUN_TIME;
use crate::tenant::user::Tenant;

const EXIT_CODE: &str = "yardmaster.dev/simulated-exit-code";
const PLACE: &str = "yardmaster.dev/place";
/// Annotation of the tenant's Jobs: the place of their first pods.
const OWN_PLACE: &str = "tenant.example/place";
const INDEX: &str = "batch.kubernetes.io/job-completion-index";
const SHARD: &str = "yardmaster.dev/shard";
/// Shards that are and that are not.
const SHARDS: [&str; 5] = ["0", "1", "4294967295", "x", ""];
/// Places with their attempts, at the edges of their types and beyond.
const PLACES: [&str; 12] = [
    "0/4294967295",
    "0/4294967294",
    "4294967295/0",
    "4294967295/4294967295",
    "2147483647/2147483647",
    "0/18446744073709551615",
    "-1/-1",
    "0/",
    "/",
    "0/0/0",
    "\u{202e}0/1",
    "1e9/1",
];
/// Annotation of the tenant's pods: how often they have lost the label of a shard.
const LOSSES: &str = "tenant.example/losses";
/// The limit of [`LOSSES`] for a pod without owner. After each hand-over, the pauses start again at a second.
const MOST_LOSSES: u64 = 30;
/// Time between two rounds of labelling.
const AGAIN: Duration = Duration::from_millis(100);

/// Jobs of both modes for each place, with an ended and a running pod there. Their own pods fail, too, and are replaced
/// at once.
pub(super) async fn places(tenant: &Tenant) {
    let modes = ["NonIndexed", "Indexed"].into_iter().enumerate();
    let all = modes
        .flat_map(|(turn, mode)| PLACES.iter().enumerate().map(move |(n, place)| (turn, mode, n, place)));
    let jobs = all.map(|(turn, mode, number, place)| {
        let mut job = tenant.job(&format!("job-{turn}-{number}"));
        job["metadata"]["annotations"] = json!({"yardmaster.dev/backoff-initial": "0s", OWN_PLACE: place});
        let spec = &mut job["spec"];
        (spec["completions"], spec["parallelism"], spec["backoffLimit"]) = (json!(2), json!(2), json!(1_000));
        // The pods are there before the Job begins.
        (spec["suspend"], spec["completionMode"]) = (json!(true), json!(mode));
        spec["template"]["metadata"]["annotations"] = json!({RUN_TIME: "10ms", EXIT_CODE: "1"});
        job
    });
    let jobs = tenant.create_all("jobs", jobs).await;
    tenant.create_all("pods", jobs.iter().flat_map(|job| pods_at_place(tenant, job))).await;
    for job in &jobs {
        let name = job["metadata"]["name"].as_str().unwrap_or_default();
        tenant.patch("jobs", name, &json!({"spec": {"suspend": false}})).await;
    }
}

/// An ended and a running pod at the place of a Job.
fn pods_at_place(tenant: &Tenant, job: &Value) -> [Value; 2] {
    let metadata = &job["metadata"];
    let name = metadata["name"].as_str().unwrap_or_default();
    [("ended", "10ms"), ("running", "1h")].map(|(kind, time)| {
        let uid = metadata["uid"].as_str().unwrap_or_default();
        let mut pod = tenant.pod_of(&format!("{name}-{kind}"), name, uid);
        let own = &mut pod["metadata"];
        own["labels"]["batch.kubernetes.io/job-name"] = json!(name);
        own["labels"][INDEX] = json!("0");
        own["annotations"] = json!({
            PLACE: metadata["annotations"][OWN_PLACE], RUN_TIME: time, EXIT_CODE: "1", INDEX: "0",
        });
        pod
    })
}

/// Pods of a ReplicaSet, and pods without owner, with the label of a shard.
pub(super) async fn shard_labels(tenant: &Tenant) {
    let pods = (0..tenant.scale.of(20, 200)).map(|number| {
        let mut pod = tenant.pod(&format!("pod-{number}"));
        let metadata = &mut pod["metadata"];
        metadata["labels"] = json!({SHARD: SHARDS[number % SHARDS.len()], "app": "web"});
        if number % 2 == 0 {
            metadata["ownerReferences"] = json!([{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "controller": true,
                "uid": format!("00000000-beef-4000-8000-{number:012}"),
            }]);
        }
        pod
    });
    tenant.create_all("pods", pods).await;
}

/// Pods of a Job that another controller manages, as the shard of the victim's Job sees them.
pub(super) async fn waiting_pods(tenant: &Tenant) {
    let mut job = tenant.job("foreign");
    (job["spec"]["managedBy"], job["spec"]["suspend"]) = (json!("tenant.example/nobody"), json!(true));
    let Some(job) = tenant.create("jobs", &job).await else { return };
    let uid = job["metadata"]["uid"].as_str().unwrap_or_default();
    let pods = (0..tenant.scale.of(1_000, 40_000)).map(|number| {
        let mut pod = tenant.pod_of(&format!("pod-{number}"), "foreign", uid);
        pod["metadata"]["labels"][SHARD] = json!(tenant.target.shard);
        pod
    });
    tenant.create_all("pods", pods).await;
}

/// Pods without the label of a shard, with the number of times that they have lost it.
async fn without_label(tenant: &Tenant) -> Result<Vec<(String, u64)>> {
    let pods = tenant.list("pods").await?;
    let lacking = pods.iter().filter(|pod| pod["metadata"]["labels"][SHARD].is_null());
    Ok(lacking.map(|pod| (name(pod), losses(pod) + 1)).collect())
}

fn name(pod: &Value) -> String {
    pod["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

fn losses(pod: &Value) -> u64 {
    pod["metadata"]["annotations"][LOSSES].as_str().and_then(|losses| losses.parse().ok()).unwrap_or(0)
}

/// Gives pods the label again, as a controller whose selector has it.
pub(super) async fn label_again(tenant: &Tenant) {
    loop {
        for (name, losses) in without_label(tenant).await.unwrap_or_default() {
            let again = json!({"labels": {SHARD: "0"}, "annotations": {LOSSES: losses.to_string()}});
            tenant.patch("pods", &name, &json!({"metadata": again})).await;
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// Another controller's pods must keep their labels. Other pods lose them, but only after a pause.
pub(super) async fn judge_shard_labels(tenant: &Tenant) -> Result<Vec<String>> {
    let pods = tenant.list("pods").await?;
    let most = |pod: &Value| if pod["metadata"]["ownerReferences"].is_array() { 0 } else { MOST_LOSSES };
    let taken = pods.iter().filter(|pod| losses(pod) > most(pod));
    Ok(taken.map(|pod| format!("the label was taken from {} {} times", name(pod), losses(pod))).collect())
}
