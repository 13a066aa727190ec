//! The environment of a container, and its end.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::DeleteParams;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_container_runs_what_its_pod_says_as_whom_and_where() {
    let Some(cluster) = Cluster::start().await else { return };
    let script = "hostname; pwd; id -u; id -g; echo $A; echo err >&2; printf 'no end'";
    let fields = json!({
        "workingDir": "/tmp", "env": [{"name": "B", "value": "b"}, {"name": "A", "value": "$(B)c"}],
        "securityContext": {"runAsUser": 1000, "runAsGroup": 1001},
    });
    let spec = json!({"hostname": "given", "containers": [shell(script, fields)]});
    let printed = cluster.prints("p", spec).await;
    let mut lines: Vec<_> = printed.lines().collect();
    // The two outputs arrive apart.
    lines.sort_unstable();
    assert_eq!(lines, ["/tmp", "1000", "1001", "bc", "err", "given", "no end"]);
    let status = statuses(&cluster.pods.get("p").await.unwrap()).remove(0);
    assert!(status.container_id.unwrap().starts_with("podman://"));
    assert!(!status.image_id.is_empty());
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_are_at_their_paths() {
    let Some(cluster) = Cluster::start().await else { return };
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"k": "v"}});
    let maps = Api::namespaced(cluster.client.clone(), "default");
    let map: k8s_openapi::api::core::v1::ConfigMap = serde_json::from_value(map).unwrap();
    maps.create(&PostParams::default(), &map).await.unwrap();
    let host = tempfile::tempdir().unwrap();
    std::fs::write(host.path().join("file"), "of the host\n").unwrap();
    let script = "cat /map/k /map/in/k; echo; cat /host/file; (echo x > /host/new) 2> /scratch/refused || echo read-only; \
        echo y > /scratch/made && ls /scratch /sub; stat -c %a /secret/k; id -G";
    let fields = json!({
        "securityContext": {"runAsUser": 1000},
        "volumeMounts": [
            {"name": "map", "mountPath": "/map"}, {"name": "host", "mountPath": "/host", "readOnly": true},
            {"name": "scratch", "mountPath": "/scratch"}, {"name": "scratch", "mountPath": "/sub", "subPath": "a/b"},
            {"name": "secret", "mountPath": "/secret"},
        ],
    });
    let items = json!([{"key": "k", "path": "k"}, {"key": "k", "path": "in/k"}]);
    let only_owner = json!([{"key": "k", "path": "k"}]);
    let spec = json!({
        "securityContext": {"fsGroup": 2000},
        "containers": [shell(script, fields)],
        "volumes": [
            {"name": "map", "configMap": {"name": "m", "items": items}},
            {"name": "host", "hostPath": {"path": host.path(), "type": "Directory"}},
            {"name": "scratch", "emptyDir": {}},
            {"name": "secret", "configMap": {"name": "m", "items": only_owner, "defaultMode": 0o400}},
        ],
    });
    let printed = cluster.prints("p", spec).await;
    assert!(printed.contains("vv\n") && printed.contains("of the host\n"), "{printed}");
    assert!(printed.contains("read-only") && printed.contains("/scratch:\na\nmade\nrefused\n"), "{printed}");
    assert!(printed.contains("\n440\n") && printed.trim_end().ends_with("2000"), "{printed}");
    assert!(!host.path().join("new").exists());
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_kubernetes_fills_cannot_be_written() {
    let Some(cluster) = Cluster::start().await else { return };
    let map = json!({"metadata": {"name": "settings"}, "data": {"key": "from the map\n"}});
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), "default");
    maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap();
    let name = json!({"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]});
    let volumes =
        json!([{"name": "map", "configMap": {"name": "settings"}}, {"name": "info", "downwardAPI": name}]);
    let mounts = json!([
        {"name": "map", "mountPath": "/map"}, {"name": "info", "mountPath": "/info"},
        {"name": "map", "mountPath": "/part", "subPath": "key"},
    ]);
    let script = "cat /map/key /part; for file in /map/key /map/new /info/name /part; do (echo > $file) 2> /dev/null || echo refused; done";
    let spec = json!({"containers": [shell(script, json!({"volumeMounts": mounts}))], "volumes": volumes});
    let expected = format!("{}{}", "from the map\n".repeat(2), "refused\n".repeat(4));
    assert_eq!(cluster.prints("p", spec).await, expected);
    cluster.stop().await;
}

/// Of a link that another container has made.
#[tokio::test(flavor = "multi_thread")]
async fn a_sub_path_leads_nowhere_out_of_its_volume() {
    let Some(cluster) = Cluster::start().await else { return };
    let mount =
        |sub_path: &str| json!({"volumeMounts": [{"name": "v", "mountPath": "/v", "subPath": sub_path}]});
    let mut link = shell("ln -s /etc /v/out", json!({"volumeMounts": [{"name": "v", "mountPath": "/v"}]}));
    link["name"] = "first".into();
    let volumes = json!([{"name": "v", "emptyDir": {}}]);
    let spec =
        json!({"initContainers": [link], "containers": [shell("ls /v", mount("out"))], "volumes": volumes});
    cluster.create("p", spec).await;
    let ended = cluster.ended("p").await;
    let message = state(&ended).terminated.unwrap().message.unwrap();
    assert!(message.contains("leads out of volume \"v\""), "{message}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_of_a_pod_share_its_network_and_processes_where_they_ask_for_it() {
    let Some(cluster) = Cluster::start().await else { return };
    let mut server = shell("echo hello | nc -l -p 8000; sleep 1", json!({}));
    server["name"] = "server".into();
    let client = shell(
        "until nc 127.0.0.1 8000 </dev/null; do sleep 0.1; done; ps | grep -c 'nc -l\\|sleep'",
        json!({}),
    );
    let spec = json!({"shareProcessNamespace": true, "containers": [client, server]});
    let printed = cluster.prints("p", spec).await;
    assert!(printed.contains("hello\n"), "{printed}");
    assert_ne!(printed.lines().last(), Some("0"), "{printed}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sidecar_runs_beside_the_containers_and_ends_after_them() {
    let Some(cluster) = Cluster::start().await else { return };
    let volumes = json!([{"name": "v", "emptyDir": {}}]);
    let mount = json!([{"name": "v", "mountPath": "/v"}]);
    let beside = "trap 'echo stopped; exit 0' TERM; touch /v/ready; while :; do sleep 0.1; done";
    let mut sidecar = shell(beside, json!({"volumeMounts": mount, "restartPolicy": "Always"}));
    sidecar["name"] = "beside".into();
    let mut first = shell("echo 1 > /v/first", json!({"volumeMounts": mount}));
    first["name"] = "first".into();
    let waits = "until test -e /v/ready; do sleep 0.1; done; cat /v/first";
    let main = shell(waits, json!({"volumeMounts": mount}));
    let spec = json!({"initContainers": [first, sidecar], "containers": [main], "volumes": volumes});
    assert_eq!(cluster.prints("p", spec).await, "1\n");
    assert_eq!(cluster.logs_of("p", "beside").await, "stopped\n");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_tells_how_it_ended() {
    let Some(cluster) = Cluster::start().await else { return };
    let cases = [
        ("code", shell("echo why > /dev/termination-log; exit 7", json!({})), 7, "Error"),
        ("signal", shell("sh -c 'kill -9 $$'; exit $?", json!({})), 137, "Error"),
        (
            "missing",
            json!({"name": "main", "image": BUSYBOX, "command": ["no-such-program"]}),
            128,
            "StartError",
        ),
    ];
    for (name, container, exit_code, reason) in cases {
        cluster.create(name, json!({"containers": [container]})).await;
        let end = state(&cluster.ended(name).await).terminated.unwrap();
        assert_eq!((end.exit_code, end.reason.as_deref()), (exit_code, Some(reason)), "{name}");
        match name {
            "code" => assert_eq!(end.message.as_deref(), Some("why\n")),
            "missing" => assert!(end.message.unwrap().contains("no-such-program"), "{name}"),
            _ => {}
        }
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_gets_no_more_memory_than_its_limit() {
    let Some(cluster) = Cluster::start().await else { return };
    let limited = json!({"resources": {"limits": {"memory": "32Mi", "cpu": "500m"}}});
    cluster.create("p", json!({"containers": [shell("tail /dev/zero", limited)]})).await;
    let end = state(&cluster.ended("p").await).terminated.unwrap();
    // Not every engine notices why it was killed.
    assert_eq!(end.exit_code, 137, "{end:?}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_is_asked_to_stop_and_then_killed_and_is_gone() {
    let Some(cluster) = Cluster::start().await else { return };
    let polite = "trap 'echo asked; exit 3' TERM; echo ready; while :; do sleep 0.05; done";
    // It prints without end.
    let stubborn = "trap '' TERM; while :; do echo ready; done";
    for (name, script) in [("polite", polite), ("stubborn", stubborn)] {
        cluster.create(name, json!({"containers": [shell(script, json!({}))]})).await;
        cluster.wait(name, |pod| phase_of(pod) == "Running").await;
        let deadline = Instant::now() + PATIENCE;
        while !cluster.logs_of(name, "main").await.starts_with("ready") {
            assert!(Instant::now() < deadline, "{name}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let uid = cluster.pods.get(name).await.unwrap().metadata.uid.unwrap();
        let label = format!("dev.yardmaster.pod-uid={uid}");
        assert_eq!(engine::owners(&label).len(), 1);
        cluster.pods.delete(name, &DeleteParams::default()).await.unwrap();
        while cluster.pods.get_opt(name).await.unwrap().is_some() {
            assert!(Instant::now() < deadline, "{name}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(engine::owners(&label), [""; 0], "{name}");
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_security_context_takes_away_is_gone() {
    let Some(cluster) = Cluster::start().await else { return };
    let fields = json!({"securityContext": {
        "readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }});
    let script =
        "touch /file && echo writable; grep NoNewPrivs /proc/self/status; grep CapEff /proc/self/status";
    let printed = cluster.prints("p", json!({"containers": [shell(script, fields)]})).await;
    assert!(printed.contains("Read-only") && !printed.contains("writable"), "{printed}");
    assert!(printed.contains("NoNewPrivs:\t1") && printed.contains("CapEff:\t0000000000000000"), "{printed}");
    cluster.stop().await;
}
