//! The work of the supervisor.

use std::collections::{HashMap, HashSet};
use std::io::{Error, Result};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::Child;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, getpid, kill_process, kill_process_group,
    set_child_subreaper, waitid, waitpid,
};
use tokio::signal::unix::{SignalKind, signal};

use super::mounted;
use super::protocol::{Exit, Location, Namespace, Reply, Request, Start, receive_request, send_reply};
use crate::kubelet::stragglers::{self, SUPERVISOR_VARIABLE, Thread};

/// Stack of a thread that starts a process and waits for its end, in bytes.
const STACK: usize = 128 * 1024;
/// Most processes at once that were asked for, each of which takes a thread. A process whose start hangs counts.
const MAX_PROCESSES: usize = 8192;
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
        processes: Mutex::default(),
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
            (Request::Signal { id, signal }, _) => {
                if let Some(signal) = Signal::from_named_raw(signal) {
                    children.signal(id, signal);
                }
            }
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
        // The handler stays, though its signals are not read.
        drop(signal(kind)?);
    }
    Ok(())
}

/// All children of this process.
///
/// Each process that was asked for has a thread, which starts it, waits for its end and reaps it. The disk may
/// take any time for a program or a working directory. Nothing else waits for that, so the lock is not held
/// meanwhile. Linux gives descendants that lose their parent to the main thread: its children are those, and no
/// child that another thread has just started.
struct Children {
    /// Marks the processes.
    identity: String,
    replies: Mutex<UnixStream>,
    /// The processes that were asked for, by id. No child that runs is reaped without this lock, so the number of
    /// a child is its own as long as the lock is held.
    processes: Mutex<HashMap<u64, Process>>,
}

