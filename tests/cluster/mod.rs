//! An embedded cluster with simulated pods, a record of every pod that ever existed, and one of every write.
// No test uses all of this.
#![allow(dead_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::StreamExt;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::{Value, json};
use tempfile::{NamedTempFile, TempDir};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinHandle;
use yardmaster::actors::{Controller, ControllerConfig};
use yardmaster_embedded::kubelet::{Kubelet, KubeletConfig, KubeletMode};
use yardmaster_embedded::{ApiServer, ApiServerConfig, AuditRecord};

use crate::binary::{PATIENCE, start_of, yardmaster};

/// The controller name with which it replaces the built-in controller.
pub(crate) const REPLACEMENT: &str = "kubernetes.io/job-controller";

/// An API server with simulated pods, and records of pods and writes.
pub(crate) struct Cluster {
    pub(crate) server: ApiServer,
    pub(crate) config: kube::Config,
    pub(crate) jobs: Api<Job>,
    pub(crate) pods: Api<Pod>,
    kubelet: Kubelet,
    seen: Arc<Mutex<BTreeSet<String>>>,
    writes: Mutex<UnboundedReceiver<AuditRecord>>,
    watching: JoinHandle<()>,
}

impl Cluster {
    pub(crate) async fn start() -> Self {
        Self::with(ApiServerConfig::default()).await
    }

    pub(crate) async fn with(config: ApiServerConfig) -> Self {
        let (audit, writes) = unbounded_channel();
        let server = ApiServer::start(ApiServerConfig { audit: Some(audit), ..config }).await.unwrap();
        let config = kube_config(server.kubeconfig()).await;
        let client = kube::Client::try_from(config.clone()).unwrap();
        let kubelet = KubeletConfig { mode: KubeletMode::Simulated, ..KubeletConfig::default() };
        let kubelet = Kubelet::start(client.clone(), kubelet).await.unwrap();
        let pods: Api<Pod> = Api::default_namespaced(client.clone());
        let seen = Arc::new(Mutex::new(BTreeSet::new()));
        let (uids, watched) = (seen.clone(), pods.clone());
        let watching = tokio::spawn(async move {
            // Without pauses it would never yield once the server of a test that failed is gone.
            let pods = watcher(watched, watcher::Config::default()).default_backoff().touched_objects();
            let note = |pod: Result<Pod, _>| {
                let uid = pod.map(|pod| pod.metadata.uid.unwrap());
                uids.lock().unwrap().extend(uid);
                std::future::ready(())
            };
            pods.for_each(note).await;
        });
        let (jobs, writes) = (Api::default_namespaced(client), Mutex::new(writes));
        Self { server, config, jobs, pods, kubelet, seen, writes, watching }
    }

    /// All writes requested since the last call.
    pub(crate) fn writes(&self) -> Vec<AuditRecord> {
        let mut writes = self.writes.lock().unwrap();
        std::iter::from_fn(|| writes.try_recv().ok()).collect()
    }

    /// `yardmaster controller` in replacement mode on this cluster.
    pub(crate) fn replica(&self, directory: &TempDir) -> std::process::Command {
        self.replica_of(yardmaster().get_program(), directory)
    }

    /// `PROGRAM controller` in replacement mode on this cluster.
    pub(crate) fn replica_of(&self, program: &OsStr, directory: &TempDir) -> std::process::Command {
        let mut command = start_of(program);
        // The test does not read its logs, and a full pipe would block it.
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        command.args(["controller", "--controller-name", REPLACEMENT, "--listen", "127.0.0.1:0"]);
        command.arg("--kubeconfig").arg(self.write_kubeconfig(directory.path()));
        command
    }

    /// Writes a kubeconfig of the cluster into a directory and returns its path.
    pub(crate) fn write_kubeconfig(&self, directory: &Path) -> std::path::PathBuf {
        let kubeconfig = directory.join("kubeconfig");
        // A starting replica may read it while it is written for the next one, so it is replaced atomically.
        let mut whole = NamedTempFile::new_in(directory).unwrap();
        serde_json::to_writer(&mut whole, &self.server.kubeconfig()).unwrap();
        whole.persist(&kubeconfig).unwrap();
        kubeconfig
    }

