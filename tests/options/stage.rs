//! An embedded API server with a controller. Tests play the role of the nodes.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::config::KubeConfigOptions;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use yardmaster::actors::{Controller, ControllerConfig, WaitingJob};
use yardmaster::job::names::BUILT_IN_CONTROLLER;
use yardmaster::sharding::ShardCount;
use yardmaster_embedded::{ApiServer, ApiServerConfig};

/// Limit for everything that should happen at once.
const LIMIT: Duration = Duration::from_secs(30);

/// API server and controller.
pub(crate) struct Stage {
    pub(crate) server: ApiServer,
    pub(crate) controller: Controller,
    pub(crate) client: kube::Client,
}

impl Stage {
    pub(crate) async fn start() -> Self {
        let server = ApiServer::start(ApiServerConfig::default()).await.unwrap();
        let config = kube::Config::from_custom_kubeconfig(server.kubeconfig(), &KubeConfigOptions::default())
            .await
            .unwrap();
        let settings = ControllerConfig {
            controller_name: BUILT_IN_CONTROLLER.into(),
            shards: ShardCount::new(2).unwrap(),
            arbiters: 1,
            ..ControllerConfig::default()
        };
        let controller = Controller::start(settings, config.clone()).await.unwrap();
        controller.ready().await;
        Self { server, controller, client: kube::Client::try_from(config).unwrap() }
    }

    pub(crate) async fn stop(self) {
        self.controller.shutdown().await;
        self.server.shutdown().await;
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), "default")
    }

    /// Creates a Job with these annotations (without their prefix) and these fields in its `spec`.
    pub(crate) async fn create(&self, name: &str, annotations: &[(&str, &str)], spec: Value) {
        let annotations: serde_json::Map<String, Value> = annotations
            .iter()
            .map(|(key, value)| (format!("yardmaster.dev/{key}"), (*value).into()))
            .collect();
        let template =
            json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]}});
        let mut job = json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"backoffLimit": 100, "template": template},
        });
        job["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let job: Job = serde_json::from_value(job).unwrap();
        self.api::<Job>().create(&PostParams::default(), &job).await.unwrap();
    }

    pub(crate) async fn change(&self, job: &str, patch: Value) {
        self.api::<Job>().patch(job, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    pub(crate) async fn job(&self, name: &str) -> Job {
        self.api().get(name).await.unwrap()
    }

    /// The Job's pods, oldest first.
    pub(crate) async fn pods(&self, job: &str) -> Vec<Pod> {
        let selected = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={job}"));
        let mut pods = self.api::<Pod>().list(&selected).await.unwrap().items;
        pods.sort_by_key(version);
        pods
    }

    /// Names of the Job's pods in this phase.
    pub(crate) async fn names(&self, job: &str, phase: &str) -> Vec<String> {
        let pods = self.pods(job).await.into_iter().filter(|pod| in_phase(pod, phase));
        let mut names: Vec<String> = pods.map(|pod| pod.metadata.name.unwrap()).collect();
        names.sort();
        names
    }

    /// Waits for the Job's only Pending pod.
    pub(crate) async fn active_pod(&self, job: &str) -> String {
        until(&format!("one active pod of {job}"), async || match &self.names(job, "Pending").await[..] {
            [name] => Some(name.clone()),
            _ => None,
        })
        .await
    }

    /// Ends a pod now, as a node would report it.
    pub(crate) async fn end(&self, pod: &str, phase: &str) -> Timestamp {
        let now = Timestamp::now().round(jiff::Unit::Second).unwrap();
        self.end_at(pod, phase, now).await;
        now
    }

    /// Ends a pod at this time, as a node would report it.
    pub(crate) async fn end_at(&self, pod: &str, phase: &str, finished: Timestamp) {
        let exit_code = i32::from(phase == "Failed");
        let patch = json!({"status": {"phase": phase, "containerStatuses": [{
            "name": "main", "image": "x", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": exit_code, "finishedAt": finished.to_string()}},
        }]}});
        let api: Api<Pod> = self.api();
        api.patch_status(pod, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Fails the next pod of the Job.
    pub(crate) async fn fail_one(&self, job: &str) -> String {
        let pod = self.active_pod(job).await;
        self.end(&pod, "Failed").await;
        pod
    }

    pub(crate) async fn events(&self, job: &str, reason: &str) -> Vec<Event> {
        let about = format!("involvedObject.name={job},reason={reason}");
        self.api().list(&ListParams::default().fields(&about)).await.unwrap().items
    }

    /// The wait that `/debug/shards` shows for a Job.
    pub(crate) async fn wait(&self, job: &str) -> Option<WaitingJob> {
        let shards = self.controller.shards().await;
        shards.into_iter().flat_map(|shard| shard.waits).find(|waiting| &*waiting.name == job)
    }

    /// Waits until the Job is Complete.
    pub(crate) async fn complete(&self, job: &str) -> Job {
        until(&format!("the end of {job}"), async || {
            let job = self.job(job).await;
            let conditions = job.status.as_ref()?.conditions.as_ref()?;
            let complete = conditions.iter().any(|c| c.type_ == "Complete" && c.status == "True");
            complete.then_some(job)
        })
        .await
    }
}

fn version(pod: &Pod) -> Option<(Timestamp, u64)> {
    let created = pod.metadata.creation_timestamp.as_ref()?.0;
    Some((created, pod.metadata.resource_version.as_ref()?.parse().ok()?))
}

fn in_phase(pod: &Pod, phase: &str) -> bool {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some(phase)
}

/// Asks until there is an answer. Panics after [`LIMIT`].
pub(crate) async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(Instant::now() < deadline, "{what}: not within {LIMIT:?}");
        sleep(Duration::from_millis(20)).await;
    }
}
