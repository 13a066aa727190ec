//! Pods with owner references that lie: the victim's UID, names that are no names, names of a megabyte.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};

use crate::pods::RUN_TIME;
use crate::tenant::user::Tenant;

/// Annotation of pods for the simulator: how they end.
const EXIT_CODE: &str = "yardmaster.dev/simulated-exit-code";
/// Limit of the time until the finalizers of pods without Job are gone.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time for which the tenant's pods are left to themselves.
const BEFORE_DELETION: Duration = Duration::from_secs(1);
/// Bytes: just below the limit of an object in etcd.
const LONGEST_NAME: usize = 1_300_000;
/// Owner names that change the meaning of a request, if they are put into its path.
const HOSTILE: [&str; 10] = [
    "?watch=1&n=1",
    "?n=1",
    "?limit=1&watch=true",
    "../x",
    "../../../../../../api/v1/secrets",
    "%2e%2e",
    "%2f..%2f",
    "a b\r\nHost: x",
    "#",
    "x/status",
];

/// A UID that no object has.
fn uid(number: usize) -> String {
    format!("00000000-dead-4000-8000-{number:012}")
}

/// Pods of every kind that could be taken for pods of the victim's Job.
pub(super) async fn foreign_uid(tenant: &Tenant) {
    let target = &tenant.target;
    let each = tenant.scale.of(16, 40);
    let pods = [target.name.as_str(), "own"].into_iter().flat_map(|job| {
        (0..each).map(move |number| {
            let mut pod = tenant.pod_of(&format!("foreign-{job}-{number}"), job, &target.uid);
            let metadata = &mut pod["metadata"];
            metadata["labels"]["batch.kubernetes.io/job-name"] = json!(job);
            metadata["annotations"] = json!({RUN_TIME: "100ms", EXIT_CODE: (number % 2).to_string()});
            if number % 4 < 2 {
                metadata["labels"]["yardmaster.dev/shard"] = json!(target.shard);
            }
            match number % 8 {
                // It ends only by its deletion.
                5 => metadata["annotations"][RUN_TIME] = json!("1h"),
                // The finalizers of another controller's pod are that controller's.
                6 => {
                    metadata["ownerReferences"][0]["kind"] = json!("CronJob");
                    metadata["finalizers"] = json!([]);
                }
                // Without the label of a Job it is looked for once an hour, so with a finalizer it would stay until then.
                7 => (metadata["labels"], metadata["finalizers"]) = (json!({}), json!([])),
                _ => {}
            }
            pod
        })
    });
    tenant.create_all("pods", pods).await;
}

/// Deletes the pods, as the garbage collector does where an owner is in another namespace.
pub(super) async fn delete_foreign_pods(tenant: &Tenant) {
    tokio::time::sleep(BEFORE_DELETION).await;
    for pod in tenant.list("pods").await.unwrap_or_default() {
        tenant.delete("pods", pod["metadata"]["name"].as_str().unwrap_or_default()).await;
    }
}

/// Pods with hostile owner names, each with a UID of its own.
pub(super) async fn names(tenant: &Tenant) {
    let long = "x".repeat(LONGEST_NAME);
    let pods = (0..tenant.scale.of(100, 400)).map(|number| {
        // Few are long: they fill the API server, too.
        let name = if number % 50 == 49 { long.as_str() } else { HOSTILE[number % HOSTILE.len()] };
        tenant.pod_of(&format!("pod-{number}"), name, &uid(number))
    });
    tenant.create_all("pods", pods).await;
}

/// Big Jobs, and pods whose owner is a list of them.
pub(super) async fn large_answers(tenant: &Tenant) {
    let filler = "x".repeat(1_000_000);
    let jobs = (0..tenant.scale.of(12, 48)).map(|number| {
        let mut job = tenant.job(&format!("big-{number}"));
        job["spec"]["suspend"] = json!(true);
        job["spec"]["template"]["spec"]["containers"][0]["env"] =
            json!([{"name": "FILLER", "value": filler}]);
        job
    });
    tenant.create_all("jobs", jobs).await;
    let pods = (0..40).map(|number| tenant.pod_of(&format!("pod-{number}"), "?n=1", &uid(number)));
    tenant.create_all("pods", pods).await;
}

/// Pods with owner names, names of fields and values of a megabyte, each deleted before the next is created.
pub(super) async fn interner(tenant: &Tenant) {
    for number in 0..tenant.scale.of(30, 150) {
        let name = format!("pod-{number}");
        let owner = format!("{number}{}", "x".repeat(LONGEST_NAME));
        let mut pod = tenant.pod_of(&name, &owner, &uid(number));
        pod["metadata"]["labels"]["job-name"] = json!(format!("label-{number}"));
        tenant.create("pods", &pod).await;
        tenant.delete("pods", &name).await;
    }
}

/// Pods that still have the tracking finalizer, though no Job of their namespace has their owner's UID.
pub(super) async fn still_tracked(tenant: &Tenant) -> Result<Vec<String>> {
    let begun = Instant::now();
    let is_tracked = |pod: &&Value| {
        let finalizers = pod["metadata"]["finalizers"].as_array();
        finalizers.is_some_and(|all| all.contains(&json!(tenant.finalizer())))
    };
    loop {
        let tracked = tenant.list("pods").await?.iter().filter(is_tracked).count();
        if tracked == 0 {
            return Ok(Vec::new());
        }
        if begun.elapsed() > PATIENCE {
            return Ok(vec![format!("{tracked} pods without Job still have the tracking finalizer")]);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