    pub(crate) async fn controller(&self, settings: ControllerConfig) -> Controller {
        Controller::start(settings, self.config.clone()).await.unwrap()
    }

    pub(crate) async fn create(&self, name: &str, spec: Value, run_time: &str) {
        let mut job = json!({"metadata": {"name": name}, "spec": {"template": {
            "metadata": {"annotations": {"yardmaster.dev/simulated-run-time": run_time}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
        }}});
        job["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        self.jobs.create(&PostParams::default(), &serde_json::from_value(job).unwrap()).await.unwrap();
    }

    /// Waits until a condition holds for a Job.
    pub(crate) async fn until(&self, name: &str, what: &str, holds: impl Fn(&Job) -> bool) -> Job {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let job = self.jobs.get(name).await.unwrap();
            if holds(&job) {
                return job;
            }
            assert!(Instant::now() < deadline, "{name} still not {what}: {:?}", job.status);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) async fn completes(&self, name: &str) -> Job {
        self.until(name, "complete", |job| has(job, "Complete")).await
    }

    pub(crate) async fn pods_of(&self, job: &str) -> Vec<Pod> {
        let params = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={job}"));
        self.pods.list(&params).await.unwrap().items
    }

    /// Asserts that a Job completed with one pod for each completion, and that all pods are counted and
    /// without finalizer.
    pub(crate) async fn assert_exact(&self, name: &str, completions: i32) {
        let job = self.completes(name).await;
        let status = job.status.clone().unwrap();
        let counts = (status.succeeded, status.failed.unwrap_or(0), status.active.unwrap_or(0));
        assert_eq!(counts, (Some(completions), 0, 0), "{name}");
        let uncounted = status.uncounted_terminated_pods.unwrap_or_default();
        assert_eq!((uncounted.succeeded, uncounted.failed), (None, None), "{name}");

        let pods = self.pods_of(name).await;
        assert_eq!(pods.len(), usize::try_from(completions).unwrap(), "pods of {name}");
        let held = pods.iter().filter(|pod| pod.metadata.finalizers.is_some());
        assert_eq!(held.count(), 0, "pods of {name} with a finalizer");
        if job.spec.unwrap().completion_mode.as_deref() == Some("Indexed") {
            assert_eq!(status.completed_indexes, Some(format!("0-{}", completions - 1)));
            let indexes: BTreeMap<_, _> =
                pods.iter().map(|pod| (index_of(pod), &pod.metadata.name)).collect();
            assert_eq!(indexes.len(), pods.len(), "{indexes:?}");
        }
    }

    /// Waits until `count` pods have existed.
    pub(crate) async fn until_pods(&self, count: usize) {
        let deadline = Instant::now() + PATIENCE;
        while self.seen.lock().unwrap().len() < count {
            assert!(Instant::now() < deadline, "still not {count} pods");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Asserts that `count` pods ever existed, deleted ones included.
    pub(crate) async fn assert_pods_ever(&self, count: usize) {
        self.until_pods(count).await;
        assert_eq!(self.seen.lock().unwrap().len(), count);
    }

    pub(crate) async fn end(self) {
        self.watching.abort();
        self.kubelet.shutdown().await;
        self.server.shutdown().await;
    }
}

pub(crate) async fn kube_config(kubeconfig: Kubeconfig) -> kube::Config {
    kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap()
}

pub(crate) fn has(job: &Job, condition: &str) -> bool {
    let conditions = job.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|all| all.iter().any(|c| c.type_ == condition && c.status == "True"))
}

pub(crate) fn succeeded(job: &Job) -> i32 {
    job.status.as_ref().and_then(|status| status.succeeded).unwrap_or(0)
}

pub(crate) fn index_of(pod: &Pod) -> String {
    pod.metadata.annotations.as_ref().unwrap()["batch.kubernetes.io/job-completion-index"].clone()
}
