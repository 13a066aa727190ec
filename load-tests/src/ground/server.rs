//! The embedded API server's process, which can be ended and started again.

use std::fs::File;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rand::Rng as _;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;

use crate::faults::TimedFault;
use crate::replicas::last_line;
use crate::usage::Usage;

/// Limit for the start and the end of the API server.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where the API server keeps its objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Storage {
    /// In memory: they end with the process.
    Memory,
    /// In a data directory: they survive it.
    Disk,
}

/// The API server.
pub(crate) struct Server {
    directory: PathBuf,
    storage: Storage,
    /// A user, if access is controlled by roles.
    user: Option<String>,
    address: SocketAddr,
    /// Absent while it is down.
    process: Option<Process>,
    starts: usize,
    /// Usage of processes that have ended.
    spent: Usage,
    /// Whether its disk is full, so that it may end at any time.
    is_full: bool,
}

struct Process {
    child: Child,
    pid: i32,
    /// Faults are sent through this pipe. The process ends when it closes.
    faults: ChildStdin,
    /// Copies the record of writes from the process to the file.
    record: JoinHandle<Result<()>>,
}

impl Server {
    /// Starts it with its files in this directory, and waits until it is reachable.
    pub(super) async fn start(directory: &Path, storage: Storage, user: Option<&str>) -> Result<Self> {
        let port = match storage {
            Storage::Memory => 0,
            Storage::Disk => free_port()?,
        };
        let mut server = Self {
            directory: directory.to_owned(),
            storage,
            user: user.map(str::to_owned),
            address: (Ipv4Addr::LOCALHOST, port).into(),
            process: None,
            starts: 0,
            spent: Usage::default(),
            is_full: false,
        };
        server.resume().await?;
        server.address = super::address(&server.kubeconfig())?;
        Ok(server)
    }

    /// The kubeconfig. It stays valid when a server with a data directory is started again.
    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.directory.join("kubeconfig")
    }

    /// The file with the record of writes.
    pub(super) fn record(&self) -> PathBuf {
        self.directory.join("audit")
    }

    fn log(&self) -> PathBuf {
        self.directory.join("api-server.log")
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn is_up(&self) -> bool {
        self.process.is_some()
    }

    /// Starts the process again, and waits until it is reachable.
    pub(crate) async fn resume(&mut self) -> Result<()> {
        self.starts += 1;
        self.is_full = false;
        // Each start has a file of its own, which shows when this one is reachable.
        let kubeconfig = self.directory.join(format!("kubeconfig-{}", self.starts));
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(["api-server", "--audit", "/dev/stdout", "--listen", &self.address.to_string()])
            .arg("--kubeconfig")
            .arg(&kubeconfig);
        if let Some(user) = &self.user {
            command.args(["--user", user]);
        }
        if self.storage == Storage::Disk {
            command.arg("--data-dir").arg(self.data_dir());
        }
        let log = File::options().create(true).append(true).open(self.log())?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).process_group(0).kill_on_drop(true);
        let mut child = command.spawn().context("cannot start the API server")?;
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).context("no process id")?;
        let faults = child.stdin.take().context("the API server has no input")?;
        let records = child.stdout.take().context("the API server has no output")?;
        let record = tokio::spawn(copy_lines(records, self.record()));
        let process = self.process.insert(Process { child, pid, faults, record });
        let begun = Instant::now();
        while !kubeconfig.exists() {
            if let Some(ended) = process.child.try_wait()? {
                bail!("the API server ended with {ended}: {}", last_line(&self.log()));
            }
            ensure!(begun.elapsed() < PATIENCE, "the API server does not start");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        std::fs::rename(kubeconfig, self.kubeconfig())?;
        Ok(())
    }

    /// Ends the process as its user would, and waits until it has ended.
    pub(crate) async fn stop(&mut self) -> Result<()> {
        let Some(mut process) = self.take() else { return Ok(()) };
        drop(process.faults);
        let ended = tokio::time::timeout(PATIENCE, process.child.wait()).await;
        let ended = ended.context("the API server does not end")??;
        ensure!(ended.success(), "the API server ended with {ended}: {}", last_line(&self.log()));
        process.record.await?
    }

    /// Ends the process by SIGKILL.
    pub(crate) async fn kill(&mut self) -> Result<()> {
        let Some(mut process) = self.take() else { return Ok(()) };
        process.child.kill().await?;
        process.record.await?
    }

    /// From now on no file of the process can grow: its disk is full. Returns the size of the largest file in
    /// the data directory, in bytes.
    pub(crate) fn fill_disk(&mut self) -> Result<u64> {
        let process = self.process.as_ref().context("the API server is down")?;
        // Files that the server has removed since the listing have no size.
        let sizes =
            std::fs::read_dir(self.data_dir())?.filter_map(|file| Some(file.ok()?.metadata().ok()?.len()));
        let largest = sizes.max().unwrap_or_default();
        let limit = Rlimit { current: Some(largest), maximum: None };
        prlimit(Pid::from_raw(process.pid), Resource::Fsize, limit).context("limit of file sizes")?;
        self.is_full = true;
        Ok(largest)
    }

    /// Once the process has ended by itself: its last words.
    pub(crate) async fn ended(&mut self) -> Result<Option<String>> {
        let Some(process) = &mut self.process else { return Ok(None) };
        let Some(status) = process.child.try_wait()? else { return Ok(None) };
        if let Some(process) = self.take() {
            process.record.await??;
        }
        Ok(Some(format!("{} ({status})", last_line(&self.log()))))
    }

    pub(super) fn check(&mut self) -> Result<()> {
        let full = self.is_full;
        match self.process.as_mut().map(|process| process.child.try_wait()).transpose()?.flatten() {
            Some(status) if !full => {
                bail!("the API server has ended with {status}: {}", last_line(&self.log()))
            }
            _ => Ok(()),
        }
    }

    pub(super) async fn inject(&mut self, fault: &TimedFault) -> Result<()> {
        let process = self.process.as_mut().context("the API server is down")?;
        let line = format!("{}\n", serde_json::to_string(fault)?);
        match process.faults.write_all(line.as_bytes()).await {
            // A server with a full disk needs no other fault.
            Err(_) if self.is_full => Ok(()),
            written => written.context("the API server has ended"),
        }
    }

    /// CPU time of all its processes, and memory of the current one.
    pub(super) fn usage(&self) -> Usage {
        let current = self.process.as_ref().and_then(|process| Usage::of(process.pid)).unwrap_or_default();
        self.spent.then(current)
    }

    /// The process, which counts as down from now on.
    fn take(&mut self) -> Option<Process> {
        self.spent = self.usage();
        self.process.take()
    }

    fn data_dir(&self) -> PathBuf {
        self.directory.join("data")
    }
}

/// A free port below the ephemeral range, which starts at 32768 or 49152. So the system assigns it to no
/// other process while the API server is down.
fn free_port() -> Result<u16> {
    let mut random = rand::rng();
    let mut ports = std::iter::repeat_with(|| random.random_range(20_000..32_000)).take(100);
    ports.find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok()).context("no free port")
}

/// Appends complete lines to a file. A process that is killed may leave a part of one.
async fn copy_lines(from: ChildStdout, file: PathBuf) -> Result<()> {
    let file =
        File::options().create(true).append(true).open(&file).with_context(|| file.display().to_string())?;
    let mut out = std::io::BufWriter::with_capacity(1 << 20, file);
    let mut from = BufReader::with_capacity(1 << 16, from);
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line).await? > 0 {
        if line.ends_with(b"\n") {
            out.write_all(&line)?;
        }
        line.clear();
    }
    Ok(out.flush()?)
}
