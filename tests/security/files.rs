//! The user's files stay, pods stay in their folders, and no process outlives its cluster.

use std::io::{BufRead as _, BufReader, ErrorKind};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Client;
use kube::api::{Api, DeleteParams, LogParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;
use walkdir::WalkDir;

use crate::binary::{Background, PATIENCE, until, yardmaster};

/// A running cluster with a data directory.
struct Cluster {
    process: Background,
    pods: Api<Pod>,
    maps: Api<ConfigMap>,
}

/// The command that starts a cluster on the directory `data` in this one.
fn command(place: &TempDir) -> Command {
    let mut command = yardmaster();
    command.args(["cluster", "--replicas", "0", "--data-dir"]).arg(place.path().join("data"));
    command.arg("--write-kubeconfig").arg(place.path().join("kubeconfig"));
    command
}

impl Cluster {
    async fn start(place: &TempDir) -> Self {
        Self::run(place, command(place)).await
    }

    async fn run(place: &TempDir, mut command: Command) -> Self {
        let mut process = Background::start(&mut command);
        let mut lines = BufReader::new(process.0.stdout.take().unwrap()).lines().map_while(Result::ok);
        let address = lines.find(|line| line.starts_with("API server"));
        let mut errors = BufReader::new(process.0.stderr.take().unwrap()).lines().map_while(Result::ok);
        if address.is_none() {
            panic!("did not start: {:?}", errors.collect::<Vec<_>>());
        }
        // Both outputs are drained, so that full pipes do not block the cluster.
        std::thread::spawn(move || lines.for_each(drop));
        std::thread::spawn(move || errors.by_ref().for_each(|line| eprintln!("{line}")));
        let kubeconfig = Kubeconfig::read_from(place.path().join("kubeconfig")).unwrap();
        let options = KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
        let client = Client::try_from(config).unwrap();
        Self { process, pods: Api::default_namespaced(client.clone()), maps: Api::default_namespaced(client) }
    }

    /// Sends SIGKILL to the cluster alone.
    fn kill(mut self) {
        self.process.signal(Signal::SIGKILL);
        self.process.0.wait().unwrap();
    }

    fn stop(mut self) {
        self.process.signal(Signal::SIGTERM);
        assert_eq!(self.process.exit_code(), Some(0));
    }

    async fn create(&self, name: &str, spec: Value) -> Result<Pod, kube::Error> {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
        self.pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await
    }

    /// Creates a pod with one container that runs a shell script.
    async fn shell(&self, name: &str, script: &str) {
        let spec = json!({"restartPolicy": "Never", "containers": [container(script)]});
        self.create(name, spec).await.unwrap();
    }

    async fn map(&self, name: &str) {
        let map = json!({"metadata": {"name": name}, "data": {"k": "from the map"}});
        self.maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap();
    }

    /// The pod, once it has ended.
    async fn ended(&self, name: &str) -> Pod {
        let deadline = std::time::Instant::now() + PATIENCE;
        loop {
            let pod = self.pods.get(name).await.unwrap();
            let status = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            if matches!(status, Some("Succeeded" | "Failed")) {
                return pod;
            }
            assert!(std::time::Instant::now() < deadline, "{:?}", pod.status);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn container(script: &str) -> Value {
    // Kubernetes reads `$$` in a command as an escaped `$`.
    json!({"name": "main", "image": "none", "command": ["sh", "-c", script.replace("$$", "$$$$")]})
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// The termination message of the first container.
fn message(pod: &Pod) -> String {
    let state = pod.status.clone().unwrap().container_statuses.unwrap().remove(0).state.unwrap();
    state.terminated.unwrap().message.unwrap_or_default()
}

fn refused(place: &TempDir) -> String {
    let Output { status, stderr, .. } = command(place).output().unwrap();
    let errors = String::from_utf8(stderr).unwrap();
    assert_eq!((status.code(), errors.lines().count()), (Some(2), 1), "{errors}");
    assert!(errors.starts_with("--data-dir "), "{errors}");
    errors
}

fn mode(path: &Path) -> u32 {
    path.symlink_metadata().unwrap().mode() & 0o777
}

/// Everything below a directory, but what its cluster removes meanwhile.
fn below(directory: &Path) -> Vec<PathBuf> {
    let is_removed = |err: &walkdir::Error| {
        err.depth() > 0 && err.io_error().is_some_and(|err| err.kind() == ErrorKind::NotFound)
    };
    let entries = WalkDir::new(directory).min_depth(1).into_iter();
    let entries = entries.filter(|entry| !entry.as_ref().is_err_and(is_removed));
    entries.map(|entry| entry.unwrap().into_path()).collect()
}

/// The process ids in a file, once there are this many.
fn pids(file: &Path, count: usize) -> Vec<i32> {
    let mut pids = Vec::new();
    until("the process ids are written", || {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        pids = text.lines().filter_map(|line| line.parse().ok()).collect();
        pids.len() == count
    });
    pids
}

/// A field of `/proc/PID/stat` behind the name.
fn stat(pid: i32, field: usize) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(stat.rsplit_once(") ")?.1.split(' ').nth(field)?.to_owned())
}

fn is_alive(pid: i32) -> bool {
    // A zombie has ended; its parent has not reaped it yet.
    stat(pid, 0).is_some_and(|state| state != "Z")
}

fn parent(pid: i32) -> i32 {
    stat(pid, 1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_directory_with_contents_of_the_user_is_refused_and_left_as_it_is() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    std::fs::create_dir_all(data.join("pods/my_project")).unwrap();
    std::fs::write(data.join("pods/my_project/thesis.tex"), "x").unwrap();
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o755)).unwrap();
    let before = below(&data);
    assert!(refused(&place).contains("not empty, and not a data directory of yardmaster"));
    assert_eq!((below(&data), mode(&data)), (before, 0o755));
}

#[tokio::test]
async fn only_folders_of_pods_are_removed() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    let cluster = Cluster::start(&place).await;
    cluster.shell("gone", "echo x > $YARDMASTER_TERMINATION_LOG.notes").await;
    cluster.ended("gone").await;
    cluster.kill();
    let pods = data.join("pods");
    let made: Vec<_> = below(&pods).into_iter().filter(|path| path.ends_with("logs")).collect();
    let [logs] = made.as_slice() else { panic!("{made:?}") };
    let left = logs.parent().unwrap().to_owned();
    // As after a crash between the deletion of the pod and that of its folder.
    let of_nobody = pods.join("default_other_11111111-2222-4333-8444-555555555555");
    std::fs::rename(&left, &of_nobody).unwrap();
    std::fs::write(of_nobody.join(".yardmaster-pod"), "11111111-2222-4333-8444-555555555555").unwrap();
    let own = ["my_project", "a_b_c", "default_own_11111111-2222-4333-8444-666666666666"];
    for name in own {
        std::fs::create_dir(pods.join(name)).unwrap();
        std::fs::write(pods.join(name).join("thesis.tex"), "x").unwrap();
    }
    let cluster = Cluster::start(&place).await;
    until("the folder of a pod that is gone is removed", || !of_nobody.exists());
    // The kubelet has worked on: whatever it removes at its start is removed.
    cluster.shell("next", "exit 0").await;
    cluster.ended("next").await;
    cluster.stop();
    for name in own {
        assert!(pods.join(name).join("thesis.tex").exists(), "{name}");
    }
}

#[tokio::test]
async fn everything_is_private_whatever_the_umask() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    // An older directory that others can read.
    Cluster::start(&place).await.stop();
    std::fs::remove_file(data.join("yardmaster-data-dir")).unwrap();
    // Open credentials are refused, since others may have read them.
    let older = below(&data).into_iter().filter(|path| !path.starts_with(data.join("credentials")));
    for path in older.chain([data.clone()]) {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).unwrap();
    }
    let program = command(&place);
    let mut shell = Command::new("sh");
    shell.args(["-c", "umask 0; exec \"$0\" \"$@\""]).arg(program.get_program()).args(program.get_args());
    for (name, _) in program.get_envs().filter(|(_, value)| value.is_none()) {
        shell.env_remove(name);
    }
    shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let cluster = Cluster::run(&place, shell).await;
    cluster.map("settings").await;
    let volumes = json!([
        {"name": "private", "configMap": {"name": "settings", "defaultMode": 0o600}},
        {"name": "scratch", "emptyDir": {}},
    ]);
    let main = container("echo line; exec sleep 600");
    cluster.create("p", json!({"volumes": volumes, "containers": [main]})).await.unwrap();
    let log = || below(&data).into_iter().any(|path| path.ends_with("logs/main/0.log"));
    until("the pod runs", log);
    let is_open = |path: &PathBuf| path.symlink_metadata().is_ok_and(|file| file.mode() & 0o077 != 0);
    let open: Vec<_> = below(&data).into_iter().filter(is_open).collect();
    assert_eq!((open, mode(&data)), (Vec::<PathBuf>::new(), 0o700));
    assert!(below(&data).iter().any(|path| path.ends_with("volumes/private/k")));
    cluster.stop();
}

