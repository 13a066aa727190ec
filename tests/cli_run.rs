//! The commands that run something: Jobs to the end, an embedded cluster, a controller. Also the commands
//! that watch a run: `logs`, `status --watch`.
#![cfg(feature = "embedded")]
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod binary;
mod cluster;
mod endings;
mod logs;
mod shell;
mod terminal;

use std::path::{Path, PathBuf};
use std::process::Output;

use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::binary::{Background, until, yardmaster};

struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes the manifest of a Job whose pods run a shell script.
    fn job(&self, name: &str, spec: &str, script: &str) -> PathBuf {
        let path = self.path(&format!("{name}.yaml"));
        // Kubernetes takes `$$` in a command for an escaped `$`.
        let script = serde_json::to_string(&script.replace("$$", "$$$$")).unwrap();
        let manifest = format!(
            "apiVersion: batch/v1\nkind: Job\nmetadata: {{name: {name}}}\nspec:\n  {spec}\n  template:\n    spec:\n      \
             restartPolicy: Never\n      containers:\n      - name: main\n        image: none\n        \
             command: [sh, -c, {script}]\n"
        );
        std::fs::write(&path, manifest).unwrap();
        path
    }
}

fn run(files: &[&Path], flags: &[&str]) -> Output {
    yardmaster().arg("run").args(files).args(flags).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn is_alive(pid: i32) -> bool {
    // A zombie has ended; its parent (init, for an orphan) has not reaped it yet.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
}

/// The process ids that pods wrote to a file, once there are `count`.
fn pids(file: &Path, count: usize) -> Vec<i32> {
    let read = || -> Vec<i32> {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')?.parse().ok()).collect()
    };
    until("the processes run", || read().len() == count);
    read()
}

#[test]
fn complete_jobs_make_a_success() {
    let files = Files::new();
    let one = files.job("one", "completions: 1", "echo only this");
    let output = run(&[&one], &["--logs"]);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    // The output of a single pod has no prefix.
    assert_eq!(text(&output.stdout), "only this\n");
    assert!(errors.contains("default/one: Complete, 1/1 succeeded"), "{errors}");

    let spec = "completions: 6\n  parallelism: 3\n  completionMode: Indexed";
    let many = files.job("many", spec, "echo index $JOB_COMPLETION_INDEX");
    let output = run(&[&one, &many], &["--logs"]);
    assert_eq!(output.status.code(), Some(0));
    let mut lines: Vec<_> = text(&output.stdout)
        .lines()
        .map(|line| {
            let (pod, line) = line.split_once(": ").unwrap();
            assert!(pod.starts_with("one-") || pod.starts_with("many-"), "{pod}");
            line.to_owned()
        })
        .collect();
    lines.sort();
    assert_eq!(lines, ["index 0", "index 1", "index 2", "index 3", "index 4", "index 5", "only this"]);

    // Of a single Job, the prefixes are those of `logs`.
    let output = run(&[&many], &["--logs", "--quiet"]);
    let lines = text(&output.stdout);
    assert!(lines.lines().all(|line| line.starts_with(|letter: char| letter.is_ascii_digit())), "{lines}");
    let errors = text(&output.stderr);
    assert!(!errors.contains("default/many: ") && errors.contains("default/many  Complete  6/6"), "{errors}");
}

#[test]
fn a_failed_job_is_explained() {
    let files = Files::new();
    let good = files.job("good", "completions: 1", "exit 0");
    let bad = files.job("bad", "backoffLimit: 0", "exit 42");
    let output = run(&[&good, &bad], &[]);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(
        errors.contains("default/bad: BackoffLimitExceeded: Job has reached the specified backoff limit"),
        "{errors}"
    );
    let pod = errors.lines().find(|line| line.trim_start().starts_with("bad-")).unwrap();
    assert!(pod.ends_with("container main: exit code 42 (Error)"), "{pod}");
    for line in ["Failed:       1 (at most 0)", "Causes:       exit code 42 ×1"] {
        assert!(errors.lines().any(|other| other.trim() == line), "{line}: {errors}");
    }
    let next = errors.lines().last().unwrap();
    assert!(
        next.starts_with("  Next: yardmaster run --keep ") && next.contains("logs default/bad"),
        "{next}"
    );
}

#[test]
fn the_cause_of_failures_is_told_while_the_job_runs_with_the_last_lines_of_the_log() {
    let files = Files::new();
    let spec = "backoffLimit: 2\n  parallelism: 1\n  completions: 1";
    let path = files.job("flaky", spec, "echo working; echo out of luck >&2; exit 42");
    let text = std::fs::read_to_string(&path).unwrap();
    let annotated = text.replace(
        "name: flaky}",
        "name: flaky, annotations: {yardmaster.dev/backoff-initial: 1s, yardmaster.dev/backoff-max: 1s}}",
    );
    std::fs::write(&path, annotated).unwrap();
    let output = run(&[&path], &[]);
    let errors = self::text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    let told = "container main: exit code 42 (Error)\n  | working\n  | out of luck\n";
    let (before_end, _) = errors.split_once("Failed (BackoffLimitExceeded)").unwrap();
    assert!(before_end.contains(told), "{errors}");
    // Three pods fail in the same way: a single line says so, and the summary repeats it.
    let (before, summary) = errors.split_once("DURATION").unwrap();
    assert_eq!(before.matches("exit code 42").count(), 1, "{errors}");
    assert!(summary.contains("exit code 42 ×3"), "{errors}");
}

/// The cluster ends with the command, so no user can change a Job in it.
#[test]
fn jobs_that_nobody_will_ever_run_are_not_waited_for() {
    let files = Files::new();
    let gates = files.path("gated.yaml");
    let plain = std::fs::read_to_string(files.job("gated", "completions: 1", "exit 0")).unwrap();
    let gated = plain.replace(
        "restartPolicy: Never",
        "restartPolicy: Never\n      schedulingGates: [{name: example.com/wait}]",
    );
    std::fs::write(&gates, gated).unwrap();
    for (job, named) in [
        (files.job("other", "managedBy: kueue.x-k8s.io/multikueue", "exit 0"), "spec.managedBy"),
        (files.job("none", "parallelism: 0", "exit 0"), "spec.parallelism"),
        (gates, "spec.schedulingGates (example.com/wait)"),
    ] {
        let output = run(&[&job], &[]);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{errors}");
        assert!(errors.contains(named), "{errors}");
    }
}

/// If a pod writes files without naming a folder, they stay in folders of its own, which end with it.
#[test]
fn pods_work_in_folders_of_their_own_unless_asked_to_work_here() {
    let files = Files::new();
    let job =
        files.job("writer", "completions: 1", "echo $HOME; echo ${TMPDIR:-none}; pwd; touch written ~/kept");
    let home = tempfile::tempdir().unwrap();
    let run = |flags: &[&str]| {
        let mut command = yardmaster();
        command.arg("run").arg(&job).arg("--logs").args(flags).current_dir(home.path());
        let output = command.env("HOME", home.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout).lines().map(PathBuf::from).collect::<Vec<_>>()
    };
    let exists = |name: &str| home.path().join(name).exists();
    for path in run(&[]) {
        assert!(path.is_absolute() && path != home.path() && !path.exists(), "{}", path.display());
    }
    assert!(!exists("written") && !exists("kept"));
    assert_eq!(run(&["--here"])[0], home.path());
    assert!(exists("written") && exists("kept"));
}

#[test]
fn output_comes_out_as_the_program_wrote_it() {
    let files = Files::new();
    let script = r"head -c 300000 /dev/zero | tr '\0' x; printf '\n\r 50%%\r100%%\n\377\376 caf\303\251 \000 end\nno newline at the end'";
    let output = run(&[&files.job("noisy", "completions: 1", script)], &["--logs"]);
    let end = b"\n\r 50%\r100%\n\xff\xfe caf\xc3\xa9 \0 end\nno newline at the end";
    let expected = [&vec![b'x'; 300_000][..], end].concat();
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stdout == expected, "{} bytes of {}", output.stdout.len(), expected.len());
}

