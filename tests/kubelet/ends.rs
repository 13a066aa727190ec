//! No process outlives its pod.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn deletion_sends_sigterm_before_sigkill() {
    let cluster = Cluster::start().await;
    let (ready, terminated) = (cluster.file("ready"), cluster.file("terminated"));
    // Handles SIGTERM and exits with 0.
    let script = format!(
        "trap 'touch {}; exit 0' TERM; echo $$ > {}; while :; do sleep 0.05; done",
        terminated.display(),
        ready.display()
    );
    cluster.shell("polite", &script).await;
    let pid = pid_in(&ready).await;
    cluster.pods.delete("polite", &DeleteParams::default()).await.unwrap();
    cluster.gone("polite").await;
    assert!(terminated.exists(), "it got no SIGTERM");
    assert!(!is_alive(pid), "it is still alive");

    // Ignores SIGTERM: killed at the end of the grace period, not before.
    let ready = cluster.file("ready2");
    let script = format!("trap '' TERM; echo $$ > {}; while :; do sleep 0.05; done", ready.display());
    cluster.shell("stubborn", &script).await;
    let pid = pid_in(&ready).await;
    let start = Instant::now();
    cluster.pods.delete("stubborn", &DeleteParams::default().grace_period(2)).await.unwrap();
    cluster.gone("stubborn").await;
    assert!(start.elapsed() >= Duration::from_secs(2));
    assert!(!is_alive(pid));

    // A shorter grace period replaces an earlier, longer one.
    let ready = cluster.file("ready3");
    let script = format!("trap '' TERM; echo $$ > {}; while :; do sleep 0.05; done", ready.display());
    cluster.shell("hurried", &script).await;
    let pid = pid_in(&ready).await;
    cluster.pods.delete("hurried", &DeleteParams::default().grace_period(600)).await.unwrap();
    cluster.pods.delete("hurried", &DeleteParams::default().grace_period(1)).await.unwrap();
    cluster.gone("hurried").await;
    assert!(!is_alive(pid));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_with_a_finalizer_shows_how_it_ended() {
    let cluster = Cluster::start().await;
    let ready = cluster.file("ready");
    let script = format!("echo $$ > {}; exec sleep 600", ready.display());
    let metadata = json!({"name": "p", "finalizers": ["example.com/hold"]});
    cluster.create_with(metadata, json!({"containers": [container(&script)]})).await;
    let pid = pid_in(&ready).await;
    cluster.pods.delete("p", &DeleteParams::default()).await.unwrap();
    let pod = cluster.phase("p", "Failed").await;
    assert_eq!(exit_code(&pod), 143);
    assert!(!is_alive(pid));
    // The kubelet is done: the object is deleted with its finalizer.
    cluster.wait("p", |pod| pod.metadata.deletion_grace_period_seconds == Some(0)).await;
    let patch = kube::api::Patch::Merge(json!({"metadata": {"finalizers": null}}));
    cluster.pods.patch("p", &kube::api::PatchParams::default(), &patch).await.unwrap();
    cluster.gone("p").await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn children_end_with_their_container() {
    let cluster = Cluster::start().await;
    let (child, daemon) = (cluster.file("child"), cluster.file("daemon"));
    // The first child stays in the container's process group, the second leaves it.
    let script = format!(
        "sh -c 'echo $$ > {}; exec sleep 600' & setsid sh -c 'echo $$ > {}; exec sleep 600' & \
         until [ -s {0} ] && [ -s {1} ]; do sleep 0.05; done",
        child.display(),
        daemon.display()
    );
    cluster.shell("p", &script).await;
    cluster.phase("p", "Succeeded").await;
    let (child, daemon) = (pid_in(&child).await, pid_in(&daemon).await);
    until("both have ended", async || !is_alive(child) && !is_alive(daemon)).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_leaves_no_process() {
    let cluster = Cluster::start().await;
    let mut files = Vec::new();
    for number in 0..5 {
        let file = cluster.file(&format!("pid-{number}"));
        let script = format!("trap '' TERM; echo $$ > {}; sleep 600 & wait; sleep 600", file.display());
        cluster.shell(&format!("p-{number}"), &script).await;
        files.push(file);
    }
    let mut pids = Vec::new();
    for file in &files {
        pids.push(pid_in(file).await);
    }
    let Cluster { kubelet, server, .. } = cluster;
    let start = Instant::now();
    kubelet.shutdown().await;
    assert!(pids.iter().all(|pid| !is_alive(*pid)));
    assert!(start.elapsed() < Duration::from_secs(10));
    server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_kubelet_leaves_no_process() {
    let cluster = Cluster::start().await;
    let file = cluster.file("pid");
    cluster.shell("p", &format!("echo $$ > {}; sleep 600", file.display())).await;
    let pid = pid_in(&file).await;
    let Cluster { kubelet, server, .. } = cluster;
    drop(kubelet);
    until("the process has ended", async || !is_alive(pid)).await;
    server.shutdown().await;
}

/// Holds a lease on a file. If a process opens or executes it, the process waits for up to 45 seconds, as for
/// a disk that does not answer. Says `held`, and `asked` once a process waits.
const LEASE: &str = r#"
import fcntl, os, signal, sys
signal.signal(signal.SIGIO, lambda *_: print("asked", flush=True))
file = os.open(sys.argv[1], os.O_RDONLY)
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print("held", flush=True)
while True:
    signal.pause()
"#;

/// A file that cannot be opened until this is dropped.
struct Leased {
    holder: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Leased {
    /// Returns `None` if python3 is missing.
    fn hold(file: &Path) -> Option<Self> {
        let mut python = Command::new("python3");
        python.args(["-c", LEASE]).arg(file).stdout(Stdio::piped());
        let Ok(mut holder) = python.spawn() else {
            eprintln!("skipped: there is no python3 to hold a lease");
            return None;
        };
        let lines = BufReader::new(holder.stdout.take().unwrap());
        let mut leased = Self { holder, lines };
        assert_eq!(leased.line(), "held\n");
        Some(leased)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line
    }
}

impl Drop for Leased {
    fn drop(&mut self) {
        self.holder.kill().unwrap();
        self.holder.wait().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_on_a_disk_that_does_not_answer_holds_up_its_own_pod_alone() {
    let cluster = Cluster::start().await;
    let program = cluster.file("program");
    std::fs::copy("/bin/sleep", &program).unwrap();
    let Some(mut leased) = Leased::hold(&program) else { return cluster.stop().await };
    let container = json!({"name": "main", "image": "none", "command": [program, "600"]});
    cluster.create("stuck", json!({"containers": [container]})).await;
    let leased = tokio::task::spawn_blocking(move || {
        assert_eq!(leased.line(), "asked\n");
        leased
    });
    let leased = tokio::time::timeout(3 * PATIENCE, leased).await.unwrap().unwrap();
    // Others start, are signalled and end, and the pod itself can be deleted.
    cluster.shell("quick", "echo done").await;
    cluster.phase("quick", "Succeeded").await;
    let ready = cluster.file("ready");
    cluster.shell("long", &format!("echo $$ > {}; exec sleep 600", ready.display())).await;
    let pid = pid_in(&ready).await;
    for name in ["long", "stuck"] {
        cluster.pods.delete(name, &DeleteParams::default().grace_period(1)).await.unwrap();
        cluster.gone(name).await;
    }
    assert!(!is_alive(pid));
    drop(leased);
    cluster.stop().await;
}
