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

fn set_environment(job: &mut Value, bytes: usize) {
    let container = &mut job["spec"]["template"]["spec"]["containers"][0];
    container["env"] = json!([{"name": "FILLER", "value": "x".repeat(bytes)}]);
}

/// Jobs that do nothing: suspended, or with a parallelism of 0.
pub(super) async fn templates(tenant: &Tenant) {
    let jobs = (0..tenant.scale.of(100, 500)).map(|number| {
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
