//! kubectl works with the embedded cluster as with any other. Skipped where kubectl is not found.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use kube::config::KubeConfigOptions;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;
use yardmaster::actors::{Controller, ControllerConfig};
use yardmaster::sharding::ShardCount;
use yardmaster_embedded::kubelet::{Kubelet, KubeletConfig};
use yardmaster_embedded::{ApiServer, ApiServerConfig};

/// Limit for a command.
const PATIENCE: Duration = Duration::from_secs(60);

/// A cluster with the controller in replacement mode, and a home directory for kubectl.
struct Cluster {
    kubectl: PathBuf,
    home: TempDir,
    kubelet: Kubelet,
    controller: Controller,
    server: ApiServer,
}

impl Cluster {
    /// Returns `None` if there is no kubectl.
    async fn start() -> Option<Self> {
        let Ok(kubectl) = which::which("kubectl") else {
            eprintln!("skipped: kubectl is not found");
            return None;
        };
        let server = ApiServer::start(ApiServerConfig::default()).await.unwrap();
        let home = tempfile::tempdir().unwrap();
        let kubeconfig = serde_saphyr::to_string(&server.secure_kubeconfig()).unwrap();
        std::fs::write(home.path().join("config"), kubeconfig).unwrap();
        let options = KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(server.kubeconfig(), &options).await.unwrap();
        let controller = ControllerConfig {
            controller_name: "kubernetes.io/job-controller".into(),
            shards: ShardCount::new(2).unwrap(),
            ..ControllerConfig::default()
        };
        let controller = Controller::start(controller, config.clone()).await.unwrap();
        let client = kube::Client::try_from(config).unwrap();
        let kubelet = Kubelet::start(
            client,
            KubeletConfig {
                supervisor: Some(env!("CARGO_BIN_EXE_yardmaster").into()),
                ..KubeletConfig::default()
            },
        )
        .await
        .unwrap();
        Some(Self { kubectl, home, kubelet, controller, server })
    }

    async fn stop(self) {
        self.kubelet.shutdown().await;
        self.controller.shutdown().await;
        self.server.shutdown().await;
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.kubectl);
        let path = std::env::var_os("PATH").unwrap_or_default();
        command.env_clear().env("PATH", path).env("HOME", self.home.path());
        command.env("KUBECONFIG", self.home.path().join("config"));
        command.arg("--cache-dir").arg(self.home.path().join("cache")).args(arguments);
        command.stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    async fn run(&self, arguments: &[&str]) -> Output {
        tokio::time::timeout(PATIENCE, self.command(arguments).output())
            .await
            .unwrap_or_else(|_| panic!("kubectl {arguments:?} does not end"))
            .unwrap()
    }

    /// Standard output of a command that succeeds.
    async fn kubectl(&self, arguments: &str) -> String {
        self.succeeds(&arguments.split(' ').collect::<Vec<_>>()).await
    }

    async fn succeeds(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments).await;
        let problem = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "kubectl {arguments:?}: {problem}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Standard error of a command that fails.
    async fn fails(&self, arguments: &str) -> String {
        let output = self.run(&arguments.split(' ').collect::<Vec<_>>()).await;
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(!output.status.success(), "kubectl {arguments} succeeds: {text}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// Pipes a manifest to `kubectl ARGUMENTS -f -`.
    async fn pipe(&self, arguments: &str, manifest: &Value) -> String {
        let file = self.home.path().join("manifest.json");
        std::fs::write(&file, manifest.to_string()).unwrap();
        self.kubectl(&format!("{arguments} -f {}", path_text(&file))).await
    }

    /// The object, as `get -o json` prints it.
    async fn get(&self, what: &str) -> Value {
        serde_json::from_str(&self.kubectl(&format!("get {what} -o json")).await).unwrap()
    }

    /// Creates a Job whose pods run a shell script.
    async fn run_job(&self, name: &str, spec: Value, script: &str) {
        self.pipe("create", &job(name, spec, script)).await;
    }
}

fn path_text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn job(name: &str, mut spec: Value, script: &str) -> Value {
    spec["template"] = json!({"spec": {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "main", "image": "none", "command": ["sh", "-c", script]}],
    }});
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "labels": {"app": name}}, "spec": spec})
}