#[tokio::test]
async fn paths_of_volumes_cannot_leave_the_folder_of_the_pod() {
    let place = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(&place).await;
    cluster.map("settings").await;
    let file = |path: &str| json!([{"path": path, "fieldRef": {"fieldPath": "metadata.name"}}]);
    let key = |path: &str| json!([{"key": "k", "path": path}]);
    let projected = |source: Value| json!({"projected": {"sources": [source]}});
    for path in ["../../x", "a/../../../x", "/tmp/x", "..", "..x"] {
        for (at, mut volume) in [
            ("configMap.items[0].path", json!({"configMap": {"name": "settings", "items": key(path)}})),
            ("downwardAPI.path", json!({"downwardAPI": {"items": file(path)}})),
            ("sources[0].downwardAPI.path", projected(json!({"downwardAPI": {"items": file(path)}}))),
            (
                "sources[0].configMap.items[0].path",
                projected(json!({"configMap": {"name": "settings", "items": key(path)}})),
            ),
            (
                "sources[0].secret.items[0].path",
                projected(json!({"secret": {"name": "settings", "items": key(path)}})),
            ),
        ] {
            volume["name"] = json!("v");
            let spec = json!({"volumes": [volume], "containers": [container("exit 0")]});
            let refused = cluster.create("p", spec).await.unwrap_err();
            let kube::Error::Api(status) = refused else { panic!("{refused}") };
            assert_eq!(status.code, 422, "{at} {path}");
            assert!(status.message.contains(at), "{at} {path}: {}", status.message);
        }
    }
    cluster.stop();
}

