//! The garbage collector and the TTL controller.

use serde_json::{Value, json};

use crate::client::{MERGE, METADATA, PARTIAL, STRATEGIC, Stage, TYPED};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";

async fn owner(stage: &Stage) -> Value {
    let owner = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "owner"}});
    stage.create(MAPS, owner).await
}

async fn dependent(stage: &Stage, name: &str, owners: &[&Value]) -> Value {
    let references = owners.iter().map(|owner| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"], "controller": false, "blockOwnerDeletion": true,
        })
    });
    let references: Vec<Value> = references.collect();
    let metadata = json!({"name": name, "ownerReferences": references});
    stage.create(MAPS, json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata})).await
}

#[tokio::test]
async fn a_dependent_of_an_absent_owner_is_deleted_with_preconditions() {
    let stage = Stage::start().await;
    let owner = owner(&stage).await;
    let dependent = dependent(&stage, "dependent", &[&owner]).await;
    stage
        .delete(&format!("{MAPS}/owner"), TYPED, json!({"propagationPolicy": "Background"}))
        .await
        .expect(200);
    // The collector reads live objects: the owner is gone, and the dependent is still the one that it saw.
    stage.get_as(&format!("{MAPS}/owner"), PARTIAL).await.refusal(404, "NotFound");
    let live = stage.get_as(&format!("{MAPS}/dependent"), PARTIAL).await.expect(200);
    assert_eq!(live["kind"], "PartialObjectMetadata");
    let options = |uid: &Value, version: &Value| {
        let preconditions = json!({"uid": uid, "resourceVersion": version});
        json!({"preconditions": preconditions, "propagationPolicy": "Background"})
    };
    let (uid, version) = (&live["metadata"]["uid"], &live["metadata"]["resourceVersion"]);
    assert_eq!(uid, &dependent["metadata"]["uid"]);
    let path = format!("{MAPS}/dependent");
    stage.delete(&path, METADATA, options(&json!("other"), version)).await.refusal(409, "Conflict");
    stage.delete(&path, METADATA, options(uid, &json!("1"))).await.refusal(409, "Conflict");
    let status = stage.delete(&path, METADATA, options(uid, version)).await.expect(200);
    assert_eq!((&status["kind"], &status["status"]), (&json!("Status"), &json!("Success")));
    stage.server.shutdown().await;
}

#[tokio::test]
async fn an_owner_is_deleted_after_its_dependents() {
    let stage = Stage::start().await;
    let owner = owner(&stage).await;
    dependent(&stage, "dependent", &[&owner]).await;
    let path = format!("{MAPS}/owner");
    stage.delete(&path, TYPED, json!({"propagationPolicy": "Foreground"})).await.expect(200);
    let live = stage.get_as(&path, PARTIAL).await.expect(200);
    assert_eq!(live["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    let version = &live["metadata"]["resourceVersion"];
    stage.delete(&format!("{MAPS}/dependent"), METADATA, json!({})).await.expect(200);
    let released = json!({"metadata": {
        "resourceVersion": version, "uid": live["metadata"]["uid"], "finalizers": [],
    }});
    let mut stale = released.clone();
    stale["metadata"]["resourceVersion"] = "1".into();
    stage.patch(&path, PARTIAL, MERGE, &stale).await.refusal(409, "Conflict");
    let gone = stage.patch(&path, PARTIAL, MERGE, &released).await.expect(200);
    assert_eq!(gone["kind"], "PartialObjectMetadata");
    assert!(!stage.exists(&path).await);
    stage.server.shutdown().await;
}

#[tokio::test]
async fn dependents_are_orphaned_and_unblocked_by_strategic_patches() {
    let stage = Stage::start().await;
    let owner = owner(&stage).await;
    let other = dependent(&stage, "other", &[]).await;
    let dependent = dependent(&stage, "dependent", &[&owner, &other]).await;
    let path = format!("{MAPS}/dependent");
    let uid = &dependent["metadata"]["uid"];
    let references = json!([{"uid": other["metadata"]["uid"], "blockOwnerDeletion": false}]);
    let patch = json!({"metadata": {"uid": uid, "ownerReferences": references}});
    let patched = stage.patch(&path, PARTIAL, STRATEGIC, &patch).await.expect(200);
    let references = patched["metadata"]["ownerReferences"].as_array().unwrap();
    let blocks: Vec<bool> =
        references.iter().map(|reference| reference["blockOwnerDeletion"] == true).collect();
    assert_eq!(blocks, [true, false]);
    let patch = json!({"metadata": {
        "uid": uid, "ownerReferences": [{"$patch": "delete", "uid": owner["metadata"]["uid"]}],
    }});
    let patched = stage.patch(&path, PARTIAL, STRATEGIC, &patch).await.expect(200);
    let references = patched["metadata"]["ownerReferences"].as_array().unwrap();
    assert_eq!((references.len(), &references[0]["name"]), (1, &json!("other")));
    // A patch for an earlier object of the same name.
    let patch = json!({"metadata": {"uid": "other", "ownerReferences": []}});
    stage.patch(&path, PARTIAL, STRATEGIC, &patch).await.refusal(422, "Invalid");
    stage.server.shutdown().await;
}

#[tokio::test]
async fn a_finished_job_is_deleted_after_its_ttl() {
    let stage = Stage::start().await;
    let job = json!({
        "kind": "Job", "apiVersion": "batch/v1", "metadata": {"name": "done"},
        "spec": {"ttlSecondsAfterFinished": 0, "template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}],
        }}},
    });
    stage.create(JOBS, job).await;
    let fresh = stage.get(&format!("{JOBS}/done")).await.expect(200);
    let metadata = &fresh["metadata"];
    let options = json!({
        "kind": "DeleteOptions", "apiVersion": "batch/v1", "propagationPolicy": "Foreground",
        "preconditions": {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]},
    });
    stage.delete(&format!("{JOBS}/done"), TYPED, options).await.expect(200);
    let left = stage.get(&format!("{JOBS}/done")).await.expect(200);
    assert_eq!(left["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    stage.server.shutdown().await;
}
