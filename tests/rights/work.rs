//! Work for the controller, which together needs every right of the chart.

use std::time::Duration;

use futures::future::join_all;
use http::Method;
use kube::Client;
use serde_json::{Value, json};
use yardmaster::job::pod::Place;
use yardmaster::job::pod_name::pod_name;

use crate::case::Case;
use crate::yard::Yard;

/// Namespaces of the Jobs: of most of them, and of one whose pods are refused at first.
pub(crate) const NAMESPACES: [&str; 2] = ["rights", REFUSED];
pub(crate) const REFUSED: &str = "rights-refused";

/// The Job whose pods run while shards change hands.
const INDEXED: &str = "indexed";

/// The work for a case.
pub(crate) struct Work {
    managed_by: Option<String>,
    gangs: bool,
    ttl: bool,
    faults: bool,
}

impl Work {
    /// All that the case is for; `faults` are there or not.
    pub(crate) fn of(case: &Case, faults: bool) -> Self {
        Self { managed_by: case.managed_by(), gangs: case.gangs, ttl: case.ttl, faults }
    }

    /// Creates a Job whose pods run so long.
    async fn create(&self, client: &Client, namespace: &str, name: &str, run_time: &str, spec: Value) {
        let mut job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {
            "backoffLimit": 10,
            "template": {
                "metadata": {
                    "annotations": {"yardmaster.dev/simulated-run-time": run_time}, "labels": {"app": name},
                },
                "spec": pod_spec(),
            },
        }});
        if let Some(name) = &self.managed_by {
            job["spec"]["managedBy"] = name.as_str().into();
        }
        job["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let path = format!("/apis/batch/v1/namespaces/{namespace}/jobs");
        send(client, Method::POST, &path, Some(&job)).await.unwrap();
    }

    /// Creates a Job and waits until it has completed.
    async fn run(&self, client: &Client, namespace: &str, name: &str, spec: Value) {
        self.create(client, namespace, name, "100ms", spec).await;
        completes(client, namespace, name).await;
    }

    /// An Indexed Job loses one pod to a deletion, and one because it needs less.
    async fn indexed(&self, client: &Client) {
        let spec = json!({"completionMode": "Indexed", "completions": 3, "parallelism": 3});
        // Long enough that no pod ends before one is deleted, also on a busy machine.
        self.create(client, "rights", INDEXED, "10s", spec).await;
        until(client, &job_path("rights", INDEXED), |job| job["status"]["ready"] == 3).await;
        // The size of a gang is fixed.
        let size = if self.gangs { 3 } else { 2 };
        let fewer = json!({"spec": {"completions": size, "parallelism": size}});
        send(client, Method::PATCH, &job_path("rights", INDEXED), Some(&fewer)).await.unwrap();
        // At once, while all pods run.
        let first = "batch.kubernetes.io/job-completion-index=0";
        let pods = format!("{PODS}?labelSelector=batch.kubernetes.io/job-name={INDEXED},{first}");
        let found = send(client, Method::GET, &pods, None).await.unwrap();
        let name = found["items"][0]["metadata"]["name"].as_str().unwrap();
        send(client, Method::DELETE, &format!("{PODS}/{name}"), None).await.unwrap();
        let job = completes(client, "rights", INDEXED).await;
        assert_eq!(job["status"]["failed"], 1, "{job}");
    }

    /// A Job whose pod's name is another's already: the controller reads that pod, and then takes another name.
    async fn with_a_taken_name(&self, client: &Client) {
        let name = "taken";
        self.create(client, "rights", name, "100ms", json!({"suspend": true})).await;
        let job = send(client, Method::GET, &job_path("rights", name), None).await.unwrap();
        let uid = job["metadata"]["uid"].as_str().unwrap();
        let first = pod_name(name, uid, None, Place { number: 0, attempt: 0 });
        let other = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": first}, "spec": pod_spec(),
        });
        send(client, Method::POST, PODS, Some(&other)).await.unwrap();
        let resumed = json!({"spec": {"suspend": false}});
        send(client, Method::PATCH, &job_path("rights", name), Some(&resumed)).await.unwrap();
        completes(client, "rights", name).await;
    }

    /// A pod without owner becomes one of the Job's two.
    async fn adopting(&self, client: &Client) {
        let labels = json!({"app": "adopting"});
        let annotations = json!({"yardmaster.dev/simulated-run-time": "2s"});
        let orphan = json!({
            "apiVersion": "v1", "kind": "Pod", "spec": pod_spec(),
            "metadata": {"name": "orphan", "labels": labels, "annotations": annotations},
        });
        send(client, Method::POST, PODS, Some(&orphan)).await.unwrap();
        let selector = json!({"matchLabels": labels});
        let spec = json!({"manualSelector": true, "selector": selector, "completions": 2, "parallelism": 2});
        self.create(client, "rights", "adopting", "2s", spec).await;
        completes(client, "rights", "adopting").await;
        let orphan = send(client, Method::GET, &format!("{PODS}/orphan"), None).await.unwrap();
        assert_eq!(orphan["metadata"]["ownerReferences"][0]["name"], "adopting");
    }
}