/// A process that was asked for.
#[derive(Debug)]
enum Process {
    /// Its thread starts it.
    Starting {
        /// The thread, once that runs.
        thread: Option<Thread>,
        /// A signal that waits for the process.
        signal: Option<Signal>,
    },
    /// It leads a process group.
    Running(Pid),
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
        let identity = self.identity.clone();
        let neighbour = match &start.location {
            Location::Namespace(Namespace::Of(neighbour)) => match self.folder_of(*neighbour) {
                Ok(folder) => Some(folder),
                Err(error) => return self.fail(id, error),
            },
            Location::Host { .. } | Location::Namespace(Namespace::Own(_)) => None,
        };
        self.start_by(id, move || spawn(&start, neighbour.as_ref(), output, &identity));
    }

    /// The folder in `/proc` of a process that runs, which is never that of another one.
    fn folder_of(&self, id: u64) -> Result<OwnedFd> {
        let processes = self.processes.lock();
        let Some(Process::Running(leader)) = processes.get(&id) else {
            return Err(Error::other("the container does not run"));
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(rustix::fs::open(format!("/proc/{}", leader.as_raw_pid()), flags, Mode::empty())?)
    }

    /// Starts a process by a call that may take any time.
    fn start_by(self: &Arc<Self>, id: u64, spawn: impl FnOnce() -> Result<Child> + Send + 'static) {
        let mut processes = self.processes.lock();
        let has_room = processes.len() < MAX_PROCESSES;
        if has_room {
            processes.insert(id, Process::Starting { thread: None, signal: None });
        }
        drop(processes);
        if !has_room {
            return self.fail(id, Error::other(format!("there are {MAX_PROCESSES} processes already")));
        }
        let children = Arc::clone(self);
        let thread = thread::Builder::new().stack_size(STACK).spawn(move || children.run(id, spawn));
        if let Err(error) = thread {
            self.processes.lock().remove(&id);
            self.fail(id, error);
        }
    }

    /// Starts a process and waits for its end.
    fn run(&self, id: u64, spawn: impl FnOnce() -> Result<Child>) {
        let own = Thread::current();
        if let Some(Process::Starting { thread, .. }) = self.processes.lock().get_mut(&id) {
            *thread = own;
        }
        match spawn() {
            Ok(child) => {
                let leader = Pid::from_child(&child);
                let before = self.processes.lock().insert(id, Process::Running(leader));
                if let Some(Process::Starting { signal: Some(signal), .. }) = before {
                    self.signal(id, signal);
                }
                self.reply(&Reply::Started { id });
                self.await_end(id, leader);
            }
            Err(error) => {
                self.processes.lock().remove(&id);
                self.fail(id, error);
            }
        }
    }

    fn await_end(&self, id: u64, leader: Pid) {
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while matches!(waitid(WaitId::Pid(leader), ended), Err(Errno::INTR)) {}
        let mut processes = self.processes.lock();
        processes.remove(&id);
        // The leader is not reaped yet, so the group is certainly its own. It may be empty.
        let _gone = kill_process_group(leader, Signal::KILL);
        let status = waitpid(Some(leader), WaitOptions::empty());
        drop(processes);
        let exit = status.ok().flatten().map_or(Exit::KILLED, |(_, status)| status.into());
        self.reply(&Reply::Ended { id, exit });
    }

    fn signal(&self, id: u64, signal: Signal) {
        if let Some(process) = self.processes.lock().get_mut(&id) {
            process.signal(signal);
        }
    }

    fn reap_orphans(&self) {
        let processes = self.processes.lock();
        for orphan in orphans(&processes) {
            let _running = waitpid(Some(orphan), WaitOptions::NOHANG);
        }
    }

    /// Kills all descendants of this process: those whose parent has been killed become its children.
    fn kill_all(&self) {
        let mut interval = KILL_INTERVAL;
        let mut left = usize::MAX;
        loop {
            let mut processes = self.processes.lock();
            processes.values_mut().for_each(|process| process.signal(Signal::KILL));
            let mut orphans = orphans(&processes);
            for orphan in &orphans {
                let _gone = kill_process(*orphan, Signal::KILL);
            }
            let found = processes.len() + orphans.len();
            if found == 0 {
                return;
            }
            orphans.retain(|orphan| !matches!(waitpid(Some(*orphan), WaitOptions::NOHANG), Ok(Some(_))));
            let now = processes.len() + orphans.len();
            drop(processes);
            interval = if now < left { KILL_INTERVAL } else { (interval * 2).min(MAX_KILL_INTERVAL) };
            left = now;
            thread::sleep(interval);
        }
    }
}

impl Process {
    /// Sends a signal. The lock of the processes is held.
    fn signal(&mut self, signal: Signal) {
        match self {
            // Fails if all have ended, which is the aim of most signals.
            Self::Running(leader) => {
                let _gone = kill_process_group(*leader, signal);
            }
            Self::Starting { thread, signal: pending } => {
                *pending = Some(signal);
                if let Some(thread) = thread.as_ref().filter(|_| signal == Signal::KILL) {
                    thread.kill_children();
                }
            }
        }
    }
}

/// Starts a process, which leads a group. The disk may hold this up.
fn spawn(start: &Start, neighbour: Option<&OwnedFd>, output: OwnedFd, identity: &str) -> Result<Child> {
    let Location::Host { program } = &start.location else {
        return mounted::spawn(start, neighbour, output, identity);
    };
    let mut command = start.command(program);
    command.env(SUPERVISOR_VARIABLE, identity).process_group(0);
    command.stdout(output.try_clone()?).stderr(output);
    if let Some(directory) = &start.directory {
        command.current_dir(directory);
    }
    command.spawn()
}

