//! All pods of a gang Job start in one PodGroup. If no group is possible, all start without one. Failing
//! requests do not change that.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::time::Duration;

use http::{Method, StatusCode};
use kube::Client;
use kube::config::KubeConfigOptions;
use serde_json::{Value, json};
use yardmaster::actors::{Controller, ControllerConfig, FeatureGates};
use yardmaster::sharding::ShardCount;
use yardmaster_embedded::{ApiServer, ApiServerConfig, Fault, FaultScope};

const DEADLINE: Duration = Duration::from_secs(30);
const NAMESPACE: &str = "default";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const PODS: usize = 3;

/// An API server, a controller with the gate on, and a client.
struct Cluster {
    server: ApiServer,
    controller: Controller,
    client: Client,
}

/// The objects that exist because of a Job.
#[derive(Debug)]
struct Outcome {
    workloads: Vec<Value>,
    pod_groups: Vec<Value>,
    /// `spec.schedulingGroup` of each pod.
    groups: Vec<Value>,
    events: Vec<Value>,
}

impl Cluster {
    async fn start(gates: BTreeMap<String, bool>) -> Self {
        let config = ApiServerConfig { feature_gates: gates, ..ApiServerConfig::default() };
        let server = ApiServer::start(config).await.unwrap();
        let options = KubeConfigOptions::default();
        let kube = kube::Config::from_custom_kubeconfig(server.kubeconfig(), &options).await.unwrap();
        let settings = ControllerConfig {
            controller_name: "kubernetes.io/job-controller".into(),
            identity: "gang".into(),
            shards: ShardCount::new(4).unwrap(),
            api_backoff: Duration::from_millis(50),
            feature_gates: FeatureGates { workload_with_job: true },
            arbiters: 1,
            ..ControllerConfig::default()
        };
        let controller = Controller::start(settings, kube.clone()).await.unwrap();
        controller.ready().await;
        Self { server, controller, client: Client::try_from(kube).unwrap() }
    }

    /// Injects a fault into the next `times` requests with this method and path.
    fn inject(&self, fault: Fault, method: Method, path: &str, times: usize) {
        let scope = FaultScope { methods: vec![method], path: path.into(), ..FaultScope::default() };
        self.server.faults().inject(fault, scope, Some(times));
    }

    async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Value {
        let bytes = body.map(|body| serde_json::to_vec(body).unwrap()).unwrap_or_default();
        let request = http::Request::builder().method(method).uri(path);
        let request = request.header("content-type", "application/json").body(bytes).unwrap();
        self.client.request(request).await.unwrap()
    }

    async fn list(&self, group: &str, plural: &str) -> Vec<Value> {
        let path = format!("/{group}/namespaces/{NAMESPACE}/{plural}");
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        match self.client.request::<Value>(request).await {
            Ok(mut list) => list["items"].as_array_mut().map(std::mem::take).unwrap_or_default(),
            Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
            Err(error) => panic!("{plural}: {error}"),
        }
    }

