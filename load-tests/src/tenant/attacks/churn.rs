//! Changes as fast as the API server takes them.

use std::time::Duration;

use futures::future::join_all;
use serde_json::json;

use crate::pods::RUN_TIME;
use crate::tenant::user::Tenant;

/// Jobs that are suspended and resumed at the same time.
const LOOPS: usize = 8;

/// The pause between two changes. In small, an API server of a debug build has to keep up.
fn pause(tenant: &Tenant) -> Duration {
    Duration::from_millis(tenant.scale.of(50, 0) as u64)
}

/// Creates and deletes Jobs and pods, until dropped.
pub(super) async fn flood(tenant: &Tenant) {
    let hands = (0..tenant.scale.of(2, 32)).map(|hand| async move {
        for number in 0_u64.. {
            let name = format!("flood-{hand}-{number}");
            let (kind, object) = match number % 2 {
                0 => ("jobs", tenant.job(&name)),
                _ => ("pods", tenant.pod_of(&name, &name, &format!("{hand:08}-aaaa-4000-8000-{number:012}"))),
            };
            tenant.create(kind, &object).await;
            tenant.delete(kind, &name).await;
            tokio::time::sleep(pause(tenant)).await;
        }
    });
    join_all(hands).await;
}

/// Jobs of several pods, which end soon or never.
pub(super) async fn begin_suspend_loop(tenant: &Tenant) {
    let jobs = (0..LOOPS).map(|number| {
        let mut job = tenant.job(&format!("loop-{number}"));
        let spec = &mut job["spec"];
        (spec["completions"], spec["parallelism"]) = (json!(100_000), json!(tenant.scale.of(5, 50)));
        let time = if number % 2 == 0 { "1h" } else { "200ms" };
        spec["template"]["metadata"]["annotations"][RUN_TIME] = json!(time);
        job
    });
    tenant.create_all("jobs", jobs).await;
}

/// Suspends and resumes them, until dropped.
pub(super) async fn suspend_loop(tenant: &Tenant) {
    let hands = (0..LOOPS).map(|number| async move {
        for turn in 0_u64.. {
            let suspend = json!({"spec": {"suspend": turn % 2 == 0}});
            tenant.patch("jobs", &format!("loop-{number}"), &suspend).await;
            tokio::time::sleep(pause(tenant)).await;
        }
    });
    join_all(hands).await;
}
