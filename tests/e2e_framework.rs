//! The requests of Kubernetes' own e2e tests, of their framework and of their tests of Jobs, and those of other projects that
//! create Jobs. They get the answers they need on a cluster with controller and kubelet. `YARDMASTER_KUBECONFIG` names another
//! cluster, with nodes.
#![allow(clippy::unwrap_used)]

mod binary;
mod e2e;

use std::path::Path;
use std::time::Instant;

use kube::config::{KubeConfigOptions, Kubeconfig};
use serde::Deserialize;
use yardmaster::actors::{Controller, ControllerConfig};
use yardmaster::sharding::ShardCount;
use yardmaster_embedded::kubelet::{Kubelet, KubeletConfig, Mounting};
use yardmaster_embedded::{ApiServer, ApiServerConfig};

use self::binary::PATIENCE;
use self::e2e::conversation::{self, Runtime};
use self::e2e::request::{PAUSE, Request};

#[derive(Deserialize)]
struct Table {
    rows: Vec<Request>,
}

/// A whole cluster, in this process.
struct Cluster {
    server: ApiServer,
    controller: Controller,
    kubelet: Kubelet,
}

impl Cluster {
    async fn start() -> Self {
        let server = ApiServer::start(ApiServerConfig::default()).await.unwrap();
        let config = client_config(server.kubeconfig()).await;
        let controller = ControllerConfig {
            controller_name: "kubernetes.io/job-controller".into(),
            shards: ShardCount::new(2).unwrap(),
            ..ControllerConfig::default()
        };
        let controller = Controller::start(controller, config.clone()).await.unwrap();
        let supervisor = Some(env!("CARGO_BIN_EXE_yardmaster").into());
        let kubelet = KubeletConfig { supervisor, ..KubeletConfig::default() };
        let kubelet = Kubelet::start(kube::Client::try_from(config).unwrap(), kubelet).await.unwrap();
        Self { server, controller, kubelet }
    }

    async fn stop(self) {
        self.kubelet.shutdown().await;
        self.controller.shutdown().await;
        self.server.shutdown().await;
    }
}

async fn client_config(kubeconfig: Kubeconfig) -> kube::Config {
    let options = KubeConfigOptions::default();
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
    config.proxy_url = None;
    config
}

#[tokio::test(flavor = "multi_thread")]
async fn the_e2e_framework_finds_what_it_asks_for() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/e2e/requests.json");
    let table: Table = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let outside = std::env::var_os("YARDMASTER_KUBECONFIG");
    let cluster = if outside.is_none() { Some(Cluster::start().await) } else { None };
    let kubeconfig = match (&cluster, outside) {
        (Some(cluster), _) => cluster.server.kubeconfig(),
        (None, file) => Kubeconfig::read_from(file.unwrap()).unwrap(),
    };
    let client = kube::Client::try_from(client_config(kubeconfig).await).unwrap();
    for row in &table.rows {
        let deadline = Instant::now() + PATIENCE;
        while let Some(problem) = row.problem(&client).await {
            assert!(Instant::now() < deadline, "{}: {} {}: {problem}", row.asks, row.method, row.path);
            tokio::time::sleep(PAUSE).await;
        }
    }
    if let Some(cluster) = cluster {
        cluster.stop().await;
    }
}

#[test]
fn what_the_e2e_tests_of_jobs_ask_of_a_cluster_of_processes_is_so() {
    conversation::play(Runtime::Processes, |_| {});
}

#[tokio::test]
async fn what_the_e2e_tests_of_jobs_ask_of_a_cluster_of_processes_with_mounts_is_so() {
    let program = Path::new(env!("CARGO_BIN_EXE_yardmaster"));
    if let Mounting::ByVariable { why } = Mounting::of_this_host(Some(program)).await {
        assert!(std::env::var_os("CI").is_none(), "no mounts: {why}");
        return eprintln!("skipped: {why}");
    }
    let played = tokio::task::spawn_blocking(|| conversation::play(Runtime::ProcessesWithMounts, |_| {}));
    played.await.unwrap();
}

/// Kueue, JobSet, Argo, Airflow, KEDA and CronJob.
#[test]
fn what_other_controllers_ask_of_a_cluster_is_so() {
    conversation::play_integrations();
}
