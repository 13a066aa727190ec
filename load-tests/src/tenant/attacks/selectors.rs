//! Selectors that are long: to evaluate, and to send.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Map, Value, json};

use crate::tenant::user::Tenant;

/// A key that the template of the Jobs has.
const OWN: &str = "own";
/// Expressions of a selector of some 90 KB in a URL.
const LONG: usize = 4_000;
/// Limit of the time until a Job with a long selector has a pod.
const PATIENCE: Duration = Duration::from_secs(10);

/// A Job that selects its pods by these expressions, of which its own pods meet all.
fn job(tenant: &Tenant, name: &str, expressions: usize) -> Value {
    let absent =
        (0..expressions).map(|n| json!({"key": format!("absent-key-{n}"), "operator": "DoesNotExist"}));
    let own = std::iter::once(json!({"key": OWN, "operator": "In", "values": [name]}));
    let mut job = tenant.job(name);
    job["spec"]["manualSelector"] = json!(true);
    // Other pods fail at the last expression.
    job["spec"]["selector"] = json!({"matchExpressions": absent.chain(own).collect::<Vec<_>>()});
    job["spec"]["template"]["metadata"]["labels"] = json!({OWN: name});
    job
}

/// Suspended Jobs with many expressions, and pods with many labels and no controller.
pub(super) async fn many(tenant: &Tenant) {
    let expressions = tenant.scale.of(4_000, 12_000);
    let jobs = (0..10).map(|number| {
        let mut job = job(tenant, &format!("job-{number}"), expressions);
        job["spec"]["suspend"] = json!(true);
        job
    });
    tenant.create_all("jobs", jobs).await;
    let labels: Map<_, _> =
        (0..tenant.scale.of(4_000, 10_000)).map(|n| (format!("label-{n}"), json!("x"))).collect();
    let pods = (0..8).map(|number| {
        let mut pod = tenant.pod(&format!("pod-{number}"));
        pod["metadata"]["labels"] = json!(labels);
        pod
    });
    tenant.create_all("pods", pods).await;
}

/// A suspended Job that selects pods by this many requirements on one label, and by the presence of another.
fn asking(tenant: &Tenant, name: &str, times: usize, last: &str) -> Value {
    let asked = (0..times).map(|n| json!({"key": "a", "operator": "NotIn", "values": [n.to_string()]}));
    let last = std::iter::once(json!({"key": last, "operator": "Exists"}));
    let mut job = tenant.job(name);
    (job["spec"]["manualSelector"], job["spec"]["suspend"]) = (json!(true), json!(true));
    job["spec"]["selector"] = json!({"matchExpressions": asked.chain(last).collect::<Vec<_>>()});
    job["spec"]["template"]["metadata"]["labels"] = json!({"a": "x", "b": "x", "z": "x"});
    job
}

/// Jobs that ask as often as they may and select none of the pods, which have no controller.
pub(super) async fn lookups(tenant: &Tenant) {
    let jobs = (0..40).map(|number| asking(tenant, &format!("asks-{number:02}"), 50, "z"));
    tenant.create_all("jobs", jobs).await;
    let pods = (0..tenant.scale.of(300, 10_000)).map(|number| {
        let mut pod = tenant.pod(&format!("asked-{number}"));
        pod["metadata"]["labels"] = json!({"a": "x", "b": "x"});
        pod["metadata"]["annotations"] = json!({});
        pod
    });
    tenant.create_all("pods", pods).await;
}

/// Jobs that look for all of the pods, one after the other, until dropped.
pub(super) async fn look_up_again(tenant: &Tenant) {
    for number in 0_u64.. {
        let (adopts, asks) = (format!("z-adopts-{number}"), format!("z-asks-{number}"));
        tenant.create("jobs", &asking(tenant, &adopts, 0, "b")).await;
        tenant.create("jobs", &asking(tenant, &asks, 50, "z")).await;
        tokio::time::sleep(Duration::from_millis(tenant.scale.of(200, 20) as u64)).await;
        tenant.delete("jobs", &adopts).await;
        tenant.delete("jobs", &asks).await;
    }
}

/// Jobs that run, with a selector that no URL holds.
pub(super) async fn long(tenant: &Tenant) {
    tenant.create_all("jobs", (0..3).map(|number| job(tenant, &format!("long-{number}"), LONG))).await;
}

/// Jobs with a long selector that neither run nor have an Event that says why.
pub(super) async fn judge_long(tenant: &Tenant) -> Result<Vec<String>> {
    let begun = Instant::now();
    loop {
        let (jobs, events) = (tenant.list("jobs").await?, tenant.list("events").await?);
        let is_told = |job: &Value| {
            let of_job = |event: &&Value| event["involvedObject"]["uid"] == job["metadata"]["uid"];
            events.iter().filter(of_job).any(|event| event["reason"] == json!("SelectorTooLong"))
        };
        let silent = jobs.iter().filter(|job| job["status"]["active"] != json!(1) && !is_told(job)).count();
        if silent == 0 {
            return Ok(Vec::new());
        }
        if begun.elapsed() > PATIENCE {
            let all = jobs.len();
            return Ok(vec![format!(
                "{silent} of {all} Jobs with a selector of 90 KB have neither pods nor an Event"
            )]);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
