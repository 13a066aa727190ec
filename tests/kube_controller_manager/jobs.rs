//! The built-in Job controller.

use serde_json::{Value, json};

use crate::client::{STRATEGIC, Stage, TYPED};

const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const PODS: &str = "/api/v1/namespaces/default/pods";
const FINALIZER: &str = "batch.kubernetes.io/job-tracking";

async fn job(stage: &Stage) -> Value {
    let job = json!({
        "kind": "Job", "apiVersion": "batch/v1", "metadata": {"name": "sums"},
        "spec": {"completions": 1, "template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}],
        }}},
    });
    stage.create(JOBS, job).await
}

/// A pod as the controller makes it from the template.
fn pod(job: &Value) -> Value {
    let mut labels = job["spec"]["template"]["metadata"]["labels"].clone();
    labels["job-name"] = "sums".into();
    json!({
        "kind": "Pod", "apiVersion": "v1",
        "metadata": {
            "generateName": "sums-", "labels": labels, "finalizers": [FINALIZER],
            "ownerReferences": [{
                "apiVersion": "batch/v1", "kind": "Job", "name": "sums", "uid": job["metadata"]["uid"],
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": job["spec"]["template"]["spec"], "status": {},
    })
}

/// Reports the end of a pod as the kubelet would.
async fn end_pod(stage: &Stage, pod: &Value, phase: &str) -> String {
    let path = format!("{PODS}/{}", pod["metadata"]["name"].as_str().unwrap());
    let patch = json!({"metadata": {"uid": pod["metadata"]["uid"]}, "status": {"phase": phase}});
    stage.patch(&format!("{path}/status"), TYPED, STRATEGIC, &patch).await.expect(200);
    path
}

async fn write_status(stage: &Stage, job: &Value, status: Value) -> Value {
    let mut whole = job.clone();
    whole["status"] = status;
    let written = stage.put(&format!("{JOBS}/sums/status"), &whole).await.expect(200);
    // Writing the same content again changes nothing. Writing with the old resourceVersion is a conflict.
    let again = stage.put(&format!("{JOBS}/sums/status"), &written).await.expect(200);
    assert_eq!(again["metadata"]["resourceVersion"], written["metadata"]["resourceVersion"]);
    stage.put(&format!("{JOBS}/sums/status"), &whole).await.refusal(409, "Conflict");
    written
}

#[tokio::test]
async fn a_job_is_run_as_the_built_in_controller_does() {
    let stage = Stage::start().await;
    let created = job(&stage).await;
    let job = write_status(&stage, &created, json!({
        "startTime": "2026-01-01T00:00:00Z", "active": 0, "ready": 0, "terminating": 0, "uncountedTerminatedPods": {},
    }))
    .await;
    let first = stage.post(PODS, &pod(&job)).await.expect(201);
    let second = stage.post(PODS, &pod(&job)).await.expect(201);
    let name = first["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("sums-") && name.len() == "sums-".len() + 5, "{name}");
    assert_ne!(first["metadata"]["name"], second["metadata"]["name"]);
    let job = write_status(&stage, &job, json!({
        "startTime": "2026-01-01T00:00:00Z", "active": 2, "ready": 0, "terminating": 0, "uncountedTerminatedPods": {},
    }))
    .await;

    // An excess pod is deleted. Its finalizer holds it until it is counted.
    let path = end_pod(&stage, &second, "Failed").await;
    stage.delete(&path, TYPED, json!({})).await.expect(200);
    let done = end_pod(&stage, &first, "Succeeded").await;
    let (first_uid, second_uid) = (&first["metadata"]["uid"], &second["metadata"]["uid"]);
    let job = write_status(
        &stage,
        &job,
        json!({
            "startTime": "2026-01-01T00:00:00Z", "active": 0, "ready": 0, "terminating": 0,
            "uncountedTerminatedPods": {"succeeded": [first_uid], "failed": [second_uid]},
        }),
    )
    .await;
    let release = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": [FINALIZER]}});
    let released = stage.patch(&done, TYPED, STRATEGIC, &release).await.expect(200);
    assert!(released["metadata"]["finalizers"].is_null());
    stage.patch(&path, TYPED, STRATEGIC, &release).await.expect(200);
    assert!(!stage.exists(&path).await, "nothing holds the deleted pod any more");
    stage.patch(&path, TYPED, STRATEGIC, &release).await.refusal(404, "NotFound");

    let condition = |kind: &str| {
        json!({
            "type": kind, "status": "True", "lastProbeTime": "2026-01-01T00:01:00Z",
            "lastTransitionTime": "2026-01-01T00:01:00Z", "reason": "CompletionsReached",
            "message": "Reached expected number of succeeded pods",
        })
    };
    let job = write_status(
        &stage,
        &job,
        json!({
            "startTime": "2026-01-01T00:00:00Z", "succeeded": 1, "failed": 1, "ready": 0, "terminating": 0,
            "uncountedTerminatedPods": {}, "conditions": [condition("SuccessCriteriaMet")],
        }),
    )
    .await;
    let job = write_status(&stage, &job, json!({
        "startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:01:00Z", "succeeded": 1, "failed": 1,
        "ready": 0, "terminating": 0, "uncountedTerminatedPods": {},
        "conditions": [condition("SuccessCriteriaMet"), condition("Complete")],
    }))
    .await;
    assert_eq!(
        (&job["spec"], &job["metadata"]["generation"]),
        (&created["spec"], &created["metadata"]["generation"])
    );
    stage.server.shutdown().await;
}

#[tokio::test]
async fn a_pod_is_adopted_and_released() {
    let stage = Stage::start().await;
    let job = job(&stage).await;
    let mut orphan = pod(&job);
    orphan["metadata"].as_object_mut().unwrap().remove("ownerReferences");
    orphan["metadata"].as_object_mut().unwrap().remove("finalizers");
    let orphan = stage.create(PODS, orphan).await;
    let path = format!("{PODS}/{}", orphan["metadata"]["name"].as_str().unwrap());
    let (uid, owner) = (&orphan["metadata"]["uid"], &job["metadata"]["uid"]);
    let adopt = json!({"metadata": {
        "ownerReferences": [{
            "apiVersion": "batch/v1", "kind": "Job", "name": "sums", "uid": owner, "controller": true,
            "blockOwnerDeletion": true,
        }],
        "uid": uid, "finalizers": [FINALIZER],
    }});
    let adopted = stage.patch(&path, TYPED, STRATEGIC, &adopt).await.expect(200);
    assert_eq!(adopted["metadata"]["finalizers"], json!([FINALIZER]));
    let release = json!({"metadata": {
        "ownerReferences": [{"$patch": "delete", "uid": owner}], "uid": uid,
        "$deleteFromPrimitiveList/finalizers": [FINALIZER],
    }});
    let released = stage.patch(&path, TYPED, STRATEGIC, &release).await.expect(200);
    assert!(
        released["metadata"]["ownerReferences"].is_null() && released["metadata"]["finalizers"].is_null()
    );
    stage.server.shutdown().await;
}

#[tokio::test]
async fn pods_are_created_many_at_a_time() {
    let stage = Stage::start().await;
    let job = job(&stage).await;
    let pod = pod(&job);
    let created = futures::future::join_all((0..50).map(|_| stage.post(PODS, &pod))).await;
    let mut names: Vec<String> =
        created.into_iter().map(|answer| answer.expect(201)["metadata"]["name"].to_string()).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 50);
    stage.server.shutdown().await;
}
