//! The local kubelet runs pods as processes of this host. No process outlives its pod.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod accounts;
mod ends;
mod frozen_engine;
mod logs;
mod mounts;
mod probes;
mod restart;
mod setup;
mod status;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ConfigMap, ContainerState, Event, Node, Pod};
use kube::api::{Api, DeleteParams, LogParams, PostParams};
use kube::config::KubeConfigOptions;
use serde_json::{Value, json};
use tempfile::TempDir;
use yardmaster_embedded::kubelet::{Kubelet, KubeletConfig, KubeletMode, Mounting, Workspace};
use yardmaster_embedded::{ApiServer, ApiServerConfig};

/// Limit for everything that does not take time by design.
const PATIENCE: Duration = Duration::from_secs(20);

/// The configuration of a kubelet that runs processes.
fn with_processes() -> KubeletConfig {
    let supervisor = Some(env!("CARGO_BIN_EXE_yardmaster").into());
    KubeletConfig { supervisor, ..KubeletConfig::default() }
}

struct Cluster {
    server: ApiServer,
    kubelet: Kubelet,
    client: kube::Client,
    pods: Api<Pod>,
    /// Directory for files that pods write.
    directory: TempDir,
}

impl Cluster {
    async fn start() -> Self {
        Self::with(KubeletMode::Process).await
    }

    async fn with(mode: KubeletMode) -> Self {
        Self::of(KubeletConfig { mode, ..with_processes() }).await
    }

    async fn of(kubelet: KubeletConfig) -> Self {
        let server = ApiServer::start(ApiServerConfig::default()).await.unwrap();
        let options = KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(server.kubeconfig(), &options).await.unwrap();
        let client = kube::Client::try_from(config).unwrap();
        let config = KubeletConfig { api: server.pod_entrance(), ..kubelet };
        let kubelet = Kubelet::start(client.clone(), config).await.unwrap();
        let pods = Api::namespaced(client.clone(), "default");
        Self { server, kubelet, client, pods, directory: tempfile::tempdir().unwrap() }
    }

    async fn stop(self) {
        self.kubelet.shutdown().await;
        self.server.shutdown().await;
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Creates a pod with one container that runs a shell script.
    async fn shell(&self, name: &str, script: &str) {
        self.create(name, json!({"containers": [container(script)]})).await;
    }

    /// Creates a pod. The default restart policy is Never.
    async fn create(&self, name: &str, spec: Value) {
        self.create_with(json!({"name": name}), spec).await;
    }

    async fn create_with(&self, metadata: Value, mut spec: Value) {
        if spec["restartPolicy"].is_null() {
            spec["restartPolicy"] = json!("Never");
        }
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
        self.pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    }

    /// The pod, once `wanted` holds.
    async fn wait(&self, name: &str, wanted: impl Fn(&Pod) -> bool) -> Pod {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let pod = self.pods.get(name).await.unwrap();
            if wanted(&pod) {
                return pod;
            }
            assert!(Instant::now() < deadline, "{}", serde_json::to_string_pretty(&pod.status).unwrap());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn phase(&self, name: &str, phase: &str) -> Pod {
        self.wait(name, |pod| phase_of(pod) == phase).await
    }

    /// The pod, once it has ended.
    async fn ended(&self, name: &str) -> Pod {
        self.wait(name, |pod| matches!(phase_of(pod), "Succeeded" | "Failed")).await
    }

    async fn gone(&self, name: &str) {
        until("the pod is gone", async || self.pods.get_opt(name).await.unwrap().is_none()).await;
    }

    async fn logs(&self, name: &str) -> String {
        self.pods.logs(name, &LogParams::default()).await.unwrap()
    }
}

fn container(script: &str) -> Value {
    json!({"name": "main", "image": "none", "command": ["sh", "-c", escaped(script)]})
}

/// Kubernetes reads `$$` in a command as an escaped `$`.
fn escaped(script: &str) -> String {
    script.replace("$$", "$$$$")
}

fn phase_of(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// State of the first container.
fn state(pod: &Pod) -> ContainerState {
    pod.status.clone().unwrap().container_statuses.unwrap().remove(0).state.unwrap()
}

fn exit_code(pod: &Pod) -> i32 {
    state(pod).terminated.unwrap().exit_code
}

fn condition(pod: &Pod, type_: &str) -> (String, Option<String>) {
    let conditions = pod.status.clone().unwrap().conditions.unwrap();
    let condition = conditions.into_iter().find(|condition| condition.type_ == type_).unwrap();
    (condition.status, condition.reason)
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds().await {
        assert!(Instant::now() < deadline, "still not: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The process id that a pod wrote to a file, once it is written.
async fn pid_in(file: &Path) -> u32 {
    let mut pid = None;
    until("the process id is written", async || {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        pid = text.strip_suffix('\n').and_then(|line| line.parse().ok());
        pid.is_some()
    })
    .await;
    pid.unwrap()
}

fn is_alive(pid: u32) -> bool {
    // A zombie has ended; its parent (init, for an orphan) has not reaped it yet.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
}
