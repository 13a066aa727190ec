//! The status of a pod in all its states.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn the_node_is_registered() {
    let cluster = Cluster::start().await;
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let status = nodes.get("yardmaster-local").await.unwrap().status.unwrap();
    let addresses: Vec<_> = status.addresses.unwrap().into_iter().map(|a| (a.type_, a.address)).collect();
    assert!(addresses.contains(&("InternalIP".into(), "127.0.0.1".into())));
    assert!(status.daemon_endpoints.unwrap().kubelet_endpoint.unwrap().port > 0);
    let conditions =
        status.conditions.unwrap().into_iter().map(|condition| (condition.type_, condition.status));
    assert!(conditions.into_iter().any(|condition| condition == ("Ready".into(), "True".into())));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn success_and_failure_show_in_the_status() {
    let cluster = Cluster::start().await;
    cluster.shell("good", "exit 0").await;
    cluster.shell("bad", "exit 3").await;
    cluster.shell("killed", "kill -9 $$").await;

    let good = cluster.ended("good").await;
    assert_eq!((phase_of(&good), exit_code(&good)), ("Succeeded", 0));
    assert_eq!(state(&good).terminated.unwrap().reason.as_deref(), Some("Completed"));
    assert_eq!(condition(&good, "Ready"), ("False".into(), Some("PodCompleted".into())));
    assert_eq!(condition(&good, "Initialized"), ("True".into(), Some("PodCompleted".into())));
    assert_eq!(condition(&good, "PodScheduled").0, "True");
    assert_eq!(good.spec.unwrap().node_name.as_deref(), Some("yardmaster-local"));
    let status = good.status.unwrap();
    assert_eq!((status.pod_ip.as_deref(), status.host_ip.as_deref()), (Some("127.0.0.1"), Some("127.0.0.1")));
    assert!(status.start_time.is_some());

    let bad = cluster.ended("bad").await;
    assert_eq!((phase_of(&bad), exit_code(&bad)), ("Failed", 3));
    assert_eq!(state(&bad).terminated.unwrap().reason.as_deref(), Some("Error"));
    assert_eq!(condition(&bad, "Ready"), ("False".into(), Some("PodFailed".into())));

    let killed = cluster.ended("killed").await;
    assert_eq!(exit_code(&killed), 137);
    assert_eq!(state(&killed).terminated.unwrap().signal, Some(9));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_pod_is_ready() {
    let cluster = Cluster::start().await;
    cluster.shell("p", "sleep 600").await;
    let pod = cluster.phase("p", "Running").await;
    assert_eq!(condition(&pod, "Ready").0, "True");
    assert_eq!(condition(&pod, "ContainersReady").0, "True");
    let container = pod.status.unwrap().container_statuses.unwrap().remove(0);
    assert!(container.ready && container.started == Some(true));
    assert!(container.state.unwrap().running.is_some());
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn init_containers_run_first_and_in_order() {
    let cluster = Cluster::start().await;
    let trace = cluster.file("trace");
    let step = |name: &str, script: &str| {
        let script = format!("echo {name} >> {}; {script}", trace.display());
        json!({"name": name, "image": "none", "command": ["sh", "-c", script]})
    };
    let spec = json!({"initContainers": [step("one", "sleep 0.2"), step("two", "")], "containers": [step("main", "")]});
    cluster.create("good", spec).await;
    cluster.phase("good", "Succeeded").await;
    assert_eq!(std::fs::read_to_string(&trace).unwrap(), "one\ntwo\nmain\n");

    std::fs::remove_file(&trace).unwrap();
    let spec =
        json!({"initContainers": [step("one", "exit 1"), step("two", "")], "containers": [step("main", "")]});
    cluster.create("bad", spec).await;
    let bad = cluster.phase("bad", "Failed").await;
    assert_eq!(std::fs::read_to_string(&trace).unwrap(), "one\n");
    assert_eq!(condition(&bad, "Initialized"), ("False".into(), Some("ContainersNotInitialized".into())));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sidecar_ends_with_the_containers_that_it_serves() {
    let cluster = Cluster::start().await;
    let (sidecar, served) = (cluster.file("sidecar"), cluster.file("served"));
    let helper = escaped(&format!("echo $$ > {}; exec sleep 600", sidecar.display()));
    // The main container checks that the sidecar runs.
    let main = format!(
        "until [ -s {0} ]; do sleep 0.05; done; kill -0 $(cat {0}) && touch {1}",
        sidecar.display(),
        served.display()
    );
    cluster
        .create(
            "p",
            json!({
                "initContainers": [{"name": "helper", "image": "none", "restartPolicy": "Always", "command": ["sh", "-c", helper]}],
                "containers": [container(&main)],
            }),
        )
        .await;
    cluster.phase("p", "Succeeded").await;
    assert!(served.exists());
    assert!(!is_alive(pid_in(&sidecar).await));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_containers_restart_on_failure() {
    let cluster = Cluster::start().await;
    let count = cluster.file("count");
    // The first restart is immediate. A third run would start 10 s later.
    let script = format!("echo run >> {0}; [ $(wc -l < {0}) -ge 2 ]", count.display());
    cluster.create("p", json!({"restartPolicy": "OnFailure", "containers": [container(&script)]})).await;
    let pod = cluster.phase("p", "Succeeded").await;
    let status = pod.status.unwrap().container_statuses.unwrap().remove(0);
    assert_eq!(status.restart_count, 1);
    assert_eq!(status.last_state.unwrap().terminated.unwrap().exit_code, 1);
    assert_eq!(std::fs::read_to_string(count).unwrap(), "run\nrun\n");

    cluster
        .create("crashing", json!({"restartPolicy": "OnFailure", "containers": [container("exit 1")]}))
        .await;
    let waits = |pod: &Pod| {
        let containers = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
        containers.is_some_and(|containers| {
            let waiting = containers[0].state.as_ref().and_then(|state| state.waiting.as_ref());
            waiting.is_some_and(|waiting| waiting.reason.as_deref() == Some("CrashLoopBackOff"))
        })
    };
    assert_eq!(phase_of(&cluster.wait("crashing", waits).await), "Running");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_deadline_of_a_pod_ends_it() {
    let cluster = Cluster::start().await;
    let file = cluster.file("pid");
    let script = format!("echo $$ > {}; exec sleep 600", file.display());
    cluster.create("p", json!({"activeDeadlineSeconds": 5, "containers": [container(&script)]})).await;
    let status = cluster.phase("p", "Failed").await.status.unwrap();
    assert_eq!(status.reason.as_deref(), Some("DeadlineExceeded"));
    assert!(!is_alive(pid_in(&file).await));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gated_pods_are_not_scheduled() {
    let cluster = Cluster::start().await;
    let spec = json!({"schedulingGates": [{"name": "example.com/g"}], "containers": [container("exit 0")]});
    cluster.create("gated", spec).await;
    cluster.shell("free", "exit 0").await;
    cluster.phase("free", "Succeeded").await;
    assert_eq!(cluster.pods.get("gated").await.unwrap().spec.unwrap().node_name, None);
    let patch = kube::api::Patch::Merge(json!({"spec": {"schedulingGates": null}}));
    cluster.pods.patch("gated", &kube::api::PatchParams::default(), &patch).await.unwrap();
    cluster.phase("gated", "Succeeded").await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn simulated_pods_take_time_and_run_nothing() {
    let cluster = Cluster::with(KubeletMode::Simulated).await;
    let file = cluster.file("never");
    let annotations = json!({
        "yardmaster.dev/simulated-run-time": "300ms",
        "yardmaster.dev/simulated-exit-code": "7",
    });
    let script = format!("touch {}", file.display());
    cluster
        .create_with(
            json!({"name": "p", "annotations": annotations}),
            json!({"containers": [container(&script)]}),
        )
        .await;
    let pod = cluster.phase("p", "Failed").await;
    assert_eq!(exit_code(&pod), 7);
    assert!(!file.exists());
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_short_pods_take_seconds() {
    const PODS: usize = 200;
    let cluster = Cluster::start().await;
    let start = Instant::now();
    for number in 0..PODS {
        cluster.shell(&format!("p-{number}"), "exit 0").await;
    }
    let created = start.elapsed();
    let succeeded = kube::api::ListParams::default().fields("status.phase=Succeeded");
    until("all have succeeded", async || cluster.pods.list(&succeeded).await.unwrap().items.len() == PODS)
        .await;
    println!("created in {created:?}, done in {:?}", start.elapsed());
    cluster.stop().await;
}
