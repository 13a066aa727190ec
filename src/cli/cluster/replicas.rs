//! Controllers as processes of their own, so that one of them can be killed like a real replica.

use std::convert::Infallible;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How long a controller may take to release its shards.
const GRACE: Duration = Duration::from_secs(10);

/// Variables that mean something else to `cluster` than to `controller`.
const OWN_VARIABLES: &[&str] =
    &["YARDMASTER_LISTEN", "YARDMASTER_CONTEXT", "YARDMASTER_IDENTITY", "YARDMASTER_CONTROLLER_NAME"];

/// The controllers of a cluster.
pub(super) struct Replicas {
    pids: Vec<u32>,
    stop: CancellationToken,
    running: JoinSet<()>,
}

impl Replicas {
    /// Starts `count` controllers, which do what Kubernetes' built-in one does.
    pub(super) fn start(
        count: u16,
        kubeconfig: &Path,
        feature_gates: &[(String, bool)],
    ) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("cannot find the program file of this process")?;
        let gates: Vec<_> = feature_gates.iter().map(|(name, on)| format!("{name}={on}")).collect();
        let mut replicas = Self { pids: Vec::new(), stop: CancellationToken::new(), running: JoinSet::new() };
        for number in 0..count {
            let identity = format!("yardmaster-{number}");
            let mut command = Command::new(&program);
            command
                .args(["controller", "--controller-name", "kubernetes.io/job-controller"])
                .args(["--ttl-controller", "on", "--listen", "127.0.0.1:0", "--exit-with-stdin"])
                .args(["--identity", &identity])
                .arg("--kubeconfig")
                .arg(kubeconfig)
                // The pipe closes when this process ends, however it ends.
                .stdin(Stdio::piped())
                // Ctrl-C is for this process to pass on.
                .process_group(0)
                .kill_on_drop(true);
            if !gates.is_empty() {
                command.args(["--feature-gates", &gates.join(",")]);
            }
            for variable in OWN_VARIABLES {
                command.env_remove(variable);
            }
            let child = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
            replicas.pids.extend(child.id());
            replicas.running.spawn(supervise(identity, child, replicas.stop.clone()));
        }
        Ok(replicas)
    }

    /// Number and process ids.
    pub(super) fn describe(&self) -> String {
        let pids: Vec<_> = self.pids.iter().map(u32::to_string).collect();
        match pids.len() {
            0 => "none".into(),
            1 => format!("1 (process {})", pids[0]),
            count => format!("{count} (processes {})", pids.join(", ")),
        }
    }

    /// Takes note of controllers that end. The others take over their work, so the cluster goes on.
    pub(super) async fn watch(&mut self) -> Infallible {
        while self.running.join_next().await.is_some() {}
        std::future::pending().await
    }

    /// Lets all controllers release their shards and end.
    pub(super) async fn shutdown(mut self) {
        self.stop.cancel();
        while self.running.join_next().await.is_some() {}
    }
}

async fn supervise(identity: String, mut child: Child, stop: CancellationToken) {
    // Waiting for a child would close its input, and thereby end it.
    let _input = child.stdin.take();
    tokio::select! {
        ended = child.wait() => {
            let how = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
            eprintln!("controller {identity} ended: {how}");
            return;
        }
        () = stop.cancelled() => {}
    }
    if let Some(pid) = child.id().and_then(|id| i32::try_from(id).ok()) {
        let _gone = kill(Pid::from_raw(pid), Signal::SIGTERM);
    }
    if tokio::time::timeout(GRACE, child.wait()).await.is_err() {
        eprintln!("controller {identity} does not end: killed");
        let _gone = child.kill().await;
    }
}
