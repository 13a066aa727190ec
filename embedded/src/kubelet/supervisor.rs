//! The supervisor of all processes of pods: a small program of its own, which starts them. It ends with their
//! cluster however that ends, and takes all of them with it.
//!
//! The supervisor is the parent of every container. Linux makes it the parent of every descendant of theirs
//! whose own parent ends (it is their subreaper). So it finds them all, also those that left their process
//! group or hide their environment. It reaps them itself, so it never signals a number that may have been
//! given to another process. The cluster and the supervisor talk over a socket; its end is the end of the
//! cluster.

mod mounted;
mod namespace;
mod program;
mod protocol;
mod scaffold;

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::Signal;
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use self::mounted::{START_MOUNTED, TRY, start_mounted};
pub use self::program::supervise;
pub(super) use self::protocol::{Exit, Location, Mount, Namespace, Start};
use self::protocol::{Reply, Request};
use super::stragglers::{self, Thread};
use crate::restarts;

/// The argument that makes this program a supervisor.
pub const SUPERVISE: &str = "supervise-pods";
/// How long the supervisor may take to kill what is left.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// A request, with the output of the process to start.
type Outgoing = (Request, Option<OwnedFd>);

/// The supervisor of this kubelet's processes. Dropping it kills all of them.
#[derive(Debug)]
pub(super) struct Supervisor {
    requests: mpsc::UnboundedSender<Outgoing>,
    calls: Arc<Calls>,
    main: MainThread,
    next: AtomicU64,
    closing: CancellationToken,
    stop: CancellationToken,
    task: Mutex<JoinSet<()>>,
}

impl Supervisor {
    /// Starts the supervisor, which is `program` with the argument [`SUPERVISE`]. It is started again when it ends,
    /// but not once `closing` is cancelled: calls that wait for it fail then.
    pub(super) fn start(program: PathBuf, closing: &CancellationToken) -> std::io::Result<Self> {
        let connection = Connection::open(&program)?;
        let (requests, outgoing) = mpsc::unbounded_channel();
        let calls = Arc::new(Calls::default());
        let (closing, stop) = (closing.child_token(), CancellationToken::new());
        let tokens = (closing.clone(), stop.clone());
        let main = MainThread::default();
        let mut task = JoinSet::new();
        let links = (Arc::clone(&calls), Arc::clone(&main));
        task.spawn(keep_running(program, connection, outgoing, links, tokens));
        Ok(Self { requests, calls, main, next: AtomicU64::default(), closing, stop, task: Mutex::new(task) })
    }

    /// Whether a process may run whose own parent has ended. A process that leaves the group of its container, as a
    /// daemon does, has such an ancestor once the container has ended.
    pub(super) fn may_have_orphans(&self) -> bool {
        let children = self.main.lock().as_ref().and_then(Thread::children);
        // Linux never shows an empty list while there is a child.
        children.is_none_or(|children| !children.is_empty())
    }

    /// Starts a process. It writes both its outputs to `output`.
    pub(super) async fn spawn(&self, start: Start, output: OwnedFd) -> std::io::Result<Running> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (begin, started) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        self.calls.0.lock().insert(id, Call { begin: Some(begin), end });
        // Exists from here on, so that the process is killed if its start is not awaited.
        let mut running = Running { id, requests: self.requests.clone(), ended, is_over: false };
        if !running.send(Request::Start { id, start }, Some(output)) {
            self.calls.0.lock().remove(&id);
        }
        let answer = started.await.unwrap_or_else(|_| Err(lost()));
        running.is_over = answer.is_err();
        answer.map(|()| running)
    }

    /// Ends the supervisor, and with it all processes that are left.
    pub(super) async fn shutdown(&self) {
        self.closing.cancel();
        self.stop.cancel();
        let mut task = std::mem::take(&mut *self.task.lock());
        while task.join_next().await.is_some() {}
    }
}

fn lost() -> std::io::Error {
    std::io::Error::other("the supervisor of the pods' processes ended")
}

/// A process that has been started. Dropping it kills its process group.
#[derive(Debug)]
pub(super) struct Running {
    id: u64,
    requests: mpsc::UnboundedSender<Outgoing>,
    ended: oneshot::Receiver<Exit>,
    is_over: bool,
}

