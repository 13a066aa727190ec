//! Statuses of Jobs that the tenant writes.

use std::time::Duration;

use futures::future::join_all;
use serde_json::{Value, json};

use crate::tenant::user::Tenant;

/// Jobs whose statuses are written.
const JOBS: usize = 8;
/// Indexes of each Job.
const INDEXES: usize = 100_000;
/// Bytes of a status that is about as long as an object may be.
const LONG: usize = 1_000_000;
/// Time in which the controller writes a status.
const WRITTEN: Duration = Duration::from_millis(300);
/// Time between two rounds of writes.
const AGAIN: Duration = Duration::from_millis(500);

/// Every second index: no interval holds two.
fn every_second(indexes: usize) -> String {
    every_second_from(0, indexes)
}

fn every_second_from(first: usize, indexes: usize) -> String {
    (first..indexes).step_by(2).map(|index| index.to_string()).collect::<Vec<_>>().join(",")
}

/// Uncounted pods that never were.
fn uids(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("00000000-feed-4000-8000-{number:012}")).collect()
}

/// Running Indexed Jobs with as many indexes as a Job may have.
pub(super) async fn begin(tenant: &Tenant) {
    let jobs = (0..JOBS).map(|number| {
        let mut job = tenant.job(&format!("job-{number}"));
        let spec = &mut job["spec"];
        (spec["completions"], spec["parallelism"]) = (json!(INDEXES), json!(2));
        (spec["completionMode"], spec["backoffLimitPerIndex"]) = (json!("Indexed"), json!(1));
        spec["maxFailedIndexes"] = json!(INDEXES);
        job
    });
    tenant.create_all("jobs", jobs).await;
    write(tenant, 0).await;
    fill(tenant).await;
}

/// Idle Jobs with the longest statuses: indexes, of which no two are in a row, and a condition that no controller knows.
async fn fill(tenant: &Tenant) {
    let indexes = every_second(LONG / 7 * 2);
    let statuses = [
        json!({"completedIndexes": indexes, "succeeded": indexes.split(',').count()}),
        json!({"conditions": [{"type": "Foreign", "status": "True", "message": "y".repeat(LONG)}]}),
    ];
    let count = tenant.scale.of(100, 500);
    begin_idle(tenant, count).await;
    for (number, status) in (0..count).zip(statuses.iter().cycle()) {
        tenant.patch("jobs", &format!("{}/status", idle(number)), &json!({"status": status})).await;
    }
}

fn idle(number: usize) -> String {
    format!("idle-{number}")
}

/// Indexed Jobs without pods.
pub(super) async fn begin_idle(tenant: &Tenant, count: usize) {
    let jobs = (0..count).map(|number| {
        let mut job = tenant.job(&idle(number));
        let spec = &mut job["spec"];
        (spec["completions"], spec["parallelism"]) = (json!(LONG), json!(0));
        spec["completionMode"] = json!("Indexed");
        job
    });
    tenant.create_all("jobs", jobs).await;
}

/// Number of Jobs whose statuses alternate: they share the limit for the statuses of a namespace.
pub(super) const ALTERNATING: usize = 3;

/// Writes all even and all odd indexes in turn. Both statuses say the same number.
pub(super) async fn alternate(tenant: &Tenant) {
    let count = tenant.scale.of(20_000, LONG / 7 * 3);
    let statuses = [0, 1].map(|first| {
        let indexes = every_second_from(first, count);
        json!({"status": {"succeeded": indexes.split(',').count(), "completedIndexes": indexes}})
    });
    // In small, an API server of a debug build has to keep up.
    let pause = Duration::from_millis(tenant.scale.of(50, 0) as u64);
    let hands = (0..ALTERNATING).map(|number| {
        let statuses = &statuses;
        async move {
            for status in statuses.iter().cycle() {
                tenant.patch("jobs", &format!("{}/status", idle(number)), status).await;
                tokio::time::sleep(pause).await;
            }
        }
    });
    join_all(hands).await;
}

/// The number of Jobs whose statuses shrink.
pub(super) fn shrinking(tenant: &Tenant) -> usize {
    tenant.scale.of(60, 400)
}

/// Makes the status of a Job as long as possible, has the controller write it, since the Job is suspended, and makes it short
/// again. Then it is the turn of the next Job.
pub(super) async fn shrink(tenant: &Tenant) {
    let indexes = every_second(LONG / 7 * 2);
    let long = json!({"status": {"succeeded": indexes.split(',').count(), "completedIndexes": indexes}});
    let short = json!({"status": {"succeeded": 0, "completedIndexes": null}});
    for turn in 0.. {
        let suspended = (turn / shrinking(tenant)).is_multiple_of(2);
        let job = idle(turn % shrinking(tenant));
        tenant.patch("jobs", &format!("{job}/status"), &long).await;
        tenant.patch("jobs", &job, &json!({"spec": {"suspend": suspended}})).await;
        tokio::time::sleep(WRITTEN).await;
        tenant.patch("jobs", &format!("{job}/status"), &short).await;
    }
}

/// Writes the statuses again and again, each time others.
pub(super) async fn go_on(tenant: &Tenant) {
    for turn in 1.. {
        tokio::time::sleep(AGAIN).await;
        write(tenant, turn).await;
    }
}

async fn write(tenant: &Tenant, turn: usize) {
    let indexes = every_second(tenant.scale.of(20_000, INDEXES));
    let uids = uids(tenant.scale.of(2_000, 20_000));
    for number in 0..JOBS {
        let status = status(number + turn, &indexes, &uids);
        tenant.patch("jobs", &format!("job-{number}/status"), &json!({"status": status})).await;
    }
}

fn status(number: usize, indexes: &str, uids: &[String]) -> Value {
    let condition = |kind: &str, status: &str| {
        json!({
            "type": kind, "status": status, "reason": "x".repeat(1_000), "message": "y".repeat(30_000),
            "lastTransitionTime": "9000-01-01T00:00:00Z",
        })
    };
    let max = i32::MAX;
    match number % JOBS {
        0 => json!({"completedIndexes": indexes, "succeeded": indexes.split(',').count()}),
        1 => json!({"failedIndexes": indexes, "failed": max}),
        2 => json!({"uncountedTerminatedPods": {"succeeded": uids, "failed": []}}),
        3 => json!({"uncountedTerminatedPods": {"succeeded": [], "failed": uids}}),
        4 => json!({"active": max, "ready": max, "terminating": max, "succeeded": max, "failed": max}),
        5 => {
            json!({"conditions": [condition("Complete", "Unknown"), condition("Failed", "False"), condition("X", "True")]})
        }
        6 => {
            json!({"conditions": vec![condition("Suspended", "True"); 20], "startTime": "0001-01-01T00:00:00Z"})
        }
        _ => {
            json!({"completedIndexes": "99999-0,-1,x,0-4294967295", "failedIndexes": "18446744073709551615"})
        }
    }
}
