//! Options that change what becomes of failed pods.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use crate::stage::{Stage, until};

fn indexed(completions: u32) -> Value {
    json!({"completionMode": "Indexed", "completions": completions, "parallelism": completions})
}

/// The Job's pods of this attempt that are not being deleted, by their names.
async fn of_attempt(stage: &Stage, job: &str, attempt: &str) -> Vec<Pod> {
    let is_it = |pod: &Pod| {
        let label = pod.metadata.labels.as_ref().and_then(|labels| labels.get("yardmaster.dev/attempt"));
        label.is_some_and(|label| label == attempt) && pod.metadata.deletion_timestamp.is_none()
    };
    stage.pods(job).await.into_iter().filter(is_it).collect()
}

async fn attempt(stage: &Stage, job: &str, attempt: &str, pods: usize) -> Vec<Pod> {
    until(&format!("{pods} pods of attempt {attempt}"), async || {
        Some(of_attempt(stage, job, attempt).await).filter(|found| found.len() == pods)
    })
    .await
}

fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn all_pods_are_replaced_when_one_fails() {
    let stage = Stage::start().await;
    let options = [("restart-together", "true"), ("max-restarts", "2")];
    stage.create("train", &options, indexed(3)).await;
    for number in ["0", "1"] {
        let pods = attempt(&stage, "train", number, 3).await;
        let env = serde_json::to_value(&pods[0].spec.as_ref().unwrap().containers[0].env).unwrap();
        let variable = json!({"name": "YARDMASTER_ATTEMPT", "value": number});
        assert!(env.as_array().unwrap().contains(&variable), "{env}");
        // A success before a failure is in vain.
        stage.end(name(&pods[0]), "Succeeded").await;
        stage.end(name(&pods[1]), "Failed").await;
    }
    let last = attempt(&stage, "train", "2", 3).await;
    let job = stage.job("train").await;
    assert_eq!(job.metadata.annotations.unwrap()["yardmaster.dev/restarts"], "2");
    assert_eq!(job.status.unwrap().succeeded, None, "they may be in vain");
    for pod in &last {
        stage.end(name(pod), "Succeeded").await;
    }
    let status = stage.complete("train").await.status.unwrap();
    assert_eq!((status.succeeded, status.failed), (Some(3), Some(2)));
    assert_eq!(stage.events("train", "Restarting").await.len(), 2);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_too_many_fails_the_job() {
    let stage = Stage::start().await;
    stage.create("doomed", &[("restart-together", "true"), ("max-restarts", "1")], indexed(2)).await;
    for number in ["0", "1"] {
        let pods = attempt(&stage, "doomed", number, 2).await;
        stage.end(name(&pods[0]), "Failed").await;
    }
    let reason = until("the end", async || {
        let conditions = stage.job("doomed").await.status?.conditions?;
        conditions.into_iter().find(|condition| condition.type_ == "Failed")?.reason
    })
    .await;
    assert_eq!(reason, "MaxRestartsExceeded");
    stage.stop().await;
}

/// Ends a pod on a node, as if its container had been killed for its memory.
async fn kill(stage: &Stage, pod: &str, node: &str) {
    let api: Api<Pod> = stage.api();
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    let request = http::Request::post(format!("/api/v1/namespaces/default/pods/{pod}/binding"));
    let request = request.header("content-type", "application/json").body(binding.to_string().into_bytes());
    stage.client.request::<Value>(request.unwrap()).await.unwrap();
    let end =
        json!({"exitCode": 137, "reason": "OOMKilled", "finishedAt": jiff::Timestamp::now().to_string()});
    let patch = json!({"status": {"phase": "Failed", "containerStatuses": [{
        "name": "main", "image": "x", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"terminated": end},
    }]}});
    api.patch_status(pod, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_gets_more_memory_on_another_node() {
    let stage = Stage::start().await;
    let options = [
        ("backoff-initial", "0s"),
        ("retry-avoid-node", "required"),
        ("oom-memory-factor", "2"),
        ("oom-memory-max", "300Mi"),
    ];
    let resources = json!({"limits": {"memory": "100Mi"}, "requests": {"memory": "50Mi"}});
    let mut spec = indexed(1);
    spec["template"] = json!({"spec": {
        "restartPolicy": "Never", "containers": [{"name": "main", "image": "x", "resources": resources}],
    }});
    stage.create("hungry", &options, spec).await;
    for (node, limit, request, avoids) in [
        ("node-a", "100Mi", "50Mi", &[][..]),
        ("node-b", "200Mi", "100Mi", &["node-a"]),
        ("node-c", "300Mi", "200Mi", &["node-a", "node-b"]),
    ] {
        let pod = stage.active_pod("hungry").await;
        let found: Pod = stage.api().get(&pod).await.unwrap();
        let spec = serde_json::to_value(found.spec.unwrap()).unwrap();
        let asked = json!({"limits": {"memory": limit}, "requests": {"memory": request}});
        assert_eq!(spec["containers"][0]["resources"], asked);
        let required =
            "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
        let terms = spec.pointer(required).cloned().unwrap_or_default();
        let expected = json!([{"matchExpressions": [
            {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": avoids},
        ]}]);
        assert_eq!(terms, if avoids.is_empty() { Value::Null } else { expected });
        kill(&stage, &pod, node).await;
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_does_not_start_is_replaced() {
    let stage = Stage::start().await;
    stage.create("stuck", &[("start-deadline", "2s"), ("backoff-initial", "0s")], json!({})).await;
    let first = stage.active_pod("stuck").await;
    until("its failure", async || stage.job("stuck").await.status.filter(|status| status.failed == Some(1)))
        .await;
    let second = until("another pod", async || {
        stage.names("stuck", "Pending").await.into_iter().find(|pod| *pod != first)
    })
    .await;
    stage.end(&second, "Succeeded").await;
    let status = stage.complete("stuck").await.status.unwrap();
    assert_eq!(status.succeeded, Some(1));
    let events = stage.events("stuck", "StartDeadlineExceeded").await;
    assert!(!events.is_empty());
    stage.stop().await;
}
