//! A load of which everything is known: how many Jobs, pods, failures and hand-overs.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use yardmaster::actors::{Controller, ControllerConfig};
use yardmaster::sharding::ShardCount;
use yardmaster::telemetry::metrics::Format;

use super::scrape::{Scrape, free_address, get_metrics};
use crate::binary::PATIENCE;
use crate::cluster::{Cluster, REPLACEMENT, has};

/// Shards of the load.
pub(crate) const SHARDS: u32 = 8;
/// Jobs that are left at the end: those of [`jobs`], and `suspended`.
const HELD: f64 = 7.0;

/// The metrics that the replicas served at the end of the load.
pub(crate) struct Load {
    /// `/metrics` of the replica that did the work, in Prometheus' text format.
    pub(crate) text: String,
    /// The same in OpenMetrics.
    pub(crate) open_metrics: String,
    /// All series of both replicas, added up.
    pub(crate) both: Scrape,
    /// All series of the first replica while one Job was suspended.
    pub(crate) while_waiting: Scrape,
    /// The sum of `yardmaster_waiting_jobs` of both replicas while one Job was suspended: before, and after it
    /// went to the other replica or stayed.
    pub(crate) waiting: [f64; 2],
    /// The API server: `host:port`.
    pub(crate) host: String,
}

/// The load, which all tests share.
pub(crate) static LOAD: LazyLock<Load> = LazyLock::new(|| {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    // Tests run on runtimes of their own, which must not be blocked on.
    let load = std::thread::spawn(move || runtime.block_on(run()));
    load.join().unwrap()
});

fn settings(identity: &str) -> ControllerConfig {
    ControllerConfig {
        controller_name: REPLACEMENT.to_owned(),
        identity: identity.to_owned(),
        shards: ShardCount::new(SHARDS).unwrap(),
        lease_duration: Duration::from_secs(60),
        renew_deadline: Duration::from_secs(40),
        retry_period: Duration::from_secs(1),
        pod_failure_backoff: Duration::from_millis(100),
        api_backoff: Duration::from_millis(100),
        ttl_controller: true,
        ..ControllerConfig::default()
    }
}

/// A spec whose pods end with an exit code.
fn exits(code: u8, spec: Value) -> Value {
    let mut spec = spec;
    spec["template"] = json!({
        "metadata": {"annotations": {
            "yardmaster.dev/simulated-run-time": "50ms",
            "yardmaster.dev/simulated-exit-code": code.to_string(),
        }},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
    });
    spec
}

fn policy(action: &str, code: u8) -> Value {
    let codes = json!({"operator": "In", "values": [code]});
    json!({"rules": [{"action": action, "onExitCodes": codes}]})
}

/// The Jobs of the load that end by themselves.
fn jobs() -> Vec<(&'static str, Value, &'static str)> {
    vec![
        // Pods: 4 succeed.
        ("indexed", json!({"completions": 4, "parallelism": 2, "completionMode": "Indexed"}), "Complete"),
        // Pods: 3 succeed.
        ("plain", json!({"completions": 3, "parallelism": 3}), "Complete"),
        // Pods: 2 fail, the second of them a replacement.
        ("fails", exits(1, json!({"completions": 1, "backoffLimit": 1})), "Failed"),
        // Pods: 1 fails, as the policy says.
        ("fail-job", exits(5, json!({"completions": 1, "podFailurePolicy": policy("FailJob", 5)})), "Failed"),
        // Pods: 1 fails.
        (
            "count",
            exits(7, json!({"completions": 1, "backoffLimit": 0, "podFailurePolicy": policy("Count", 7)})),
            "Failed",
        ),
        // Pods: 2 fail, each of them its index.
        (
            "fail-index",
            exits(
                6,
                json!({
                    "completions": 2, "parallelism": 2, "completionMode": "Indexed",
                    "backoffLimitPerIndex": 1, "podFailurePolicy": policy("FailIndex", 6),
                }),
            ),
            "Failed",
        ),
    ]
}

