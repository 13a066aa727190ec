//! Objects of gang scheduling that the tenant makes before the controllers do.

use anyhow::Result;
use http::Request;
use serde_json::{Value, json};

use crate::ground::Ground;
use crate::tenant::tenant::Tenant;

const API: &str = "/apis/scheduling.k8s.io/v1alpha2";

/// Why it cannot be played: the API server has no gangs.
pub(super) async fn skipped(ground: &Ground) -> Result<Option<String>> {
    let client = ground.client("load-tests").await?;
    let found = client.request::<Value>(Request::get(API).body(Vec::new())?).await;
    Ok(found.is_err().then(|| format!("the API server does not serve {API}")))
}

/// Jobs of gangs, beside Workloads and PodGroups that carry their names and contradict them.
pub(super) async fn begin(tenant: &Tenant) {
    for number in 0..tenant.scale.of(10, 100) {
        let name = format!("gang-{number}");
        for (plural, kind) in [("workloads", "Workload"), ("podgroups", "PodGroup")] {
            let object = json!({
                "apiVersion": "scheduling.k8s.io/v1alpha2", "kind": kind, "metadata": {"name": name},
                "spec": {"podGroupTemplates": [{"name": "x", "schedulingPolicy": {"gang": {"minCount": i32::MAX}}}]},
            });
            let path = format!("{API}/namespaces/{}/{plural}", tenant.namespace);
            if let Ok(request) = Request::post(path).body(object.to_string().into_bytes()) {
                // Some versions refuse some of the fields, and others do not.
                let _refused = tenant.client.request::<Value>(request).await;
            }
        }
        let mut job = tenant.job(&name);
        let spec = &mut job["spec"];
        (spec["completions"], spec["parallelism"], spec["completionMode"]) =
            (json!(4), json!(4), json!("Indexed"));
        tenant.create("jobs", &job).await;
    }
}
