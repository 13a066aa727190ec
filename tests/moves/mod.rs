//! Ways out: from beside to in place and back, uninstallation, and the roll back to an earlier revision.
//! docs/operations.md and docs/beside-or-in-place.md describe them. The program runs as a process.

use std::process::{Command, Stdio};
use std::time::Instant;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, DeleteParams, ListParams};
use nix::sys::signal::Signal;
use serde_json::json;

use crate::Stage;
use crate::binary::{Background, PATIENCE};
use crate::cluster::REPLACEMENT;

const BESIDE: &str = "yardmaster.dev/job-controller";
/// Pods of each Job that ends.
const PODS: i32 = 8;
/// Jobs at a time.
const JOBS: usize = 4;

impl Stage {
    /// A controller in place of the built-in one.
    fn in_place(&self) -> Command {
        let mut command = self.controller();
        command.args(["--controller-name", REPLACEMENT]);
        command
    }

    /// Creates Jobs, half of them Indexed, for the controller of this name, or without `managedBy`.
    async fn create_jobs(&self, prefix: &str, managed_by: Option<&str>) {
        for number in 0..JOBS {
            let mode = if number % 2 == 0 { "Indexed" } else { "NonIndexed" };
            let mut spec = json!({"completions": PODS, "parallelism": 2, "completionMode": mode});
            if let Some(name) = managed_by {
                spec["managedBy"] = name.into();
            }
            self.cluster.create(&format!("{prefix}-{number}"), spec, "200ms").await;
        }
    }

    /// Waits until each of these Jobs has ended with exactly its pods.
    async fn assert_exact(&self, prefix: &str) {
        for number in 0..JOBS {
            self.cluster.assert_exact(&format!("{prefix}-{number}"), PODS).await;
        }
    }

    /// Creates a Job with two pods that run until the Job is deleted.
    async fn create_endless(&self, name: &str, managed_by: Option<&str>) {
        let mut spec = json!({"completions": 2, "parallelism": 2});
        if let Some(name) = managed_by {
            spec["managedBy"] = name.into();
        }
        self.cluster.create(name, spec, "1h").await;
        let all_run = |job: &Job| job.status.as_ref().is_some_and(|status| status.active == Some(2));
        self.cluster.until(name, "active", all_run).await;
    }

    fn leases(&self) -> Api<Lease> {
        Api::default_namespaced(self.client())
    }

    /// Deletes the Leases of a release, as docs/operations.md says.
    async fn delete_leases(&self, controller: &str) {
        let (label, prefix) = match controller {
            BESIDE => ("yardmaster-dev-job-controller-8a9cb7e00dcd49fd", "yardmaster"),
            _ => {
                let label = "kubernetes-io-job-controller-0fc0ee13eb5ef98c";
                (label, "yardmaster-kubernetes-io-job-controller-0fc0ee13eb5ef98c")
            }
        };
        let selector = format!("yardmaster.dev/controller={label}");
        let election = format!("{prefix}-housekeeper");
        let page = include_str!("../../docs/operations.md");
        assert!([&selector, &election].iter().all(|told| page.contains(*told)), "{selector}, {election}");
        let selected = ListParams::default().labels(&selector);
        self.leases().delete_collection(&DeleteParams::default(), &selected).await.unwrap();
        match self.leases().delete(&election, &DeleteParams::default()).await {
            // The replica has left before it was elected.
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            deleted => drop(deleted.unwrap()),
        }
    }

    async fn lease_names(&self) -> Vec<String> {
        let leases = self.leases().list(&ListParams::default()).await.unwrap().items;
        leases.into_iter().map(|lease| lease.metadata.name.unwrap()).collect()
    }

    /// Finalizers of all pods.
    async fn finalizers(&self) -> Vec<String> {
        let pods = self.cluster.pods.list(&ListParams::default()).await.unwrap().items;
        pods.into_iter().flat_map(|pod| pod.metadata.finalizers.unwrap_or_default()).collect()
    }
}

