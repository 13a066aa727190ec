//! The Node object that represents this host.

use std::collections::BTreeMap;
use std::path::Path;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::status::LOCAL_IP;
use crate::platform::architecture;

/// The resource of NVIDIA's GPUs.
pub(super) const NVIDIA_GPU: &str = "nvidia.com/gpu";

/// Maximum number of pods that run at the same time; others wait in a queue.
///
/// A pod takes three file descriptors of this process per container. The limit keeps a large parallelism from
/// exhausting them.
pub(super) const MAX_PODS: usize = 500;

/// Creates the Node, or takes over that of a previous kubelet. `port` is the port of the log endpoint.
///
/// `data` is the kubelet's folder.
pub(super) async fn register(
    client: kube::Client,
    name: &str,
    labels: &BTreeMap<String, String>,
    port: u16,
    data: &Path,
) -> Result<Node, kube::Error> {
    let nodes: Api<Node> = Api::all(client);
    let node: Node = serde_json::from_value(json!({
        "metadata": { "name": name, "labels": labels },
    }))
    .map_err(kube::Error::SerdeError)?;
    match nodes.create(&PostParams::default(), &node).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        created => drop(created?),
    }
    // An earlier kubelet may have had others.
    nodes
        .patch(name, &PatchParams::default(), &Patch::Merge(json!({ "metadata": { "labels": labels } })))
        .await?;
    let patch = json!({ "status": status(name, port, data) });
    nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await
}

/// The labels of the Node: those that it has anyway, and these.
pub(super) fn labels(name: &str, more: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let own = [
        ("kubernetes.io/hostname", name),
        ("kubernetes.io/os", std::env::consts::OS),
        ("kubernetes.io/arch", architecture()),
    ];
    let mut labels: BTreeMap<_, _> = own.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    labels.extend(more);
    labels
}

fn status(name: &str, port: u16, data: &Path) -> Value {
    let mut resources = json!({
        "cpu": allocatable("cpu"),
        "memory": allocatable("memory"),
        "ephemeral-storage": storage(data),
        "pods": MAX_PODS.to_string(),
    });
    if let Some(gpus) = allocatable(NVIDIA_GPU) {
        resources[NVIDIA_GPU] = gpus.into();
    }
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
        NVIDIA_GPU => gpus(),
        _ => None,
    }
}

/// The size of the file system with this folder.
pub(super) fn storage(folder: &Path) -> Option<String> {
    let found = rustix::fs::statvfs(folder).ok()?;
    Some(found.f_blocks.saturating_mul(found.f_frsize).to_string())
}

/// The number of GPUs for which NVIDIA's driver has made devices.
fn gpus() -> Option<String> {
    let is_gpu = |name: &str| name.strip_prefix("nvidia").is_some_and(|number| number.parse::<u16>().is_ok());
    let devices = std::fs::read_dir("/dev").ok()?.flatten();
    let count = devices.filter(|device| device.file_name().to_str().is_some_and(is_gpu)).count();
    (count > 0).then(|| count.to_string())
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
