//! What the supervisor does.

use std::collections::{HashMap, HashSet};
use std::io::{Error, Result};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, getpid, kill_process, kill_process_group,
    set_child_subreaper, wait, waitid, waitpid,
};
use tokio::signal::unix::{SignalKind, signal};

use super::protocol::{Exit, Reply, Request, Start, receive_request, send_reply};
use crate::kubelet::stragglers::{self, SUPERVISOR_VARIABLE};

/// Stack of a thread that waits for a process, in bytes.
const STACK: usize = 64 * 1024;
/// Interval at which ended processes are reaped whose own parent ended before them.
const REAP_INTERVAL: Duration = Duration::from_secs(1);
/// Interval between rounds of killing, each of which may bring up children of the killed. It doubles up to
/// [`MAX_KILL_INTERVAL`] while nothing ends.
const KILL_INTERVAL: Duration = Duration::from_millis(2);
/// Longest interval between rounds of killing.
const MAX_KILL_INTERVAL: Duration = Duration::from_millis(250);

/// Runs this process as the supervisor of a cluster's processes, with a socket to the cluster as standard
/// input. Returns when the cluster has ended and all processes have been killed.
///
/// # Errors
///
/// If standard input is no such socket, or if the operating system refuses something.
pub fn supervise() -> Result<()> {
    let socket = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    socket.peer_addr().map_err(|_| Error::other("only yardmaster itself starts this command"))?;
    outlast_signals()?;
    set_child_subreaper(Some(getpid()))?;
    let children = Arc::new(Children {
        identity: stragglers::identity(std::process::id()).unwrap_or_default(),
        replies: Mutex::new(socket.try_clone()?),
        leaders: Mutex::default(),
    });
    let reaper = Arc::clone(&children);
    thread::Builder::new().stack_size(STACK).spawn(move || {
        loop {
            thread::sleep(REAP_INTERVAL);
            reaper.reap_orphans();
        }
    })?;
    while let Ok(Some((request, output))) = receive_request(&socket) {
        match (request, output) {
            (Request::Start { id, start }, Some(output)) => children.start(id, start, output),
            (Request::Start { id, .. }, None) => children.fail(id, Error::other("no output")),
            (Request::Signal { id, signal }, _) => children.signal(id, signal),
        }
    }
    children.kill_all();
    Ok(())
}

/// A signal that stops the cluster may reach this process too, but it must remain for as long as the cluster.
/// Processes that it starts have the usual handlers.
fn outlast_signals() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let _entered = runtime.enter();
    for kind in [SignalKind::hangup(), SignalKind::interrupt(), SignalKind::terminate()] {
        // The handler stays, though nobody listens.
        drop(signal(kind)?);
    }
    Ok(())
}

/// All children of this process.
struct Children {
    /// Marks the processes.
    identity: String,
    replies: Mutex<UnixStream>,
    /// The processes that were asked for, by id. No child is reaped without this lock, so the number of a
    /// child is its own as long as the lock is held.
    leaders: Mutex<HashMap<u64, Pid>>,
}

impl Children {
    fn reply(&self, reply: &Reply) {
        // Fails when the cluster has ended, which the main thread notices.
        let _sent = send_reply(&self.replies.lock(), reply);
    }

    fn fail(&self, id: u64, error: Error) {
        self.reply(&Reply::Failed { id, problem: error.into() });
    }

    fn start(self: &Arc<Self>, id: u64, start: Start, output: OwnedFd) {
        match self.try_start(id, start, output) {
            Ok(leader) => {
                self.reply(&Reply::Started { id });
                let children = Arc::clone(self);
                let waiting =
                    thread::Builder::new().stack_size(STACK).spawn(move || children.await_end(id, leader));
                if waiting.is_err() {
                    // Out of threads: better no process than one that nobody waits for.
                    self.signal(id, Signal::KILL.as_raw());
                    self.await_end(id, leader);
                }
            }
            Err(error) => self.fail(id, error),
        }
    }

    fn try_start(&self, id: u64, start: Start, output: OwnedFd) -> Result<Pid> {
        let mut command = Command::new(start.program);
        command
            .arg0(start.name)
            .args(start.args)
            .env_clear()
            .envs(start.environment)
            .env(SUPERVISOR_VARIABLE, &self.identity)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        if let Some(directory) = start.directory {
            command.current_dir(directory);
        }
        let mut leaders = self.leaders.lock();
        let leader = Pid::from_child(&command.spawn()?);
        leaders.insert(id, leader);
        Ok(leader)
    }

    fn await_end(&self, id: u64, leader: Pid) {
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while matches!(waitid(WaitId::Pid(leader), ended), Err(Errno::INTR)) {}
        let mut leaders = self.leaders.lock();
        if leaders.remove(&id).is_none() {
            // Reaped by `kill_all`: the number may belong to another process.
            return;
        }
        // The leader is not reaped yet, so the group is certainly its own. It may be empty.
        let _gone = kill_process_group(leader, Signal::KILL);
        let status = waitpid(Some(leader), WaitOptions::empty());
        drop(leaders);
        let exit = status.ok().flatten().map_or(Exit::KILLED, |(_, status)| status.into());
        self.reply(&Reply::Ended { id, exit });
    }

    fn signal(&self, id: u64, signal: i32) {
        let leaders = self.leaders.lock();
        if let (Some(leader), Some(signal)) = (leaders.get(&id), Signal::from_named_raw(signal)) {
            // Fails if all have ended, which is the aim of most signals.
            let _gone = kill_process_group(*leader, signal);
        }
    }

    fn reap_orphans(&self) {
        let leaders = self.leaders.lock();
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        if !matches!(waitid(WaitId::All, ended), Ok(Some(_))) {
            return;
        }
        for child in stragglers::children() {
            if !leaders.values().any(|leader| *leader == child) {
                let _running = waitpid(Some(child), WaitOptions::NOHANG);
            }
        }
    }

    /// Kills all descendants of this process: those whose parent has been killed become its children.
    fn kill_all(&self) {
        let mut interval = KILL_INTERVAL;
        loop {
            let mut leaders = self.leaders.lock();
            for leader in leaders.values() {
                let _gone = kill_process_group(*leader, Signal::KILL);
            }
            for child in stragglers::children() {
                let _gone = kill_process(child, Signal::KILL);
            }
            let mut reaped = HashSet::new();
            let is_done = loop {
                match wait(WaitOptions::NOHANG) {
                    Ok(Some((child, _))) => reaped.insert(child),
                    end => break matches!(end, Err(Errno::CHILD)),
                };
            };
            leaders.retain(|_, leader| !reaped.contains(leader));
            drop(leaders);
            if is_done {
                return;
            }
            interval = if reaped.is_empty() { (interval * 2).min(MAX_KILL_INTERVAL) } else { KILL_INTERVAL };
            thread::sleep(interval);
        }
    }
}
