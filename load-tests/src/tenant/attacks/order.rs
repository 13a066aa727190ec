//! Jobs that wait for each other. At each change of a Job, all that wait for it look at it, and each look may search all others.

use std::time::Duration;

use serde_json::{Value, json};

use crate::tenant::user::Tenant;

/// Jobs that wait for 20 others each, in both ways.
const TANGLED: usize = 100;
/// The most names that an annotation may have.
const NAMES: usize = 20;
/// The Job that changes, and that all others wait for.
const FIRST: &str = "tangled-00";
/// Another one that all others wait for.
const FLEETING: &str = "fleeting";
/// The longest text about Jobs that have ended, which a search would read for each name.
const MET: usize = 2_560;

fn after(tenant: &Tenant, name: &str, others: &str, any: &str) -> Value {
    let mut job = tenant.job(name);
    let annotations = &mut job["metadata"]["annotations"];
    (annotations["yardmaster.dev/after"], annotations["yardmaster.dev/after-any"]) =
        (json!(others), json!(any));
    job
}

/// Suspended Jobs that wait for each other, and Jobs that wait for the first of them and for one that comes and goes.
pub(super) async fn begin(tenant: &Tenant) {
    let names = |from: usize| {
        let names = (from..from + NAMES).map(|number| format!("tangled-{:02}", number % TANGLED));
        names.collect::<Vec<_>>().join(",")
    };
    let tangled = (0..TANGLED).map(|number| {
        let mut job =
            after(tenant, &format!("tangled-{number:02}"), &names(number + 1), &names(number + 1 + NAMES));
        job["spec"]["suspend"] = json!(true);
        job["metadata"]["annotations"]["yardmaster.dev/after-met"] = json!(",".repeat(MET));
        job
    });
    tenant.create_all("jobs", tangled).await;
    let waiting = (0..tenant.scale.of(200, 5_000))
        .map(|number| after(tenant, &format!("waiting-{number}"), FIRST, FLEETING));
    tenant.create_all("jobs", waiting).await;
}

/// Changes a Job that all others wait for, and creates and deletes another one, until dropped.
pub(super) async fn change(tenant: &Tenant) {
    let mut fleeting = tenant.job(FLEETING);
    fleeting["spec"]["suspend"] = json!(true);
    for turn in 0_usize.. {
        let met = json!({"yardmaster.dev/after-met": ",".repeat(MET - turn % 2)});
        tenant.patch("jobs", FIRST, &json!({"metadata": {"annotations": met}})).await;
        tenant.create("jobs", &fleeting).await;
        tenant.delete("jobs", FLEETING).await;
        tokio::time::sleep(Duration::from_millis(tenant.scale.of(200, 20) as u64)).await;
    }
}