#[tokio::test]
async fn symbolic_links_of_a_container_lead_nowhere() {
    let place = tempfile::tempdir().unwrap();
    let victim = place.path().join("victim");
    std::fs::create_dir(&victim).unwrap();
    std::fs::write(victim.join("0.log"), "mine").unwrap();
    let ready = place.path().join("ready");
    let cluster = Cluster::start(&place).await;
    cluster.map("settings").await;
    let items = json!([{"key": "k", "path": "dir/key"}]);
    let volumes = json!([{"name": "settings", "configMap": {"name": "settings", "items": items}}]);
    // The second start of each writes its volume and a log again.
    let attack = |of: &str, link: &str| {
        format!(
            "cd $YARDMASTER_VOLUME_SETTINGS; if test -e {ready}-{of}; then cat dir/key; exit; fi; \
             rm -rf {link} && ln -s {victim} {link} && touch {ready}-{of}; exec sleep 600",
            ready = ready.display(),
            victim = victim.display(),
        )
    };
    for (name, link) in [
        ("inside", "dir"),
        ("whole", "../settings"),
        ("volumes", "../../volumes"),
        ("logs", "../../logs/main"),
    ] {
        let spec = json!({
            "restartPolicy": "OnFailure", "volumes": volumes, "containers": [container(&attack(name, link))],
        });
        cluster.create(name, spec).await.unwrap();
        until("the link is there", || place.path().join(format!("ready-{name}")).exists());
    }
    cluster.kill();
    let cluster = Cluster::start(&place).await;
    for (name, end) in [("inside", "Succeeded"), ("whole", "Succeeded"), ("volumes", "Failed")] {
        assert_eq!(phase(&cluster.ended(name).await), end, "{name}");
    }
    let log = cluster.pods.logs("inside", &LogParams::default()).await.unwrap();
    assert_eq!(log, "from the map");
    for name in ["inside", "whole", "volumes", "logs"] {
        cluster.pods.delete(name, &DeleteParams::default().grace_period(0)).await.unwrap();
    }
    until("the folders of the pods are gone", || {
        below(&place.path().join("data/pods")).iter().all(|path| path.is_file())
    });
    cluster.stop();
    assert_eq!(below(&victim), [victim.join("0.log")]);
    assert_eq!(std::fs::read_to_string(victim.join("0.log")).unwrap(), "mine");
}

#[tokio::test]
async fn what_is_no_plain_file_does_not_stop_the_kubelet() {
    let place = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(&place).await;
    let attacks = ["mkfifo $YARDMASTER_TERMINATION_LOG", "ln -s /dev/zero $YARDMASTER_TERMINATION_LOG"];
    // More than there are threads.
    let names: Vec<_> =
        (0..16).flat_map(|number| [format!("fifo-{number}"), format!("link-{number}")]).collect();
    for (number, name) in names.iter().enumerate() {
        cluster.shell(name, attacks[number % 2]).await;
    }
    cluster
        .shell(
            "huge",
            "truncate -s 4G $YARDMASTER_TERMINATION_LOG; printf end >> $YARDMASTER_TERMINATION_LOG",
        )
        .await;
    cluster.shell("good", "printf fine > $YARDMASTER_TERMINATION_LOG").await;
    for name in &names {
        let message = message(&cluster.ended(name).await);
        assert!(message.ends_with("not a plain file"), "{name}: {message}");
    }
    let huge = message(&cluster.ended("huge").await);
    assert_eq!((huge.len(), huge.ends_with("end")), (4096, true));
    assert_eq!(message(&cluster.ended("good").await), "fine");
    cluster.stop();
}

