//! Objects of gang scheduling that the tenant makes in place of the controllers.

use anyhow::Result;
use http::Request;
use serde_json::{Value, json};

use crate::tenant::user::Tenant;

/// The API of gang scheduling.
pub(super) const API: &str = "/apis/scheduling.k8s.io/v1alpha2";
const VERSION: &str = "scheduling.k8s.io/v1alpha2";
/// The flags with which replicas schedule gangs.
pub(super) const FLAGS: [&str; 2] = ["--feature-gates", "WorkloadWithJob=true"];
/// Templates that a Workload may have.
const TEMPLATES: usize = 8;

/// A Workload for the Job of this name, whose owner is the victim's Job.
fn workload(tenant: &Tenant, name: &str, job: &str, templates: usize) -> Value {
    let template = |number| {
        json!({
            "name": format!("template-{number}"), "schedulingPolicy": {"gang": {"minCount": i32::MAX}},
        })
    };
    json!({
        "apiVersion": VERSION, "kind": "Workload",
        "metadata": {"name": name, "ownerReferences": [{
            "apiVersion": "batch/v1", "kind": "Job", "name": tenant.target.name, "uid": tenant.target.uid,
            "controller": true,
        }]},
        "spec": {
            "controllerRef": {"apiGroup": "batch", "kind": "Job", "name": job},
            "podGroupTemplates": (0..templates).map(template).collect::<Vec<_>>(),
        },
    })
}

/// Gangs whose Workloads are there already, once or many times, and contradict the Job.
pub(super) async fn begin(tenant: &Tenant) {
    let gangs = tenant.scale.of(10, 100);
    let names = (0..gangs).map(|number| format!("gang-{number}")).chain([tenant.target.name.clone()]);
    let workloads = names.enumerate().flat_map(|(number, job)| {
        let (copies, templates) = (1 + number % 3, if number % 2 == 0 { 1 } else { TEMPLATES });
        (0..copies).map(move |copy| workload(tenant, &format!("{job}-{copy}"), &job, templates))
    });
    for object in workloads.collect::<Vec<_>>() {
        tenant.create_at(&collection(tenant), &object).await;
    }
    let jobs = (0..gangs).map(|number| {
        let mut job = tenant.job(&format!("gang-{number}"));
        let spec = &mut job["spec"];
        (spec["completions"], spec["parallelism"]) = (json!(4), json!(4));
        spec["completionMode"] = json!("Indexed");
        job
    });
    tenant.create_all("jobs", jobs).await;
}

/// Deletes the Workloads.
pub(super) async fn end(tenant: &Tenant) -> Result<()> {
    let request = Request::delete(collection(tenant)).body(Vec::new())?;
    let _deleted: Value = tenant.client.request(request).await?;
    Ok(())
}

fn collection(tenant: &Tenant) -> String {
    format!("{API}/namespaces/{}/workloads", tenant.namespace)
}
