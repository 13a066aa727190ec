//! Controllers as separate processes, so that each can be killed like a real replica.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::cli::console::note;
use crate::cli::trace::OWN_TRACE_MEMORY;

/// How long a controller may take to release its shards and end.
const GRACE: Duration = Duration::from_secs(10);

/// Variables of `cluster` that have another meaning for `controller`, and those about pages that only the
/// page of the cluster reads.
const OWN_VARIABLES: &[&str] = &[
    "YARDMASTER_LISTEN",
    "YARDMASTER_CONTEXT",
    "YARDMASTER_IDENTITY",
    "YARDMASTER_CONTROLLER_NAME",
    "YARDMASTER_TLS_CERT_FILE",
    "YARDMASTER_TLS_PRIVATE_KEY_FILE",
    "YARDMASTER_DEBUG_ACCESS",
    "YARDMASTER_DEBUG_TOKEN_FILE",
    "YARDMASTER_PAGE_ACTIONS",
];

/// The variable of `--trace-memory`.
const TRACE_MEMORY: &str = "YARDMASTER_TRACE_MEMORY";

/// Where the pages of the running controllers are, by identity. Clones share the map.
pub(super) type PageAddresses = Arc<Mutex<BTreeMap<String, SocketAddr>>>;

/// The controllers of a cluster.
pub(super) struct Replicas {
    pids: Vec<u32>,
    pages: PageAddresses,
    stop: CancellationToken,
    running: JoinSet<()>,
}

impl Replicas {
    /// Starts `count` controllers, which replace Kubernetes' built-in one. Their pages want the token in
    /// `debug_token`.
    pub(super) fn start(
        count: u16,
        kubeconfig: &Path,
        debug_token: &Path,
        feature_gates: &[(String, bool)],
    ) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("cannot find the program file of this process")?;
        let gates: Vec<_> = feature_gates.iter().map(|(name, on)| format!("{name}={on}")).collect();
        let mut replicas = Self {
            pids: Vec::new(),
            pages: PageAddresses::default(),
            stop: CancellationToken::new(),
            running: JoinSet::new(),
        };
        for number in 0..count {
            let identity = format!("yardmaster-{number}");
            let mut command = Command::new(&program);
            command
                .args(["controller", "--controller-name", "kubernetes.io/job-controller"])
                .args(["--ttl-controller", "on", "--listen", "127.0.0.1:0", "--exit-with-stdin"])
                .args(["--identity", &identity, "--print-address", "--debug-access", "token"])
                .arg("--debug-token-file")
                .arg(debug_token)
                .arg("--kubeconfig")
                .arg(kubeconfig)
                // The pipe closes when this process ends, however it ends.
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                // Ctrl-C reaches only this process, which then stops its children.
                .process_group(0)
                .kill_on_drop(true);
            if !gates.is_empty() {
                command.args(["--feature-gates", &gates.join(",")]);
            }
            if std::env::var_os(TRACE_MEMORY).is_none() {
                command.env(TRACE_MEMORY, OWN_TRACE_MEMORY.to_string());
            }
            for variable in OWN_VARIABLES {
                command.env_remove(variable);
            }
            let child = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
            replicas.pids.extend(child.id());
            replicas.running.spawn(supervise(identity, child, replicas.pages.clone(), replicas.stop.clone()));
        }
        Ok(replicas)
    }

    /// Where their pages are.
    pub(super) fn pages(&self) -> &PageAddresses {
        &self.pages
    }

    /// The number of controllers and their process ids.
    pub(super) fn describe(&self) -> String {
        let pids: Vec<_> = self.pids.iter().map(u32::to_string).collect();
        match pids.len() {
            0 => "none".into(),
            1 => format!("1 (process {})", pids[0]),
            count => format!("{count} (processes {})", pids.join(", ")),
        }
    }

    /// Waits for controllers that end, and never returns: the remaining ones take over their shards.
    pub(super) async fn watch(&mut self) -> Infallible {
        while self.running.join_next().await.is_some() {}
        std::future::pending().await
    }

    /// Stops all controllers after they have released their shards.
    pub(super) async fn shutdown(mut self) {
        self.stop.cancel();
        while self.running.join_next().await.is_some() {}
    }
}

async fn supervise(identity: String, mut child: Child, pages: PageAddresses, stop: CancellationToken) {
    // `wait` would close the child's standard input, which ends it.
    let _input = child.stdin.take();
    let mut output = child.stdout.take().map(|output| BufReader::new(output).lines());
    let address = async {
        let line = output.as_mut()?.next_line().await.ok()??;
        line.parse().ok()
    };
    tokio::select! {
        Some(address) = address => {
            pages.lock().unwrap_or_else(PoisonError::into_inner).insert(identity.clone(), address);
        }
        _ended = child.wait() => {}
        () = stop.cancelled() => {}
    }
    watch_over(&identity, child, stop).await;
    pages.lock().unwrap_or_else(PoisonError::into_inner).remove(&identity);
}

async fn watch_over(identity: &str, mut child: Child, stop: CancellationToken) {
    tokio::select! {
        ended = child.wait() => {
            let reason = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
            note(format_args!("controller {identity} ended: {reason}"));
            return;
        }
        () = stop.cancelled() => {}
    }
    if let Some(pid) = child.id().and_then(|id| i32::try_from(id).ok()) {
        let _gone = kill(Pid::from_raw(pid), Signal::SIGTERM);
    }
    if tokio::time::timeout(GRACE, child.wait()).await.is_err() {
        note(format_args!("controller {identity} did not end within {} s and was killed", GRACE.as_secs()));
        let _gone = child.kill().await;
    }
}
