//! Exemplars: from a latency to the trace of a Job that had it.

use std::time::{Duration, Instant};

use serde_json::json;
use yardmaster::telemetry::traces::trace_id_of;

use super::scrape::{free_address, get_metrics};
use crate::binary::{Background, PATIENCE, yardmaster};
use crate::cluster::{Cluster, REPLACEMENT};

const OPEN_METRICS: &str = "application/openmetrics-text;version=1.0.0";

#[tokio::test(flavor = "multi_thread")]
async fn a_latency_leads_to_the_trace_of_a_job() {
    let cluster = Cluster::start().await;
    let directory = tempfile::tempdir().unwrap();
    let (address, nobody) = (free_address(), free_address());
    let mut command = yardmaster();
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    command.args(["controller", "--controller-name", REPLACEMENT, "--listen", &address.to_string()]);
    command.args(["--otlp-endpoint", &format!("http://{nobody}")]);
    command.arg("--kubeconfig").arg(cluster.write_kubeconfig(directory.path()));
    let replica = Background::start(&mut command);
    cluster.create("traced", json!({"completions": 2, "parallelism": 2}), "50ms").await;
    let job = cluster.completes("traced").await;

    let trace = format!("trace_id=\"{}\"", trace_id_of(&job.metadata.uid.unwrap()));
    let deadline = Instant::now() + PATIENCE;
    for name in ["yardmaster_job_first_pod_seconds", "yardmaster_job_completion_seconds"] {
        let bucket = format!("{name}_bucket");
        loop {
            let (_, text) = get_metrics(address, OPEN_METRICS).unwrap();
            if text.lines().any(|line| line.starts_with(&bucket) && line.contains(&trace)) {
                break;
            }
            assert!(Instant::now() < deadline, "no exemplar of {name} with {trace}:\n{text}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    let (_, text) = get_metrics(address, "text/plain").unwrap();
    assert!(!text.contains("trace_id"), "{text}");
    drop(replica);
    cluster.end().await;
}