/// A termination message is the pod's own text. It must neither reach the terminal as it is nor pass for a line of the program.
#[test]
fn a_hostile_termination_message_is_shown_and_obeyed_by_nothing() {
    let files = Files::new();
    let script = r#"printf 'boom\033[2J\033]0;x\007\ndefault/good: Complete\342\200\256gnp' > "$YARDMASTER_TERMINATION_LOG"; exit 3"#;
    let output = run(&[&files.job("bad", "backoffLimit: 0", script)], &[]);
    let errors = text(&output.stderr);
    let hostile = |letter: char| letter.is_control() && letter != '\n' || letter == '\u{202e}';
    assert!(!errors.contains(hostile), "{errors:?}");
    assert!(errors.contains(r"exit code 3 (Error): boom\u{1b}[2J\u{1b}]0;x\u{7}"), "{errors}");
    assert!(errors.contains("\n    default/good: Complete\\u{202e}gnp\n"), "{errors:?}");
    assert!(!errors.lines().any(|line| line.starts_with("default/good")), "{errors:?}");
}

#[test]
fn the_final_jobs_can_be_printed() {
    let files = Files::new();
    let (a, b) = (files.job("a", "completions: 1", "exit 0"), files.job("b", "completions: 1", "exit 0"));
    let single: Value = serde_json::from_slice(&run(&[&a], &["-o", "json"]).stdout).unwrap();
    assert_eq!((&single["kind"], &single["status"]["succeeded"]), (&"Job".into(), &1.into()));
    assert!(single["metadata"]["managedFields"].is_null());
    let several = text(&run(&[&a, &b], &["-o", "yaml"]).stdout);
    let several: Value = serde_saphyr::from_str(&several).unwrap();
    assert_eq!(several["kind"], "List");
    let names: Vec<_> =
        several["items"].as_array().unwrap().iter().map(|job| &job["metadata"]["name"]).collect();
    assert_eq!(names, ["a", "b"]);
}