const PODS: &str = "/api/v1/namespaces/rights/pods";

fn pod_spec() -> Value {
    json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]})
}

/// Does all of it.
pub(crate) async fn work(client: &Client, work: &Work) {
    let two = || json!({"completions": 2, "parallelism": 2});
    let with_faults = async {
        if work.faults {
            // Creations that fail alike are counted in one Event.
            work.run(client, REFUSED, "refused", json!({})).await;
        }
    };
    let gang = async {
        if work.gangs {
            let spec = json!({"completionMode": "Indexed", "completions": 2, "parallelism": 2});
            work.run(client, "rights", "gang", spec).await;
            let workloads = "/apis/scheduling.k8s.io/v1alpha2/namespaces/rights/workloads";
            until(client, workloads, |found| !found["items"].as_array().unwrap().is_empty()).await;
        }
    };
    let deleted = async {
        if work.ttl {
            let spec = json!({"ttlSecondsAfterFinished": 0});
            work.create(client, "rights", "deleted", "100ms", spec).await;
            while exists(client, &job_path("rights", "deleted")).await {
                tokio::time::sleep(PAUSE).await;
            }
        }
    };
    let plain = work.run(client, "rights", "plain", two());
    let taken = work.with_a_taken_name(client);
    tokio::join!(plain, work.indexed(client), work.adopting(client), taken, with_faults, gang, deleted);
}

/// Ends one of two replicas while pods run. The other then runs Jobs of all shards.
pub(crate) async fn hand_over(yard: &Yard, work: &Work) {
    while !exists(&yard.client, &job_path("rights", INDEXED)).await {
        tokio::time::sleep(PAUSE).await;
    }
    until(&yard.client, &job_path("rights", INDEXED), |job| job["status"]["active"].as_u64() > Some(0)).await;
    yard.leave_one().await;
    let after = ["after-1", "after-2", "after-3", "after-4", "after-5"];
    join_all(after.map(|name| work.run(&yard.client, "rights", name, json!({})))).await;
}

const PAUSE: Duration = Duration::from_millis(30);

fn job_path(namespace: &str, name: &str) -> String {
    format!("/apis/batch/v1/namespaces/{namespace}/jobs/{name}")
}

async fn exists(client: &Client, path: &str) -> bool {
    match send(client, Method::GET, path, None).await {
        Err(kube::Error::Api(status)) if status.code == 404 => false,
        found => found.map(|_| true).unwrap(),
    }
}

/// Waits until an object, or a list, is as wanted.
async fn until(client: &Client, path: &str, holds: impl Fn(&Value) -> bool) -> Value {
    loop {
        let found = send(client, Method::GET, path, None).await.unwrap();
        if holds(&found) {
            return found;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn completes(client: &Client, namespace: &str, name: &str) -> Value {
    let complete = |job: &Value| {
        let mut conditions = job["status"]["conditions"].as_array().into_iter().flatten();
        conditions.any(|one| one["type"] == "Complete" && one["status"] == "True")
    };
    until(client, &job_path(namespace, name), complete).await
}

/// Sends a request. A patch is a JSON merge patch.
pub(crate) async fn send(
    client: &Client,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> Result<Value, kube::Error> {
    let content = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let body = body.map(|body| serde_json::to_vec(body).unwrap()).unwrap_or_default();
    let request = http::Request::builder().method(method).uri(path).header("content-type", content);
    client.request(request.body(body).unwrap()).await
}
