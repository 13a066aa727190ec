//! `yardmaster logs`: all pods of a Job, over restarts and broken connections, each line once.

mod proxy;

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Output};
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use kube::api::{Api, PostParams};
use kube::config::KubeConfigOptions;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use yardmaster::actors::{Controller, ControllerConfig};
use yardmaster::sharding::ShardCount;
use yardmaster_embedded::kubelet::{Kubelet, KubeletConfig};
use yardmaster_embedded::{ApiServer, ApiServerConfig};

use self::proxy::Proxy;
use crate::binary::{Background, PATIENCE, yardmaster};

/// A cluster whose pods are processes, behind a proxy that can cut connections.
struct Yard {
    proxy: Proxy,
    jobs: Api<Job>,
    home: TempDir,
    kubelet: Kubelet,
    controller: Controller,
    server: ApiServer,
}

impl Yard {
    async fn start() -> Self {
        let server = ApiServer::start(ApiServerConfig::default()).await.unwrap();
        let kubeconfig = server.kubeconfig();
        let options = KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig.clone(), &options).await.unwrap();
        let settings = ControllerConfig {
            controller_name: "kubernetes.io/job-controller".into(),
            shards: ShardCount::new(2).unwrap(),
            pod_failure_backoff: Duration::from_millis(100),
            ..ControllerConfig::default()
        };
        let controller = Controller::start(settings, config.clone()).await.unwrap();
        let client = kube::Client::try_from(config).unwrap();
        let supervisor = Some(env!("CARGO_BIN_EXE_yardmaster").into());
        let config = KubeletConfig { supervisor, ..KubeletConfig::default() };
        let kubelet = Kubelet::start(client.clone(), config).await.unwrap();
        let address = server.url();
        let proxy = Proxy::start(address.trim_start_matches("http://").trim_end_matches('/'));
        let home = tempfile::tempdir().unwrap();
        let text = serde_json::to_string(&kubeconfig).unwrap().replace(&address, &proxy.url());
        std::fs::write(home.path().join("kubeconfig"), text).unwrap();
        Self { proxy, jobs: Api::default_namespaced(client), home, kubelet, controller, server }
    }

    async fn end(self) {
        self.kubelet.shutdown().await;
        self.controller.shutdown().await;
        self.server.shutdown().await;
    }

    /// Creates a Job of which each container runs a shell script.
    async fn create(&self, name: &str, spec: Value, restart: &str, containers: &[(&str, &str)]) {
        let containers: Vec<_> = containers
            .iter()
            .map(|(name, script)| json!({"name": name, "image": "none", "command": ["sh", "-c", script]}))
            .collect();
        let mut job = json!({"metadata": {"name": name}, "spec": spec});
        job["spec"]["template"] = json!({"spec": {"restartPolicy": restart, "containers": containers}});
        self.jobs.create(&PostParams::default(), &serde_json::from_value(job).unwrap()).await.unwrap();
    }

    async fn completes(&self, name: &str) {
        let deadline = std::time::Instant::now() + PATIENCE;
        loop {
            let status = self.jobs.get(name).await.unwrap().status.unwrap_or_default();
            let mut conditions = status.conditions.iter().flatten();
            if conditions.any(|condition| condition.type_ == "Complete") {
                return;
            }
            assert!(std::time::Instant::now() < deadline, "{name} is not complete: {status:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = yardmaster();
        command.arg("logs").args(arguments).arg("--kubeconfig").arg(self.home.path().join("kubeconfig"));
        command
    }

    async fn run(&self, arguments: &[&str]) -> Output {
        let mut command = self.command(arguments);
        tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
    }

    /// Follows the logs of a Job. Returns once there is a line; the task ends with the command, and has all lines.
    async fn follow(&self, job: &str) -> JoinHandle<Vec<String>> {
        let mut logs = Background::start(&mut self.command(&[job, "-f"]));
        let output = BufReader::new(logs.0.stdout.take().unwrap());
        let (first, seen) = tokio::sync::oneshot::channel();
        let task = tokio::task::spawn_blocking(move || {
            let mut output = output.lines().map(Result::unwrap);
            let mut lines = vec![output.next().unwrap()];
            first.send(()).unwrap();
            lines.extend(output);
            assert_eq!(logs.exit_code(), Some(0));
            lines
        });
        seen.await.unwrap();
        task
    }

    /// Standard output of a command that succeeds.
    async fn logs(&self, arguments: &[&str]) -> Vec<String> {
        let output = self.run(arguments).await;
        let problem = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {problem}");
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
    }
}

/// Each line without its prefix, by prefix.
fn by_prefix(lines: &[String]) -> BTreeMap<&str, Vec<&str>> {
    let mut sorted: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for line in lines {
        let (prefix, text) = line.split_once(": ").unwrap_or_else(|| panic!("no prefix: {line:?}"));
        sorted.entry(prefix).or_default().push(text);
    }
    sorted
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_of_all_pods_are_printed_by_index() {
    let yard = Yard::start().await;
    let spec = json!({"completions": 3, "parallelism": 3, "completionMode": "Indexed"});
    let containers = [("main", "echo first; printf last"), ("side", "echo side")];
    yard.create("many", spec, "Never", &containers).await;
    yard.completes("many").await;

    let lines = yard.logs(&["many"]).await;
    let texts: Vec<_> = lines
        .iter()
        .map(|line| {
            let (prefix, text) = line.split_once(": ").unwrap();
            let (pod, container) = prefix.split_once(' ').unwrap();
            format!("{} {container} {text}", pod.split('-').next().unwrap())
        })
        .collect();
    let of = |index: usize| {
        [("main", "first"), ("main", "last"), ("side", "side")]
            .map(|(name, text)| format!("{index} {name} {text}"))
    };
    assert_eq!(texts, (0..3).flat_map(of).collect::<Vec<_>>());

    let some = yard.logs(&["many", "--index", "0,2", "-c", "main", "--tail", "1"]).await;
    assert!(some.len() == 2 && some.iter().all(|line| line.ends_with(": last")), "{some:?}");
    let alone = yard.logs(&["many", "--no-prefix", "-c", "side", "--since", "1h"]).await;
    assert_eq!(alone, ["side"; 3]);
    let timed = yard.logs(&["many", "--no-prefix", "-c", "side", "--timestamps"]).await;
    for line in &timed {
        let (time, text) = line.split_once(' ').unwrap();
        assert!(text == "side" && time.parse::<jiff::Timestamp>().is_ok(), "{line}");
    }
    // If the Job has ended, there is nothing to wait for.
    let followed = yard.logs(&["many", "-f", "--no-prefix"]).await;
    assert_eq!(followed.len(), 9, "{followed:?}");

    for (arguments, code, problem) in [
        (&["many", "-c", "nope"][..], 2, "--container nope: the Job has only the containers main, side"),
        (&["none"], 3, "error: Job default/none not found"),
        (&["many", "--since", "soon"], 2, "--since"),
        (&["many", "--index", "3-"], 2, "--index"),
    ] {
        let output = yard.run(arguments).await;
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), errors.lines().count()), (Some(code), 1), "{errors}");
        assert!(errors.contains(problem), "{errors}");
    }
    yard.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_that_start_again_and_pods_that_are_replaced_are_followed() {
    let yard = Yard::start().await;
    let marks = yard.home.path().display().to_string();
    // Fails once, as soon as its log has been seen.
    let script = |job: &str| {
        format!(
            "if test -e {marks}/{job}; then echo second; else touch {marks}/{job}; echo first; \
             until test -e {marks}/go; do sleep 0.05; done; exit 1; fi"
        )
    };
    // The first starts again in its pod, another pod takes the place of the second.
    yard.create("again", json!({}), "OnFailure", &[("main", &script("again"))]).await;
    yard.create("anew", json!({}), "Never", &[("main", &script("anew"))]).await;
    let (again, anew) = (yard.follow("again").await, yard.follow("anew").await);
    std::fs::write(yard.home.path().join("go"), "").unwrap();
    let (again, anew) = (again.await.unwrap(), anew.await.unwrap());

    let runs = by_prefix(&again);
    assert_eq!(runs.values().collect::<Vec<_>>(), [&["first", "second"]], "{again:?}");
    let pods = by_prefix(&anew);
    let texts: Vec<_> = anew.iter().filter_map(|line| Some(line.split_once(": ")?.1)).collect();
    assert_eq!((pods.len(), texts), (2, vec!["first", "second"]), "{anew:?}");
    let previous = yard.logs(&["again", "--previous", "--no-prefix"]).await;
    assert_eq!(previous, ["first"]);
    yard.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_connection_loses_no_line_and_doubles_none() {
    let yard = Yard::start().await;
    let go = yard.home.path().join("go");
    let script = format!(
        "n=0; while test $n -lt 300 || ! test -e {go}; do n=$((n+1)); echo line $n; sleep 0.01; done",
        go = go.display()
    );
    yard.create("talks", json!({"completions": 2, "parallelism": 2}), "Never", &[("main", &script)]).await;
    let reader = yard.follow("talks").await;
    let mut cut = 0;
    while cut < 6 {
        cut += yard.proxy.cut();
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    std::fs::write(&go, "").unwrap();
    let lines = reader.await.unwrap();
    let pods = by_prefix(&lines);
    assert_eq!(pods.len(), 2);
    for (pod, texts) in pods {
        let expected: Vec<_> = (1..=texts.len().max(300)).map(|n| format!("line {n}")).collect();
        assert_eq!(texts, expected, "{pod}");
    }
    yard.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn more_logs_than_are_read_at_once_wait_for_their_turn() {
    let yard = Yard::start().await;
    let spec = json!({"completions": 4, "parallelism": 4});
    yard.create("wide", spec, "Never", &[("main", "echo begin; sleep 1; echo end")]).await;
    let output = yard.run(&["wide", "-f", "--max-log-requests", "1"]).await;
    let lines: Vec<_> = String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
    let pods = by_prefix(&lines);
    assert!(pods.len() == 4 && pods.values().all(|texts| *texts == ["begin", "end"]), "{lines:?}");
    let notes = String::from_utf8(output.stderr).unwrap();
    assert_eq!(notes.lines().count(), 1, "{notes}");
    assert!(notes.starts_with("1 logs are read at once; others wait"), "{notes}");
    yard.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_has_enough_ends_the_command() {
    let yard = Yard::start().await;
    yard.create("endless", json!({}), "Never", &[("main", "while :; do echo more; sleep 0.05; done")]).await;
    let mut logs = Background::start(&mut yard.command(&["endless", "-f"]));
    let mut line = String::new();
    // Nothing is printed before the pod runs; the command may have been started before it.
    BufReader::new(logs.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.ends_with(": more\n"), "{line}");
    assert_eq!(logs.exit_code(), Some(0));
    let mut errors = String::new();
    std::io::Read::read_to_string(logs.0.stderr.as_mut().unwrap(), &mut errors).unwrap();
    assert_eq!(errors, "");
    yard.end().await;
}
