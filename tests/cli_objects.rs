//! `yardmaster run` with files of many kinds, and without a file; and a machine that has a size.
#![cfg(feature = "embedded")]
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod binary;
#[path = "cli_objects/output.rs"]
mod output;
#[path = "cli_objects/resume.rs"]
mod resume;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::binary::yardmaster;

struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// The command, with data and home of its own.
    fn run(&self, args: &[&str]) -> Command {
        let mut command = yardmaster();
        command.arg("run").args(args).current_dir(self.path());
        command
            .env("HOME", self.path())
            .env("XDG_DATA_HOME", self.path().join("data"))
            .env_remove("KUBECONFIG");
        command
    }
}

fn outcome(command: &mut Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

/// A Job that needs everything around it, and comes before it.
const SUITE: &str = r#"
apiVersion: batch/v1
kind: Job
metadata: {name: report, namespace: team}
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      serviceAccountName: reporter
      priorityClassName: urgent
      containers:
      - name: main
        image: none
        command: [sh, -c, "echo $GREETING $PASSWORD; cat $YARDMASTER_VOLUME_DATA/count; echo x >> $YARDMASTER_VOLUME_DATA/count"]
        envFrom: [{configMapRef: {name: settings}}, {secretRef: {name: login}}]
        volumeMounts: [{name: data, mountPath: /data}]
      volumes: [{name: data, persistentVolumeClaim: {claimName: results}}]
---
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Namespace, metadata: {name: team}}
- {apiVersion: v1, kind: Service, metadata: {name: report, namespace: team}, spec: {clusterIP: None, selector: {a: b}}}
- {apiVersion: v1, kind: Secret, metadata: {name: login, namespace: team}, stringData: {PASSWORD: secret}}
- apiVersion: rbac.authorization.k8s.io/v1
  kind: RoleBinding
  metadata: {name: reporter, namespace: team}
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reporter}
  subjects: [{kind: ServiceAccount, name: reporter, namespace: team}]
- apiVersion: rbac.authorization.k8s.io/v1
  kind: Role
  metadata: {name: reporter, namespace: team}
  rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: reporter, namespace: team}}
---
{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: urgent, namespace: ignored}, value: 1000}
---
apiVersion: v1
kind: ConfigMapList
items: [{metadata: {name: settings, namespace: team}, data: {GREETING: hello}}]
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: results, namespace: team}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
"#;

#[test]
fn the_objects_of_a_file_are_there_for_its_jobs_and_the_data_of_claims_stays() {
    let files = Files::new();
    let suite = files.write("suite.yaml", SUITE);
    let run = || outcome(&mut files.run(&[suite.to_str().unwrap(), "--logs"]));
    std::fs::create_dir_all(files.path().join("data/yardmaster/claims/team/results")).unwrap();
    let count = files.path().join("data/yardmaster/claims/team/results/count");
    std::fs::write(&count, "").unwrap();
    for expected in ["hello secret\n", "hello secret\nx\n"] {
        let (code, logs, told) = run();
        assert_eq!((code, logs.as_str()), (Some(0), expected), "{told}");
        assert!(told.contains("PersistentVolumeClaims are folders in "), "{told}");
    }
    assert_eq!(std::fs::read_to_string(count).unwrap(), "x\nx\n");
}

#[test]
fn an_object_that_no_file_has_is_missed_before_the_start() {
    let files = Files::new();
    let without_class = SUITE.replace("metadata: {name: urgent,", "metadata: {name: other,");
    let path = files.write("class.yaml", &without_class);
    let (code, _, told) = outcome(&mut files.run(&[path.to_str().unwrap()]));
    assert_eq!((code, told.lines().count()), (Some(2), 1), "{told}");
    assert!(told.contains("PriorityClass \"urgent\" is in none of the files"), "{told}");
    let suite = SUITE.replace("name: settings, namespace: team}", "name: other, namespace: team}");
    let suite = suite.replace("name: results, namespace: team", "name: results, namespace: elsewhere");
    let suite = files.write("suite.yaml", &suite);
    let (code, _, told) = outcome(&mut files.run(&[suite.to_str().unwrap()]));
    assert_eq!(code, Some(2), "{told}");
    for missing in
        ["ConfigMap \"settings\" is in none of the files", "PersistentVolumeClaim \"results\" is in none"]
    {
        assert!(told.contains(missing), "{told}");
    }
    assert_eq!(told.lines().count(), 2, "{told}");
}

#[test]
fn an_object_that_an_api_server_refuses_is_named_with_its_place() {
    let files = Files::new();
    let suite = SUITE.replace("{GREETING: hello}", "{GREETING: hello}, dta: {}");
    let suite = files.write("suite.yaml", &suite);
    let (code, _, told) = outcome(&mut files.run(&[suite.to_str().unwrap()]));
    assert_eq!(code, Some(3), "{told}");
    assert!(told.contains("suite.yaml: line 42, column 9: cannot make ConfigMap \"settings\""), "{told}");
    assert!(told.contains(".dta: field not declared in schema"), "{told}");
}

