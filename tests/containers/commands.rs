//! `yardmaster run` and `yardmaster cluster` with an engine.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Output};

use nix::sys::signal::Signal;

use super::binary::{self, Background};
use super::*;

/// Limit for a command on a busy machine.
const LONGEST_RUN: Duration = Duration::from_secs(240);

pub(crate) fn yardmaster(address: &str, args: &[&str]) -> Command {
    let mut command = binary::yardmaster();
    command.args(args).env("DOCKER_HOST", address).env_remove("KUBECONFIG").env_remove("YARDMASTER_RUNTIME");
    command
}

/// How a command ended, and what it has printed.
pub(crate) struct Ended {
    pub(crate) status: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    /// Waits for the end of a command. Interrupts a command that goes on for minutes.
    pub(crate) fn of(mut run: Background) -> Self {
        let (output, errors) = (run.0.stdout.take().unwrap(), run.0.stderr.take().unwrap());
        let readers = [Box::new(output) as Box<dyn std::io::Read + Send>, Box::new(errors)]
            .map(|stream| std::thread::spawn(move || std::io::read_to_string(stream).unwrap()));
        let deadline = Instant::now() + LONGEST_RUN;
        while run.0.try_wait().unwrap().is_none() {
            if Instant::now() > deadline {
                run.signal(Signal::SIGINT);
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let status = run.exit_code();
        let [stdout, stderr] = readers.map(|reader| reader.join().unwrap());
        Self { status, stdout, stderr }
    }
}

/// A Job of a container without command, as most public manifests have it.
fn job() -> tempfile::NamedTempFile {
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "greet"},
        "spec": {"template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "main", "image": "greeter:1", "args": ["you"]}],
        }}},
    });
    let file = tempfile::Builder::new().suffix(".json").tempfile().unwrap();
    std::fs::write(file.path(), job.to_string()).unwrap();
    file
}

fn run(address: &str, flags: &[&str]) -> (Output, String) {
    let file = job();
    let args = [&["run", file.path().to_str().unwrap(), "--logs"], flags].concat();
    let output = yardmaster(address, &args).output().unwrap();
    let told = String::from_utf8(output.stderr.clone()).unwrap();
    (output, told)
}

#[test]
fn a_job_runs_its_image_and_the_first_line_says_on_what() {
    let Some(address) = engine::address() else { return };
    for flags in [&[][..], &["--runtime", "containers"]] {
        let (output, told) = run(address, flags);
        assert!(output.status.success(), "{told}");
        assert!(told.starts_with("Embedded cluster: containers run on Podman "), "{told}");
        assert!(String::from_utf8(output.stdout).unwrap().contains("from the image: you"), "{told}");
    }
}

#[test]
fn without_an_engine_pods_are_processes_and_who_asks_for_containers_is_told_why_not() {
    let nobody = "unix:///nowhere/engine.sock";
    let (output, told) = run(nobody, &[]);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("has no command") && told.contains("start Docker or Podman"), "{told}");
    let (output, told) = run(nobody, &["--runtime", "containers"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        told.starts_with("--runtime containers: no container engine answers (unix:///nowhere/engine.sock: "),
        "{told}"
    );
    assert_eq!(told.lines().count(), 1, "{told}");
}

#[test]
fn what_a_killed_cluster_has_left_is_removed_by_the_next_and_nothing_of_a_living_one() {
    let Some(address) = engine::address() else { return };
    let folder = tempfile::tempdir().unwrap();
    let start = |name: &str| {
        let config = folder.path().join(name);
        let args = ["cluster", "--runtime", "containers", "--write-kubeconfig", config.to_str().unwrap()];
        let mut cluster = Background::start(&mut yardmaster(address, &args));
        let (output, errors) = (cluster.0.stdout.take().unwrap(), cluster.0.stderr.take().unwrap());
        let mut lines = BufReader::new(output).lines().map_while(Result::ok);
        if !lines.by_ref().any(|line| line.contains("containers of Podman")) {
            panic!("{name}: {}", std::io::read_to_string(errors).unwrap());
        }
        std::thread::spawn(move || lines.for_each(drop));
        std::thread::spawn(move || std::io::read_to_string(errors));
        (cluster, config)
    };
    // A Job that goes on.
    let sleep = |config: &Path| {
        let mut manifest: Value = serde_json::from_slice(&std::fs::read(job().path()).unwrap()).unwrap();
        manifest["spec"]["template"]["spec"]["containers"][0]["command"] = json!(["sleep", "600"]);
        let file = config.with_extension("json");
        std::fs::write(&file, manifest.to_string()).unwrap();
        let args = ["run", "--kubeconfig", config.to_str().unwrap(), file.to_str().unwrap()];
        Background::start(&mut yardmaster(address, &args))
    };
    let wait_for = |owner: &Background, count: usize| {
        let process = owner.0.id().to_string();
        let is_its = |owner: &String| owner.split(':').nth(1) == Some(&process);
        let all = || engine::owners("dev.yardmaster.owner");
        binary::until("it has so many containers", || {
            all().iter().filter(|owner| is_its(owner)).count() == count
        });
    };
    let (killed, its_config) = start("killed");
    let (mut living, other_config) = start("living");
    let _runs = [sleep(&its_config), sleep(&other_config)];
    wait_for(&killed, 1);
    wait_for(&living, 1);
    killed.signal(Signal::SIGKILL);
    let (mut next, _) = start("next");
    wait_for(&killed, 0);
    wait_for(&living, 1);
    for cluster in [&mut living, &mut next] {
        cluster.signal(Signal::SIGTERM);
        assert_eq!(cluster.exit_code(), Some(0));
    }
    wait_for(&living, 0);
}
