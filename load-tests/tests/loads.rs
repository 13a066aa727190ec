//! Small loads from start to end, each on its own embedded cluster, and their reports.
#![allow(clippy::unwrap_used)]

mod program;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use program::load_tests;
use serde_json::{Value, json};

/// Runs a load. Returns its report and whether it was exact.
fn report_of(args: &[&str]) -> (Value, bool) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("report.json");
    let output = load_tests(args, Some(&file));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(matches!(output.status.code(), Some(0 | 1)), "{args:?}: {}\n{out}\n{err}", output.status);
    let page = std::fs::read_to_string(file.with_extension("html")).unwrap();
    assert!(page.contains("<svg"), "plots beside the report");
    (serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap(), output.status.success())
}

/// Runs a load that must be exact. Returns its report.
fn reported(args: &[&str]) -> Value {
    let (report, exact) = report_of(args);
    assert!(exact, "{args:?}: {report:#}");
    report
}

fn number(report: &Value, path: &str) -> f64 {
    report.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path}: {report:#}"))
}

#[test]
fn large_jobs_hold_all_pods_at_once() {
    let report =
        reported(&["large", "--pods", "200", "--parallelism", "200", "--hold", "all", "--timeout", "2m"]);
    for (path, value) in [
        ("/exact/expected", 200.0),
        ("/exact/counted", 200.0),
        ("/exact/duplicates", 0.0),
        ("/exact/orphans", 0.0),
        ("/exact/max_active", 200.0),
        ("/controller/0/writes/pods POST", 200.0),
        ("/latency_ms/job_total/count", 1.0),
        ("/latency_ms/finish_to_status/count", 200.0),
    ] {
        assert_eq!(number(&report, path), value, "{path}: {report:#}");
    }
    for path in
        ["/controller/0/cpu_s", "/controller/0/peak_rss_bytes", "/controller/0/watch_bytes", "/wall_s"]
    {
        assert!(number(&report, path) > 0.0, "{path}: {report:#}");
    }
}

#[test]
fn small_jobs_are_counted_and_measured() {
    let report = reported(&["small", "--jobs", "20", "--pods-per-job", "1", "--timeout", "2m"]);
    assert_eq!(number(&report, "/exact/counted"), 20.0);
    assert_eq!(number(&report, "/latency_ms/job_total/count"), 20.0);
    assert_eq!(number(&report, "/latency_ms/create_to_first_pod/count"), 20.0);
}

#[test]
fn churn_measures_replacements_and_failures_are_counted() {
    let report =
        reported(&["churn", "--pods", "60", "--parallelism", "10", "--hold", "50ms", "--timeout", "2m"]);
    assert!(number(&report, "/latency_ms/finish_to_replacement/count") > 30.0, "{report:#}");
    assert_eq!(number(&report, "/exact/beyond_parallelism"), 0.0);
    let failing = ["large", "--pods", "60", "--jobs", "3", "--fail-ratio", "0.3", "--hold", "50ms"];
    let report = reported(&[&failing[..], &["--indexed", "false", "--timeout", "2m"]].concat());
    assert!(number(&report, "/exact/failed") > 0.0, "{report:#}");
    assert_eq!(number(&report, "/exact/failed"), number(&report, "/exact/failed_counted"));
}

#[test]
fn an_inexact_load_fails() {
    // No controller runs, so the load ends at its timeout.
    let output = load_tests(&["small", "--jobs", "2", "--replicas", "0", "--timeout", "1s"], None);
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stdout).contains("NOT EXACT: 0 of 2 counted"));
}

#[test]
fn bad_input_has_its_own_exit_codes() {
    assert_eq!(load_tests(&["large", "--hold", "forever"], None).status.code(), Some(2));
    assert_eq!(load_tests(&["tenant", "--attack", "of-nobody"], None).status.code(), Some(2));
    assert_eq!(load_tests(&["small", "--kubeconfig", "/nowhere"], None).status.code(), Some(3));
    assert_eq!(load_tests(&["run-tasks", "--tasks", "0"], None).status.code(), Some(2));
    assert_eq!(load_tests(&["run-tasks", "--program", "/nowhere"], None).status.code(), Some(3));
}