#[test]
fn a_limit_range_gives_a_job_what_it_does_not_name() {
    let files = Files::new();
    let path = files.write(
        "limited.yaml",
        r#"
apiVersion: batch/v1
kind: Job
metadata: {name: limited}
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: main
        image: none
        command: [sh, -c, "echo $LIMIT"]
        env: [{name: LIMIT, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1Mi}}}]
---
{apiVersion: v1, kind: LimitRange, metadata: {name: usual}, spec: {limits: [{type: Container, default: {memory: 7Mi}}]}}
"#,
    );
    let (code, logs, told) = outcome(&mut files.run(&[path.to_str().unwrap(), "--logs"]));
    assert_eq!((code, logs.as_str()), (Some(0), "7\n"), "{told}");
}

const NIGHTLY: &str = r#"
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly}
spec:
  schedule: "0 3 * * *"
  jobTemplate:
    spec:
      template:
        spec:
          restartPolicy: Never
          containers: [{name: main, image: none, command: [echo, now]}]
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: weekly}
spec: {schedule: "@weekly", jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: main, image: none, command: [echo, later]}]}}}}}
"#;

#[test]
fn a_cron_job_runs_now_if_it_is_named() {
    let files = Files::new();
    let path = files.write("cron.yaml", NIGHTLY);
    let path = path.to_str().unwrap();
    let (code, logs, told) = outcome(&mut files.run(&[path, "--logs", "--cronjob", "nightly"]));
    assert_eq!((code, logs.as_str()), (Some(0), "now\n"), "{told}");
    assert!(told.contains("CronJob \"weekly\" is left out"), "{told}");
    let (code, _, told) = outcome(&mut files.run(&[path]));
    assert_eq!(code, Some(2));
    assert!(told.lines().all(|line| line.contains("--cronjob NAME runs one now")), "{told}");
    let (code, _, told) = outcome(&mut files.run(&[path, "--cronjob", "hourly"]));
    assert_eq!(code, Some(2));
    assert!(told.ends_with("--cronjob hourly: no CronJob of this name in the files\n"), "{told}");
    let broken = files.write("broken.yaml", &NIGHTLY.replace("[echo, now]", "[no-such-program]"));
    let (code, _, told) = outcome(&mut files.run(&[broken.to_str().unwrap(), "--cronjob", "nightly"]));
    assert_eq!(code, Some(2));
    assert!(told.contains("line 12, column "), "{told}");
}

