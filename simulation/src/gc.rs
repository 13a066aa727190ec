//! The garbage collector of a world.

use serde_json::{Value, json};

use crate::kubelet::Request;
use crate::ledger::{Ledger, is_its, name};

/// The garbage collector's next requests for a Job that is being deleted or gone.
pub(crate) fn collect(ledger: &Ledger, job: &str) -> Vec<Request> {
    let Some(facts) = ledger.jobs.get(job) else { return Vec::new() };
    let has = |finalizer: &str| {
        let finalizers = facts.object["metadata"]["finalizers"].as_array();
        finalizers.into_iter().flatten().any(|f| f == finalizer)
    };
    let dependents =
        || ledger.pods.iter().filter(|(_, pod)| pod.exists() && is_its(&pod.object, &facts.object));
    if !facts.exists {
        return dependents()
            .filter(|(_, pod)| pod.deleted.is_none())
            .map(|(uid, pod)| delete(uid, &pod.object))
            .collect();
    }
    if !facts.deleting() {
        return Vec::new();
    }
    if has("orphan") {
        let orphaned = dependents().map(|(uid, pod)| {
            let body = json!({"metadata": {"uid": uid, "ownerReferences": null}});
            Request { method: "PATCH", path: path(&pod.object), body }
        });
        return orphaned.chain([without(&facts.object, "orphan")]).collect();
    }
    if has("foregroundDeletion") {
        let doomed: Vec<Request> = dependents()
            .filter(|(_, pod)| pod.deleted.is_none())
            .map(|(uid, pod)| delete(uid, &pod.object))
            .collect();
        if dependents().next().is_none() {
            return vec![without(&facts.object, "foregroundDeletion")];
        }
        return doomed;
    }
    Vec::new()
}

/// The path of a Job or pod.
pub(crate) fn path(object: &Value) -> String {
    let (namespace, name) = name(object);
    if object["kind"] == "Job" {
        format!("/apis/batch/v1/namespaces/{namespace}/jobs/{name}")
    } else {
        format!("/api/v1/namespaces/{namespace}/pods/{name}")
    }
}

fn delete(uid: &str, pod: &Value) -> Request {
    Request { method: "DELETE", path: path(pod), body: json!({"preconditions": {"uid": uid}}) }
}

fn without(object: &Value, finalizer: &str) -> Request {
    let finalizers = object["metadata"]["finalizers"].as_array();
    let kept: Vec<&Value> = finalizers.into_iter().flatten().filter(|f| *f != finalizer).collect();
    let body = json!({"metadata": {"uid": object["metadata"]["uid"], "finalizers": kept}});
    Request { method: "PATCH", path: path(object), body }
}
