//! Probes, hooks and restart rules of processes.

use super::*;

/// A container with more fields.
fn with(mut container: Value, fields: Value) -> Value {
    container.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    container
}

async fn reasons(cluster: &Cluster, reason: &str) -> Vec<String> {
    let events: Api<Event> = Api::namespaced(cluster.client.clone(), "default");
    let all = events.list(&Default::default()).await.unwrap().items.into_iter();
    all.filter(|event| event.reason.as_deref() == Some(reason)).filter_map(|event| event.message).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sidecar_that_has_to_start_first_is_waited_for() {
    let cluster = Cluster::start().await;
    let up = cluster.file("up");
    let proxy = json!({
        "name": "proxy", "image": "none", "restartPolicy": "Always",
        "command": ["sh", "-c", format!("sleep 0.5; touch {}; sleep 600", up.display())],
        "startupProbe": {"exec": {"command": ["test", "-e", up]}, "periodSeconds": 1, "failureThreshold": 30},
    });
    let main = container(&format!("test -e {}", up.display()));
    let spec = json!({
        "initContainers": [proxy], "containers": [main], "terminationGracePeriodSeconds": 1,
    });
    cluster.create("p", spec).await;
    assert_eq!(phase_of(&cluster.ended("p").await), "Succeeded");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_does_not_live_is_ended() {
    let cluster = Cluster::start().await;
    let probe = json!({"exec": {"command": ["sh", "-c", "echo hangs; exit 1"]}, "periodSeconds": 1, "failureThreshold": 2});
    let main = with(container("exec sleep 600"), json!({"livenessProbe": probe}));
    cluster.create("p", json!({"containers": [main]})).await;
    let pod = cluster.ended("p").await;
    assert_eq!((phase_of(&pod), exit_code(&pod)), ("Failed", 143));
    until("the probe is explained", async || {
        reasons(&cluster, "Unhealthy").await.contains(&"Liveness probe failed: hangs".to_owned())
            && reasons(&cluster, "Killing").await == ["Container main failed liveness probe"]
    })
    .await;
    cluster.stop().await;
}

/// A program that ends well when it is asked to has not done its work.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_a_probe_has_ended_runs_again_whatever_its_exit_code_is() {
    let cluster = Cluster::start().await;
    let file = cluster.file("ran");
    let script = format!(
        "test -e {0} && exit 0; touch {0}; trap 'exit 0' TERM; while true; do sleep 0.1; done",
        file.display()
    );
    let probe = json!({"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1});
    let main = with(container(&script), json!({"livenessProbe": probe}));
    cluster.create("p", json!({"containers": [main], "restartPolicy": "OnFailure"})).await;
    let pod = cluster.ended("p").await;
    assert_eq!(phase_of(&pod), "Succeeded");
    assert_eq!(pod.status.unwrap().container_statuses.unwrap()[0].restart_count, 1);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sidecar_that_never_starts_lets_nobody_pass() {
    let cluster = Cluster::start().await;
    let proxy = json!({
        "name": "proxy", "image": "none", "restartPolicy": "Always", "command": ["sleep", "600"],
        "startupProbe": {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1},
    });
    let ran = cluster.file("ran");
    let main = container(&format!("touch {}", ran.display()));
    let spec = json!({"initContainers": [proxy], "containers": [main], "terminationGracePeriodSeconds": 1});
    cluster.create("p", spec).await;
    let restarts = |pod: &Pod| {
        pod.status.clone().and_then(|status| Some(status.init_container_statuses?.first()?.restart_count))
    };
    cluster.wait("p", |pod| restarts(pod) > Some(0)).await;
    assert!(!ran.exists());
    cluster.pods.delete("p", &DeleteParams::default()).await.unwrap();
    cluster.gone("p").await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_is_ready_as_long_as_its_probe_passes() {
    let cluster = Cluster::start().await;
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let probe = json!({"tcpSocket": {"port": "web"}, "periodSeconds": 1, "failureThreshold": 1});
    let fields = json!({"readinessProbe": probe, "ports": [{"name": "web", "containerPort": port}]});
    cluster.create("p", json!({"containers": [with(container("exec sleep 600"), fields)]})).await;
    cluster.wait("p", |pod| phase_of(pod) == "Running" && condition(pod, "Ready").0 == "True").await;
    drop(listener);
    let pod = cluster.wait("p", |pod| condition(pod, "Ready").0 == "False").await;
    assert_eq!(phase_of(&pod), "Running");
    let status = pod.status.unwrap().container_statuses.unwrap().remove(0);
    assert_eq!((status.started, status.ready), (Some(true), false));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hooks_run_after_the_start_and_before_the_stop() {
    let cluster = Cluster::start().await;
    let (started, stopped) = (cluster.file("started"), cluster.file("stopped"));
    let hook =
        |file: &Path| json!({"exec": {"command": ["sh", "-c", format!("echo $NAME > {}", file.display())]}});
    let fields = json!({
        "env": [{"name": "NAME", "value": "of the container"}],
        "lifecycle": {"postStart": hook(&started), "preStop": hook(&stopped)},
    });
    let main = with(container("exec sleep 600"), fields);
    cluster.create("p", json!({"containers": [main], "terminationGracePeriodSeconds": 10})).await;
    cluster.wait("p", |pod| phase_of(pod) == "Running" && condition(pod, "Ready").0 == "True").await;
    assert_eq!(std::fs::read_to_string(&started).unwrap(), "of the container\n");
    assert!(!stopped.exists());
    cluster.pods.delete("p", &DeleteParams::default()).await.unwrap();
    cluster.gone("p").await;
    assert_eq!(std::fs::read_to_string(&stopped).unwrap(), "of the container\n");

    let fails = json!({"lifecycle": {"postStart": {"exec": {"command": ["false"]}}}});
    cluster.create("q", json!({"containers": [with(container("exec sleep 600"), fails)]})).await;
    assert_eq!(phase_of(&cluster.ended("q").await), "Failed");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_of_a_container_restarts_it_where_its_pod_would_not() {
    let cluster = Cluster::start().await;
    let rule = json!({"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}});
    let fields = json!({"restartPolicy": "Never", "restartPolicyRules": [rule]});
    let file = cluster.file("ran");
    let script = format!("test -e {0} && exit 0; touch {0}; exit 42", file.display());
    cluster.create("retried", json!({"containers": [with(container(&script), fields.clone())]})).await;
    let pod = cluster.ended("retried").await;
    assert_eq!(phase_of(&pod), "Succeeded");
    assert_eq!(pod.status.unwrap().container_statuses.unwrap()[0].restart_count, 1);
    cluster.create("other", json!({"containers": [with(container("exit 41"), fields)]})).await;
    assert_eq!(phase_of(&cluster.ended("other").await), "Failed");
    cluster.stop().await;
}