#[test]
fn replicas_join_and_are_killed() {
    let load = ["failover", "--pods", "40", "--jobs", "8", "--run-time", "200ms", "--generations", "10"];
    let steps = ["--steps", "1,2,term,kill", "--pause", "300ms", "--timeout", "2m"];
    let leases = ["--lease-duration", "3s", "--renew-deadline", "2s", "--retry-period", "500ms"];
    let (report, exact) = report_of(&[&load[..], &steps, &leases].concat());
    assert_eq!(number(&report, "/exact/counted"), 400.0);
    let findings = &report["findings"];
    assert!(exact, "{report:#}");
    assert_eq!(number(findings, "/claimed_shards"), 64.0, "{findings:#}");
    assert_eq!(findings["steps"].as_array().map(Vec::len), Some(6), "{findings:#}");
    assert_eq!(report["controller"].as_array().map(Vec::len), Some(4), "{report:#}");
}

/// The observations of each fault, by its kind.
fn observed(report: &Value) -> BTreeMap<String, String> {
    let faults = report["findings"]["process_faults"].as_array().unwrap();
    let of = |fault: &Value, key: &str| fault[key].as_str().unwrap().to_owned();
    faults.iter().map(|fault| (of(fault, "fault"), of(fault, "observed"))).collect()
}

/// Plays these faults one after the other on two replicas. All must be counted exactly.
fn faulty(faults: &str) -> BTreeMap<String, String> {
    let load = ["failover", "--pods", "20", "--jobs", "4", "--run-time", "1s", "--generations", "20"];
    let steps = format!("2,{faults}");
    let steps = ["--steps", &steps, "--fault-time", "4s", "--pause", "300ms", "--timeout", "10m"];
    let leases = ["--lease-duration", "3s", "--renew-deadline", "2s", "--retry-period", "500ms"];
    let report = reported(&[&load[..], &steps, &leases].concat());
    assert_eq!(number(&report, "/exact/counted"), 400.0);
    assert_eq!(number(&report, "/exact/miscounted"), 0.0);
    observed(&report)
}

#[test]
fn faults_of_processes_do_what_they_say_and_nothing_is_lost() {
    let observed = faulty("kill-replica,freeze-replica,restart-api-server,kill-api-server,full-disk");
    for (fault, part) in [
        ("kill-replica", "SIGKILL"),
        ("freeze-replica", "state T"),
        ("restart-api-server", "ended in order; started again"),
        ("kill-api-server", "killed; started again"),
        ("full-disk", "it ended: error: data directory: cannot keep what is written: File too large"),
    ] {
        assert!(observed[fault].contains(part), "{fault}: {observed:#?}");
    }
}

#[test]
fn faults_of_connections_do_what_they_say_and_nothing_is_lost() {
    let observed = faulty("isolate-replica,slow-link,cut-answer,blackhole,half-open");
    for (fault, part) in [
        ("isolate-replica", "bytes swallowed"),
        ("slow-link", "200 ms more in each direction"),
        ("cut-answer", "closed after half of the next bytes"),
        // How much is swallowed depends on the connection.
        ("blackhole", "bytes swallowed"),
        ("half-open", "bytes swallowed"),
    ] {
        assert!(observed[fault].contains(part), "{fault}: {observed:#?}");
    }
    assert!(!observed["isolate-replica"].starts_with("0 bytes"), "its heartbeats are lost: {observed:#?}");
}

#[test]
fn faults_of_webhooks_do_what_they_say_and_nothing_is_lost() {
    let observed = faulty("slow-webhook,failing-webhook");
    assert_eq!(observed["slow-webhook"], "200 ms more for each pod that is created");
    assert_eq!(observed["failing-webhook"], "no pod is created; refused after 10 s");
}

#[test]
fn webhooks_are_compared_with_what_their_delay_allows() {
    let load = ["webhooks", "--pods", "40", "--time", "3s", "--rate", "5", "--webhook-timeout", "1s"];
    let report = reported(&[&load[..], &["--failing-jobs", "3", "--timeout", "5m"]].concat());
    let findings = &report["findings"];
    for figure in ["/share_of_that", "/beside_by_alone", "/created_per_s/with_webhook"] {
        assert!(number(findings, figure) > 0.0, "{findings:#}");
    }
    assert!(number(findings, "/job_p99_ms/alone") >= 200.0, "a webhook takes 200 ms: {findings:#}");
}