#[test]
fn what_no_job_needs_is_left_out_on_request() {
    let files = Files::new();
    let job = r#"{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": {"spec":
        {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i", "command": ["echo", "ran"]}]}}}}"#;
    let text = format!("{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: web}}}}\n---\n{job}\n");
    let path = files.write("all.yaml", &text);
    let path = path.to_str().unwrap();
    let (code, _, told) = outcome(&mut files.run(&[path]));
    assert_eq!(code, Some(2));
    assert!(told.contains("kind Deployment is not supported") && told.contains("--ignore-others"), "{told}");
    let (code, logs, told) = outcome(&mut files.run(&[path, "--ignore-others", "--logs"]));
    assert_eq!((code, logs.as_str()), (Some(0), "ran\n"), "{told}");
    assert!(told.contains("line 1, column 23: Deployment \"web\" is left out"), "{told}");
}

#[test]
fn a_folder_of_kustomize_is_built_by_kubectl() {
    let files = Files::new();
    let tools = tempfile::tempdir().unwrap();
    let kubectl = tools.path().join("kubectl");
    let manifest = files.write("built.yaml", NIGHTLY);
    let script = format!("#!/bin/sh\ntest \"$1 $2\" = 'kustomize overlay' && cat {}\n", manifest.display());
    std::fs::write(&kubectl, script).unwrap();
    std::fs::set_permissions(&kubectl, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", tools.path().display(), std::env::var("PATH").unwrap());
    let args = ["-k", "overlay", "--cronjob", "weekly", "--logs"];
    let (code, logs, told) = outcome(files.run(&args).env("PATH", &path));
    assert_eq!((code, logs.as_str()), (Some(0), "later\n"), "{told}");
    let (code, _, told) = outcome(files.run(&["-k", "missing"]).env("PATH", &path));
    assert_eq!((code, told.as_str()), (Some(2), "-k missing: kubectl kustomize: no message\n"));
    let (code, _, told) = outcome(files.run(&["-k", "overlay"]).env("PATH", files.path()));
    assert_eq!(code, Some(2));
    assert!(told.contains("cannot start kubectl"), "{told}");
}

#[test]
fn a_command_runs_here_as_a_job() {
    let files = Files::new();
    let (code, logs, told) =
        outcome(&mut files.run(&["--logs", "--", "sh", "-c", "echo $(pwd) $0 $$$$ > out; cat out", "a b"]));
    assert_eq!(code, Some(0), "{told}");
    let real = files.path().canonicalize().unwrap();
    assert!(logs.starts_with(&format!("{} a b ", real.display())), "{logs}");
    assert!(files.path().join("out").exists());

    let (code, _, told) =
        outcome(&mut files.run(&["--retries", "1", "--env", "CODE=7", "--", "sh", "-c", "exit $CODE"]));
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("exit code 7"), "{told}");

    let (code, _, told) = outcome(&mut files.run(&["--", "no-such-program"]));
    assert_eq!(code, Some(2), "{told}");
    assert!(told.starts_with("command line: spec.template.spec.containers[0].command: "), "{told}");
    // A command that is meant for a container never runs outside of one.
    let image = ["--image", "busybox", "--", "touch", "outside"];
    let auto = ["--runtime", "auto"].iter().chain(&image).copied().collect::<Vec<_>>();
    let here = ["--here"].iter().chain(&auto).copied().collect::<Vec<_>>();
    for args in [&["--runtime", "containers", "--", "true"][..], &image, &auto, &here] {
        let (code, _, told) = outcome(files.run(args).env("DOCKER_HOST", "unix:///nowhere/engine.sock"));
        assert_eq!((code, told.lines().count()), (Some(2), 1), "{told}");
    }
    assert!(!files.path().join("outside").exists());
}

#[test]
fn the_job_of_a_command_can_be_printed_and_run_as_a_file() {
    let files = Files::new();
    let array = ["--array", "0-2", "--dry-run", "--", "sh", "-c", "echo index $JOB_COMPLETION_INDEX"];
    let (code, printed, told) = outcome(&mut files.run(&array));
    assert_eq!(code, Some(0), "{told}");
    let job: Value = serde_saphyr::from_str(&printed).unwrap();
    assert_eq!(job["spec"]["completions"], 3);
    assert_eq!(job["metadata"], json!({"generateName": "sh-"}));
    let path = files.write("printed.yaml", &printed);
    let (code, logs, told) = outcome(&mut files.run(&[path.to_str().unwrap(), "--logs"]));
    assert_eq!(code, Some(0), "{told}");
    assert_eq!(logs.lines().count(), 3, "{logs}");
}

#[test]
fn as_many_run_at_once_as_the_machine_has_cpus() {
    let files = Files::new();
    let cpus = std::thread::available_parallelism().unwrap().to_string();
    // Each takes the whole machine: of two at once, one would find the folder.
    let script = "mkdir alone && sleep 0.05 && rmdir alone";
    let args = ["--array", "0-9", "--cpus", &cpus, "--", "sh", "-c", script];
    let (code, _, told) = outcome(&mut files.run(&args));
    assert_eq!(code, Some(0), "{told}");
}

#[test]
fn a_job_that_selects_another_node_is_refused_until_this_one_has_the_label() {
    let files = Files::new();
    let job = NIGHTLY
        .replace("restartPolicy: Never\n", "restartPolicy: Never\n          nodeSelector: {disk: ssd}\n");
    let path = files.write("cron.yaml", &job);
    let args = [path.to_str().unwrap(), "--cronjob", "nightly", "--logs"];
    let (code, _, told) = outcome(&mut files.run(&args));
    assert_eq!(
        (code, told.lines().filter(|line| line.contains("nodeSelector: ")).count()),
        (Some(2), 1),
        "{told}"
    );
    assert!(told.contains("this machine has no label disk=ssd: --node-label"), "{told}");
    let (code, logs, told) = outcome(&mut files.run(&[&args[..], &["--node-label", "disk=ssd"]].concat()));
    assert_eq!((code, logs.as_str()), (Some(0), "now\n"), "{told}");
}

#[test]
fn volumes_are_not_mounted_if_a_flag_or_the_kernel_says_so() {
    let files = Files::new();
    let mount = ["--mount", "/etc:/ym-etc", "--", "ls", "/ym-etc"];
    let (code, _, told) = outcome(&mut files.run(&[&["--volumes", "variables"], &mount[..]].concat()));
    assert_eq!((code, told.lines().count()), (Some(2), 1), "{told}");
    assert!(told.contains("volumeMounts[0].mountPath: ") && told.contains("(--volumes variables)"), "{told}");

    // A kernel that has no room for a mount namespace.
    let full = "echo 0 > /proc/sys/user/max_mnt_namespaces && exec \"$@\"";
    let without = |command: &[&str]| {
        let mut inside = Command::new("unshare");
        inside.args(["--user", "--map-root-user", "sh", "-c", full, "sh"]).args(command);
        inside.current_dir(files.path()).env("HOME", files.path());
        outcome(&mut inside)
    };
    if without(&["true"]).0 != Some(0) {
        assert!(std::env::var_os("CI").is_none(), "no user namespaces");
        return eprintln!("skipped: this host allows no user namespaces");
    }
    let program = env!("CARGO_BIN_EXE_yardmaster");
    for (volumes, expected) in [("paths", "--volumes paths: "), ("auto", "volumeMounts[0].mountPath: ")] {
        let command = [&[program, "run", "--volumes", volumes], &mount[..]].concat();
        let (code, _, told) = without(&command);
        assert_eq!((code, told.lines().count()), (Some(2), 1), "{told}");
        let why = "cannot have mounts of its own: No space left on device (os error 28)";
        assert!(told.contains(expected) && told.contains(why), "{told}");
    }
}
