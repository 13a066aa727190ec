//! Every example ends in the state that its comment promises.
#![cfg(feature = "embedded")]
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod binary;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use k8s_openapi::api::batch::v1::Job;
use kube::api::{Api, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use libtest_mimic::{Arguments, Failed, Trial};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::binary::{Background, PATIENCE, until, yardmaster};

/// The expected end of an example.
struct Example {
    name: &'static str,
    /// Exit code of `yardmaster run`.
    exit_code: i32,
    /// The final condition and its reason.
    condition: &'static str,
    reason: &'static str,
    /// Fields of the status. Fields that depend on timing are left out.
    status: Value,
    /// Duration of the wait in the example; zero if there is none.
    wait: Duration,
}

impl Example {
    fn new(name: &'static str, condition: &'static str, reason: &'static str, status: Value) -> Self {
        let exit_code = if condition == "Complete" { 0 } else { 1 };
        Self { name, exit_code, condition, reason, status, wait: Duration::ZERO }
    }

    fn waits(self, seconds: u64) -> Self {
        Self { wait: Duration::from_secs(seconds), ..self }
    }
}

fn examples() -> Vec<Example> {
    let complete = |name, status| Example::new(name, "Complete", "CompletionsReached", status);
    vec![
        complete("pi", json!({"succeeded": 1})),
        complete("parallel", json!({"succeeded": 12})),
        complete("indexed", json!({"succeeded": 200, "completedIndexes": "0-199"})),
        complete("work-queue", json!({"succeeded": 3})),
        complete("work-queue-coarse", json!({"succeeded": 8})),
        complete("static-work", json!({"succeeded": 5, "completedIndexes": "0-4"})),
        complete("ttl", json!({"succeeded": 1})),
        Example::new(
            "success-policy",
            "Complete",
            "SuccessPolicy",
            json!({"succeeded": 1, "completedIndexes": "0"}),
        ),
        Example::new("failing", "Failed", "BackoffLimitExceeded", json!({"failed": 2})).waits(10),
        Example::new(
            "indexed-backoff",
            "Failed",
            "FailedIndexes",
            json!({
                "completedIndexes": "1,3,5,7,9", "failedIndexes": "0,2,4,6,8", "succeeded": 5, "failed": 10,
            }),
        )
        .waits(10),
        Example::new(
            "max-failed-indexes",
            "Failed",
            "MaxFailedIndexesExceeded",
            json!({"failedIndexes": "0-2"}),
        ),
        Example::new("pod-failure-policy", "Failed", "PodFailurePolicy", json!({})),
        Example::new(
            "pod-failure-policy-index",
            "Failed",
            "FailedIndexes",
            json!({"completedIndexes": "0-2,4,5", "failedIndexes": "3", "succeeded": 5, "failed": 1}),
        ),
        Example::new("active-deadline", "Failed", "DeadlineExceeded", json!({"failed": 1})).waits(2),
        complete("restart-together", json!({"succeeded": 3, "completedIndexes": "0-2", "failed": 1}))
            .waits(1),
        complete("order", json!({"succeeded": 1})).waits(2),
        complete("retry-elsewhere", json!({"succeeded": 1, "failed": 1})).waits(1),
        complete("retry-with-more-memory", json!({"succeeded": 1, "failed": 2})).waits(3),
        Example::new("run-deadline", "Failed", "RunDeadlineExceeded", json!({"failed": 1})).waits(2),
        complete("pod-run-deadline", json!({"succeeded": 1, "failed": 1})).waits(3),
        complete("lost-node-timeout", json!({"succeeded": 1})),
        complete("few-pods", json!({"succeeded": 20, "completedIndexes": "0-19"})),
        Example::new("start-deadline", "Failed", "BackoffLimitExceeded", json!({"failed": 1})).waits(3),
        Example { exit_code: 3, ..Example::new("suspended", "Suspended", "JobSuspended", json!({})) },
    ]
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples")
}

fn main() {
    let arguments = Arguments::from_args();
    let names: BTreeSet<_> = examples().iter().map(|example| format!("{}.yaml", example.name)).collect();
    let mut trials: Vec<_> =
        examples().into_iter().map(|example| Trial::test(example.name, move || run(&example))).collect();
    trials.push(Trial::test("every_example_is_run", move || every_example_file_is_listed(&names)));
    trials.push(Trial::test("ttl_deletes_the_job", ttl_deletes_the_job));
    trials.push(Trial::test("a_suspended_job_can_be_resumed", a_suspended_job_can_be_resumed));
    libtest_mimic::run(&arguments, trials).exit();
}

fn every_example_file_is_listed(names: &BTreeSet<String>) -> Result<(), Failed> {
    let files: BTreeSet<_> = std::fs::read_dir(directory())?
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(&files, names);
    Ok(())
}

fn run(example: &Example) -> Result<(), Failed> {
    let file = directory().join(example.name).with_extension("yaml");
    let start = Instant::now();
    let mut command = Background::start(yardmaster().arg("run").arg(file).args(["-o", "json"]));
    let job = serde_json::from_reader(command.0.stdout.take().unwrap());
    assert_eq!(command.exit_code(), Some(example.exit_code));
    let (took, printed): (_, Value) = (start.elapsed(), job?);
    // Of several Jobs, the first is looked at.
    let job = printed["items"].get(0).unwrap_or(&printed);
    // API times are truncated to whole seconds, so a wait that starts at one may seem shorter.
    let shortest = example.wait.saturating_sub(Duration::from_secs(1));
    assert!(shortest <= took && took < PATIENCE, "took {took:?}");

    let status = &job["status"];
    let holds = |condition: &&Value| {
        condition["status"] == "True"
            && condition["type"] == example.condition
            && condition["reason"] == example.reason
    };
    assert!(status["conditions"].as_array().unwrap().iter().any(|condition| holds(&condition)), "{status}");
    for (field, value) in example.status.as_object().unwrap() {
        assert_eq!(&status[field], value, "{field} in {status}");
    }
    assert!(status["active"].is_null(), "{status}");
    Ok(())
}

/// Runs an example on a cluster that stays up afterwards. Returns its kubeconfig.
fn run_and_keep(name: &str) -> (Background, String) {
    let file = directory().join(name).with_extension("yaml");
    let mut run = Background::start(yardmaster().arg("run").arg(file).arg("--keep"));
    let line = Background::line(run.0.stderr.take().unwrap(), "export KUBECONFIG=");
    (run, line.split_once('=').unwrap().1.to_owned())
}

fn jobs_of(kubeconfig: &str) -> Value {
    let output = yardmaster().args(["status", "-o", "json", "--kubeconfig", kubeconfig]).output().unwrap();
    serde_json::from_slice::<Value>(&output.stdout).unwrap()["jobs"].clone()
}

fn ttl_deletes_the_job() -> Result<(), Failed> {
    let (mut run, kubeconfig) = run_and_keep("ttl");
    until("the Job is deleted", || jobs_of(&kubeconfig).as_array().unwrap().is_empty());
    run.signal(Signal::SIGINT);
    assert_eq!(run.exit_code(), Some(0));
    Ok(())
}

fn a_suspended_job_can_be_resumed() -> Result<(), Failed> {
    let (mut run, kubeconfig) = run_and_keep("suspended");
    let resume = async {
        let config = Kubeconfig::read_from(&kubeconfig).unwrap();
        let config =
            kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
        let jobs: Api<Job> = Api::default_namespaced(kube::Client::try_from(config).unwrap());
        let patch = Patch::Merge(json!({"spec": {"suspend": false}}));
        jobs.patch("suspended", &PatchParams::default(), &patch).await.unwrap();
    };
    tokio::runtime::Runtime::new()?.block_on(resume);
    until("the Job is complete", || jobs_of(&kubeconfig)[0]["state"] == "Complete");
    run.signal(Signal::SIGINT);
    assert_eq!(run.exit_code(), Some(3));
    Ok(())
}