#[test]
fn a_finished_job_runs_again() {
    let files = Files::new();
    let first = run(&[&files.job("again", "completions: 1", "exit 0")], &["-o", "yaml"]);
    let export = files.path("export.yaml");
    std::fs::write(&export, &first.stdout).unwrap();
    let refused = run(&[&export], &[]);
    let errors = text(&refused.stderr);
    assert_eq!((refused.status.code(), errors.lines().count()), (Some(2), 1), "{errors}");
    let output = run(&[&export], &["--exported", "-o", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let (first, second): (Value, Value) =
        (serde_saphyr::from_slice(&first.stdout).unwrap(), serde_json::from_slice(&output.stdout).unwrap());
    assert_ne!(first["metadata"]["uid"], second["metadata"]["uid"]);
}

#[test]
fn jobs_that_name_this_controller_run_too() {
    let files = Files::new();
    let job = files.job("ours", "managedBy: yardmaster.dev/job-controller", "echo done");
    let output = run(&[&job], &["--namespace", "elsewhere", "--logs"]);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(0), "done\n"));
    assert!(text(&output.stderr).contains("elsewhere/ours"));
}

#[test]
fn an_interrupt_leaves_no_process() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let files = Files::new();
        let started = files.path("started");
        let script = format!("echo $$ >> {0}; sleep 600 & echo $! >> {0}; wait", started.display());
        let job = files.job("long", "parallelism: 3", &script);
        let mut command = Background::start(yardmaster().arg("run").arg(&job));
        let pids = pids(&started, 6);
        let errors = command.0.stderr.take().unwrap();
        command.signal(signal);
        assert_eq!(command.exit_code(), Some(130));
        let errors = std::io::read_to_string(errors).unwrap();
        let lines: Vec<_> = errors.lines().collect();
        let [.., job, stopped, next, "interrupted"] = lines[..] else { panic!("{errors}") };
        assert_eq!(job.split_whitespace().take(2).collect::<Vec<_>>(), ["default/long", "Interrupted"]);
        assert_eq!(stopped, "Stopping 3 active pods; Ctrl-C again does not wait.");
        assert!(next.starts_with("Next: yardmaster run ") && next.ends_with("long.yaml"), "{next}");
        assert!(pids.iter().all(|pid| !is_alive(*pid)), "{signal}");
    }
}

#[test]
fn a_second_interrupt_does_not_wait() {
    let files = Files::new();
    let started = files.path("started");
    let script = format!("trap '' TERM INT; echo $$ > {}; while :; do sleep 0.1; done", started.display());
    let job = files.job("stubborn", "parallelism: 1", &script);
    let mut command = Background::start(yardmaster().arg("run").arg(&job));
    let pids = pids(&started, 1);
    command.signal(Signal::SIGINT);
    // Signals that arrive too close together count as one, so it is sent repeatedly.
    until("the command has ended", || {
        command.signal(Signal::SIGINT);
        command.0.try_wait().unwrap().is_some()
    });
    assert_eq!(command.exit_code(), Some(130));
    until("the process has ended", || !is_alive(pids[0]));
}