/// The children that this process was given because their own parent ended.
fn orphans(processes: &HashMap<u64, Process>) -> Vec<Pid> {
    if let Some(children) = Thread::main().children() {
        return children;
    }
    // A kernel that does not say whose children they are.
    let mut leaders = HashSet::new();
    for process in processes.values() {
        match process {
            Process::Starting { .. } => return Vec::new(),
            Process::Running(leader) => leaders.insert(*leader),
        };
    }
    stragglers::children().filter(|child| !leaders.contains(child)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::path::Path;
    use std::process::{Command, Stdio};
    use std::sync::mpsc;
    use std::time::Instant;

    use super::super::protocol::receive_reply;
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn children() -> (Arc<Children>, UnixStream) {
        let (cluster, own) = UnixStream::pair().unwrap();
        let (replies, processes) = (Mutex::new(own), Mutex::default());
        (Arc::new(Children { identity: "none".into(), replies, processes }), cluster)
    }

    fn shell(script: String) -> Result<Child> {
        Command::new("sh").args(["-c", &script]).process_group(0).stdout(Stdio::null()).spawn()
    }

    /// The next reply, as text.
    async fn reply(cluster: &mut tokio::net::UnixStream) -> String {
        let next = tokio::time::timeout(PATIENCE, receive_reply(&mut cluster.split().0)).await;
        format!("{:?}", next.unwrap().unwrap().unwrap())
    }

    #[tokio::test]
    async fn a_start_that_hangs_holds_up_no_other() {
        let (children, cluster) = children();
        cluster.set_nonblocking(true).unwrap();
        let mut cluster = tokio::net::UnixStream::from_std(cluster).unwrap();
        let (go, gone) = mpsc::channel::<()>();
        children.start_by(1, move || {
            gone.recv().unwrap();
            shell("sleep 600".into())
        });
        children.start_by(2, || shell("sleep 600".into()));
        assert_eq!(reply(&mut cluster).await, "Started { id: 2 }");
        children.reap_orphans();
        children.signal(2, Signal::TERM);
        assert_eq!(reply(&mut cluster).await, "Ended { id: 2, exit: Exit { code: 143, signal: Some(15) } }");
        // A signal reaches the process as soon as there is one. SIGINT may be ignored where tests run in the background.
        children.signal(1, Signal::USR1);
        go.send(()).unwrap();
        assert_eq!(reply(&mut cluster).await, "Started { id: 1 }");
        assert_eq!(reply(&mut cluster).await, "Ended { id: 1, exit: Exit { code: 138, signal: Some(10) } }");
    }

    #[test]
    fn kill_all_ends_groups_daemons_and_starts_under_way() {
        // Of this test's process only daemons are taken over: no other test leaves any.
        set_child_subreaper(Some(getpid())).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str| directory.path().join(name);
        let (group, daemon, late) = (file("group"), file("daemon"), file("late"));
        let (children, _cluster) = children();
        let script = format!(
            "trap '' TERM HUP; (setsid sh -c 'trap \"\" TERM; echo $$ > {}; while :; do sleep 1; done' &); \
             (echo $$ > {}; while :; do sleep 1; done)",
            daemon.display(),
            group.display()
        );
        children.start_by(1, move || shell(script));
        let pids = [pid_in(&group), pid_in(&daemon)];
        // By this the cluster knows that it must look for processes that are left.
        assert!(Thread::main().children().is_none_or(|orphans| !orphans.is_empty()));
        let script = format!("echo $$ > {}; while :; do sleep 1; done", late.display());
        children.start_by(2, move || {
            thread::sleep(Duration::from_millis(200));
            shell(script)
        });
        children.kill_all();
        assert!(children.processes.lock().is_empty());
        assert!(pids.iter().all(|pid| !Path::new(&format!("/proc/{pid}")).exists()), "{pids:?}");
        thread::sleep(Duration::from_millis(300));
        let late = std::fs::read_to_string(late).unwrap_or_default();
        assert!(late.is_empty() || !Path::new(&format!("/proc/{}", late.trim())).exists());
    }

    fn pid_in(file: &Path) -> u32 {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(pid) = std::fs::read_to_string(file).ok().and_then(|pid| pid.trim_end().parse().ok())
            {
                return pid;
            }
            assert!(Instant::now() < deadline, "no number in {}", file.display());
            thread::sleep(Duration::from_millis(10));
        }
    }
}