async fn run() -> Load {
    let cluster = Cluster::start().await;
    let address = free_address();
    let first = cluster.controller(ControllerConfig { listen: Some(address), ..settings("a") }).await;
    first.ready().await;
    for (name, spec, _) in jobs() {
        cluster.create(name, spec, "50ms").await;
    }
    for (name, _, end) in jobs() {
        cluster.until(name, end, |job| has(job, end)).await;
    }
    ends_in_other_ways(&cluster, &first).await;

    cluster.create("suspended", json!({"suspend": true}), "50ms").await;
    let alone = until(&[&first], "one Job waits", |sum| waiting(sum) == 1.0).await;
    let second = cluster.controller(settings("b")).await;
    let shared = |sum: &Scrape| sum.value("yardmaster_handovers_total{direction=released}") == 4.0;
    second.ready().await;
    let with_another = until(&[&first, &second], "shared", |sum| {
        shared(sum) && sum.value("yardmaster_owned_shards") == f64::from(SHARDS) && waiting(sum) == 1.0
    })
    .await;
    let resume = Patch::Merge(json!({"spec": {"suspend": false}}));
    cluster.jobs.patch("suspended", &PatchParams::default(), &resume).await.unwrap();
    cluster.completes("suspended").await;

    let both = until(&[&first, &second], "at rest", at_rest).await;
    let accept = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5";
    let (content_type, open_metrics) = get_metrics(address, accept).unwrap();
    assert_eq!(content_type, "application/openmetrics-text; version=1.0.0; charset=utf-8");
    let (content_type, text) = get_metrics(address, "*/*").unwrap();
    assert_eq!(content_type, "text/plain; version=0.0.4; charset=utf-8");
    let url = &cluster.config.cluster_url;
    let host = format!("{}:{}", url.host().unwrap(), url.port_u16().unwrap());
    first.shutdown().await;
    second.shutdown().await;
    cluster.end().await;
    let waiting = [waiting(&alone), waiting(&with_another)];
    Load { text, open_metrics, both, while_waiting: alone, waiting, host }
}

/// Jobs that are ignored, that go on for ever, and that are deleted.
async fn ends_in_other_ways(cluster: &Cluster, controller: &Controller) {
    let ignored = exits(3, json!({"completions": 1, "podFailurePolicy": policy("Ignore", 3)}));
    cluster.create("ignored", ignored, "").await;
    let ignored = "job_controller_pod_failures_handled_by_failure_policy_total{action=Ignore}";
    until(&[controller], "a failure is ignored", |sum| sum.value(ignored) >= 2.0).await;
    // Its last pod is removed without being counted.
    let suspend = Patch::Merge(json!({"spec": {"suspend": true}}));
    cluster.jobs.patch("ignored", &PatchParams::default(), &suspend).await.unwrap();
    cluster.until("ignored", "suspended", |job| has(job, "Suspended")).await;
    until(&[controller], "the Job waits", |sum| waiting(sum) == 1.0).await;
    cluster.jobs.delete("ignored", &DeleteParams::foreground()).await.unwrap();
    until(&[controller], "the Job is gone", |sum| sum.sum("yardmaster_waiting_jobs") == 0.0).await;

    cluster.create("expires", json!({"ttlSecondsAfterFinished": 0}), "50ms").await;
    let expired = "ttl_after_finished_controller_job_deletion_duration_seconds_count";
    until(&[controller], "the TTL has expired", |sum| sum.value(expired) == 1.0).await;

    for (name, manager) in [("other-1", "example.com/one"), ("other-2", "example.com/one")] {
        cluster.create(name, json!({"managedBy": manager}), "50ms").await;
    }
    let external = "job_controller_jobs_by_external_controller_total";
    until(&[controller], "Jobs of another controller", |sum| sum.sum(external) >= 2.0).await;
}

fn scrape(controller: &Controller) -> Scrape {
    Scrape::of(&controller.metrics().render(Format::Text))
}

fn waiting(sum: &Scrape) -> f64 {
    sum.value("yardmaster_waiting_jobs{reason=Suspended}")
}

/// Whether all Jobs have ended, those that are to be deleted are gone, and nothing is in progress.
fn at_rest(sum: &Scrape) -> bool {
    let pods = |event: &str| {
        sum.value(&format!("job_controller_terminated_pods_tracking_finalizer_total{{event={event}}}"))
    };
    let in_progress = ["depth", "longest_running_processor_seconds"];
    pods("add") == pods("delete")
        && sum.sum("yardmaster_waiting_jobs") == 0.0
        && sum.value("yardmaster_held_jobs") == HELD
        && in_progress.iter().all(|name| sum.value(&format!("workqueue_{name}{{name=job}}")) == 0.0)
}

/// Waits until the sum of what some controllers show is as wanted.
async fn until(controllers: &[&Controller], what: &str, holds: impl Fn(&Scrape) -> bool) -> Scrape {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let scrapes = controllers.iter().map(|controller| scrape(controller));
        let sum = scrapes.fold(Scrape::default(), |sum, next| sum.plus(&next));
        if holds(&sum) {
            return sum;
        }
        assert!(Instant::now() < deadline, "still not: {what}: {sum:#?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
