//! Pods that the built-in controller has left, without any mark of ours.

use serde_json::{Value, json};
use yardmaster::job::names::BUILT_IN_FINALIZER;

use crate::kubelet::Request;
use crate::ledger::Ledger;
use crate::plan::JobPlan;

/// The creations of its pods.
pub(crate) fn pods(job: &JobPlan, uid: &str) -> Vec<Request> {
    let Some(past) = job.past else { return Vec::new() };
    let indexed = job.spec["completionMode"] == "Indexed";
    let pod = |number: u32| {
        let mut labels = json!({
            "batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": job.name,
            "controller-uid": uid, "job-name": job.name,
        });
        let mut annotations = json!({});
        let mut name = format!("{}-{}", job.name, suffix(number));
        if indexed {
            labels["batch.kubernetes.io/job-completion-index"] = number.to_string().into();
            annotations["batch.kubernetes.io/job-completion-index"] = number.to_string().into();
            name = format!("{}-{number}-{}", job.name, suffix(number));
        }
        let body = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": name, "namespace": job.namespace, "labels": labels, "annotations": annotations,
                "finalizers": [BUILT_IN_FINALIZER],
                "ownerReferences": [{
                    "apiVersion": "batch/v1", "kind": "Job", "name": job.name, "uid": uid,
                    "controller": true, "blockOwnerDeletion": true,
                }],
            },
            "spec": {
                "restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
                "containers": [{"name": "main", "image": "i"}],
            },
        });
        Request { method: "POST", path: format!("/api/v1/namespaces/{}/pods", job.namespace), body }
    };
    (0..past.running + past.succeeded).map(pod).collect()
}

/// Five letters, as of `generateName`.
fn suffix(number: u32) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let letter = |place: u32| char::from(LETTERS[(number / 27_u32.pow(place) + 7 * place) as usize % 27]);
    (0..5).rev().map(letter).collect()
}

/// The ends of succeeded pods, and the last status of the built-in controller.
pub(crate) fn ends(ledger: &Ledger, job: &JobPlan, uid: &str) -> Vec<Request> {
    let Some(past) = job.past else { return Vec::new() };
    let pods: Vec<_> = ledger.pods.iter().filter(|(_, pod)| pod.job.as_deref() == Some(uid)).collect();
    let ended = pods.iter().take(past.succeeded as usize);
    let phase = |phase: &str, pod: &crate::ledger::PodFacts| {
        let (namespace, name) = pod.name();
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/status");
        Request { method: "PATCH", path, body: json!({"status": {"phase": phase}}) }
    };
    let mut requests: Vec<Request> = ended.map(|(_, pod)| phase("Succeeded", pod)).collect();
    requests.extend(pods.iter().skip(past.succeeded as usize).map(|(_, pod)| phase("Running", pod)));
    let uncounted: Vec<&str> =
        pods.iter().take(past.uncounted.min(past.succeeded) as usize).map(|(uid, _)| uid.as_str()).collect();
    let mut status: Value = json!({
        "startTime": "2027-01-15T08:00:00Z", "active": past.running, "ready": 0, "terminating": 0,
    });
    if job.spec["completionMode"] == "Indexed" {
        // Of successes it records the indexes alone.
        let index = |uid: &&str| ledger.pods.get(*uid).and_then(|pod| pod.index);
        let mut indexes: Vec<u32> = uncounted.iter().filter_map(index).collect();
        indexes.sort_unstable();
        let indexes: Vec<String> = indexes.iter().map(ToString::to_string).collect();
        status["succeeded"] = indexes.len().into();
        status["completedIndexes"] = indexes.join(",").into();
    } else if !uncounted.is_empty() {
        status["uncountedTerminatedPods"] = json!({"succeeded": uncounted});
    }
    let path = format!("/apis/batch/v1/namespaces/{}/jobs/{}/status", job.namespace, job.name);
    requests.push(Request { method: "PATCH", path, body: json!({"status": status}) });
    requests
}