#[test]
fn a_soak_has_watches_beside_it_and_replicas_with_few_resources() {
    let load =
        ["soak", "--duration", "2s", "--replicas", "2", "--watches", "50", "--process-fault-period", "0s"];
    let report = reported(&[&load[..], &["--fault-period", "0s", "--timeout", "10m"]].concat());
    let findings = &report["findings"];
    assert_eq!(number(findings, "/watches/opened"), 50.0, "{findings:#}");
    let (most, limit) = (number(findings, "/limits/most_open_files"), number(findings, "/limits/open_files"));
    assert!(most > 5.0 && most <= limit && limit == 256.0, "{findings:#}");
    let (most, limit) =
        (number(findings, "/limits/peak_virtual_bytes"), number(findings, "/limits/memory_bytes"));
    assert!(most > 1e6 && most <= limit, "{findings:#}");
}

/// Runs a shell with limited resources. Returns its output.
fn limited(limits: &[&str], script: &str) -> String {
    let args = [&["limited"], limits, &["--", "sh", "-c", script]].concat();
    let output = load_tests(&args, None);
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).trim().to_owned()
}

#[test]
fn limits_hold_for_what_is_started_with_them() {
    assert_eq!(limited(&["--replica-open-files", "256"], "ulimit -n; ulimit -Hn"), "256\n256");
    assert_eq!(limited(&["--replica-memory", "100"], "ulimit -v"), "102400");
    let files = limited(&["--replica-open-files", "16"], "exec 20</dev/null && echo opened");
    assert!(!files.contains("opened"), "{files}");
    // tail keeps the last 200 MB in memory.
    let hungry = "head -c 300000000 /dev/zero | tail -c 200000000 | wc -c";
    assert_eq!(limited(&[], hungry), "200000000");
    assert!(!limited(&["--replica-memory", "100"], hungry).contains("200000000"));
}

#[test]
fn growth_is_measured_for_each_size() {
    let sizes = ["growth", "--sweeps", "pods,jobs", "--numbers-of-pods", "5,40", "--numbers-of-jobs", "1,10"];
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("growth.json");
    let output = load_tests(&[&sizes[..], &["--in-flight", "20", "--timeout", "2m"]].concat(), Some(&file));
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{err}");
    let growth: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    for (curve, point, size) in [(0, 0, 5.0), (0, 1, 40.0), (1, 0, 1.0), (1, 1, 10.0)] {
        let at = |key: &str| number(&growth, &format!("/curves/{curve}/points/{point}/{key}"));
        assert_eq!(at("size"), size);
        // A pod needs more than one request: to create it, and to count it.
        assert!(at("requests") > size && at("memory_bytes") > 0.0 && at("watch_bytes") > 0.0, "{growth:#}");
    }
    assert!(growth["curves"][0]["first"].as_str().unwrap().contains("40 pods"), "{growth:#}");
    let table = std::fs::read_to_string(file.with_extension("md")).unwrap();
    assert!(table.contains("| 40 |") && table.contains("## jobs"), "{table}");
    assert!(std::fs::read_to_string(file.with_extension("html")).unwrap().matches("<svg").count() == 2);
}

#[test]
fn two_controllers_are_compared() {
    let controller = "controller --controller-name kubernetes.io/job-controller --listen 127.0.0.1:0";
    let reference = format!("bash -c 'exec -a yardmaster {} {controller}'", env!("CARGO_BIN_EXE_load-tests"));
    let load = ["compare", "--reference", &reference, "--load", "small", "--jobs", "5"];
    let report = reported(&[&load[..], &["--rounds", "1", "--start-time", "3s", "--timeout", "1m"]].concat());
    let findings = &report["findings"];
    assert!(number(findings, "/ratios/wall_s") > 0.0, "{findings:#}");
    assert!(
        number(findings, "/reference/0/writes_per_pod") > 1.0,
        "the reference's writes are found: {findings:#}"
    );
}

