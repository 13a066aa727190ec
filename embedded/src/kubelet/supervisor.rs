//! The supervisor of all processes of pods: a small program of its own, which starts them, ends with their
//! cluster however that ends, and takes all of them with it.
//!
//! The supervisor is the parent of every container, and Linux makes it the parent of every descendant of theirs
//! whose own parent ends (it is their subreaper). So it finds them all, also those that left their process
//! group or hide their environment. It reaps them itself, so it never signals a number that may have been
//! given to another process. The cluster and the supervisor talk over a socket; its end is the end of the
//! cluster.

mod program;
mod protocol;

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
use tokio_util::sync::CancellationToken;

pub use self::program::supervise;
pub(super) use self::protocol::{Exit, Start};
use self::protocol::{Reply, Request};
use super::stragglers;

/// The argument that makes this program a supervisor.
pub const SUPERVISE: &str = "supervise-pods";
/// Delay before the supervisor is started again.
const RESTART_DELAY: Duration = Duration::from_secs(1);
/// How long the supervisor may take to kill what is left.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// A request, with the output of the process to start.
type Outgoing = (Request, Option<OwnedFd>);

/// The supervisor of this kubelet's processes. Dropping it kills all of them.
#[derive(Debug)]
pub(super) struct Supervisor {
    requests: mpsc::UnboundedSender<Outgoing>,
    calls: Arc<Calls>,
    next: AtomicU64,
    stop: CancellationToken,
    task: Mutex<JoinSet<()>>,
}

impl Supervisor {
    /// Starts the supervisor, which is `program` with the argument [`SUPERVISE`].
    pub(super) fn start(program: PathBuf) -> std::io::Result<Self> {
        let connection = Connection::open(&program)?;
        let (requests, outgoing) = mpsc::unbounded_channel();
        let (calls, stop) = (Arc::new(Calls::default()), CancellationToken::new());
        let mut task = JoinSet::new();
        task.spawn(keep_running(program, connection, outgoing, Arc::clone(&calls), stop.clone()));
        Ok(Self { requests, calls, next: AtomicU64::default(), stop, task: Mutex::new(task) })
    }

    /// Starts a process. It writes both its outputs to `output`.
    pub(super) async fn spawn(&self, start: Start, output: OwnedFd) -> std::io::Result<Running> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (begin, started) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        self.calls.0.lock().insert(id, Call { begin: Some(begin), end });
        // Exists from here on, so that the process is killed if nobody waits for its start.
        let mut running = Running { id, requests: self.requests.clone(), ended, is_over: false };
        running.send(Request::Start { id, start }, Some(output));
        let answer = started.await.unwrap_or_else(|_| Err(lost()));
        running.is_over = answer.is_err();
        answer.map(|()| running)
    }

    /// Ends the supervisor, and with it all processes that are left.
    pub(super) async fn shutdown(&self) {
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
    /// Sends a signal to the process group.
    pub(super) fn signal(&self, signal: Signal) {
        self.send(Request::Signal { id: self.id, signal: signal.as_raw() }, None);
    }

    /// Waits for the end of the process. Its process group has been killed then.
    pub(super) async fn wait(&mut self) -> std::io::Result<Exit> {
        let ended = (&mut self.ended).await;
        self.is_over = true;
        ended.map_err(|_| lost())
    }

    fn send(&self, request: Request, output: Option<OwnedFd>) {
        // Fails when the supervisor has ended, and the process with it.
        let _sent = self.requests.send((request, output));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.is_over {
            self.signal(Signal::KILL);
        }
    }
}

/// What waits for answers, by the id of its process.
#[derive(Debug, Default)]
struct Calls(Mutex<HashMap<u64, Call>>);

#[derive(Debug)]
struct Call {
    begin: Option<oneshot::Sender<std::io::Result<()>>>,
    end: oneshot::Sender<Exit>,
}

impl Calls {
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

/// Connects requests with the supervisor, and replaces one that ended before its time.
async fn keep_running(
    program: PathBuf,
    mut connection: Connection,
    mut outgoing: mpsc::UnboundedReceiver<Outgoing>,
    calls: Arc<Calls>,
    stop: CancellationToken,
) {
    while connection.serve(&mut outgoing, &calls, &stop).await.is_continue() {
        tracing::error!("the supervisor of the pods' processes ended; their containers count as killed");
        let identity = std::mem::take(&mut connection.identity);
        let kill = tokio::task::spawn_blocking(move || stragglers::kill_processes_under(&identity));
        if let Err(error) = kill.await {
            tracing::error!(%error, "the search for processes without a supervisor panicked");
        }
        calls.0.lock().clear();
        connection = loop {
            match Connection::open(&program) {
                Ok(connection) => break connection,
                Err(error) => tracing::error!(%error, "cannot start the supervisor of the pods' processes"),
            }
            tokio::time::sleep(RESTART_DELAY).await;
        };
    }
    connection.close().await;
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
