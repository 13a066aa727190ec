//! Jobs and pods that stay in deletion, since their finalizer is never removed.

use anyhow::Result;
use serde_json::json;

use crate::tenant::user::Tenant;

pub(super) const FINALIZER: &str = "tenant.example/never";

/// Creates Jobs whose pods keep a finalizer, and deletes all of it.
pub(super) async fn begin(tenant: &Tenant) {
    let count = tenant.scale.of(10, 100);
    let jobs = (0..count).map(|number| {
        let mut job = tenant.job(&format!("job-{number}"));
        job["metadata"]["finalizers"] = json!([FINALIZER]);
        job["spec"]["template"]["metadata"]["finalizers"] = json!([FINALIZER]);
        (job["spec"]["completions"], job["spec"]["parallelism"]) = (json!(5), json!(5));
        job
    });
    let jobs = tenant.create_all("jobs", jobs).await;
    let pods = jobs.iter().flat_map(|job| {
        let (name, uid) = (&job["metadata"]["name"], &job["metadata"]["uid"]);
        let (name, uid) = (name.as_str().unwrap_or_default(), uid.as_str().unwrap_or_default());
        (0..3).map(move |number| {
            let mut pod = tenant.pod_of(&format!("{name}-own-{number}"), name, uid);
            pod["metadata"]["finalizers"] = json!([tenant.finalizer(), FINALIZER]);
            pod
        })
    });
    tenant.create_all("pods", pods).await;
    tenant.leave().await;
}

/// Removes the finalizer from everything.
pub(super) async fn end(tenant: &Tenant) -> Result<()> {
    for kind in ["jobs", "pods"] {
        for object in tenant.list(kind).await? {
            let held = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
            let rest: Vec<_> = held.into_iter().filter(|name| name != FINALIZER).collect();
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            tenant.patch(kind, name, &json!({"metadata": {"finalizers": rest}})).await;
        }
    }
    Ok(())
}
