//! The local kubelet runs pods as containers of a real engine: Podman. Nothing is left of them.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod accounts;
#[path = "../binary/mod.rs"]
mod binary;
mod commands;
mod conversation;
#[path = "../e2e/mod.rs"]
mod e2e;
mod engine;
mod failures;
mod images;
mod isolation;
mod manifests;
mod names;
mod pods;
mod probes;
mod programs;
mod progress;
mod pulls;
mod registry;

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Event, PersistentVolumeClaim, Pod};
use kube::api::{Api, ListParams, LogParams, PostParams};
use kube::config::KubeConfigOptions;
use serde_json::{Value, json};
use yardmaster_embedded::kubelet::engine::Engine;
use yardmaster_embedded::kubelet::{Kubelet, KubeletConfig, KubeletMode};
use yardmaster_embedded::{ApiServer, ApiServerConfig};

use self::engine::BUSYBOX;

/// Limit for everything that does not take time by design. An engine on a busy machine takes a second for a container.
const PATIENCE: Duration = Duration::from_secs(60);

/// An API server and a kubelet that runs containers.
struct Cluster {
    server: ApiServer,
    kubelet: Kubelet,
    client: kube::Client,
    pods: Api<Pod>,
}

impl Cluster {
    /// A cluster, if there is an engine.
    async fn start() -> Option<Self> {
        let address = tokio::task::spawn_blocking(engine::address).await.unwrap()?;
        let mode = KubeletMode::Containers(Engine::at(address).await.unwrap());
        let server = ApiServer::start(ApiServerConfig::default()).await.unwrap();
        let options = KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(server.kubeconfig(), &options).await.unwrap();
        let client = kube::Client::try_from(config).unwrap();
        let config = KubeletConfig { mode, api: server.pod_entrance(), ..KubeletConfig::default() };
        let kubelet = Kubelet::start(client.clone(), config).await.unwrap();
        let pods = Api::namespaced(client.clone(), "default");
        Some(Self { server, kubelet, client, pods })
    }

    async fn stop(self) {
        self.kubelet.shutdown().await;
        self.server.shutdown().await;
    }

    /// Creates a pod that runs once.
    async fn create(&self, name: &str, mut spec: Value) {
        spec["restartPolicy"] = json!("Never");
        spec["terminationGracePeriodSeconds"] = json!(1);
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
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

    async fn ended(&self, name: &str) -> Pod {
        self.wait(name, |pod| matches!(phase_of(pod), "Succeeded" | "Failed")).await
    }

    async fn waits(&self, name: &str, reason: &str) -> String {
        let waiting = |pod: &Pod| statuses(pod).first()?.state.clone()?.waiting;
        let is_so = |pod: &Pod| waiting(pod).is_some_and(|waiting| waiting.reason.as_deref() == Some(reason));
        waiting(&self.wait(name, is_so).await).unwrap().message.unwrap_or_default()
    }

    async fn logs_of(&self, name: &str, container: &str) -> String {
        let of = LogParams { container: Some(container.to_owned()), ..LogParams::default() };
        self.pods.logs(name, &of).await.unwrap()
    }

    /// The events about a pod, oldest first: type, reason, note, and the field that they are about.
    async fn events(&self, name: &str) -> Vec<[String; 4]> {
        let about = format!("involvedObject.name={name}");
        let events: Api<Event> = Api::namespaced(self.client.clone(), "default");
        let mut all = events.list(&ListParams::default().fields(&about)).await.unwrap().items;
        all.sort_by_key(|event| event.event_time.clone());
        let text = |event: Event| {
            let fields = [event.type_, event.reason, event.message, event.involved_object.field_path];
            fields.map(Option::unwrap_or_default)
        };
        all.into_iter().map(text).collect()
    }

    /// The events about a pod, once there are this many.
    async fn told(&self, name: &str, count: usize) -> Vec<[String; 4]> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let told = self.events(name).await;
            if told.len() >= count {
                return told;
            }
            assert!(Instant::now() < deadline, "{told:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The output of a pod's only container, which ends with success.
    async fn prints(&self, name: &str, spec: Value) -> String {
        self.create(name, spec).await;
        self.prints_of(name).await
    }

    async fn prints_of(&self, name: &str) -> String {
        let pod = self.ended(name).await;
        let logs = self.logs_of(name, "main").await;
        assert_eq!(
            phase_of(&pod),
            "Succeeded",
            "{logs}{}",
            serde_json::to_string_pretty(&pod.status).unwrap()
        );
        logs
    }
}

/// The container `main` with a shell script and further fields.
fn shell(script: &str, fields: Value) -> Value {
    // Kubernetes reads `$$` in a command as an escaped `$`.
    let mut container =
        json!({"name": "main", "image": BUSYBOX, "command": ["sh", "-c", script.replace('$', "$$")]});
    container.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    container
}

fn phase_of(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

fn statuses(pod: &Pod) -> Vec<ContainerStatus> {
    pod.status.clone().unwrap_or_default().container_statuses.unwrap_or_default()
}

/// State of the first container.
fn state(pod: &Pod) -> ContainerState {
    statuses(pod).remove(0).state.unwrap()
}
