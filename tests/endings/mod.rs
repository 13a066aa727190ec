//! The first and the last lines of `run`.

use std::io::{BufRead as _, BufReader};
use std::path::Path;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams};
use kube::config::Kubeconfig;
use nix::sys::signal::Signal;

use crate::binary::{Background, until, yardmaster};
use crate::cluster::kube_config;
use crate::{Files, run, text};

/// Failed indexes, exit codes and the ends of logs are those that `status` shows.
#[test]
fn a_failed_run_ends_with_the_answer_of_status() {
    let files = Files::new();
    let (kubeconfig, spec) = (files.path("kubeconfig"), "completionMode: Indexed\n  completions: 4");
    let script = "echo index $JOB_COMPLETION_INDEX; exit $((JOB_COMPLETION_INDEX % 2))";
    let limits = "backoffLimitPerIndex: 0\n  parallelism: 4";
    let job = files.job("odd", &format!("{spec}\n  {limits}"), script);
    let mut cluster =
        Background::start(yardmaster().args(["cluster", "--write-kubeconfig"]).arg(&kubeconfig));
    Background::line(cluster.0.stdout.take().unwrap(), "controllers");
    let kubeconfig = kubeconfig.to_str().unwrap();
    let run = run(&[&job], &["--kubeconfig", kubeconfig]);
    assert_eq!(run.status.code(), Some(1), "{}", text(&run.stderr));
    let status = yardmaster().args(["status", "odd", "--kubeconfig", kubeconfig]).output().unwrap();
    let (run, status) = (text(&run.stderr), text(&status.stdout));
    let summary = run.split_once("DURATION").unwrap().1;
    for (part, place) in [
        ("Failed index: 1,3", "both"),
        ("Causes:       exit code 1 ×2", "both"),
        ("Nodes:        ", "both"),
        ("  | index ", "both"),
        (" logs default/odd --failed --tail 20", "both"),
        ("=X=X", "status"),
    ] {
        assert!(status.contains(part), "{part}: {status}");
        assert!(summary.contains(part) || place == "status", "{part}: {run}");
    }
    // The next command works as it is printed.
    let next = summary.lines().last().unwrap().trim().strip_prefix("yardmaster ").unwrap();
    let logs = yardmaster().args(next.split(' ')).output().unwrap();
    let mut logs: Vec<_> = text(&logs.stdout).lines().map(|line| line[line.len() - 7..].to_owned()).collect();
    logs.sort();
    assert_eq!(logs, ["index 1", "index 3"]);
    cluster.signal(Signal::SIGTERM);
    assert_eq!(cluster.exit_code(), Some(0));
}

#[test]
fn the_first_line_says_where_jobs_run() {
    let files = Files::new();
    let job = files.job("here", "completions: 1", "exit 0");
    let output = yardmaster().arg("run").arg(&job).env("KUBECONFIG", files.path("other")).output().unwrap();
    let errors = text(&output.stderr);
    let first = errors.lines().next().unwrap();
    assert!(first.starts_with("Embedded cluster: containers run as processes of this host"), "{first}");
    assert!(first.ends_with("KUBECONFIG is ignored: --kubeconfig FILE runs Jobs on its cluster."), "{first}");
}

#[test]
fn a_run_ends_after_its_time() {
    let files = Files::new();
    let job = files.job("endless", "completions: 1", "exec sleep 600");
    let output = run(&[&job], &["--timeout", "2s"]);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{errors}");
    assert!(errors.contains("default/endless  Interrupted") && errors.contains("--timeout"), "{errors}");
}

/// Deletes all pods, and waits until they are gone.
async fn delete_pods(kubeconfig: &Path) {
    let config = kube_config(Kubeconfig::read_from(kubeconfig).unwrap()).await;
    let pods: Api<Pod> = Api::default_namespaced(kube::Client::try_from(config).unwrap());
    pods.delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
    while !pods.list(&ListParams::default()).await.unwrap().items.is_empty() {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

/// A controller remembers the last failures of a Job, and its page has them.
#[tokio::test(flavor = "multi_thread")]
async fn failed_pods_that_are_gone_are_remembered() {
    let files = Files::new();
    let kubeconfig = files.path("kubeconfig");
    let mut cluster =
        Background::start(yardmaster().args(["cluster", "--write-kubeconfig"]).arg(&kubeconfig));
    let mut lines = BufReader::new(cluster.0.stdout.take().unwrap()).lines().map_while(Result::ok);
    let page = lines.find(|line| line.starts_with("page ")).unwrap();
    let (_, file) = page.trim_end_matches(')').split_once("with its token: ").unwrap();
    let page = std::fs::read_to_string(file).unwrap().trim().to_owned();
    let script = r#"printf 'no GPU' > "$YARDMASTER_TERMINATION_LOG"; exit 3"#;
    let job = files.job("bad", "backoffLimit: 0", script);
    let flag = kubeconfig.to_str().unwrap();
    assert_eq!(run(&[&job], &["--kubeconfig", flag]).status.code(), Some(1));
    delete_pods(&kubeconfig).await;
    let status = |more: &[&str]| {
        let output = yardmaster().args(["status", "bad", "--kubeconfig", flag]).args(more).output().unwrap();
        text(&output.stdout)
    };
    let gone = status(&[]);
    assert!(
        gone.contains("The failed pods are gone.") && gone.contains("status default/bad --page "),
        "{gone}"
    );
    let remembered = status(&["--page", &page]);
    assert!(remembered.contains("exit code 3 (Error): no GPU"), "{remembered}");
    assert!(!remembered.contains("Next:"), "{remembered}");
    cluster.signal(Signal::SIGTERM);
    until("the cluster ends", || cluster.0.try_wait().unwrap().is_some());
}