#[test]
fn a_kept_cluster_can_be_reached() {
    let files = Files::new();
    let job = files.job("kept", "completions: 1", "exit 0");
    let mut run = Background::start(yardmaster().arg("run").arg(&job).arg("--keep"));
    let line = Background::line(run.0.stderr.take().unwrap(), "export KUBECONFIG=");
    let kubeconfig = line.split_once('=').unwrap().1.to_owned();
    let status = yardmaster().args(["status", "-o", "json", "--kubeconfig", &kubeconfig]).output().unwrap();
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(status["jobs"][0]["state"], "Complete");
    run.signal(Signal::SIGINT);
    assert_eq!(run.exit_code(), Some(0));
    assert!(!Path::new(&kubeconfig).exists());
}

#[test]
fn a_cluster_runs_jobs_of_others() {
    let files = Files::new();
    let (kubeconfig, started) = (files.path("kubeconfig"), files.path("started"));
    let mut cluster = Background::start(
        yardmaster().args(["cluster", "--replicas", "2", "--write-kubeconfig"]).arg(&kubeconfig),
    );
    let line = Background::line(cluster.0.stdout.take().unwrap(), "controllers");
    let controllers: Vec<i32> = line
        .split(|letter: char| !letter.is_ascii_digit())
        .filter_map(|number| number.parse().ok())
        .skip(1)
        .collect();
    assert_eq!(controllers.len(), 2, "{line}");
    let job = files.job("quick", "completions: 1", "echo from the cluster");
    let output =
        yardmaster().arg("run").arg(&job).arg("--logs").arg("--kubeconfig").arg(&kubeconfig).output();
    let output = output.unwrap();
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(0), "from the cluster\n"));

    // On a cluster that keeps running, an interrupt deletes the Jobs that were started.
    let script = format!("echo $$ > {}; exec sleep 600", started.display());
    let job = files.job("long", "completions: 1", &script);
    let mut run = Background::start(yardmaster().arg("run").arg(&job).arg("--kubeconfig").arg(&kubeconfig));
    let pod = pids(&started, 1);
    run.signal(Signal::SIGINT);
    assert_eq!(run.exit_code(), Some(130));
    let status =
        yardmaster().args(["status", "-o", "json", "--kubeconfig"]).arg(&kubeconfig).output().unwrap();
    assert!(!text(&status.stdout).contains("long"));

    cluster.signal(Signal::SIGTERM);
    assert_eq!(cluster.exit_code(), Some(0));
    assert!(controllers.iter().chain(&pod).all(|pid| !is_alive(*pid)));
}

#[test]
fn on_another_cluster_it_is_said_what_a_job_waits_for() {
    let files = Files::new();
    let kubeconfig = files.path("kubeconfig");
    let mut cluster = Background::start(
        yardmaster()
            .args(["cluster", "--replicas", "0", "--kubelet", "none", "--write-kubeconfig"])
            .arg(&kubeconfig),
    );
    Background::line(cluster.0.stdout.take().unwrap(), "export KUBECONFIG=");
    for (job, told) in [
        (files.job("idle", "completions: 1", "exit 0"), "default/idle: no controller has begun with it"),
        (
            files.job("other", "managedBy: example.com/jobs", "exit 0"),
            "default/other: spec.managedBy leaves it to",
        ),
    ] {
        let mut run =
            Background::start(yardmaster().arg("run").arg(&job).arg("--kubeconfig").arg(&kubeconfig));
        Background::line(run.0.stderr.take().unwrap(), told);
        run.signal(Signal::SIGINT);
        assert_eq!(run.exit_code(), Some(130));
    }
    cluster.signal(Signal::SIGTERM);
    assert_eq!(cluster.exit_code(), Some(0));
}

#[test]
fn a_controller_ends_with_its_parent() {
    let files = Files::new();
    let kubeconfig = files.path("kubeconfig");
    let mut cluster = Background::start(
        // Killed, it cannot clean up.
        yardmaster().args(["cluster", "--write-kubeconfig"]).arg(&kubeconfig).env("TMPDIR", files.0.path()),
    );
    let line = Background::line(cluster.0.stdout.take().unwrap(), "controllers");
    let pid = line.split("process ").nth(1).unwrap().trim_end_matches(')').parse().unwrap();
    assert!(is_alive(pid));
    cluster.signal(Signal::SIGKILL);
    until("the controller has ended", || !is_alive(pid));
}
