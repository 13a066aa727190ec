//! The program as the image holds it, without the embedded cluster: `cargo test --no-default-features --test
//! production`. The API server runs in another process than the program: in the one of this test.
#![cfg(not(feature = "embedded"))]
#![allow(clippy::unwrap_used, missing_docs)]

mod binary;
mod cluster;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::binary::{Background, yardmaster};
use crate::cluster::{Cluster, REPLACEMENT};

#[test]
fn there_is_no_cluster_and_run_asks_for_one() {
    let output = yardmaster().arg("cluster").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let mut job = yardmaster();
    job.args(["run", concat!(env!("CARGO_MANIFEST_DIR"), "/examples/parallel.yaml")]);
    let output = job.output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("--kubeconfig"), "{errors}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_runs_a_job_status_shows_it_and_reshard_follows() {
    let cluster = Cluster::start().await;
    let directory = TempDir::new().unwrap();
    let kubeconfig = cluster.write_kubeconfig(directory.path());
    let mut replica = Background::start(cluster.replica(&directory).args(["--shards", "4"]));
    cluster
        .create("work", json!({"completions": 5, "parallelism": 2, "completionMode": "Indexed"}), "10ms")
        .await;
    cluster.assert_exact("work", 5).await;

    let status = |kubeconfig: &std::path::Path| {
        let output =
            yardmaster().args(["status", "-o", "json", "--kubeconfig"]).arg(kubeconfig).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let shown = status(&kubeconfig);
    assert_eq!(shown["shards"].as_array().map(Vec::len), Some(4), "{shown}");
    let job = shown["jobs"].as_array().unwrap().iter().find(|job| job["name"] == "work").unwrap();
    assert_eq!(job["succeeded"], 5, "{job}");

    replica.signal(Signal::SIGTERM);
    assert_eq!(replica.exit_code(), Some(0));
    let mut reshard = yardmaster();
    reshard.args(["reshard", "--to", "8", "--controller-name", REPLACEMENT, "--kubeconfig"]).arg(&kubeconfig);
    let output = reshard.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut replica = Background::start(cluster.replica(&directory).args(["--shards", "8"]));
    cluster.create("more", json!({"completions": 3, "parallelism": 3}), "10ms").await;
    cluster.assert_exact("more", 3).await;
    replica.signal(Signal::SIGTERM);
    assert_eq!(replica.exit_code(), Some(0));
    cluster.end().await;
}
