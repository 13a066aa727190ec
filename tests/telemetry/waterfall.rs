//! `yardmaster trace` and `run --trace` print the trace of a Job without a collector.

use std::path::Path;
use std::process::Output;

use nix::sys::signal::Signal;

use crate::binary::{Background, until, yardmaster};

/// A Job whose only pod fails.
const FAILS: &str = "\
apiVersion: batch/v1
kind: Job
metadata: {name: fails}
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: busybox, command: [sh, -c, exit 3]}]
";

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The lines of a waterfall that say what happened, without times.
fn assert_explains(printed: &str) {
    let mut lines = printed.lines();
    assert_eq!(lines.next(), Some("default/fails  Failed BackoffLimitExceeded"), "{printed}");
    assert!(lines.next().unwrap().starts_with("trace "), "{printed}");
    for (mark, label) in [("✗ ", "job BackoffLimitExceeded"), ("  ✗ ", "pod fails-"), ("    ", "pod.running")]
    {
        let found = printed.lines().any(|line| line.starts_with(&format!("{mark}{label}")));
        assert!(found, "{label}: {printed}");
    }
    assert!(printed.lines().all(|line| line.chars().count() <= 100), "{printed}");
    assert!(
        printed.contains(" reconciliations and requests that succeeded are left out (--all)"),
        "{printed}"
    );
    assert!(!printed.contains('\u{1b}'), "no colours in a pipe");
}

#[test]
fn a_run_prints_the_waterfall_of_its_jobs() {
    let folder = tempfile::tempdir().unwrap();
    let job = folder.path().join("job.yaml");
    std::fs::write(&job, FAILS).unwrap();
    let output = yardmaster().args(["run", "--trace"]).arg(&job).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert_explains(text(&output.stdout).trim_start());
}

#[test]
fn the_kubeconfig_of_a_cluster_leads_to_the_traces_of_its_controllers() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    std::fs::write(file("job.yaml"), FAILS).unwrap();
    let mut command = yardmaster();
    command.args(["cluster", "--replicas", "2", "--write-kubeconfig"]).arg(file("kubeconfig"));
    let mut cluster = Background::start(&mut command);
    let _started = Background::line(cluster.0.stdout.take().unwrap(), "KUBECONFIG");
    let on_cluster = |arguments: &[&str]| -> Output {
        yardmaster().args(arguments).arg("--kubeconfig").arg(file("kubeconfig")).output().unwrap()
    };
    let job = file("job.yaml");
    let run = on_cluster(&["run", job.to_str().unwrap()]);
    assert_eq!(run.status.code(), Some(1), "{}", text(&run.stderr));
    // The root comes a moment after the end of the Job.
    until("the root is there", || text(&on_cluster(&["trace", "fails"]).stdout).contains(" Failed "));
    let printed = text(&on_cluster(&["trace", "job/fails"]).stdout);
    assert_explains(&printed);
    let all = text(&on_cluster(&["trace", "fails", "--all"]).stdout);
    assert!(all.contains("  reconcile ") && all.contains("    api.create_pod 201"), "{all}");

    let spans = on_cluster(&["trace", "fails", "-o", "json"]).stdout;
    std::fs::write(file("spans.json"), spans).unwrap();
    let (code, of_spans) = of_file(&file("spans.json"), "default/fails");
    assert_eq!(code, Some(0));
    assert_explains(&of_spans);
    let (code, _) = of_file(&file("spans.json"), "other");
    assert_eq!(code, Some(3));
    let missing = on_cluster(&["trace", "other"]);
    assert_eq!(missing.status.code(), Some(3));
    assert!(text(&missing.stderr).contains("Job default/other: no controller has a span"), "{missing:?}");
    cluster.signal(Signal::SIGTERM);
    assert_eq!(cluster.exit_code(), Some(0));
}

/// Exit code and output of `trace --file`. It needs no cluster.
fn of_file(file: &Path, job: &str) -> (Option<i32>, String) {
    let output = yardmaster().args(["trace", job, "--file"]).arg(file).output().unwrap();
    (output.status.code(), text(&output.stdout))
}
