//! The namespace controller.

use serde_json::{Value, json};

use crate::client::{METADATA, PARTIAL_LIST, Stage, TYPED};
use crate::informers::discover;

const DOOMED: &str = "/api/v1/namespaces/doomed";

async fn doomed(stage: &Stage) -> Value {
    let namespace = json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "doomed"}});
    let namespace = stage.create("/api/v1/namespaces", namespace).await;
    for name in ["a", "b"] {
        let map = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name}});
        stage.create(&format!("{DOOMED}/configmaps"), map).await;
        let pod = json!({
            "kind": "Pod", "apiVersion": "v1", "metadata": {"name": name},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        });
        stage.create(&format!("{DOOMED}/pods"), pod).await;
    }
    namespace
}

#[tokio::test]
async fn a_namespace_is_emptied_and_finalized() {
    let stage = Stage::start().await;
    let created = doomed(&stage).await;
    stage.delete(DOOMED, TYPED, json!({})).await.expect(200);
    let mut namespace = stage.get(DOOMED).await.expect(200);
    assert_eq!(
        (&namespace["status"]["phase"], &namespace["spec"]),
        (&json!("Terminating"), &created["spec"])
    );
    assert!(namespace["metadata"]["deletionTimestamp"].is_string());
    let pod = json!({
        "kind": "Pod", "apiVersion": "v1", "metadata": {"name": "late"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    stage.post(&format!("{DOOMED}/pods"), &pod).await.refusal(403, "Forbidden");

    // Every kind that can be deleted, pods first.
    let mut resources = discover(&stage, &["delete"]).await;
    resources.retain(|resource| resource.namespaced);
    resources.sort_by_key(|resource| resource.kind != "Pod");
    assert!(resources.len() >= 10);
    for resource in &resources {
        assert!(resource.verbs.iter().any(|verb| verb == "deletecollection"), "{}", resource.kind);
        let path = resource.within("doomed");
        stage.delete(&path, METADATA, json!({"propagationPolicy": "Background"})).await.expect(200);
        let left = stage.get_as(&path, PARTIAL_LIST).await.expect(200);
        assert_eq!(left["items"], json!([]), "{path}");
    }

    let condition = |kind: &str, reason: &str| {
        json!({
            "type": kind, "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": reason,
            "message": "All content successfully deleted",
        })
    };
    namespace["status"]["conditions"] = json!([
        condition("NamespaceDeletionDiscoveryFailure", "ResourcesDiscovered"),
        condition("NamespaceDeletionContentFailure", "ContentDeleted"),
    ]);
    let updated = stage.put(&format!("{DOOMED}/status"), &namespace).await.expect(200);
    assert_eq!(updated["status"]["conditions"], namespace["status"]["conditions"]);
    let finalized = |namespace: &Value| {
        let mut metadata = namespace["metadata"].clone();
        metadata.as_object_mut().unwrap().remove("managedFields");
        json!({
            "kind": "Namespace", "apiVersion": "v1", "metadata": metadata, "spec": {"finalizers": []}, "status": {},
        })
    };
    // The object read before the status write is outdated.
    stage.put(&format!("{DOOMED}/finalize"), &finalized(&namespace)).await.refusal(409, "Conflict");
    let last = stage.put(&format!("{DOOMED}/finalize"), &finalized(&updated)).await.expect(200);
    assert_eq!(last["metadata"]["uid"], created["metadata"]["uid"]);
    stage.get(DOOMED).await.refusal(404, "NotFound");
    stage.put(&format!("{DOOMED}/finalize"), &finalized(&updated)).await.refusal(404, "NotFound");
    stage.server.shutdown().await;
}

#[tokio::test]
async fn a_namespace_with_another_finalizer_stays() {
    let stage = Stage::start().await;
    let namespace = json!({
        "kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "doomed", "finalizers": ["example.com/wait"]},
    });
    stage.create("/api/v1/namespaces", namespace).await;
    stage.delete(DOOMED, TYPED, json!({})).await.expect(200);
    let mut namespace = stage.get(DOOMED).await.expect(200);
    namespace["spec"]["finalizers"] = json!([]);
    let left = stage.put(&format!("{DOOMED}/finalize"), &namespace).await.expect(200);
    assert_eq!((&left["spec"], &left["status"]["phase"]), (&json!({}), &json!("Terminating")));
    let mut released = stage.get(DOOMED).await.expect(200);
    released["metadata"]["finalizers"] = json!([]);
    stage.put(DOOMED, &released).await.expect(200);
    assert!(!stage.exists(DOOMED).await);
    stage.server.shutdown().await;
}
