//! Isolation of containers: shares with the machine and the pod, rights, and limits of resources.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

use super::*;

/// The namespace of this process, as a container prints its own.
fn own_namespace(kind: &str) -> String {
    std::fs::read_link(format!("/proc/self/ns/{kind}")).unwrap().display().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_shares_the_namespaces_of_the_machine_only_where_it_says_so() {
    let Some(cluster) = Cluster::start().await else { return };
    let look = "for kind in net ipc pid; do readlink /proc/self/ns/$kind; done";
    let own = ["net", "ipc", "pid"].map(own_namespace);
    for (name, fields, shared) in [
        ("none", json!({}), [false, false, false]),
        ("network", json!({"hostNetwork": true}), [true, false, false]),
        ("ipc", json!({"hostIPC": true}), [false, true, false]),
        ("processes", json!({"hostPID": true}), [false, false, true]),
    ] {
        let mut spec = json!({"containers": [shell(look, json!({}))]});
        spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let printed = cluster.prints(name, spec).await;
        let found: Vec<_> = printed.lines().zip(&own).map(|(line, own)| line == own).collect();
        assert_eq!(found, shared, "{name}: {printed}");
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_of_a_pod_share_network_and_ipc_and_have_processes_of_their_own() {
    let Some(cluster) = Cluster::start().await else { return };
    let look = |name: &str| {
        let script = "for kind in net ipc pid; do readlink /proc/self/ns/$kind; done; hostname; sleep 1";
        let mut container = shell(script, json!({}));
        container["name"] = name.into();
        container
    };
    for (name, shares, same) in
        [("apart", false, [true, true, false]), ("together", true, [true, true, true])]
    {
        let containers = json!([look("main"), look("other")]);
        let spec = json!({"containers": containers, "shareProcessNamespace": shares, "hostname": "one"});
        let one = cluster.prints(name, spec).await;
        let other = cluster.logs_of(name, "other").await;
        let found: Vec<_> = one.lines().zip(other.lines()).take(3).map(|(one, other)| one == other).collect();
        assert_eq!(found, same, "{name}: {one}{other}");
        assert_eq!((one.lines().last(), other.lines().last()), (Some("one"), Some("one")), "{name}");
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_security_context_adds_and_takes_rights() {
    let Some(cluster) = Cluster::start().await else { return };
    let look = "grep -e CapEff -e Seccomp: /proc/self/status | tr -d '\t' | paste -s -d ' '";
    // The bits of `CAP_SYS_TIME` and `CAP_CHOWN`.
    let (time, chown) = (1_u64 << 25, 1_u64);
    let capabilities = |printed: &str| {
        let hex = printed.split_once("CapEff:").unwrap().1.split_whitespace().next().unwrap();
        u64::from_str_radix(hex, 16).unwrap()
    };
    for (name, context, has_time, has_chown, seccomp) in [
        ("usual", json!({}), false, true, "Seccomp:2"),
        ("more", json!({"capabilities": {"add": ["SYS_TIME"], "drop": ["CHOWN"]}}), true, false, "Seccomp:2"),
        ("unconfined", json!({"seccompProfile": {"type": "Unconfined"}}), false, true, "Seccomp:0"),
        ("privileged", json!({"privileged": true}), true, true, "Seccomp:0"),
    ] {
        let spec = json!({"containers": [shell(look, json!({"securityContext": context}))]});
        let printed = cluster.prints(name, spec).await;
        let found = capabilities(&printed);
        assert_eq!((found & time != 0, found & chown != 0), (has_time, has_chown), "{name}: {printed}");
        assert!(printed.contains(seccomp), "{name}: {printed}");
    }
    let profile = json!({"seccompProfile": {"type": "Localhost", "localhostProfile": "own.json"}});
    cluster.create("own", json!({"containers": [shell("true", json!({"securityContext": profile}))]})).await;
    let message = state(&cluster.ended("own").await).terminated.unwrap().message.unwrap();
    assert_eq!(message, "seccompProfile.type Localhost: this node has no profiles of its own");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_has_the_cpus_of_its_limit() {
    let Some(cluster) = Cluster::start().await else { return };
    // The file of the second version of control groups, or that of the first.
    let look = "cat /sys/fs/cgroup/cpu.max 2> /dev/null || cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us";
    let limits = json!({"resources": {"limits": {"cpu": "250m", "memory": "64Mi"}}});
    let printed = cluster.prints("limited", json!({"containers": [shell(look, limits)]})).await;
    assert_eq!(printed.split_whitespace().next(), Some("25000"), "{printed}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_asks_for_a_device_waits_where_there_is_none() {
    if Path::new("/dev/nvidia0").exists() {
        return;
    }
    let Some(cluster) = Cluster::start().await else { return };
    let limits = json!({"resources": {"limits": {"nvidia.com/gpu": 1}}});
    cluster.create("gpu", json!({"containers": [shell("true", limits)]})).await;
    let [_, reason, note, _] = cluster.told("gpu", 1).await.remove(0);
    assert_eq!(reason, "FailedScheduling");
    assert!(note.starts_with("0/1 nodes are available: 1 Insufficient nvidia.com/gpu."), "{note}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_of_the_machine_leads_into_a_pod_that_waits_until_it_is_free() {
    let Some(cluster) = Cluster::start().await else { return };
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let number = taken.local_addr().unwrap().port();
    let ports = json!({"ports": [{"containerPort": 8080, "hostPort": number, "hostIP": "127.0.0.1"}]});
    let server = || json!({"containers": [shell("echo hello | nc -l -p 8080", ports.clone())]});
    cluster.create("server", server()).await;
    let [_, reason, note, _] = cluster.told("server", 1).await.remove(0);
    assert_eq!(reason, "FailedCreatePodSandBox", "{note}");
    assert!(note.contains("address already in use"), "{note}");
    let says_why = |pod: &Pod| {
        let waiting = statuses(pod).first().and_then(|status| status.state.clone()?.waiting);
        waiting
            .is_some_and(|waiting| waiting.message.is_some_and(|why| why.contains("address already in use")))
    };
    cluster.wait("server", says_why).await;

    drop(taken);
    cluster.wait("server", |pod| statuses(pod).first().is_some_and(|status| status.ready)).await;
    // Another pod waits until this one has ended.
    cluster.create("second", server()).await;
    let [_, reason, note, _] = cluster.told("second", 1).await.remove(0);
    assert_eq!(reason, "FailedScheduling", "{note}");
    assert!(note.contains("node(s) didn't have free ports for the requested pod ports"), "{note}");

    let read = tokio::task::spawn_blocking(move || {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut text = String::new();
            let stream = std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, number));
            let read = stream.and_then(|mut stream| std::io::Read::read_to_string(&mut stream, &mut text));
            if read.is_ok() && !text.is_empty() {
                return text;
            }
            assert!(Instant::now() < deadline, "{read:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    assert_eq!(read.await.unwrap(), "hello\n");
    assert_eq!(phase_of(&cluster.ended("server").await), "Succeeded");
    cluster.wait("second", |pod| statuses(pod).first().is_some_and(|status| status.ready)).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_whose_volume_outgrows_its_limit_is_evicted() {
    let Some(cluster) = Cluster::start().await else { return };
    let mounts = json!({"volumeMounts": [{"name": "work", "mountPath": "/scratch"}]});
    let script = "dd if=/dev/zero of=/scratch/file bs=1M count=3 2> /dev/null; exec sleep 600";
    let volumes = json!([{"name": "work", "emptyDir": {"medium": "Memory", "sizeLimit": "2Mi"}}]);
    cluster.create("large", json!({"containers": [shell(script, mounts)], "volumes": volumes})).await;
    let status = cluster.ended("large").await.status.unwrap();
    assert_eq!((status.phase.as_deref(), status.reason.as_deref()), (Some("Failed"), Some("Evicted")));
    let expected = "Usage of EmptyDir volume \"work\" exceeds the limit \"2Mi\". ";
    assert_eq!(status.message.as_deref(), Some(expected));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_of_the_machine_is_what_its_type_says() {
    let Some(cluster) = Cluster::start().await else { return };
    let host = tempfile::tempdir().unwrap();
    let spec = |name: &str, kind: &str, script: &str| {
        let mounts = json!({"volumeMounts": [{"name": "host", "mountPath": "/host"}]});
        let path = json!({"path": host.path().join(name), "type": kind});
        json!({"containers": [shell(script, mounts)], "volumes": [{"name": "host", "hostPath": path}]})
    };
    let made = cluster
        .prints("folder", spec("made/deep", "DirectoryOrCreate", "echo x > /host/file && ls /host"))
        .await;
    assert_eq!(made, "file\n");
    assert_eq!(std::fs::read_to_string(host.path().join("made/deep/file")).unwrap(), "x\n");
    let file = cluster.prints("file", spec("new", "FileOrCreate", "echo y > /host && cat /host")).await;
    assert_eq!(file, "y\n");
    let _socket = std::os::unix::net::UnixListener::bind(host.path().join("socket")).unwrap();
    assert_eq!(
        cluster.prints("socket", spec("socket", "Socket", "test -S /host && echo one")).await,
        "one\n"
    );

    cluster.create("wrong", spec("new", "Directory", "true")).await;
    let [_, reason, note, _] = cluster.told("wrong", 1).await.remove(0);
    assert_eq!(reason, "FailedMount");
    assert!(note.contains("hostPath type check failed"), "{note}");
    cluster.stop().await;
}