impl Running {
    /// The id under which it was asked for.
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Sends a signal to the process group.
    pub(super) fn signal(&self, signal: Signal) {
        // Fails when the supervisor has ended, and the process with it.
        let _sent = self.send(Request::Signal { id: self.id, signal: signal.as_raw() }, None);
    }

    /// Waits for the end of the process. Its process group has been killed then.
    pub(super) async fn wait(&mut self) -> std::io::Result<Exit> {
        let ended = (&mut self.ended).await;
        self.is_over = true;
        ended.map_err(|_| lost())
    }

    /// Sends a request; `false` if no supervisor will get it.
    fn send(&self, request: Request, output: Option<OwnedFd>) -> bool {
        self.requests.send((request, output)).is_ok()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.is_over {
            self.signal(Signal::KILL);
        }
    }
}

/// The calls that wait for answers, by the id of their process.
#[derive(Debug, Default)]
struct Calls(Mutex<HashMap<u64, Call>>);

#[derive(Debug)]
struct Call {
    begin: Option<oneshot::Sender<std::io::Result<()>>>,
    end: oneshot::Sender<Exit>,
}

impl Calls {
    /// Whether a caller still wants this request. Callers whose supervisor ended have got their answer.
    fn want(&self, request: &Request) -> bool {
        match request {
            Request::Start { id, .. } => self.0.lock().contains_key(id),
            Request::Signal { .. } => true,
        }
    }

    fn answer(&self, reply: Reply) {
        let mut calls = self.0.lock();
        // A caller that is gone needs no answer.
        match reply {
            Reply::Started { id } => {
                if let Some(begin) = calls.get_mut(&id).and_then(|call| call.begin.take()) {
                    let _sent = begin.send(Ok(()));
                }
            }
            Reply::Failed { id, problem } => {
                if let Some(begin) = calls.remove(&id).and_then(|call| call.begin) {
                    let _sent = begin.send(Err(problem.into()));
                }
            }
            Reply::Ended { id, exit } => {
                if let Some(call) = calls.remove(&id) {
                    let _sent = call.end.send(exit);
                }
            }
        }
    }
}

/// The main thread of the supervisor while one runs. Linux makes it the parent of all orphans.
type MainThread = Arc<Mutex<Option<Thread>>>;

/// Connects requests with the supervisor, and replaces one that ended before its time.
async fn keep_running(
    program: PathBuf,
    mut connection: Connection,
    mut outgoing: mpsc::UnboundedReceiver<Outgoing>,
    (calls, main): (Arc<Calls>, MainThread),
    (closing, stop): (CancellationToken, CancellationToken),
) {
    let mut delays = delays();
    let last = loop {
        let start = Instant::now();
        *main.lock() = connection.supervisor.id().map(Thread::main_of);
        if connection.serve(&mut outgoing, &calls, &stop).await.is_break() {
            break Some(connection);
        }
        *main.lock() = None;
        tracing::error!("the supervisor of the pods' processes ended; their containers count as killed");
        let identity = std::mem::take(&mut connection.identity);
        let kill = tokio::task::spawn_blocking(move || stragglers::kill_processes_under(&identity));
        if let Err(error) = kill.await {
            tracing::error!(%error, "the search for processes without a supervisor panicked");
        }
        calls.0.lock().clear();
        if start.elapsed() > restarts::MAX_DELAY {
            delays = self::delays();
        }
        match reopen(&program, &mut delays, &closing).await {
            Some(next) => connection = next,
            None => break None,
        }
    };
    // From here on no request is accepted, so no call comes after the last ones have failed.
    outgoing.close();
    if let Some(connection) = last {
        connection.close().await;
    }
    calls.0.lock().clear();
}

/// The delays before one restart of the supervisor after the other: the first restart is at once.
fn delays() -> impl Iterator<Item = Duration> {
    std::iter::once(Duration::ZERO).chain(restarts::delays())
}