    /// Creates a gang Job.
    async fn create(&self, name: &str) {
        let job = json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
            "spec": {
                "completionMode": "Indexed", "completions": PODS, "parallelism": PODS,
                "template": {"spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": "main", "image": "example.invalid/i:1"}],
                }},
            },
        });
        self.send(Method::POST, JOBS, Some(&job)).await;
    }

    /// Creates a gang Job and waits until all its pods count as active and an Event with this reason exists.
    async fn run(&self, name: &str, reason: &str) -> Outcome {
        self.create(name).await;
        let started = async {
            loop {
                let job = self.send(Method::GET, &format!("{JOBS}/{name}"), None).await;
                let events = self.list("api/v1", "events").await;
                if job["status"]["active"] == PODS && events.iter().any(|event| event["reason"] == reason) {
                    return events;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let events = tokio::time::timeout(DEADLINE, started).await.expect("the Job starts");
        let pods = self.list("api/v1", "pods").await;
        Outcome {
            workloads: self.list("apis/scheduling.k8s.io/v1alpha2", "workloads").await,
            pod_groups: self.list("apis/scheduling.k8s.io/v1alpha2", "podgroups").await,
            groups: pods.iter().map(|pod| pod["spec"]["schedulingGroup"].clone()).collect(),
            events,
        }
    }

    async fn stop(self) {
        self.controller.shutdown().await;
        self.server.shutdown().await;
    }
}

impl Outcome {
    fn assert_one_gang(&self) {
        assert_eq!((self.workloads.len(), self.pod_groups.len()), (1, 1), "{self:#?}");
        let group = json!({"podGroupName": self.pod_groups[0]["metadata"]["name"]});
        assert_eq!(self.groups, vec![group; PODS]);
    }

    fn assert_no_gang(&self) {
        assert_eq!((self.workloads.len(), self.pod_groups.len()), (0, 0), "{self:#?}");
        assert_eq!(self.groups, vec![Value::Null; PODS]);
    }

    fn warning(&self) -> &str {
        let warning = self.events.iter().find(|event| event["type"] == "Warning").expect("a warning");
        assert_eq!(warning["reason"], "FailedWorkloadCreate");
        assert_eq!(warning["involvedObject"]["kind"], "Job");
        warning["message"].as_str().unwrap()
    }
}

#[tokio::test]
async fn refused_requests_are_retried_until_the_gang_exists() {
    for (method, path) in [
        (Method::GET, "/workloads"),
        (Method::POST, "/workloads"),
        (Method::GET, "/podgroups"),
        (Method::POST, "/podgroups"),
    ] {
        let cluster = Cluster::start(BTreeMap::new()).await;
        cluster.inject(Fault::Refuse(StatusCode::SERVICE_UNAVAILABLE), method.clone(), path, 2);
        let outcome = cluster.run("work", "FailedWorkloadCreate").await;
        outcome.assert_one_gang();
        assert!(outcome.warning().starts_with("Error ensuring Workload and PodGroup: "), "{method} {path}");
        cluster.stop().await;
    }
}

#[tokio::test]
async fn a_lost_answer_creates_no_second_object() {
    for path in ["/workloads", "/podgroups"] {
        let cluster = Cluster::start(BTreeMap::new()).await;
        cluster.inject(Fault::LoseReplies, Method::POST, path, 1);
        cluster.run("work", "FailedWorkloadCreate").await.assert_one_gang();
        cluster.stop().await;
    }
}

#[tokio::test]
async fn a_job_whose_workload_is_invalid_runs_without_a_gang() {
    let cluster = Cluster::start(BTreeMap::new()).await;
    let outcome = cluster.run(&"a".repeat(58), "FailedWorkloadCreate").await;
    outcome.assert_no_gang();
    let warning = outcome.warning();
    assert!(warning.starts_with("Pods are created without a gang: "), "{warning}");
    assert!(warning.contains("spec.podGroupTemplates[0].name"), "{warning}");
    cluster.stop().await;
}

#[tokio::test]
async fn the_longest_name_that_gives_a_valid_workload_makes_a_gang() {
    let cluster = Cluster::start(BTreeMap::new()).await;
    cluster.run(&"a".repeat(57), "WorkloadCreated").await.assert_one_gang();
    cluster.stop().await;
}

/// A webhook whose cache is empty at first, or one of several API servers that does not serve the API yet.
#[tokio::test]
async fn a_refusal_that_says_nothing_of_the_object_is_no_end_of_the_gang() {
    let answers = [400, 401, 403, 404, 405, 413, 422].map(|code| (Method::POST, code));
    for (method, code) in answers.into_iter().chain([(Method::GET, 404)]) {
        for path in ["/workloads", "/podgroups"] {
            let cluster = Cluster::start(BTreeMap::new()).await;
            let refused = Fault::Refuse(StatusCode::from_u16(code).unwrap());
            cluster.inject(refused, method.clone(), path, 2);
            let outcome = cluster.run("work", "FailedWorkloadCreate").await;
            outcome.assert_one_gang();
            let warning = outcome.warning();
            let case = format!("{code} for {method} {path}: {warning}");
            assert!(warning.starts_with("Error ensuring Workload and PodGroup: "), "{case}");
            cluster.stop().await;
        }
    }
}

#[tokio::test]
async fn without_the_api_a_gang_waits_for_it_and_an_event_says_so() {
    let off = ["GenericWorkload", "WorkloadWithJob"].map(|gate| (gate.to_owned(), false));
    let cluster = Cluster::start(off.into()).await;
    cluster.create("work").await;
    let said = async {
        while !cluster.list("api/v1", "events").await.iter().any(|event| {
            event["message"].as_str().is_some_and(|message| message.contains("does not serve workloads"))
        }) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(DEADLINE, said).await.expect("an Event says why the Job waits");
    assert_eq!(cluster.list("api/v1", "pods").await, Vec::<Value>::new());
    cluster.stop().await;
}
