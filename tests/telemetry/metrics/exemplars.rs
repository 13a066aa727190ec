//! Exemplars: from a latency to the trace of a Job that had it.

use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::json;
use yardmaster::telemetry::traces::trace_id_of;

use super::scrape::{free_address, get_metrics};
use crate::binary::{Background, PATIENCE, yardmaster};
use crate::cluster::{Cluster, REPLACEMENT};

/// The metrics of a replica that samples traces so and has completed a Job of two pods: as OpenMetrics, and in
/// Prometheus' text format. The first is such that `complete` holds, to which the Job's trace id is given.
async fn metrics_after_a_job(sampler: &str, complete: impl Fn(&str, &str) -> bool) -> [String; 2] {
    let cluster = Cluster::start().await;
    let directory = tempfile::tempdir().unwrap();
    let (address, nobody) = (free_address(), free_address());
    let mut command = yardmaster();
    command.stdout(Stdio::null()).stderr(Stdio::null()).env("OTEL_TRACES_SAMPLER", sampler);
    command.args(["controller", "--controller-name", REPLACEMENT, "--listen", &address.to_string()]);
    command.args(["--otlp-endpoint", &format!("http://{nobody}")]);
    command.arg("--kubeconfig").arg(cluster.write_kubeconfig(directory.path()));
    let replica = Background::start(&mut command);
    cluster.create("traced", json!({"completions": 2, "parallelism": 2}), "50ms").await;
    let job = cluster.completes("traced").await;

    let trace = trace_id_of(&job.metadata.uid.unwrap()).to_string();
    let deadline = Instant::now() + PATIENCE;
    let open_metrics = loop {
        let (_, text) = get_metrics(address, "application/openmetrics-text;version=1.0.0").unwrap();
        if complete(&text, &trace) {
            break text;
        }
        assert!(Instant::now() < deadline, "{trace} is missing in:\n{text}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let (_, text) = get_metrics(address, "text/plain").unwrap();
    drop(replica);
    cluster.end().await;
    [open_metrics, text]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_latency_leads_to_the_trace_of_a_job() {
    let latencies = ["yardmaster_job_first_pod_seconds_bucket", "yardmaster_job_completion_seconds_bucket"];
    let complete = |text: &str, trace: &str| {
        let exemplar = format!("trace_id=\"{trace}\"");
        latencies
            .iter()
            .all(|name| text.lines().any(|line| line.starts_with(name) && line.contains(&exemplar)))
    };
    let [_, text] = metrics_after_a_job("always_on", complete).await;
    assert!(!text.contains("trace_id"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_that_is_not_exported_is_no_exemplar() {
    let complete = |text: &str, _: &str| text.contains("yardmaster_job_completion_seconds_count 1");
    let [open_metrics, _] = metrics_after_a_job("always_off", complete).await;
    assert!(!open_metrics.contains("trace_id"), "{open_metrics}");
}