/// The words of the line whose first word is `first`.
fn row<'a>(table: &'a str, first: &str) -> Vec<&'a str> {
    let mut lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines.find(|words| words.first() == Some(&first)).unwrap_or_else(|| panic!("{first} is not in:\n{table}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_shown_in_every_form() {
    let Some(cluster) = Cluster::start().await else { return };
    let spec = || json!({"completions": 3, "parallelism": 3});
    cluster.run_job("one", spec(), "true").await;
    cluster.run_job("two", json!({}), "exec sleep 100").await;
    cluster.kubectl("wait --for=condition=Complete job/one --timeout=30s").await;
    cluster.kubectl("wait --for=jsonpath={.status.ready}=1 job/two --timeout=30s").await;

    let jobs = cluster.kubectl("get jobs").await;
    assert_eq!(row(&jobs, "NAME"), ["NAME", "STATUS", "COMPLETIONS", "DURATION", "AGE"]);
    assert_eq!(row(&jobs, "one")[1..3], ["Complete", "3/3"]);
    assert_eq!(row(&jobs, "two")[1..3], ["Running", "0/1"]);
    let wide = cluster.kubectl("get jobs -o wide").await;
    assert_eq!(row(&wide, "NAME")[5..], ["CONTAINERS", "IMAGES", "SELECTOR"]);
    assert_eq!(row(&wide, "one")[5..7], ["main", "none"]);
    let yaml: Value = serde_saphyr::from_str(&cluster.kubectl("get job one -o yaml").await).unwrap();
    assert_eq!((&yaml["kind"], &yaml["status"]["succeeded"]), (&json!("Job"), &json!(3)));
    assert_eq!(cluster.kubectl("get jobs -l app=two -o name").await, "job.batch/two\n");

    let running = cluster.kubectl("get pods --field-selector status.phase=Running -o name").await;
    assert_eq!(running.lines().count(), 1, "{running}");
    assert!(running.starts_with("pod/two-"), "{running}");
    let whole = cluster.kubectl("get pods --no-headers").await;
    let paged = cluster.kubectl("get pods --no-headers --chunk-size=1").await;
    let names = |table: &str| -> Vec<String> {
        table.lines().map(|line| line.split_whitespace().next().unwrap().to_owned()).collect()
    };
    assert_eq!((names(&paged).len(), names(&paged)), (4, names(&whole)));

    let all = cluster.kubectl("get all").await;
    assert!(all.contains("job.batch/one") && all.contains("pod/two-"), "{all}");
    let nodes = cluster.kubectl("get nodes").await;
    assert_eq!(row(&nodes, "yardmaster-local")[1], "Ready");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_shows_changes_as_they_come() {
    let Some(cluster) = Cluster::start().await else { return };
    let mut watch =
        cluster.command(&["get", "jobs", "-w", "--no-headers"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    cluster.run_job("watched", json!({}), "true").await;
    let complete = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            let words: Vec<&str> = line.split_whitespace().collect();
            if words[..3] == ["watched", "Complete", "1/1"] {
                return;
            }
        }
        panic!("the watch ended");
    };
    tokio::time::timeout(PATIENCE, complete).await.expect("the watch shows the end of the Job");
    watch.kill().await.unwrap();
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn describe_shows_a_job_with_its_events() {
    let Some(cluster) = Cluster::start().await else { return };
    cluster.run_job("failing", json!({}), "exit 3").await;
    let pods = "pods -l batch.kubernetes.io/job-name=failing";
    cluster.kubectl("wait --for=jsonpath={.status.failed}=1 job/failing --timeout=30s").await;
    // Events are written independently of the status and may come later.
    let described = async {
        loop {
            let job = cluster.kubectl("describe job failing").await;
            if job.contains("SuccessfulCreate") {
                return job;
            }
        }
    };
    let job = tokio::time::timeout(PATIENCE, described).await.expect("the event is shown");
    assert_eq!(row(&job, "Parallelism:")[1], "1");
    assert!(job.contains("1 Failed"), "{job}");
    let pod = cluster.kubectl(&format!("describe {pods}")).await;
    assert_eq!(row(&pod, "Exit")[2], "3");
    assert_eq!(row(&pod, "Controlled")[2], "Job/failing");
    let node = cluster.kubectl("describe node yardmaster-local").await;
    assert_eq!(row(&node, "Name:")[1], "yardmaster-local");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn apply_merges_on_the_client_and_on_the_server() {
    let Some(cluster) = Cluster::start().await else { return };
    let manifest = |name: &str, parallelism: u32| {
        job(name, json!({"suspend": true, "completions": 9, "parallelism": parallelism}), "true")
    };
    assert_eq!(cluster.pipe("apply", &manifest("j", 1)).await, "job.batch/j created\n");
    assert_eq!(cluster.pipe("apply", &manifest("j", 1)).await, "job.batch/j unchanged\n");
    cluster.kubectl("label job j mine=1").await;
    assert_eq!(cluster.pipe("apply", &manifest("j", 2)).await, "job.batch/j configured\n");
    let merged = cluster.get("job j").await;
    assert_eq!(merged["spec"]["parallelism"], 2);
    assert_eq!(merged["metadata"]["labels"]["mine"], "1", "apply keeps what others set");

    let server = "apply --server-side";
    assert_eq!(cluster.pipe(server, &manifest("s", 1)).await, "job.batch/s serverside-applied\n");
    cluster.kubectl(r#"patch job s --type=merge -p {"spec":{"parallelism":5}}"#).await;
    let file = cluster.home.path().join("manifest.json");
    std::fs::write(&file, manifest("s", 3).to_string()).unwrap();
    let conflict = cluster.fails(&format!("{server} -f {}", path_text(&file))).await;
    assert!(
        conflict.contains("conflict with \"kubectl-patch\"") && conflict.contains(".spec.parallelism"),
        "{conflict}"
    );
    cluster.pipe(&format!("{server} --force-conflicts"), &manifest("s", 3)).await;
    assert_eq!(cluster.get("job s").await["spec"]["parallelism"], 3);

    let dry = cluster.pipe(&format!("{server} --dry-run=server"), &manifest("dry", 1)).await;
    assert_eq!(dry, "job.batch/dry serverside-applied (server dry run)\n");
    assert!(cluster.fails("get job dry").await.contains("NotFound"));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_created_patched_and_scaled() {
    let Some(cluster) = Cluster::start().await else { return };
    let created = cluster.kubectl("create job made --image=none -- sh -c true").await;
    assert_eq!(created, "job.batch/made created\n");
    cluster.kubectl("wait --for=condition=Complete job/made --timeout=30s").await;

    cluster.run_job("wide", json!({"completions": 20, "parallelism": 1}), "exec sleep 100").await;
    cluster.kubectl(r#"patch job wide -p {"spec":{"parallelism":3}}"#).await;
    cluster.kubectl("wait --for=jsonpath={.status.active}=3 job/wide --timeout=30s").await;
    let step = r#"patch job wide --type=json -p [{"op":"replace","path":"/spec/parallelism","value":0}]"#;
    cluster.kubectl(step).await;
    cluster.kubectl("wait --for=jsonpath={.spec.parallelism}=0 job/wide --timeout=30s").await;
    cluster.kubectl("wait --for=delete pod -l batch.kubernetes.io/job-name=wide --timeout=30s").await;
    cluster.kubectl("annotate job wide note=kept").await;
    assert_eq!(cluster.get("job wide").await["metadata"]["annotations"]["note"], "kept");
    let refused = cluster.fails(r#"patch job wide -p {"spec":{"parallelism":-1}}"#).await;
    assert!(refused.contains("must be greater than or equal to 0"), "{refused}");
    cluster.kubectl("create job dry --image=none --dry-run=server").await;
    assert!(cluster.fails("get job dry").await.contains("NotFound"), "a dry run leaves nothing");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deletion_deletes_or_orphans_pods_by_policy() {
    let Some(cluster) = Cluster::start().await else { return };
    for (name, policy) in [("back", "background"), ("fore", "foreground"), ("lone", "orphan")] {
        cluster.run_job(name, json!({}), "exec sleep 100").await;
        cluster.kubectl(&format!("wait --for=jsonpath={{.status.ready}}=1 job/{name} --timeout=30s")).await;
        let deleted = cluster.kubectl(&format!("delete job {name} --cascade={policy}")).await;
        // Newer versions add "from default namespace".
        assert!(deleted.starts_with(&format!("job.batch \"{name}\" deleted")), "{deleted}");
        assert!(cluster.fails(&format!("get job {name}")).await.contains("NotFound"));
        let pods = format!("pods -l batch.kubernetes.io/job-name={name}");
        if policy == "orphan" {
            let pods = cluster.get(&pods).await;
            assert_eq!(pods["items"].as_array().unwrap().len(), 1);
            assert_eq!(pods["items"][0]["metadata"]["ownerReferences"], Value::Null);
        } else {
            cluster.kubectl(&format!("wait --for=delete {pods} --timeout=30s")).await;
        }
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_are_followed_to_the_end() {
    let Some(cluster) = Cluster::start().await else { return };
    let go = cluster.home.path().join("go");
    let script = format!("echo first; until test -e {}; do sleep 0.05; done; echo last", path_text(&go));
    cluster.run_job("talks", json!({}), &script).await;
    cluster.kubectl("wait --for=jsonpath={.status.ready}=1 job/talks --timeout=30s").await;
    let mut follow = cluster.command(&["logs", "-f", "job/talks"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines();
    let story = async {
        assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("first"));
        std::fs::write(&go, "").unwrap();
        assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("last"));
        assert_eq!(lines.next_line().await.unwrap(), None, "the log ends with the container");
    };
    tokio::time::timeout(PATIENCE, story).await.expect("the log comes while the container runs");
    assert!(follow.wait().await.unwrap().success());
    assert_eq!(cluster.kubectl("logs job/talks --tail=1").await, "last\n");
    let previous = cluster.fails("logs -p job/talks").await;
    let pod = cluster.kubectl("get pods -o jsonpath={.items[0].metadata.name}").await;
    assert_eq!(
        previous,
        format!(
            "Error from server (BadRequest): previous terminated container \"main\" in pod \"{pod}\" not found\n"
        )
    );
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn explain_discovery_and_validation_work() {
    let Some(cluster) = Cluster::start().await else { return };
    let spec = cluster.kubectl("explain jobs.spec").await;
    assert_eq!(row(&spec, "FIELD:")[1..], ["spec", "<JobSpec>"]);
    assert_eq!(row(&spec, "completions")[1], "<integer>");
    assert_eq!(cluster.kubectl("auth can-i create jobs").await, "yes\n");
    let resources = cluster.kubectl("api-resources --api-group=batch --no-headers").await;
    assert_eq!(row(&resources, "jobs"), ["jobs", "batch/v1", "true", "Job"]);
    let file = cluster.home.path().join("manifest.json");
    let mut typo = job("typo", json!({}), "true");
    typo["spec"]["paralellism"] = json!(2);
    std::fs::write(&file, typo.to_string()).unwrap();
    let refused = cluster.fails(&format!("create -f {}", path_text(&file))).await;
    assert!(refused.contains("unknown field \"spec.paralellism\""), "{refused}");
    let listed = json!({"apiVersion": "v1", "kind": "List", "items": [job("listed", json!({}), "true")]});
    assert_eq!(cluster.pipe("create", &listed).await, "job.batch/listed created\n");
    cluster.run_job("still", json!({}), "exec sleep 100").await;
    cluster.kubectl("wait --for=jsonpath={.status.ready}=1 job/still --timeout=30s").await;
    let honest = cluster.fails("exec job/still -- true").await;
    assert!(honest.contains("does not implement"), "{honest}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn accounts_have_tokens() {
    let Some(cluster) = Cluster::start().await else { return };
    let token = cluster.kubectl("create token default --duration 10m --audience vault").await;
    let claims = token.trim().split('.').nth(1).unwrap();
    use base64::Engine as _;
    let claims = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(claims).unwrap();
    let claims: Value = serde_json::from_slice(&claims).unwrap();
    assert_eq!(
        (&claims["aud"], claims["exp"].as_i64()),
        (&json!(["vault"]), claims["iat"].as_i64().map(|at| at + 600))
    );
    let refused = cluster.fails("create token default --duration 9m").await;
    assert!(refused.contains("may not specify a duration less than 10 minutes"), "{refused}");

    let kubeconfig = cluster.server.secure_kubeconfig();
    let (mut of_account, token) = (kubeconfig, cluster.kubectl("create token default").await);
    of_account.auth_infos[0].auth_info.as_mut().unwrap().token = Some(token.trim().to_owned().into());
    let file = cluster.home.path().join("account");
    std::fs::write(&file, serde_saphyr::to_string(&of_account).unwrap()).unwrap();
    let as_account = format!("--kubeconfig {}", path_text(&file));
    let who = cluster.kubectl(&format!("{as_account} auth whoami")).await;
    assert!(who.contains("system:serviceaccount:default:default"), "{who}");
    let refused = cluster.fails(&format!("{as_account} get pods")).await;
    assert!(refused.contains("cannot list resource \"pods\""), "{refused}");
    cluster.kubectl("create rolebinding view --clusterrole view --serviceaccount default:default").await;
    cluster.kubectl(&format!("{as_account} get pods")).await;
    cluster.stop().await;
}
