//! Objects that are large.

use serde_json::{Map, Value, json};

use crate::tenant::user::Tenant;

/// Bytes of the environment of an idle Job.
const TEMPLATE: usize = 1_000_000;
/// Bytes of the environment and of the annotations of pods; annotations may have 256 KiB together.
const ENVIRONMENT: usize = 500_000;
const ANNOTATIONS: usize = 200_000;
/// Labels of these pods.
const LABELS: usize = 1_000;
/// Rules of a success policy, and bytes of the indexes of each: the most that an API server accepts.
const RULES: usize = 20;
const INDEXES: usize = 65_536;
/// Labels of a pod that is large by them alone: some 1 MB.
const HEAVY_LABELS: usize = 8_000;

fn set_environment(job: &mut Value, bytes: usize) {
    let container = &mut job["spec"]["template"]["spec"]["containers"][0];
    container["env"] = json!([{"name": "FILLER", "value": "x".repeat(bytes)}]);
}

/// Jobs that do nothing: suspended, or with a parallelism of 0.
pub(super) async fn templates(tenant: &Tenant) {
    let jobs = (0..tenant.scale.of(40, 500)).map(|number| {
        let mut job = tenant.job(&format!("idle-{number}"));
        set_environment(&mut job, TEMPLATE);
        match number % 2 {
            0 => job["spec"]["suspend"] = json!(true),
            _ => job["spec"]["parallelism"] = json!(0),
        }
        job
    });
    tenant.create_all("jobs", jobs).await;
}

/// Jobs whose pods are all large.
pub(super) async fn environment(tenant: &Tenant) {
    let labels: Map<_, _> = (0..LABELS).map(|number| (format!("label-{number}"), json!("x"))).collect();
    let jobs = (0..tenant.scale.of(6, 50)).map(|number| {
        let mut job = tenant.job(&format!("large-{number}"));
        set_environment(&mut job, tenant.scale.of(ENVIRONMENT / 5, ENVIRONMENT));
        (job["spec"]["completions"], job["spec"]["parallelism"]) = (json!(5), json!(5));
        let metadata = &mut job["spec"]["template"]["metadata"];
        metadata["annotations"]["filler"] = json!("x".repeat(tenant.scale.of(ANNOTATIONS / 5, ANNOTATIONS)));
        metadata["labels"] = json!(labels);
        job
    });
    tenant.create_all("jobs", jobs).await;
}

/// Suspended Jobs with the longest success policies.
pub(super) async fn policies(tenant: &Tenant) {
    let every_other: String = (0..100_000).step_by(2).map(|index| format!("{index},")).collect();
    let end = every_other.floor_char_boundary(INDEXES);
    let indexes = every_other.get(..end).and_then(|cut| cut.rsplit_once(',')).map(|(whole, _)| whole);
    let rules = vec![json!({"succeededIndexes": indexes}); RULES];
    let jobs = (0..tenant.scale.of(30, 300)).map(|number| {
        let mut job = tenant.job(&format!("policy-{number}"));
        let spec = &mut job["spec"];
        (spec["suspend"], spec["completionMode"]) = (json!(true), json!("Indexed"));
        (spec["completions"], spec["successPolicy"]) = (json!(100_000), json!({"rules": rules}));
        job
    });
    tenant.create_all("jobs", jobs).await;
}

/// A pod that is large by its labels.
pub(super) fn heavy_pod(tenant: &Tenant, name: &str) -> Value {
    let mut pod = tenant.pod(name);
    let value = "x".repeat(60);
    for number in 0..HEAVY_LABELS {
        pod["metadata"]["labels"][format!("{}-{number}", "k".repeat(55))] = json!(value);
    }
    pod
}

/// Large pods that another pod controls, with the labels of a Job's pods.
pub(super) async fn census(tenant: &Tenant) {
    let Some(owner) = tenant.create("pods", &tenant.pod("owner")).await else { return };
    let pods = (0..tenant.scale.of(10, 100)).map(|number| {
        let mut pod = heavy_pod(tenant, &format!("heavy-{number}"));
        let metadata = &mut pod["metadata"];
        metadata["labels"]["batch.kubernetes.io/controller-uid"] = owner["metadata"]["uid"].clone();
        metadata["ownerReferences"] = json!([{
            "apiVersion": "v1", "kind": "Pod", "name": "owner", "uid": owner["metadata"]["uid"], "controller": true,
        }]);
        pod
    });
    tenant.create_all("pods", pods).await;
}
