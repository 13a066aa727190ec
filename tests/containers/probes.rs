//! Probes and hooks of containers, and claims.

use kube::api::DeleteParams;
use tonic_health::ServingStatus;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn probes_reach_the_ports_of_containers_and_run_commands_in_them() {
    let Some(cluster) = Cluster::start().await else { return };
    let page = "mkdir -p /tmp/www && echo well > /tmp/www/healthz && exec httpd -f -p 8080 -h /tmp/www";
    let get = json!({"httpGet": {"port": "web", "path": "/healthz"}, "periodSeconds": 1});
    let exec = json!({"exec": {"command": ["test", "-e", "/tmp/www/healthz"]}, "periodSeconds": 1, "failureThreshold": 1});
    let fields = json!({
        "ports": [{"name": "web", "containerPort": 8080}],
        "startupProbe": get, "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1}, "livenessProbe": exec,
    });
    let is_ready = |pod: &Pod| statuses(pod).first().is_some_and(|status| status.ready);
    cluster.create("alone", json!({"containers": [shell(page, fields.clone())]})).await;
    cluster.wait("alone", is_ready).await;

    // Beside another, its ports are those of the sandbox.
    let mut other = shell("exec sleep 600", json!({}));
    other["name"] = "other".into();
    let mut fails = fields;
    fails["livenessProbe"]["exec"]["command"] = json!(["test", "-e", "/tmp/fail"]);
    fails["livenessProbe"]["initialDelaySeconds"] = 3.into();
    cluster.create("beside", json!({"containers": [shell(page, fails), other]})).await;
    cluster.wait("beside", is_ready).await;
    let ended = |pod: &Pod| {
        statuses(pod)
            .first()
            .is_some_and(|status| status.state.as_ref().is_some_and(|state| state.terminated.is_some()))
    };
    cluster.wait("beside", ended).await;
    cluster.stop().await;
}

/// In the network of the machine, so that the test is the service that is asked.
#[tokio::test(flavor = "multi_thread")]
async fn a_probe_asks_the_health_service_of_grpc() {
    let Some(cluster) = Cluster::start().await else { return };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (health, service) = tonic_health::server::health_reporter();
    let incoming = tonic::transport::server::TcpIncoming::from(listener);
    tokio::spawn(tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming));
    health.set_service_status("work", ServingStatus::Serving).await;
    let probe = |service: &str| json!({"grpc": {"port": port, "service": service}, "periodSeconds": 1, "failureThreshold": 1});
    let fields = json!({"readinessProbe": probe("work"), "livenessProbe": probe("work")});
    let spec = json!({"hostNetwork": true, "containers": [shell("exec sleep 600", fields)]});
    cluster.create("asked", spec).await;
    cluster.wait("asked", |pod| statuses(pod).first().is_some_and(|status| status.ready)).await;
    health.set_service_status("work", ServingStatus::NotServing).await;
    let end = state(&cluster.ended("asked").await).terminated.unwrap();
    assert_eq!(end.exit_code, 137);
    // Pulled, created, started; both probes fail; killed.
    let events = cluster.told("asked", 6).await;
    let failed = "Liveness probe failed: service unhealthy (responded with \"NOT_SERVING\")";
    assert!(events.iter().any(|[_, reason, note, _]| reason == "Unhealthy" && note == failed), "{events:?}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_does_not_live_by_http_or_tcp_is_ended_and_runs_again_where_it_may() {
    let Some(cluster) = Cluster::start().await else { return };
    // Serves until its second second.
    let serve = "mkdir -p /tmp/www && echo well > /tmp/www/healthz; httpd -p 8080 -h /tmp/www; sleep 2; killall httpd; exec sleep 600";
    for (name, action) in [
        ("http", json!({"httpGet": {"port": 8080, "path": "/healthz"}})),
        ("tcp", json!({"tcpSocket": {"port": 8080}})),
    ] {
        let mut probe = action;
        probe["periodSeconds"] = 1.into();
        probe["failureThreshold"] = 2.into();
        probe["initialDelaySeconds"] = 1.into();
        let fields = json!({"livenessProbe": probe, "restartPolicy": "OnFailure"});
        cluster.create(name, json!({"containers": [shell(serve, fields)]})).await;
        let again = |pod: &Pod| statuses(pod).first().is_some_and(|status| status.restart_count > 0);
        let pod = cluster.wait(name, again).await;
        let last = statuses(&pod).remove(0).last_state.unwrap().terminated.unwrap();
        assert_eq!(last.exit_code, 137, "{name}");
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hooks_run_in_the_container() {
    let Some(cluster) = Cluster::start().await else { return };
    let host = tempfile::tempdir().unwrap();
    std::fs::set_permissions(host.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let hook = |name: &str| json!({"exec": {"command": ["sh", "-c", format!("hostname > /host/{name}")]}});
    let fields = json!({
        "volumeMounts": [{"name": "host", "mountPath": "/host"}],
        "lifecycle": {"postStart": hook("started"), "preStop": hook("stopped")},
    });
    let volumes = json!([{"name": "host", "hostPath": {"path": host.path()}}]);
    let spec =
        json!({"containers": [shell("exec sleep 600", fields)], "volumes": volumes, "hostname": "inside"});
    cluster.create("p", spec).await;
    cluster.wait("p", |pod| statuses(pod).first().is_some_and(|status| status.ready)).await;
    let read = |name: &str| std::fs::read_to_string(host.path().join(name)).unwrap();
    assert_eq!(read("started"), "inside\n");
    let grace = DeleteParams { grace_period_seconds: Some(20), ..DeleteParams::default() };
    cluster.pods.delete("p", &grace).await.unwrap();
    let deadline = Instant::now() + PATIENCE;
    while cluster.pods.get_opt("p").await.unwrap().is_some() {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(read("stopped"), "inside\n");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_keeps_what_pods_write() {
    let Some(cluster) = Cluster::start().await else { return };
    let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": spec});
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(cluster.client.clone(), "default");
    let script = "cat /data/file; echo written > /data/file";
    let pod = || {
        let mounts = json!({"volumeMounts": [{"name": "data", "mountPath": "/data"}], "securityContext": {"runAsUser": 1000}});
        let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
        json!({"containers": [shell(script, mounts)], "volumes": volumes})
    };
    cluster.create("early", pod()).await;
    // It waits for its claim.
    tokio::time::sleep(Duration::from_millis(500)).await;
    claims.create(&PostParams::default(), &serde_json::from_value(claim).unwrap()).await.unwrap();
    assert!(cluster.prints_of("early").await.contains("No such file"));
    assert_eq!(cluster.prints("late", pod()).await, "written\n");
    let bound = claims.get("data").await.unwrap().status.unwrap();
    assert_eq!(bound.phase.as_deref(), Some("Bound"));
    assert_eq!(bound.capacity.unwrap()["storage"].0, "1Gi");
    cluster.stop().await;
}
