//! Input that the command line refuses, and its errors.
#![cfg(feature = "embedded")]
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod binary;

use std::path::{Path, PathBuf};

use assert_cmd::Command;
use tempfile::TempDir;

const JOB: &str = "\
apiVersion: batch/v1
kind: Job
metadata:
  name: sample
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: main
        image: none
        command: [\"true\"]
";

fn yardmaster() -> Command {
    let mut command = Command::from_std(binary::yardmaster());
    command.timeout(binary::PATIENCE);
    command
}

/// Runs these files. Returns the exit code and the lines of standard error.
fn run(files: &[PathBuf]) -> (i32, Vec<String>) {
    outcome(yardmaster().arg("run").args(files))
}

fn outcome(command: &mut Command) -> (i32, Vec<String>) {
    let output = command.output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    (output.status.code().unwrap(), errors.lines().map(str::to_owned).collect())
}

struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

#[test]
fn bad_manifests_are_refused_in_one_line() {
    let files = Files::new();
    for (name, text, expected) in [
        ("syntax.yaml", "kind: [Job\nspec: 1\n", "line 2, column 5: `,` or `]` is missing"),
        ("text.yaml", "just words\n", "line 1, column 1: not a manifest"),
        ("empty.yaml", "", "no Job in it"),
        ("map.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\n", "no Job in it"),
        ("nameless.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {}\n", "metadata.name: Required value"),
        (
            "unknown.yaml",
            &JOB.replace("spec:\n  template", "spec:\n  paralelism: 2\n  template"),
            "line 6, column 3: unknown field \"spec.paralelism\"",
        ),
        (
            "nested.yaml",
            &JOB.replace("image:", "imagee:"),
            "line 11, column 9: unknown field \"spec.template.spec.containers[0].imagee\"",
        ),
        (
            "kind.yaml",
            &JOB.replace("Job", "Deployment"),
            "line 2, column 1: kind Deployment is not supported: yardmaster runs batch/v1 Job",
        ),
        (
            "version.yaml",
            &JOB.replace("batch/v1", "batch/v2"),
            "line 1, column 1: apiVersion \"batch/v2\" is not supported",
        ),
        ("no-kind.yaml", &JOB.replace("kind: Job\n", ""), "kind: Required value"),
        (
            "type.yaml",
            &JOB.replace("spec:\n  template", "spec:\n  parallelism: many\n  template"),
            "line 6, column 3: spec.parallelism: must be a whole number of 32 bits, but is a string",
        ),
        (
            "value.yaml",
            &JOB.replace("spec:\n  template", "spec:\n  parallelism: -1\n  template"),
            "line 6, column 3: spec.parallelism: Invalid value: -1: must be greater than or equal to 0",
        ),
        ("policy.yaml", &JOB.replace("Never", "Always"), "spec.template.spec.restartPolicy: "),
        ("name.yaml", &JOB.replace("sample", "Not_A_Name"), "metadata.name: Invalid value: \"Not_A_Name\""),
        ("syntax.json", "{\"kind\": \"Job\"", "line 1, column 15: the JSON ends too early"),
    ] {
        let path = files.write(name, text);
        let (code, errors) = run(std::slice::from_ref(&path));
        assert_eq!((code, errors.len()), (2, 1), "{name}: {errors:?}");
        assert!(errors[0].starts_with(&format!("{}: ", path.display())), "{errors:?}");
        assert!(errors[0].contains(expected), "{name}: {errors:?}");
    }
}

/// If a Job could never run here, it is refused before anything starts, with the field and a way out.
#[test]
fn jobs_that_cannot_run_on_this_machine_are_refused_before_the_start() {
    let files = Files::new();
    let pod =
        |more: &str| JOB.replace("restartPolicy: Never", &format!("restartPolicy: Never\n      {more}"));
    let container = |more: &str| JOB.replace("image:", &format!("{more}\n        image:"));
    let volume = "volumes: [{name: data, emptyDir: {}}]";
    let mounted =
        pod(volume).replace("image:", "volumeMounts: [{name: data, mountPath: /proc}]\n        image:");
    let program = JOB.lines().map(|line| if line.trim_start().starts_with("command") { "" } else { line });
    for (name, text, expected) in [
        (
            "args.yaml",
            &JOB.replace("[\"true\"]", &format!("[\"echo\", \"{}\"]", "x".repeat(131_072))),
            "containers[0].command[1]: 131072 bytes, but Linux gives a program at most 131071",
        ),
        ("command.yaml", &program.collect::<Vec<_>>().join("\n"), "containers[0].command: "),
        ("mount.yaml", &mounted, "containers[0].volumeMounts[0].mountPath: "),
        ("volume.yaml", &pod("volumes: [{name: a, nfs: {server: s, path: /}}]"), "volumes[0].nfs: "),
        (
            "claim.yaml",
            &pod("volumes: [{name: a, persistentVolumeClaim: {claimName: c}}]"),
            "PersistentVolumeClaim \"c\" is in none of the files",
        ),
        (
            "account.yaml",
            &pod("serviceAccountName: robot"),
            "ServiceAccount \"robot\" is in none of the files",
        ),
        (
            "secret.yaml",
            &container("envFrom: [{secretRef: {name: db}}]"),
            "Secret \"db\" is in none of the files",
        ),
        ("gpu.yaml", &container("resources: {limits: {nvidia.com/gpu: 8}}"), "8 of nvidia.com/gpu"),
        (
            "memory.yaml",
            &container("resources: {requests: {memory: 900Ti}}"),
            "of memory: this machine has only",
        ),
        ("folder.yaml", &container("workingDir: /no/such/folder"), "containers[0].workingDir: "),
        ("node.yaml", &pod("nodeName: worker-7"), "there is no node worker-7"),
        ("up.yaml", &container("workingDir: ../.."), "containers[0].workingDir: "),
        ("file.yaml", &JOB.replace("\"true\"", "/etc/passwd"), "containers[0].command: "),
        (
            "user.yaml",
            &pod("securityContext: {runAsUser: 54321}"),
            "spec.template.spec.securityContext.runAsUser: ",
        ),
        (
            "bundle.yaml",
            &pod("volumes: [{name: t, projected: {sources: [{clusterTrustBundle: {name: b, path: t}}]}}]"),
            "volumes[0].projected.sources[0].clusterTrustBundle: ",
        ),
        ("helm.yaml", &format!("{{{{- if .Values.on }}}}\n{JOB}{{{{- end }}}}\n"), "helm template"),
    ] {
        let path = files.write(name, text);
        let (code, errors) = run(std::slice::from_ref(&path));
        assert_eq!((code, errors.len()), (2, 1), "{name}: {errors:?}");
        assert!(errors[0].contains(expected), "{name}: {errors:?}");
        let way_out = ["--kubeconfig", "helm template", "into a file"];
        assert!(way_out.iter().any(|way| errors[0].contains(way)), "{name}: {errors:?}");
        assert!(errors[0].contains("yaml: line "), "{name}: {errors:?}");
    }
}

/// An API server accepts these Jobs. Here they would never run, and no user could change them.
#[test]
fn jobs_that_would_only_wait_are_refused_before_the_start() {
    let files = Files::new();
    let owner = "{apiVersion: batch/v1, kind: CronJob, name: nightly, uid: 3c21}";
    for (name, text, expected) in [
        (
            "image.yaml",
            JOB.replace("image: none", "image: ' none'"),
            "line 11, column 9: spec.template.spec.containers[0].image: ",
        ),
        (
            "owner.yaml",
            JOB.replace("metadata:\n", &format!("metadata:\n  ownerReferences: [{owner}]\n")),
            "line 4, column 3: metadata.ownerReferences: the owner CronJob \"nightly\" is not there",
        ),
    ] {
        let path = files.write(name, &text);
        let (code, errors) = run(std::slice::from_ref(&path));
        assert_eq!((code, errors.len()), (2, 1), "{name}: {errors:?}");
        assert!(errors[0].contains(expected), "{name}: {errors:?}");
    }
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let files = Files::new();
    let missing = files.path("missing.yaml");
    let errors = |path: &Path| run(&[path.to_owned()]);
    assert_eq!(errors(&missing), (2, vec![format!("{}: no such file", missing.display())]));
    let directory = files.0.path();
    assert_eq!(errors(directory), (2, vec![format!("{}: is a directory", directory.display())]));
}

#[test]
fn all_problems_of_all_files_are_reported_at_once() {
    let files = Files::new();
    let good = files.write("good.yaml", JOB);
    let bad = files.write("bad.yaml", &format!("{JOB}---\n{}", JOB.replace("Never", "Always")));
    let (code, errors) = run(&[good.clone(), bad.clone(), files.path("missing.yaml")]);
    assert_eq!(code, 2);
    // Three Jobs share one name: two duplicates.
    let place = "line 4, column 3";
    let text = format!("Job default/sample is already defined in {}, {place}", good.display());
    let defined = format!("{}: {place}: {text}", bad.display());
    assert_eq!(errors[0], defined);
    assert_eq!(errors.len(), 4, "{errors:?}");
}

#[test]
fn standard_input_is_a_file_like_any_other() {
    let mut command = yardmaster();
    command.args(["run", "-"]).write_stdin(JOB.replace("Job", "CronJob"));
    let (code, errors) = outcome(&mut command);
    let expected =
        "standard input: line 2, column 1: kind CronJob is not supported: yardmaster runs batch/v1 Job";
    assert_eq!((code, errors.len()), (2, 1));
    assert!(errors[0].starts_with(expected), "{errors:?}");
}

#[test]
fn namespaces_must_agree() {
    let files = Files::new();
    let path = files.write("job.yaml", &JOB.replace("name: sample", "name: sample\n  namespace: here"));
    let (code, errors) = outcome(yardmaster().args(["run", "--namespace", "there"]).arg(&path));
    assert_eq!((code, errors.len()), (2, 1));
    assert!(errors[0].contains("metadata.namespace") && errors[0].contains("--namespace"), "{errors:?}");
}

#[test]
fn bad_flags_are_refused_in_one_line() {
    for (arguments, named) in [
        (vec!["run"], "<FILE>"),
        (vec!["run", "--nonsense", "x.yaml"], "--nonsense"),
        (vec!["run", "-o", "xml", "x.yaml"], "--output"),
        (vec!["run", "-n", "", "x.yaml"], "--namespace"),
        (vec!["run", "-n", "Team_A", "x.yaml"], "a namespace has 1 to 63 lower case letters"),
        (vec!["status", "-n", ""], "--namespace"),
        (vec!["status", "--lease-namespace", "a.b"], "--lease-namespace"),
        (vec!["logs", "job", "-n", "a/b"], "--namespace"),
        (vec!["run", "--here", "--kubeconfig", "x", "y.yaml"], "--here"),
        (vec!["cluster", "--replicas", "many"], "--replicas"),
        (vec!["cluster", "--listen", "nowhere"], "--listen"),
        (vec!["cluster", "--listen", "0.0.0.0:0"], "--allow-remote"),
        (vec!["cluster", "--allow-remote"], "--token-file"),
        (vec!["cluster", "--token-file", "/no/such/file"], "--token-file"),
        (vec!["cluster", "--feature-gates", "Some"], "--feature-gates"),
        (vec!["cluster", "--data-dir", "/dev/null/data"], "--data-dir /dev/null/data"),
        (vec!["cluster", "--max-inflight", "0"], "--max-inflight"),
        (vec!["controller", "--shards", "63"], "--shards"),
        (vec!["controller", "--max-uncounted-pods", "0"], "--max-uncounted-pods"),
        (vec!["controller", "--max-pods-per-sync", "0"], "--max-pods-per-sync"),
        (vec!["controller", "--lease-duration", "soon"], "--lease-duration"),
        (vec!["controller", "--renew-deadline", "15s"], "--renew-deadline"),
        (vec!["controller", "--lease-duration", "11m"], "--lease-duration"),
        (vec!["controller", "--max-uncounted-pods", "5001"], "--max-uncounted-pods"),
        (vec!["controller", "--api-backoff", "18446744073709551615s 1000ms"], "--api-backoff"),
        (vec!["controller", "--feature-gates", "NoSuch=true"], "--feature-gates"),
        (vec!["controller", "--kubeconfig", "/no/such/file"], "--kubeconfig /no/such/file: no such file"),
        (vec!["status", "--kubeconfig", "/no/such/file"], "--kubeconfig /no/such/file: no such file"),
        (vec!["status", "--kubeconfig", "/"], "--kubeconfig /: is a directory"),
        (vec!["status", "--all", "--unfinished"], "--unfinished"),
        (vec!["status", "job", "--shards"], "--shards"),
        (vec!["status", "--indexes"], "<JOB>"),
        (vec!["status", "-A", "-n", "a"], "--namespace"),
        (vec!["status", "-o", "jsonpath=.jobs"], "--output"),
        (vec!["status", "--page", "http://localhost:1/"], "<JOB>"),
        (vec!["status", "job", "--page", "localhost"], "--page"),
        (vec!["status", "--color", "blue"], "--color"),
        (vec!["top", "--limit", "none"], "--limit"),
        (vec!["trace"], "<JOB>"),
        (vec!["trace", "job", "--file", "/no/such/file"], "--file /no/such/file: no such file"),
        (vec!["trace", "job", "--file", "/dev/null", "--page", "http://localhost:1/"], "--page"),
        (vec!["trace", "job", "--page", "localhost"], "--page"),
        (vec!["run", "--trace", "--kubeconfig", "x", "y.yaml"], "--trace"),
        (vec!["controller", "--trace-memory", "1025"], "--trace-memory"),
        (vec!["logs"], "<JOB>"),
        (vec!["logs", "job", "--tail=-1"], "--tail"),
        (vec!["logs", "job", "--since", "0s"], "--since"),
        (vec!["logs", "job", "--index", "3-"], "--index"),
        (vec!["logs", "job", "--max-log-requests", "0"], "--max-log-requests"),
        (vec!["--log-level", "yardmaster=loud", "status"], "--log-level"),
        (vec!["nonsense"], "nonsense"),
    ] {
        let (code, errors) = outcome(yardmaster().args(&arguments));
        assert_eq!((code, errors.len()), (2, 1), "{arguments:?}: {errors:?}");
        assert!(errors[0].contains(named), "{arguments:?}: {errors:?}");
    }
}

#[test]
fn bad_variables_are_refused_like_flags() {
    let (code, errors) = outcome(yardmaster().arg("cluster").env("YARDMASTER_REPLICAS", "many"));
    assert_eq!((code, errors.len()), (2, 1));
    assert!(errors[0].contains("--replicas"), "{errors:?}");
}

#[test]
fn a_cluster_that_does_not_answer_is_no_bad_input() {
    let files = Files::new();
    // A port that was free just now.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let kubeconfig = files.write(
        "kubeconfig",
        &format!(
            "{{clusters: [{{name: c, cluster: {{server: \"http://127.0.0.1:{port}\"}}}}], \
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}], users: [{{name: u, user: {{}}}}], \
             current-context: c}}"
        ),
    );
    let path = files.write("job.yaml", JOB);
    let (code, errors) = outcome(yardmaster().arg("run").arg(&path).arg("--kubeconfig").arg(&kubeconfig));
    assert_eq!((code, errors.len()), (3, 1), "{errors:?}");
    for arguments in [vec!["status"], vec!["status", "--watch"], vec!["logs", "job"]] {
        let (code, errors) = outcome(yardmaster().args(&arguments).arg("--kubeconfig").arg(&kubeconfig));
        let begin =
            format!("error: cannot reach the API server at http://127.0.0.1:{port}/: Connection refused; ");
        let next = "choose another with --kubeconfig or --context";
        assert_eq!((code, errors.len()), (3, 1), "{arguments:?}: {errors:?}");
        assert!(errors[0].starts_with(&begin) && errors[0].ends_with(next), "{arguments:?}: {errors:?}");
    }
}