/// Fills a folder with links to these programs, for a PATH that has no others.
fn link_programs(folder: &Path, programs: &[&str]) {
    let path = std::env::var_os("PATH").unwrap();
    for program in programs {
        let mut found = std::env::split_paths(&path).map(|folder| folder.join(program));
        let found = found.find(|file| file.exists()).unwrap_or_else(|| panic!("{program} is not installed"));
        std::os::unix::fs::symlink(found, folder.join(program)).unwrap();
    }
}

#[test]
fn short_tasks_are_compared_with_xargs() {
    let directory = tempfile::tempdir().unwrap();
    link_programs(directory.path(), &["sh", "seq", "xargs", "true", "echo"]);
    let file = directory.path().join("tasks.json");
    let args = ["run-tasks", "--tasks", "10", "--at-once", "4", "--rounds", "2", "--starts", "1", "--report"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_load-tests"));
    let output = command.args(args).arg(&file).env("PATH", directory.path()).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    assert!(out.contains("GNU parallel: not installed, left out"), "{out}");
    let report: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(report["absent"], json!(["GNU parallel"]));
    let findings = &report["findings"];
    let names: Vec<&Value> = findings["runs"].as_array().unwrap().iter().map(|run| &run["who"]).collect();
    assert_eq!(names, ["yardmaster", "xargs"], "{findings:#}");
    for path in ["/runs/0/wall_s", "/runs/0/cpu_s", "/runs/1/wall_s", "/runs/1/wall_ratio", "/start/alone_s"]
    {
        assert!(number(findings, path) > 0.0, "{path}: {findings:#}");
    }
    assert_eq!(findings["runs"][1]["rounds"].as_array().map(Vec::len), Some(2), "{findings:#}");
    // A cluster takes longer to start than one process.
    assert!(number(findings, "/start/beyond_s") > 0.0, "{findings:#}");
    let tables = std::fs::read_to_string(file.with_extension("md")).unwrap();
    assert!(tables.contains("| xargs |") && tables.contains("at most 1.20"), "{tables}");
}

/// Plays pairs of Jobs. Returns what was printed, the report and the exit code.
fn differ(args: &[&str]) -> (String, Value, Option<i32>) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("differ.json");
    let output = load_tests(&[&["differ", "--shards", "8"], args].concat(), Some(&file));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let report = std::fs::read(&file).unwrap_or_else(|_| panic!("{args:?}: no report: {out}{err}"));
    assert!(std::fs::read_to_string(file.with_extension("html")).unwrap().contains("pairs "));
    (out.into_owned(), serde_json::from_slice(&report).unwrap(), output.status.code())
}

/// On the embedded API server, the reference is Yardmaster, too.
#[test]
fn a_controller_does_not_differ_from_itself() {
    let (printed, report, code) = differ(&["--seeds", "3", "--from", "1"]);
    let last = "pairs 3: different 0, known 0, equal 3, unfinished 0, undecided 0";
    assert_eq!((printed.lines().last(), code), (Some(last), Some(0)), "{printed}{report:#}");
}

/// A Job whose only pod is deleted, for a controller that replaces it sooner than the reference.
#[test]
fn a_controller_that_differs_is_found() {
    let template = json!({"spec": {
        "restartPolicy": "Never", "nodeName": "n1", "terminationGracePeriodSeconds": 3600,
        "containers": [{"name": "c", "image": "registry.example/work:1"}],
    }});
    let create = json!([{"what": {"create": {"job": 0}}}]);
    let fail = json!({"fail": {"code": 1, "init": 0, "condition": null, "end": "now"}});
    let fail = json!([{"what": {"pods": {"pick": {"live": 0}, "count": 1, "change": fail}}}]);
    let label = json!([{"what": {"patch": {"job": 0, "patch": {"metadata": {"labels": {"a": "b"}}}}}}]);
    let job = json!({"completions": 2, "parallelism": 1, "backoffLimit": 6, "template": template});
    let plan = json!({"seed": 7, "jobs": [job], "steps": [create, label, fail, label]});
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("plans.json");
    std::fs::write(&file, json!({"stories": [{"plan": plan}]}).to_string()).unwrap();
    let scenarios = directory.path().join("scenarios");
    let broken = ["--controller-flag", "--pod-failure-backoff", "--controller-flag", "1s", "--shrink", "6"];
    let files = ["--replay", file.to_str().unwrap(), "--write-scenarios", scenarios.to_str().unwrap()];
    let (printed, report, code) = differ(&[&broken[..], &files].concat());
    let last = "pairs 1: different 1, known 0, equal 0, unfinished 0, undecided 0";
    assert_eq!((printed.lines().last(), code), (Some(last), Some(1)), "{printed}");
    let story = &report["stories"][0];
    assert_eq!(
        (&story["verdict"], &story["repeats"]),
        (&json!("DIFFERENT: Active: ours more"), &json!(true))
    );
    assert_eq!(story["plan"]["steps"].as_array().map(Vec::len), Some(2), "made smaller: {printed}");
    let draft = std::fs::read(scenarios.join("differ-7.json")).unwrap();
    let draft: Value = serde_json::from_slice(&draft).unwrap();
    assert_eq!(draft["steps"][2]["pods"]["set"]["phase"], "Failed", "{draft:#}");
}

