//! Restart of a kubelet that keeps its data.

use std::process::Stdio;

use super::*;

impl Cluster {
    /// Stops the kubelet and starts another one on the same data.
    async fn restart_kubelet(self) -> Self {
        let Self { server, kubelet, client, pods, directory } = self;
        kubelet.shutdown().await;
        let kubelet = Kubelet::start(client.clone(), keeping(&directory)).await.unwrap();
        Self { server, kubelet, client, pods, directory }
    }

    /// A cluster whose kubelet keeps its data of pods.
    async fn start_keeping() -> Self {
        let cluster = Self::start().await;
        let Self { server, kubelet, client, pods, directory } = cluster;
        kubelet.shutdown().await;
        let kubelet = Kubelet::start(client.clone(), keeping(&directory)).await.unwrap();
        Self { server, kubelet, client, pods, directory }
    }
}

fn keeping(directory: &TempDir) -> KubeletConfig {
    KubeletConfig { data_dir: Some(directory.path().join("pods")), ..with_processes() }
}

#[tokio::test]
async fn pods_continue_by_restart_policy() {
    let cluster = Cluster::start_keeping().await;
    let file = cluster.file("go");
    let script = format!("echo run; until test -e {}; do sleep 0.05; done; echo end", file.display());
    for (name, policy) in [("never", "Never"), ("again", "OnFailure")] {
        let spec = json!({"restartPolicy": policy, "containers": [container(&script)]});
        cluster.create(name, spec).await;
        cluster.phase(name, "Running").await;
        until("it has begun", async || cluster.logs(name).await == "run\n").await;
    }
    cluster.shell("done", "echo work").await;
    cluster.phase("done", "Succeeded").await;
    let cluster = cluster.restart_kubelet().await;

    let never = cluster.ended("never").await;
    let lost = state(&never).terminated.unwrap();
    assert_eq!((phase_of(&never), lost.reason.as_deref()), ("Failed", Some("ContainerStatusUnknown")));
    assert_eq!(cluster.logs("never").await, "run\n", "its log is not lost");
    assert_eq!(cluster.logs("done").await, "work\n");

    let restarts =
        |pod: &Pod| pod.status.as_ref().unwrap().container_statuses.as_ref().unwrap()[0].restart_count;
    cluster.wait("again", |pod| state(pod).running.is_some() && restarts(pod) == 1).await;
    std::fs::write(file, "").unwrap();
    let again = cluster.ended("again").await;
    assert_eq!((phase_of(&again), restarts(&again)), ("Succeeded", 1));
    assert_eq!(cluster.logs("again").await, "run\nend\n");
    let previous = LogParams { previous: true, ..LogParams::default() };
    assert_eq!(cluster.pods.logs("again", &previous).await.unwrap(), "run\n");

    for name in ["never", "done", "again"] {
        cluster.pods.delete(name, &DeleteParams::default()).await.unwrap();
        cluster.gone(name).await;
    }
    let kept = cluster.file("pods");
    let pods = || std::fs::read_dir(&kept).unwrap().filter(|entry| entry.as_ref().unwrap().path().is_dir());
    until("nothing of the pods is kept", async || pods().next().is_none()).await;
    cluster.stop().await;
}

#[tokio::test]
async fn processes_and_files_of_deleted_pods_are_removed() {
    let cluster = Cluster::start_keeping().await;
    let left = cluster.file("pods").join("default_gone_some-uid");
    std::fs::create_dir_all(left.join("logs/main")).unwrap();
    std::fs::write(left.join(".yardmaster-pod"), "some-uid").unwrap();
    let mut command = std::process::Command::new("sleep");
    command.arg("100").env("YARDMASTER_POD_UID", "some-uid").stdin(Stdio::null());
    let mut process = command.spawn().unwrap();
    let cluster = cluster.restart_kubelet().await;
    until("the directory is gone", async || !left.exists()).await;
    until("the process is gone", async || process.try_wait().unwrap().is_some()).await;
    cluster.stop().await;
}