/// Starts a supervisor after the next delay, until that succeeds. Returns `None` once the cluster is closing.
async fn reopen(
    program: &Path,
    delays: &mut impl Iterator<Item = Duration>,
    closing: &CancellationToken,
) -> Option<Connection> {
    for delay in delays {
        closing.run_until_cancelled(tokio::time::sleep(delay)).await?;
        match Connection::open(program) {
            Ok(connection) => return Some(connection),
            Err(error) => tracing::error!(%error, "cannot start the supervisor of the pods' processes"),
        }
    }
    None
}

/// A supervisor that runs.
struct Connection {
    socket: UnixStream,
    supervisor: Child,
    /// Marks its processes.
    identity: String,
}

impl Connection {
    fn open(program: &Path) -> std::io::Result<Self> {
        let (socket, theirs) = std::os::unix::net::UnixStream::pair()?;
        socket.set_nonblocking(true)?;
        let socket = UnixStream::from_std(socket)?;
        // It must outlive this process, and not notice when Ctrl-C is pressed.
        let mut command = Command::new(program);
        command.arg(SUPERVISE).stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).process_group(0);
        let supervisor = command.spawn()?;
        let identity = supervisor.id().and_then(stragglers::identity).unwrap_or_default();
        Ok(Self { socket, supervisor, identity })
    }

    /// Exchanges messages until the connection breaks, or until a stop is requested.
    async fn serve(
        &mut self,
        outgoing: &mut mpsc::UnboundedReceiver<Outgoing>,
        calls: &Calls,
        stop: &CancellationToken,
    ) -> ControlFlow<()> {
        let (mut reader, writer) = self.socket.split();
        let receive = async {
            while let Ok(Some(reply)) = protocol::receive_reply(&mut reader).await {
                calls.answer(reply);
            }
        };
        let send = async {
            while let Some((request, output)) = outgoing.recv().await {
                if !calls.want(&request) {
                    continue;
                }
                if let Err(error) = protocol::send_request(writer.as_ref(), &request, output).await {
                    tracing::debug!(%error, "cannot reach the supervisor of the pods' processes");
                    return;
                }
            }
        };
        tokio::select! {
            () = receive => ControlFlow::Continue(()),
            () = send => ControlFlow::Continue(()),
            () = stop.cancelled() => ControlFlow::Break(()),
        }
    }

    async fn close(mut self) {
        drop(self.socket);
        if tokio::time::timeout(SHUTDOWN_TIMEOUT, self.supervisor.wait()).await.is_err() {
            tracing::warn!("the supervisor still waits for processes that do not end");
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn restarts_are_delayed_from_the_second_on() {
        let seconds: Vec<_> = delays().take(9).map(|delay| delay.as_secs()).collect();
        assert_eq!(seconds, [0, 1, 2, 4, 8, 16, 32, 60, 60]);
    }

    async fn spawn(supervisor: &Supervisor) -> std::io::Result<Running> {
        supervisor.spawn(start(), std::io::pipe()?.1.into()).await
    }

    fn start() -> Start {
        Start {
            name: "true".into(),
            args: Vec::new(),
            environment: Default::default(),
            directory: None,
            location: Location::Host { program: "true".into() },
        }
    }

    #[tokio::test]
    async fn calls_fail_when_a_stop_comes_before_the_next_supervisor() {
        // A program that ends at once.
        let closing = CancellationToken::new();
        let supervisor = Supervisor::start("true".into(), &closing).unwrap();
        // Calls fail with each of the first supervisors, until one waits for the next.
        while tokio::time::timeout(Duration::from_millis(300), spawn(&supervisor)).await.is_ok() {}
        let both = async { tokio::join!(spawn(&supervisor), async { closing.cancel() }) };
        let (queued, ()) = tokio::time::timeout(Duration::from_secs(60), both).await.unwrap();
        assert!(queued.is_err());
        let late = tokio::time::timeout(Duration::from_secs(60), spawn(&supervisor)).await.unwrap();
        assert!(late.is_err());
        supervisor.shutdown().await;
    }

    #[test]
    fn a_start_without_its_call_is_not_wanted() {
        let calls = Calls::default();
        let request = Request::Start { id: 7, start: start() };
        assert!(!calls.want(&request));
        calls.0.lock().insert(7, Call { begin: None, end: oneshot::channel().0 });
        assert!(calls.want(&request));
    }
}
