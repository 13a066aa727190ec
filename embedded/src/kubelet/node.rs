//! The Node object that represents this host.

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::status::LOCAL_IP;
use crate::platform::architecture;

/// Maximum number of pods that run at the same time; others wait in a queue.
///
/// A pod takes three file descriptors of this process per container. The limit keeps a large parallelism from
/// exhausting them.
pub(super) const MAX_PODS: usize = 500;

/// Creates the Node, or takes over that of a previous kubelet. `port` is the port of the log endpoint.
pub(super) async fn register(client: kube::Client, name: &str, port: u16) -> Result<(), kube::Error> {
    let nodes: Api<Node> = Api::all(client);
    let node: Node = serde_json::from_value(json!({
        "metadata": { "name": name, "labels": labels(name) },
    }))
    .map_err(kube::Error::SerdeError)?;
    match nodes.create(&PostParams::default(), &node).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        created => drop(created?),
    }
    let patch = json!({ "status": status(name, port) });
    nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
}

fn labels(name: &str) -> Value {
    json!({
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": std::env::consts::OS,
        "kubernetes.io/arch": architecture(),
    })
}

fn status(name: &str, port: u16) -> Value {
    let resources = json!({
        "cpu": allocatable("cpu"),
        "memory": allocatable("memory"),
        "pods": MAX_PODS.to_string(),
    });
    json!({
        "addresses": [
            { "type": "InternalIP", "address": LOCAL_IP },
            { "type": "Hostname", "address": name },
        ],
        "daemonEndpoints": { "kubeletEndpoint": { "Port": port } },
        "capacity": resources,
        "allocatable": resources,
        "conditions": conditions(),
        "nodeInfo": {
            "architecture": architecture(),
            "operatingSystem": std::env::consts::OS,
            "kubeletVersion": concat!("yardmaster-", env!("CARGO_PKG_VERSION")),
            "containerRuntimeVersion": concat!("process://", env!("CARGO_PKG_VERSION")),
            "bootID": "", "kernelVersion": "", "kubeProxyVersion": "", "machineID": "", "osImage": "",
            "systemUUID": "",
        },
    })
}

/// The node is ready as long as its kubelet runs, which watches neither memory nor disks.
fn conditions() -> Value {
    let now = Time(jiff::Timestamp::now());
    let condition = |kind: &str, status: &str, reason: &str, message: &str| {
        json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        })
    };
    let unwatched = "the local kubelet does not evict pods";
    json!([
        condition("MemoryPressure", "False", "KubeletHasSufficientMemory", unwatched),
        condition("DiskPressure", "False", "KubeletHasNoDiskPressure", unwatched),
        condition("PIDPressure", "False", "KubeletHasSufficientPID", unwatched),
        condition("Ready", "True", "KubeletReady", "the local kubelet is running"),
    ])
}

/// The host's capacity of a resource as a quantity; `None` for resources that the kubelet does not measure.
pub(super) fn allocatable(resource: &str) -> Option<String> {
    match resource {
        "cpu" => std::thread::available_parallelism().ok().map(|cpus| cpus.to_string()),
        "memory" => memory(),
        _ => None,
    }
}

#[cfg(target_os = "linux")]
fn memory() -> Option<String> {
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    let total = info.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(format!("{}Ki", total.split_whitespace().next()?))
}

#[cfg(not(target_os = "linux"))]
fn memory() -> Option<String> {
    None
}
