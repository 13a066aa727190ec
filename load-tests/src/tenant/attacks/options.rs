//! Annotations of Jobs that change what the controller does, at their extremes.

use serde_json::json;

use crate::pods::RUN_TIME;
use crate::tenant::user::Tenant;

/// Annotations without their prefix.
const NAMES: [&str; 19] = [
    "backoff-initial",
    "backoff-max",
    "failed-pods-limit",
    "prune-succeeded",
    "propagate-trace",
    "restart-together",
    "max-restarts",
    "retry-avoid-node",
    "oom-memory-factor",
    "oom-memory-max",
    "start-deadline",
    "lost-node-timeout",
    "run-deadline",
    "pod-run-deadline",
    "signal-before",
    "after",
    "after-any",
    "ceiling",
    "max-finished-pods",
];
const VALUES: [&str; 14] = [
    "18446744073709551615s 1000ms",
    "184467440 737095516 15s 1000ms",
    "0s",
    "0",
    "1ns",
    "584942417355y",
    "18446744073709551615s",
    "4294967295",
    "-1",
    "true",
    "1e308",
    "",
    "\u{1b}]0;x\u{7}",
    "../../x",
];

/// Pods of a Job.
pub(super) const PODS: u32 = 5;

/// A Job for each annotation, whose pods fail at once, and one that has all of them.
pub(super) async fn begin(tenant: &Tenant) {
    let values = tenant.scale.of(2, VALUES.len());
    let failing = |name: String| {
        let mut job = tenant.job(&name);
        let spec = &mut job["spec"];
        (spec["completions"], spec["parallelism"], spec["backoffLimit"]) =
            (json!(PODS), json!(PODS), json!(i32::MAX));
        let annotations = &mut spec["template"]["metadata"]["annotations"];
        *annotations = json!({RUN_TIME: "1ms", "yardmaster.dev/simulated-exit-code": "1"});
        job
    };
    let single = (0..values).flat_map(|number| {
        NAMES.iter().enumerate().map(move |(column, name)| {
            let mut job = failing(format!("{name}-{number}"));
            // With few values, every annotation has others.
            let value = VALUES[(number * NAMES.len() + column * usize::from(number > 0)) % VALUES.len()];
            job["metadata"]["annotations"][format!("yardmaster.dev/{name}")] = json!(value);
            job
        })
    });
    let together = VALUES.iter().enumerate().map(|(number, value)| {
        let mut job = failing(format!("all-{number}"));
        for name in NAMES {
            job["metadata"]["annotations"][format!("yardmaster.dev/{name}")] = json!(value);
        }
        job
    });
    tenant.create_all("jobs", single.chain(together.take(values)).collect::<Vec<_>>().into_iter()).await;
}