/// The words are not those of a library, and show no line of the file, which may hold a token.
#[test]
fn what_is_no_kubeconfig_is_told_with_its_file_and_a_next_step() {
    let files = Files::new();
    for (text, wanted) in [
        ("secret words\n", "not a kubeconfig: wrong syntax or type in line 1, column 1"),
        ("clusters: 1\n", "not a kubeconfig: wrong syntax or type in line 1, column 11"),
        ("current-context: c\n", "the kubeconfig has no context \"c\": `kubectl config get-contexts`"),
        ("clusters: []\n", "set `current-context` in the kubeconfig, or choose one with --context"),
    ] {
        let file = files.write("kubeconfig", text);
        let (code, errors) = outcome(yardmaster().args(["status", "--kubeconfig"]).arg(&file));
        assert_eq!((code, errors.len()), (2, 1), "{text}: {errors:?}");
        assert!(errors[0].starts_with(&format!("--kubeconfig {}: ", file.display())), "{errors:?}");
        assert!(errors[0].contains(wanted) && !errors[0].contains("secret"), "{text}: {errors:?}");
    }
    let (_, errors) = outcome(yardmaster().arg("status").env("KUBECONFIG", files.path("none")));
    assert!(errors[0].ends_with("none: no such file; choose one with --kubeconfig FILE"), "{errors:?}");
}

#[test]
fn help_explains_every_flag_in_a_line() {
    for command in ["run", "cluster", "controller", "status", "logs"] {
        let output = yardmaster().args([command, "--help"]).output().unwrap();
        assert!(output.status.success());
        let help = String::from_utf8(output.stdout).unwrap();
        let flags = help.lines().filter(|line| line.trim_start().starts_with("--"));
        let unexplained: Vec<_> = flags.filter(|line| !line.trim().contains("  ")).collect();
        assert!(unexplained.is_empty(), "{command}: {unexplained:?}");
    }
}

/// As after `2>&1 | head`: the reader of the output is gone, and the outcome is the same.
#[test]
fn a_closed_output_changes_no_exit_code() {
    let files = Files::new();
    let job = files.write("job.yaml", JOB);
    let missing = files.path("missing.yaml");
    for (arguments, code) in [
        (["run", "--bogus"], 2),
        (["run", missing.to_str().unwrap()], 2),
        (["run", job.to_str().unwrap()], 0),
    ] {
        let closed = || std::io::pipe().unwrap().1;
        let status = binary::yardmaster().args(arguments).stdout(closed()).stderr(closed()).status().unwrap();
        assert_eq!(status.code(), Some(code), "{arguments:?}");
    }
}
