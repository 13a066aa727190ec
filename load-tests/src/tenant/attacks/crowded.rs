//! Many pods at one index of a Job: each change of the Job's size is a look at all of them.

use std::time::Duration;

use serde_json::json;

use super::held::FINALIZER;
use crate::tenant::user::Tenant;

const JOB: &str = "crowded";

/// A suspended Job, so that no pod of it is active, and pods of its first index that are being deleted and never go.
pub(super) async fn begin(tenant: &Tenant) {
    let mut job = tenant.job(JOB);
    (job["spec"]["completionMode"], job["spec"]["suspend"]) = (json!("Indexed"), json!(true));
    let Some(job) = tenant.create("jobs", &job).await else { return };
    let uid = job["metadata"]["uid"].as_str().unwrap_or_default();
    let pods = (0..tenant.scale.of(1_000, 20_000)).map(|number| {
        let mut pod = tenant.pod_of(&format!("crowded-{number}"), JOB, uid);
        pod["metadata"]["finalizers"] = json!([FINALIZER]);
        pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] = json!("0");
        pod
    });
    let pods = tenant.create_all("pods", pods).await;
    for pod in pods {
        tenant.delete("pods", pod["metadata"]["name"].as_str().unwrap_or_default()).await;
    }
}

/// Changes the size of the Job, until dropped.
pub(super) async fn resize(tenant: &Tenant) {
    for turn in 0_u64.. {
        let size = 1 + turn % 2;
        tenant.patch("jobs", JOB, &json!({"spec": {"completions": size, "parallelism": size}})).await;
        tokio::time::sleep(Duration::from_millis(tenant.scale.of(50, 5) as u64)).await;
    }
}
