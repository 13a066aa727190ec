//! Jobs that own one another, in circles of several lengths.

use futures::stream::{self, StreamExt as _};
use serde_json::{Value, json};

use crate::tenant::user::Tenant;

/// Jobs of a circle.
const LENGTHS: [usize; 3] = [1, 2, 50];

/// Creates the Jobs, then makes each the owner of the next.
pub(super) async fn begin(tenant: &Tenant) {
    let jobs = (0..tenant.scale.of(200, 10_000)).map(|number| {
        let mut job = tenant.job(&format!("job-{number}"));
        job["spec"]["suspend"] = json!(true);
        job
    });
    let jobs = tenant.create_all("jobs", jobs).await;
    let mut rest = jobs.as_slice();
    let mut bonds: Vec<(&Value, &Value)> = Vec::new();
    for length in LENGTHS.into_iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (circle, others) = rest.split_at(length.min(rest.len()));
        bonds.extend(circle.iter().zip(circle.iter().cycle().skip(1)));
        rest = others;
    }
    let patches = bonds.into_iter().map(|(owner, owned)| async move {
        let (owner, owned) = (&owner["metadata"], owned["metadata"]["name"].as_str().unwrap_or_default());
        let reference = json!([{
            "apiVersion": "batch/v1", "kind": "Job", "controller": true, "blockOwnerDeletion": true,
            "name": owner["name"], "uid": owner["uid"],
        }]);
        tenant.patch("jobs", owned, &json!({"metadata": {"ownerReferences": reference}})).await;
    });
    stream::iter(patches).buffer_unordered(16).collect::<Vec<_>>().await;
}