/// An API server that the load tests did not start. It ends with the test.
struct ExternalServer(std::process::Child);

impl ExternalServer {
    fn start(directory: &Path) -> (Self, String) {
        let file = directory.join("kubeconfig");
        let mut command = Command::new(env!("CARGO_BIN_EXE_load-tests"));
        command.arg("api-server").arg("--kubeconfig").arg(&file).arg("--audit").arg(directory.join("audit"));
        let server = Self(command.stdin(Stdio::piped()).spawn().unwrap());
        for _ in 0..1000 {
            if file.exists() {
                return (server, file.to_str().unwrap().to_owned());
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        panic!("the API server does not start");
    }
}

impl Drop for ExternalServer {
    fn drop(&mut self) {
        // It ends when its input closes. It may have ended already.
        drop(self.0.stdin.take());
        let _ended = self.0.wait();
    }
}

#[test]
fn a_load_runs_on_another_cluster_with_managed_by() {
    let directory = tempfile::tempdir().unwrap();
    let (server, kubeconfig) = ExternalServer::start(directory.path());
    let report = reported(&["small", "--jobs", "5", "--kubeconfig", &kubeconfig, "--timeout", "1m"]);
    assert_eq!(number(&report, "/exact/counted"), 5.0);
    assert_eq!(number(&report, "/controller/0/writes/pods POST"), 5.0, "as the controller says: {report:#}");
    drop(server);
    let record = std::fs::read_to_string(directory.path().join("audit")).unwrap();
    let deleted =
        record.lines().any(|line| line.contains("DELETE") && line.contains("/api/v1/namespaces/load-"));
    assert!(deleted, "the load's namespace is deleted");
    assert!(report["load"]["waves"][0]["name"] == "small", "{report:#}");
}

fn simulate(args: &[&str]) -> (String, Option<i32>) {
    let output = load_tests(&[&["simulate"], args].concat(), None);
    (String::from_utf8(output.stdout).unwrap(), output.status.code())
}

#[test]
fn simulated_worlds_are_summed_up_in_the_last_line() {
    let (printed, code) = simulate(&["--seeds", "3", "--from", "20", "--twice"]);
    let last = "seeds 3: lost 0, doubled 0, stuck 0, otherwise broken 0, not repeatable 0";
    assert_eq!((printed.lines().last(), code), (Some(last), Some(0)), "{printed}");
}

/// The command that is printed for a failed seed shows the same failure again.
#[test]
fn a_simulated_failure_is_seen_again_by_its_command() {
    let (printed, code) =
        simulate(&["--mutant", "FinalizerBeforeStatus", "--seeds", "100", "--shrink", "30"]);
    assert_eq!(code, Some(0), "it is caught: {printed}");
    let command = printed.lines().find_map(|line| line.split_once("-- simulate ")).unwrap().1;
    assert!(command.contains("--seed "), "{command}");
    let (story, code) = simulate(&command.split(' ').collect::<Vec<_>>());
    assert_eq!(code, Some(1), "{command}\n{story}");
    let broken = story.lines().last().unwrap();
    let (_, what) = broken.split_once("broken: ").unwrap();
    assert!(printed.contains(what), "{what:?} is told by the first run, too:\n{printed}");
    assert!(story.contains("replica-0  starts"), "{story}");
}
