//! `yardmaster check` as a program, on an embedded API server in the process of the test. Also a controller
//! on a server that is too old for it.
#![allow(clippy::unwrap_used, missing_docs)]

mod binary;
mod cluster;
mod moves;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{Api, ListParams, PostParams};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use yardmaster_embedded::{ApiServerConfig, AuditRecord};

use crate::binary::{Background, yardmaster};
use crate::cluster::{Cluster, REPLACEMENT};

/// A cluster and its kubeconfig.
struct Stage {
    cluster: Cluster,
    directory: TempDir,
    kubeconfig: PathBuf,
}

impl Stage {
    async fn start() -> Self {
        Self::with(ApiServerConfig::default()).await
    }

    async fn with(config: ApiServerConfig) -> Self {
        let cluster = Cluster::with(config).await;
        let directory = TempDir::new().unwrap();
        let kubeconfig = cluster.write_kubeconfig(directory.path());
        Self { cluster, directory, kubeconfig }
    }

    /// A controller with 4 shards beside the built-in one.
    fn controller(&self) -> Command {
        self.controller_with(4)
    }

    /// A controller with this many shards beside the built-in one.
    fn controller_with(&self, shards: u32) -> Command {
        let mut command = yardmaster();
        command.args(["controller", "--listen", "127.0.0.1:0", "--shards", &shards.to_string()]);
        command.arg("--kubeconfig").arg(&self.kubeconfig).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    fn check(&self, flags: &[&str]) -> Checked {
        checked(check(&self.kubeconfig).args(["-o", "json"]).args(flags))
    }

    /// Whether nothing of a check is left.
    async fn is_clean(&self) -> bool {
        let leases: Api<Lease> = Api::default_namespaced(self.client());
        let leases = leases.list(&ListParams::default()).await.unwrap();
        let of_check = |name: Option<&String>| name.is_some_and(|name| name.contains("yardmaster-check"));
        self.probes().await == 0 && !leases.items.iter().any(|lease| of_check(lease.metadata.name.as_ref()))
    }

    async fn probes(&self) -> usize {
        let ours = ListParams::default().labels("app.kubernetes.io/managed-by=yardmaster-check");
        self.cluster.jobs.list(&ours).await.unwrap().items.len()
    }

    fn client(&self) -> kube::Client {
        kube::Client::try_from(self.cluster.config.clone()).unwrap()
    }

    /// Gives the service account `default/yardmaster` all rights.
    async fn permit_account(&self) {
        let role: ClusterRoleBinding = serde_json::from_value(json!({
            "metadata": {"name": "yardmaster"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": "yardmaster"}],
        }))
        .unwrap();
        Api::all(self.client()).create(&PostParams::default(), &role).await.unwrap();
    }

    async fn end(self) {
        self.cluster.end().await;
        drop(self.directory);
    }
}

fn check(kubeconfig: &Path) -> Command {
    let mut command = yardmaster();
    command.args(["check", "--kubeconfig"]).arg(kubeconfig);
    command
}

/// The output of a check with JSON.
struct Checked {
    code: Option<i32>,
    json: Value,
}

fn checked(command: &mut Command) -> Checked {
    let output = command.output().unwrap();
    let json = serde_json::from_slice(&output.stdout);
    let json = json.unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    Checked { code: output.status.code(), json }
}

impl Checked {
    fn names(&self, status: &str) -> Vec<&str> {
        let checks = self.json["checks"].as_array().unwrap().iter();
        checks
            .filter(|check| check["status"] == status)
            .map(|check| check["name"].as_str().unwrap())
            .collect()
    }

    fn message(&self, name: &str) -> &str {
        let checks: BTreeMap<&str, &Value> = self.json["checks"]
            .as_array()
            .unwrap()
            .iter()
            .map(|check| (check["name"].as_str().unwrap(), check))
            .collect();
        checks[name]["message"].as_str().unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_is_well_while_a_controller_runs() {
    let stage = Stage::start().await;
    stage.permit_account().await;
    for mode in ["yardmaster.dev/job-controller", REPLACEMENT] {
        let mut replica = Background::start(stage.controller().args(["--controller-name", mode]));
        let found = stage.check(&["--controller-name", mode, "--shards", "4"]);
        assert_eq!(found.code, Some(0), "{}", found.json);
        assert_eq!(found.json["ok"], true);
        assert_eq!(found.names("failed"), [""; 0], "{}", found.json);
        assert_eq!(found.names("warning"), [""; 0], "{}", found.json);
        let well = [
            "api-server",
            "version",
            "clock",
            "rights",
            "lease-round-trip",
            "shard-count",
            "replicas",
            "shard-owners",
            "probe-job",
            "second-controller",
            "pods-on-finalizers",
        ];
        assert_eq!(found.names("ok"), well, "{}", found.json);
        assert_eq!(found.names("skipped"), ["priority-level"]);
        assert!(stage.is_clean().await);

        // A probe with a pod, and the rights of another account, as lines.
        let mut lines = check(&stage.kubeconfig);
        lines.args(["--controller-name", mode, "--service-account", "default/yardmaster"]);
        lines.args(["--probe-image", "busybox", "--probe-command", "sleep 1"]);
        let output = lines.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0), "{text}");
        for line in
            ["ok   probe-job: ", "ok   rights: service account default/yardmaster has all ", "1 skipped."]
        {
            assert!(text.contains(line), "{text}");
        }
        assert!(stage.is_clean().await);

        // The number of shards that the next replicas are to have.
        let found = stage.check(&["--controller-name", mode, "--shards", "8"]);
        assert_eq!((found.code, found.names("failed")), (Some(1), vec!["shard-count"]), "{}", found.json);
        assert!(found.message("shard-count").contains("8 shards, but the cluster has 4"), "{}", found.json);
        replica.signal(Signal::SIGTERM);
        assert_eq!(replica.exit_code(), Some(0));
    }
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_namespace_of_the_leases_is_found() {
    let stage = Stage::start().await;
    let mut replica = Background::start(stage.controller().args(["--lease-namespace", "kube-system"]));
    let leases: Api<Lease> = Api::namespaced(stage.client(), "kube-system");
    while leases.get_opt("yardmaster-layout").await.unwrap().is_none() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let found = stage.check(&[]);
    assert_eq!(found.code, Some(0), "{}", found.json);
    assert!(found.message("lease-round-trip").contains("namespace kube-system"), "{}", found.json);
    replica.signal(Signal::SIGTERM);
    assert_eq!(replica.exit_code(), Some(0));
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_controller_that_runs_is_found_and_a_name_that_does_not_fit_is_told() {
    let stage = Stage::start().await;
    let mut replica = Background::start(stage.controller().args(["--controller-name", REPLACEMENT]));
    let leases: Api<Lease> = Api::default_namespaced(stage.client());
    while leases.list(&ListParams::default()).await.unwrap().items.len() < 6 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let found = stage.check(&[]);
    assert_eq!(found.code, Some(0), "{}", found.json);
    assert!(found.message("replicas").starts_with(REPLACEMENT), "{}", found.json);

    let found = stage.check(&["--controller-name", "example.com/jobs"]);
    assert_eq!((found.code, found.names("failed")), (Some(1), vec!["replicas"]), "{}", found.json);
    let told = format!("no replica runs as example.com/jobs; replicas run as {REPLACEMENT}");
    assert_eq!(found.message("replicas"), told);
    replica.signal(Signal::SIGTERM);
    assert_eq!(replica.exit_code(), Some(0));
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_controller_shards_are_unowned_and_the_probe_job_waits() {
    let stage = Stage::start().await;
    let found = stage.check(&["--wait", "1s"]);
    let absent = ["replicas", "shard-owners", "probe-job"];
    assert_eq!((found.code, found.names("failed")), (Some(1), absent.to_vec()), "{}", found.json);
    assert_eq!(found.json["ok"], false);

    let mut replica = Background::start(&mut stage.controller());
    assert_eq!(stage.check(&[]).code, Some(0));
    replica.signal(Signal::SIGTERM);
    assert_eq!(replica.exit_code(), Some(0));
    let pod = json!({
        "metadata": {
            "name": "stuck", "finalizers": ["yardmaster.dev/job-tracking"],
            "labels": {"batch.kubernetes.io/job-name": "gone"},
        },
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    let pod: Pod = serde_json::from_value(pod).unwrap();
    stage.cluster.pods.create(&PostParams::default(), &pod).await.unwrap();

    let found = stage.check(&["--wait", "1s"]);
    assert_eq!((found.code, found.names("failed")), (Some(1), absent.to_vec()), "{}", found.json);
    assert!(
        found.message("shard-owners").ends_with("4 of 4 shards have no owner that lives: 0-3"),
        "{}",
        found.json
    );
    assert!(found.message("probe-job").contains("no controller has taken it up"), "{}", found.json);
    assert_eq!(found.names("warning"), ["pods-on-finalizers"], "{}", found.json);
    assert!(found.message("pods-on-finalizers").contains("1 without a Job: default/stuck"), "{}", found.json);
    assert!(stage.is_clean().await);
    stage.end().await;
}

/// The checks before a release beside the built-in controller leaves.
const LEAVING: [&str; 2] = ["unfinished-jobs", "pods-with-finalizer"];

#[tokio::test(flavor = "multi_thread")]
async fn leaving_is_refused_while_managed_jobs_are_unfinished() {
    let stage = Stage::start().await;
    // Jobs of the built-in controller do not matter.
    stage.cluster.create("foreign", json!({}), "10ms").await;
    let found = stage.check(&["--leaving"]);
    assert_eq!((found.code, found.names("ok")), (Some(0), LEAVING.to_vec()), "{}", found.json);

    let managed = json!({"managedBy": "yardmaster.dev/job-controller"});
    stage.cluster.create("work", managed, "10ms").await;
    let found = stage.check(&["--leaving"]);
    assert_eq!((found.code, found.names("failed")), (Some(1), vec!["unfinished-jobs"]), "{}", found.json);
    let message = found.message("unfinished-jobs");
    assert_eq!(message, "1 unfinished Job is managed by this controller: default/work");
    assert!(
        stage
            .check(&["--leaving", "--controller-name", REPLACEMENT])
            .message("unfinished-jobs")
            .ends_with("/foreign")
    );

    let mut replica = Background::start(&mut stage.controller());
    stage.cluster.completes("work").await;
    assert_eq!(stage.check(&["--leaving"]).code, Some(0));
    replica.signal(Signal::SIGTERM);
    assert_eq!(replica.exit_code(), Some(0));
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leaving_is_refused_while_pods_have_the_finalizer() {
    let stage = Stage::start().await;
    let create = async |name: &str, finalizer: &str, label: &str| {
        let pod = json!({
            "metadata": {"name": name, "finalizers": [finalizer], "labels": {label: "3"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        });
        let pod: Pod = serde_json::from_value(pod).unwrap();
        stage.cluster.pods.create(&PostParams::default(), &pod).await.unwrap();
    };
    // The built-in controller's finalizer is not ours, and another label does not make a pod of a Job.
    create("built-in", "batch.kubernetes.io/job-tracking", "batch.kubernetes.io/job-name").await;
    create("unrelated", "yardmaster.dev/job-tracking", "app").await;
    let found = stage.check(&["--leaving"]);
    assert_eq!((found.code, found.names("ok")), (Some(0), LEAVING.to_vec()), "{}", found.json);

    for number in 0..11 {
        create(&format!("of-a-shard-{number:02}"), "yardmaster.dev/job-tracking", "yardmaster.dev/shard")
            .await;
    }
    let found = stage.check(&["--leaving"]);
    assert_eq!((found.code, found.names("failed")), (Some(1), vec![LEAVING[1]]), "{}", found.json);
    let message = found.message(LEAVING[1]);
    assert!(message.starts_with("11 pods have the finalizer yardmaster.dev/job-tracking: "), "{message}");
    assert!(message.ends_with(", ...") && message.matches("default/of-a-shard-").count() == 10, "{message}");

    let in_place = stage.check(&["--leaving", "--controller-name", REPLACEMENT]);
    assert_eq!((in_place.code, in_place.names("ok")), (Some(0), vec![LEAVING[0]]), "{}", in_place.json);
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_drops_managed_by_is_refused() {
    let old = ApiServerConfig { git_version: Some("v1.31.4".into()), ..ApiServerConfig::default() };
    let stage = Stage::with(old).await;
    let mut controller = stage.controller();
    let output = controller.args(["--log-level", "error"]).stderr(Stdio::piped()).output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{errors}");
    assert!(errors.contains("Kubernetes 1.31") && errors.contains("1.32 or newer"), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");

    let found = stage.check(&["--pre"]);
    assert_eq!((found.code, found.names("failed")), (Some(1), vec!["version"]), "{}", found.json);
    // In replacement mode, the field is not needed.
    let found = stage.check(&["--pre", "--controller-name", REPLACEMENT]);
    assert_eq!(found.code, Some(0), "{}", found.json);
    assert!(found.names("warning").contains(&"version"), "{}", found.json);
    let mut replica = Background::start(stage.controller().args(["--controller-name", REPLACEMENT]));
    let found = stage.check(&["--controller-name", REPLACEMENT]);
    assert_eq!((found.code, found.names("warning")), (Some(0), vec!["version"]), "{}", found.json);
    replica.signal(Signal::SIGTERM);
    assert_eq!(replica.exit_code(), Some(0));
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_cluster_is_ready_for_the_installation() {
    let stage = Stage::start().await;
    let found = stage.check(&["--pre"]);
    assert_eq!(found.code, Some(0), "{}", found.json);
    assert_eq!(found.names("ok"), ["api-server", "version", "clock", "installer-rights"], "{}", found.json);
    assert!(found.message("apis").contains("flowschemas"), "{}", found.json);
    let of_check = |write: &AuditRecord| {
        write.user_agent.contains("(check)") && !write.path.ends_with("/selfsubjectaccessreviews")
    };
    assert_eq!(stage.cluster.writes().into_iter().filter(of_check).count(), 0);
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_leaves_no_probe_job() {
    let stage = Stage::start().await;
    let mut checking = Background::start(check(&stage.kubeconfig).args(["--wait", "10m"]));
    while stage.probes().await == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert!(checking.0.try_wait().unwrap().is_none());
    }
    checking.signal(Signal::SIGINT);
    assert_eq!(checking.exit_code(), Some(130));
    assert!(stage.is_clean().await);
    stage.end().await;
}

#[test]
fn bad_input_is_2_and_an_unreachable_server_a_failed_check() {
    for (flags, named) in [
        (["--service-account", "name"], "--service-account"),
        (["--shards", "3"], "--shards"),
        (["--probe-command", "true"], "--probe-image"),
        (["--feature-gates", "Nothing=true"], "--feature-gates"),
        (["--pre", "--leaving"], "--leaving"),
    ] {
        let output = yardmaster().arg("check").args(flags).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{flags:?}");
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(errors.contains(named) && errors.lines().count() == 1, "{flags:?}: {errors}");
    }
    let directory = TempDir::new().unwrap();
    let kubeconfig = directory.path().join("kubeconfig");
    let nobody = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "c", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
    });
    std::fs::write(&kubeconfig, nobody.to_string()).unwrap();
    let found = checked(check(&kubeconfig).args(["-o", "json"]));
    assert_eq!((found.code, found.names("failed")), (Some(1), vec!["api-server"]), "{}", found.json);
    let mut lost = yardmaster();
    let none = directory.path().join("absent");
    lost.arg("check").env("KUBECONFIG", &none).env("HOME", directory.path());
    lost.env_remove("KUBERNETES_SERVICE_HOST");
    assert_eq!(lost.output().unwrap().status.code(), Some(3));
}