#[tokio::test]
async fn logs_are_bounded() {
    let place = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(&place).await;
    cluster.shell("p", "head -c 80000000 /dev/zero | tr '\\0' x | fold -w 9999; echo; echo the end").await;
    assert_eq!(phase(&cluster.ended("p").await), "Succeeded");
    let logs = below(&place.path().join("data/pods"));
    let size = |path: &PathBuf| path.metadata().unwrap().len();
    let sizes: Vec<u64> = logs.iter().filter(|path| path.is_file()).map(size).collect();
    assert!(sizes.iter().all(|size| *size <= 10 << 20), "{sizes:?}");
    let total: u64 = sizes.iter().sum();
    assert!((40 << 20..=51 << 20).contains(&total), "{sizes:?}");
    let last = LogParams { tail_lines: Some(1), ..LogParams::default() };
    assert_eq!(cluster.pods.logs("p", &last).await.unwrap(), "the end\n");
    let all = cluster.pods.logs("p", &LogParams::default()).await.unwrap();
    assert!(all.len() > 40_000_000 && all.ends_with("x\nthe end\n"), "{}", all.len());
    cluster.stop();
}

/// A script that starts processes in every way, and writes the ids of all of them.
fn family(file: &Path) -> String {
    let file = file.display();
    format!(
        "sleep 1000 & echo $! >> {file}; \
         setsid sh -c 'echo $$ >> {file}; exec sleep 1000' & \
         setsid sh -c '(echo $$ >> {file}; env -i sleep 1000) & exec sleep 1000' & \
         sh -c 'setsid env -i sh -c \"echo \\$\\$ >> {file}; trap : TERM; while :; do sleep 1; done\" & exit'; \
         echo $$ >> {file}; exec sleep 1000"
    )
}
/// Number of ids that [`family`] writes.
const FAMILY: usize = 5;

#[tokio::test]
async fn no_process_outlives_its_cluster() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("pids");
    let cluster = Cluster::start(&place).await;
    cluster.shell("p", &family(&file)).await;
    let pids = pids(&file, FAMILY);
    let supervisor = parent(*pids.last().unwrap());
    assert!(pids.iter().all(|pid| is_alive(*pid)));
    cluster.kill();
    until("all processes have ended", || !pids.iter().any(|pid| is_alive(*pid)));
    until("their supervisor has ended", || !is_alive(supervisor));
}

#[tokio::test]
async fn a_cluster_goes_on_without_its_supervisor() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("pids");
    let cluster = Cluster::start(&place).await;
    cluster.shell("p", &format!("echo $$ > {}; exec sleep 1000", file.display())).await;
    let [pid] = pids(&file, 1).try_into().unwrap();
    kill(Pid::from_raw(parent(pid)), Signal::SIGKILL).unwrap();
    assert_eq!(phase(&cluster.ended("p").await), "Failed");
    assert!(!is_alive(pid));
    cluster.shell("next", "echo works").await;
    assert_eq!(phase(&cluster.ended("next").await), "Succeeded");
    cluster.stop();
}

#[tokio::test]
async fn processes_that_lost_everybody_end_with_the_next_cluster() {
    let (place, another) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let file = place.path().join("pids");
    let cluster = Cluster::start(&place).await;
    cluster.shell("p", &format!("echo $$ > {}; exec sleep 1000", file.display())).await;
    let [pid] = pids(&file, 1).try_into().unwrap();
    let supervisor = Pid::from_raw(parent(pid));
    // It cannot notice the end of the cluster.
    kill(supervisor, Signal::SIGSTOP).unwrap();
    cluster.kill();
    kill(supervisor, Signal::SIGKILL).unwrap();
    until("the supervisor is gone", || stat(supervisor.as_raw(), 0).is_none());
    // Clusters of other tests may come first.
    let next = Cluster::start(&another).await;
    until("the process has ended", || !is_alive(pid));
    next.stop();
}

#[test]
fn nobody_else_starts_a_supervisor() {
    let output = yardmaster().arg("supervise-pods").output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8(output.stderr).unwrap().contains("only yardmaster itself"));
}

#[test]
fn a_directory_of_another_user_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    // The directory belongs to another user, even if root runs this.
    if std::fs::create_dir(&data).is_ok() && std::os::unix::fs::chown(&data, Some(54_321), None).is_err() {
        std::fs::remove_dir(&data).unwrap();
        symlink("/usr", &data).unwrap();
    }
    let line = refused(&place);
    assert!(line.contains("belongs to another user (uid "), "{line}");
}