/// Ends a replica as Kubernetes does.
fn leave(mut replica: Background) {
    replica.signal(Signal::SIGTERM);
    assert_eq!(replica.exit_code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn from_beside_to_in_place_no_pod_is_lost_or_doubled() {
    let stage = Stage::start().await;
    let beside = Background::start(&mut stage.controller());
    stage.create_jobs("named", Some(BESIDE)).await;
    stage.create_endless("endless", Some(BESIDE)).await;
    stage.cluster.until_pods(JOBS * 2 + 2).await;

    // Both run. New Jobs have no `managedBy`.
    let in_place = Background::start(&mut stage.in_place());
    stage.create_jobs("plain", None).await;
    stage.assert_exact("plain").await;
    stage.assert_exact("named").await;

    // The hook of the chart asks this. It refuses, also when only pods are left.
    let found = stage.check(&["--leaving"]);
    let both = ["unfinished-jobs", "pods-with-finalizer"];
    assert_eq!((found.code, found.names("failed")), (Some(1), both.to_vec()), "{}", found.json);
    assert!(found.message("unfinished-jobs").ends_with(": default/endless"), "{}", found.json);
    assert!(found.message("pods-with-finalizer").starts_with("2 pods have"), "{}", found.json);
    leave(beside);
    stage.cluster.jobs.delete("endless", &DeleteParams::background()).await.unwrap();
    let found = stage.check(&["--leaving"]);
    let pods = vec!["pods-with-finalizer"];
    assert_eq!((found.code, found.names("failed")), (Some(1), pods), "{}", found.json);

    // A replica releases the pods of the deleted Job, and the release can go.
    let beside = Background::start(&mut stage.controller());
    let deadline = Instant::now() + PATIENCE;
    let found = loop {
        let found = stage.check(&["--leaving"]);
        if found.code == Some(0) {
            break found;
        }
        assert!(Instant::now() < deadline, "{}", found.json);
        assert_eq!(found.names("failed"), ["pods-with-finalizer"], "{}", found.json);
    };
    assert_eq!(found.names("ok"), both, "{}", found.json);
    leave(beside);
    stage.delete_leases(BESIDE).await;
    let left = stage.lease_names().await;
    let of_in_place = |name: &String| name.starts_with("yardmaster-kubernetes-io-job-controller-");
    assert!(left.iter().all(of_in_place) && left.len() > 4, "{left:?}");

    stage.create_jobs("after", None).await;
    stage.assert_exact("after").await;
    assert_eq!(stage.finalizers().await, [""; 0]);
    stage.cluster.assert_pods_ever(3 * JOBS * PODS as usize + 2).await;
    leave(in_place);
    stage.end().await;
}

/// A controller that shares no Lease with the former release stands for the built-in one. It knows only Jobs
/// and pods.
#[tokio::test(flavor = "multi_thread")]
async fn from_in_place_to_beside_no_pod_is_lost_or_doubled() {
    let stage = Stage::start().await;
    let in_place = Background::start(&mut stage.in_place());
    stage.create_jobs("plain", None).await;
    stage.create_endless("endless", None).await;
    stage.cluster.until_pods(JOBS * 2 + 2).await;

    let beside = Background::start(&mut stage.controller());
    stage.create_jobs("named", Some(BESIDE)).await;
    leave(in_place);
    let found = stage.check(&["--leaving", "--controller-name", REPLACEMENT]);
    assert_eq!((found.code, found.names("failed")), (Some(1), vec!["unfinished-jobs"]), "{}", found.json);
    assert!(found.message("unfinished-jobs").contains("default/endless"), "{}", found.json);
    stage.delete_leases(REPLACEMENT).await;

    let built_in = Background::start(stage.in_place().args(["--lease-namespace", "kube-system"]));
    stage.assert_exact("plain").await;
    stage.assert_exact("named").await;
    stage.cluster.jobs.delete("endless", &DeleteParams::background()).await.unwrap();
    stage.create_jobs("after", Some(BESIDE)).await;
    stage.assert_exact("after").await;
    for name in [BESIDE, REPLACEMENT] {
        let found = stage.check(&["--leaving", "--controller-name", name]);
        assert_eq!(found.code, Some(0), "{}", found.json);
    }
    stage.cluster.assert_pods_ever(3 * JOBS * PODS as usize + 2).await;
    leave(beside);
    leave(built_in);
    stage.end().await;
}

/// `helm rollback` starts replicas with the flags of an earlier revision, and then ends those of the later one.
#[tokio::test(flavor = "multi_thread")]
async fn an_earlier_revision_takes_over_unless_it_has_another_number_of_shards() {
    let stage = Stage::start().await;
    let named = |command: &mut Command, name: &str, flags: &[&str]| {
        Background::start(command.args(["--identity", name]).args(flags))
    };
    let later = ["--batch-period", "200ms", "--lease-duration", "12s", "--kube-api-qps", "500"];
    let second = named(&mut stage.controller(), "second", &later);
    stage.create_jobs("before", Some(BESIDE)).await;
    stage.cluster.until_pods(JOBS * 2).await;
    let layout = stage.leases().get("yardmaster-layout").await.unwrap().metadata.uid;

    let first = named(&mut stage.controller(), "first", &[]);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = stage.check(&["--shards", "4"]);
        assert_eq!((found.code, found.names("failed")), (Some(0), vec![]), "{}", found.json);
        if found.message("replicas").contains("first") {
            break;
        }
        assert!(Instant::now() < deadline, "{}", found.json);
    }
    leave(second);
    stage.assert_exact("before").await;
    assert_eq!(stage.leases().get("yardmaster-layout").await.unwrap().metadata.uid, layout);

    // A revision with another number of shards does not start. The replicas of the other one go on.
    let mut other = stage.controller_with(8);
    other.args(["--identity", "zeroth", "--log-level", "error"]);
    let refused = other.stderr(Stdio::piped()).output().unwrap();
    let line = String::from_utf8(refused.stderr).unwrap();
    assert_eq!((refused.status.code(), line.lines().count()), (Some(2), 1), "{line}");
    for part in ["--shards 8", "this cluster has 4", "--shards 4"] {
        assert!(line.contains(part), "no {part:?} in {line}");
    }
    stage.create_jobs("after", Some(BESIDE)).await;
    stage.assert_exact("after").await;
    stage.cluster.assert_pods_ever(2 * JOBS * PODS as usize).await;
    assert!(!stage.lease_names().await.iter().any(|name| name.contains("zeroth")));
    leave(first);
    stage.end().await;
}
