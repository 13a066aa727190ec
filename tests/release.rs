//! `yardmaster release` as a program: it counts what has ended, and leaves no finalizer behind.
#![allow(clippy::unwrap_used, missing_docs)]

mod binary;
mod cluster;

use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use futures::stream::{self, StreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::binary::{Background, PATIENCE, yardmaster};
use crate::cluster::{Cluster, has, index_of, succeeded};

const OURS: &str = "yardmaster.dev/job-controller";
const FINALIZER: &str = "yardmaster.dev/job-tracking";

/// A cluster on which a controller beside the built-in one runs Jobs.
struct Stage {
    cluster: Cluster,
    _directory: TempDir,
    kubeconfig: PathBuf,
}

impl Stage {
    async fn start() -> Self {
        let cluster = Cluster::start().await;
        let directory = TempDir::new().unwrap();
        let kubeconfig = cluster.write_kubeconfig(directory.path());
        Self { cluster, _directory: directory, kubeconfig }
    }

    fn controller(&self) -> Background {
        let mut command = yardmaster();
        command.args(["controller", "--listen", "127.0.0.1:0", "--shards", "4", "--kubeconfig"]);
        Background::start(command.arg(&self.kubeconfig).stdout(Stdio::null()).stderr(Stdio::null()))
    }

    fn release(&self, flags: &[&str]) -> Command {
        let mut command = yardmaster();
        command.arg("release").args(flags).arg("--kubeconfig").arg(&self.kubeconfig);
        command
    }

    fn released(&self, flags: &[&str]) -> String {
        let output = self.release(flags).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The paths that the program has written to since the last call. The kubelet writes, too.
    fn written(&self) -> Vec<String> {
        let writes = self.cluster.writes().into_iter();
        writes.filter(|write| write.user_agent.starts_with("yardmaster")).map(|write| write.path).collect()
    }

    /// Has pods run for as long as the test, and then stops the controller.
    async fn leave_running(&self, jobs: &[(&str, Value)]) {
        let mut replica = self.controller();
        let mut pods = 0;
        for (name, spec) in jobs {
            let mut spec = spec.clone();
            spec["managedBy"] = OURS.into();
            pods += usize::try_from(spec["parallelism"].as_u64().unwrap()).unwrap();
            self.cluster.create(name, spec, "1h").await;
        }
        self.all_run(pods).await;
        let refused = self.release(&["-A"]).output().unwrap();
        assert_eq!(refused.status.code(), Some(3), "while a replica runs: {}", errors(&refused));
        assert!(errors(&refused).contains("stop all replicas first"), "{}", errors(&refused));
        replica.signal(Signal::SIGTERM);
        assert_eq!(replica.exit_code(), Some(0));
    }

    async fn all_run(&self, pods: usize) {
        let deadline = Instant::now() + PATIENCE;
        let running = ListParams::default().fields("status.phase=Running");
        while self.cluster.pods.list_metadata(&running).await.unwrap().items.len() < pods {
            assert!(Instant::now() < deadline, "still not {pods} pods run");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// A pod ends without a controller to count it.
    async fn end(&self, pod: &Pod, phase: &str) {
        let name = pod.metadata.name.as_deref().unwrap();
        let status = Patch::Merge(json!({"status": {"phase": phase}}));
        self.cluster.pods.patch_status(name, &PatchParams::default(), &status).await.unwrap();
    }

    async fn held(&self) -> usize {
        let pods = self.cluster.pods.list(&ListParams::default()).await.unwrap().items;
        pods.iter().filter(|pod| is_held(pod)).count()
    }

    async fn status(&self, job: &str) -> k8s_openapi::api::batch::v1::JobStatus {
        self.cluster.jobs.get(job).await.unwrap().status.unwrap()
    }
}

fn is_held(pod: &Pod) -> bool {
    pod.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == FINALIZER)
}

fn phase(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.phase.as_deref()
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_ended_is_counted_and_no_finalizer_stays() {
    let stage = Stage::start().await;
    let indexed = |pods| json!({"completions": pods + 2, "parallelism": pods, "completionMode": "Indexed"});
    let done = json!({"completions": 2, "parallelism": 2});
    stage.leave_running(&[("half", indexed(4)), ("done", done), ("gone", indexed(2))]).await;
    for pod in stage.cluster.pods_of("half").await {
        match &*index_of(&pod) {
            "0" => stage.end(&pod, "Succeeded").await,
            "1" => stage.end(&pod, "Failed").await,
            _ => {}
        }
    }
    for pod in stage.cluster.pods_of("done").await {
        stage.end(&pod, "Succeeded").await;
    }
    stage.cluster.jobs.delete("gone", &DeleteParams::background()).await.unwrap();
    let theirs = of_another_controller(&stage).await;
    assert_eq!(stage.held().await, 9);
    stage.written();

    let shown = stage.released(&["--dry-run"]);
    assert!(shown.contains("default/half") && shown.contains("2 pods without a Job"), "{shown}");
    assert!(shown.contains("release 8 pods; 2 of them have not ended"), "{shown}");
    assert_eq!(stage.written(), Vec::<String>::new(), "a dry run writes nothing");

    let shown = stage.released(&["done"]);
    assert!(shown.starts_with("Counted 2 pods, and released 2 pods of 1 Job and 0 without a Job"), "{shown}");
    let job = stage.cluster.jobs.get("done").await.unwrap();
    assert!(has(&job, "Complete") && succeeded(&job) == 2, "{:?}", job.status);
    assert_eq!(stage.held().await, 7, "one Job alone was asked for");

    let shown = stage.released(&["-A"]);
    assert!(shown.contains("Counted 2 pods, and released 4 pods of 1 Job and 2 without a Job"), "{shown}");
    assert!(shown.contains("2 had not ended"), "{shown}");
    let status = stage.status("half").await;
    assert_eq!(
        (status.succeeded, status.failed, status.completed_indexes.as_deref()),
        (Some(1), Some(1), Some("0"))
    );
    assert_eq!(
        stage.cluster.pods_of("half").await.len(),
        4,
        "running pods run on, and no others are created"
    );
    assert_eq!(stage.held().await, 1);
    assert!(
        is_held(&stage.cluster.pods.get(&theirs).await.unwrap()),
        "another controller counts its pods itself"
    );

    assert!(!stage.written().is_empty());
    assert_eq!(stage.released(&["-A", "--dry-run"]), "Nothing has to be released.\n");
    stage.released(&["-A"]);
    assert_eq!(stage.written(), Vec::<String>::new(), "repeated, it has nothing to do");
    stage.cluster.end().await;
}

/// A pod with our finalizer whose Job names another controller.
async fn of_another_controller(stage: &Stage) -> String {
    stage.cluster.create("theirs", json!({"managedBy": "example.com/controller"}), "1h").await;
    let job = stage.cluster.jobs.get("theirs").await.unwrap();
    let pod = json!({
        "metadata": {
            "name": "theirs",
            "labels": {"batch.kubernetes.io/job-name": "theirs"},
            "finalizers": [FINALIZER],
            "ownerReferences": [{
                "apiVersion": "batch/v1", "kind": "Job", "name": "theirs", "uid": job.metadata.uid, "controller": true,
            }],
        },
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
    });
    let pod: Pod = serde_json::from_value(pod).unwrap();
    stage.cluster.pods.create(&PostParams::default(), &pod).await.unwrap();
    let deadline = Instant::now() + PATIENCE;
    // The kubelet writes nothing more about it from then on.
    while phase(&stage.cluster.pods.get("theirs").await.unwrap()) != Some("Running") {
        assert!(Instant::now() < deadline, "the pod still does not run");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    "theirs".into()
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_and_repeated_it_counts_each_pod_once() {
    const PODS: usize = 300;
    let stage = Stage::start().await;
    let job = json!({"completions": PODS + 1, "parallelism": PODS});
    stage.leave_running(&[("work", job)]).await;
    let pods = stream::iter(stage.cluster.pods_of("work").await);
    pods.for_each_concurrent(16, |pod| async { stage.end(&{ pod }, "Succeeded").await }).await;
    assert_eq!(stage.held().await, PODS);

    let deadline = Instant::now() + PATIENCE;
    let mut left = PODS;
    let mut interrupted = Background::start(&mut stage.release(&["-A"]));
    while stage.held().await == left && Instant::now() < deadline {}
    interrupted.signal(Signal::SIGINT);
    assert_eq!(interrupted.exit_code(), Some(130));
    let (mut told, mut noted) = (String::new(), String::new());
    interrupted.0.stdout.take().unwrap().read_to_string(&mut told).unwrap();
    interrupted.0.stderr.take().unwrap().read_to_string(&mut noted).unwrap();
    assert!(told.starts_with("Counted") && noted.contains("repeat the command"), "{told} {noted}");
    left = stage.held().await.min(left);
    while left > 0 {
        // It is killed as soon as it has done something.
        let interrupted = Background::start(&mut stage.release(&["-A"]));
        while stage.held().await == left && Instant::now() < deadline {}
        interrupted.signal(Signal::SIGKILL);
        drop(interrupted);
        left = stage.held().await;
        assert!(Instant::now() < deadline, "{left} pods still have the finalizer");
    }
    stage.released(&["-A"]);
    let status = stage.status("work").await;
    assert_eq!((status.succeeded, status.failed), (Some(i32::try_from(PODS).unwrap()), None));
    let uncounted = status.uncounted_terminated_pods.unwrap_or_default();
    assert_eq!((uncounted.succeeded, uncounted.failed), (None, None));
    stage.cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_meant_is_refused_in_one_line() {
    let stage = Stage::start().await;
    stage.cluster.create("built-in", json!({}), "1h").await;
    for (flags, problem) in [
        (&["--namespace", "no"] as &[&str], "--namespace no: there is no such namespace"),
        (&["built-in"], "job default/built-in: the built-in controller manages it"),
        (
            &["-A", "--controller-name", "kubernetes.io/job-controller"],
            "--controller-name kubernetes.io/job-controller: the built-in controller has the same finalizer",
        ),
    ] {
        let output = stage.release(flags).output().unwrap();
        let text = errors(&output);
        assert_eq!((output.status.code(), text.lines().count()), (Some(2), 1), "{text}");
        assert!(text.starts_with(problem), "{text}");
    }
    let both = stage.release(&["built-in", "-A"]).output().unwrap();
    assert_eq!(both.status.code(), Some(2), "a Job of all namespaces");
    stage.cluster.end().await;
}

/// A user who may write Leases in a namespace can pretend to be a replica there.
#[tokio::test(flavor = "multi_thread")]
async fn replicas_are_looked_for_where_their_leases_are_said_to_be() {
    let stage = Stage::start().await;
    let _of_tenant = stage.controller();
    let deadline = Instant::now() + PATIENCE;
    while stage.release(&["-A"]).output().unwrap().status.code() != Some(3) {
        assert!(Instant::now() < deadline, "no heartbeat was seen");
    }
    let shown = stage.released(&["-A", "--lease-namespace", "kube-system"]);
    assert!(shown.starts_with("Counted 0 pods, and released 0 pods of 0 Jobs"), "{shown}");
    stage.cluster.end().await;
}
