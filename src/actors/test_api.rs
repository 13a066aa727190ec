//! The environment for tests of actors: virtual time, over an API server whose answers they
//! decide.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use actix::System;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Handle};
use tokio::time::Instant;

use super::clock::{Clock, Clocks};
use super::config::ControllerConfig;
use super::context::ReplicaContext;
pub(super) use crate::cluster::test_api::TestApi;
use crate::cluster::wire::{Decoder as _, JobDecoder, ObservedJob, ObservedPod, PodDecoder};
use crate::sharding::ShardCount;
use crate::telemetry::metrics::Metrics;

/// A replica with one shard.
pub(super) fn replica(api: &TestApi, controller_name: &str) -> ReplicaContext {
    replica_with(api, controller_name, |_| {})
}

/// The same, with other settings.
pub(super) fn replica_with(
    api: &TestApi,
    controller_name: &str,
    change: impl FnOnce(&mut ControllerConfig),
) -> ReplicaContext {
    let mut config = ControllerConfig {
        controller_name: controller_name.into(),
        shards: ShardCount::new(1).unwrap(),
        arbiters: 1,
        ..ControllerConfig::default()
    };
    change(&mut config);
    let clocks = Clocks { wall: Arc::new(VirtualClock(Instant::now())), ..Clocks::of_this_host() };
    let transport = Arc::new(api.clone());
    ReplicaContext::new(config, transport, Arc::new(Metrics::new()), Handle::current(), clocks)
}

#[derive(Debug)]
struct VirtualClock(Instant);

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::try_from(self.0.elapsed()).unwrap()
    }
}

/// Runs a test of actors in virtual time.
pub(super) fn run(test: impl Future<Output = ()>) {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    System::with_tokio_rt(|| runtime).block_on(test);
}

/// The pod `NAME`, which is controlled by the Job `job`, and has our finalizer.
pub(super) fn pod(name: &str, job: &str) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": "n", "uid": name, "resourceVersion": "10",
            "creationTimestamp": "1970-01-01T00:00:00Z",
            "labels": {"batch.kubernetes.io/controller-uid": job},
            "finalizers": ["batch.kubernetes.io/job-tracking"],
            "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": job, "controller": true},
            ],
        },
    })
}

/// The Job `name`, which wants one pod, with this status.
pub(super) fn job(name: &str, status: Value) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": "n", "uid": name, "resourceVersion": "10",
            "creationTimestamp": "1970-01-01T00:00:00Z",
        },
        "spec": {
            "parallelism": 1, "completions": 1, "completionMode": "NonIndexed", "backoffLimit": 6,
            "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": name}},
            "template": {
                "metadata": {"labels": {"batch.kubernetes.io/controller-uid": name}},
                "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
            },
        },
        "status": status,
    })
}

pub(super) fn observed_pod(pod: &Value) -> Box<ObservedPod> {
    PodDecoder::new("batch.kubernetes.io/job-tracking").decode(pod.to_string().as_bytes()).unwrap()
}

pub(super) fn observed_job(job: &Value) -> Arc<ObservedJob> {
    JobDecoder::new().decode(job.to_string().as_bytes()).unwrap()
}

/// A list of these pods, at this version.
pub(super) fn list(version: u64, items: &[Value]) -> Option<(u16, Value)> {
    Some((200, json!({"metadata": {"resourceVersion": version.to_string()}, "items": items})))
}

/// A refusal with this code.
pub(super) fn refusal(code: u16) -> Option<(u16, Value)> {
    let reason = if code == 404 { "NotFound" } else { "" };
    Some((code, json!({"kind": "Status", "code": code, "reason": reason, "message": "by policy"})))
}
