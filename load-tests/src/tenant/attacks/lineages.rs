//! Lessons of pods: each annotation may name fifty nodes and many containers, of one index after the other.

use serde_json::{Value, json};

use super::held::FINALIZER;
use crate::tenant::user::Tenant;

const INDEXES: usize = 3_000;

fn name(number: usize) -> String {
    format!("taught-{number}")
}

fn jobs(tenant: &Tenant) -> usize {
    tenant.scale.of(3, 100)
}

/// Suspended Jobs that learn from their pods, with one pod each. It is being deleted and never goes, so no kubelet ends it.
pub(super) async fn begin(tenant: &Tenant) {
    for number in 0..jobs(tenant) {
        let (name, mut job) = (name(number), tenant.job(&name(number)));
        job["metadata"]["annotations"]["yardmaster.dev/retry-avoid-node"] = json!("preferred");
        let spec = &mut job["spec"];
        (spec["completionMode"], spec["suspend"], spec["completions"]) =
            (json!("Indexed"), json!(true), json!(INDEXES));
        let Some(job) = tenant.create("jobs", &job).await else { continue };
        let mut pod = tenant.pod_of(&name, &name, job["metadata"]["uid"].as_str().unwrap_or_default());
        pod["metadata"]["finalizers"] = json!([FINALIZER]);
        tenant.create("pods", &pod).await;
        tenant.delete("pods", &name).await;
    }
}

/// Has each pod teach one index after the other, until dropped.
pub(super) async fn teach(tenant: &Tenant) {
    for index in (0..INDEXES).cycle() {
        let patch = lessons(index);
        for number in 0..jobs(tenant) {
            tenant.patch("pods", &name(number), &patch).await;
        }
    }
}

/// The annotations of a pod at this index with the longest lists that are read.
fn lessons(index: usize) -> Value {
    let list = |entries: usize, end: &str| {
        let entry = |number: usize| format!("{}{number:02}{end}", "n".repeat(61));
        (0..entries).map(entry).collect::<Vec<_>>().join(",")
    };
    json!({"metadata": {"annotations": {
        "batch.kubernetes.io/job-completion-index": index.to_string(),
        "yardmaster.dev/lineage": format!("nodes={} memory={}", list(50, "@5"), list(32, ":2")),
    }}})
}
