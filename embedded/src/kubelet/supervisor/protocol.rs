//! Messages between the cluster and its supervisor: a length of four bytes, and JSON. The output of a new
//! process travels beside its request.

use std::collections::BTreeMap;
use std::io::{Error, IoSlice, IoSliceMut, Read as _, Result, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use rustix::process::WaitStatus;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, Interest};
use tokio::net::unix::ReadHalf;

/// Size of the length before each message, in bytes.
const LENGTH: usize = 4;

/// A request of the cluster.
#[derive(Debug, Deserialize, Serialize)]
pub(super) enum Request {
    /// Start a process, which leads a process group.
    Start { id: u64, start: Start },
    /// Send a signal to the group of a process, if that still runs.
    Signal { id: u64, signal: i32 },
}

/// A report of the supervisor.
#[derive(Debug, Deserialize, Serialize)]
pub(super) enum Reply {
    /// The process runs.
    Started { id: u64 },
    /// The process could not be started.
    Failed { id: u64, problem: Problem },
    /// The process has ended, and its group with it.
    Ended { id: u64, exit: Exit },
}

/// A process to start.
#[derive(Debug, Deserialize, Serialize)]
pub(in crate::kubelet) struct Start {
    /// The program, as the container names it.
    pub(in crate::kubelet) name: String,
    /// Its arguments.
    pub(in crate::kubelet) args: Vec<String>,
    /// The whole environment.
    pub(in crate::kubelet) environment: BTreeMap<String, String>,
    /// The working directory; `None` for that of the supervisor.
    pub(in crate::kubelet) directory: Option<PathBuf>,
    /// Where it runs.
    pub(in crate::kubelet) location: Location,
}

impl Start {
    /// The command that runs this program file, with nothing to read.
    pub(super) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.arg0(&self.name).args(&self.args).env_clear().envs(&self.environment).stdin(Stdio::null());
        command
    }
}

/// Where a process runs.
#[derive(Debug, Deserialize, Serialize)]
pub(in crate::kubelet) enum Location {
    /// In the namespaces of the supervisor, where this is the program file.
    Host {
        /// The program file.
        program: PathBuf,
    },
    /// In another mount namespace, where the program file is looked for.
    Namespace(Namespace),
}

/// A mount namespace.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(in crate::kubelet) enum Namespace {
    /// A new one, with these mounts.
    Own(Vec<Mount>),
    /// The namespace of a process that runs, which was asked for under this id.
    Of(u64),
}

/// A file or a folder that processes find at another path.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(in crate::kubelet) struct Mount {
    /// The file or the folder on the host.
    pub(in crate::kubelet) source: PathBuf,
    /// Where processes find it.
    pub(in crate::kubelet) target: PathBuf,
    /// Whether processes cannot write it.
    pub(in crate::kubelet) read_only: bool,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(in crate::kubelet) struct Exit {
    /// Exit code; 128 plus the signal if a signal ended the process.
    pub(in crate::kubelet) code: i32,
    /// The signal that ended the process.
    pub(in crate::kubelet) signal: Option<i32>,
}

impl Exit {
    /// The end of a process that could not be observed: it was killed.
    pub(in crate::kubelet) const KILLED: Self = Self { code: 137, signal: Some(9) };
}

impl From<WaitStatus> for Exit {
    fn from(status: WaitStatus) -> Self {
        let signal = status.terminating_signal();
        let code = status.exit_status().or(signal.map(|signal| 128 + signal));
        Self { code: code.unwrap_or(255), signal }
    }
}

/// An error of the operating system.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Problem {
    code: Option<i32>,
    message: String,
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        Self { code: error.raw_os_error(), message: error.to_string() }
    }
}

impl From<Problem> for Error {
    fn from(problem: Problem) -> Self {
        problem.code.map_or_else(|| Self::other(problem.message), Self::from_raw_os_error)
    }
}

fn encode(message: &impl Serialize) -> Result<Vec<u8>> {
    let mut frame = vec![0; LENGTH];
    serde_json::to_writer(&mut frame, message)?;
    let length = u32::try_from(frame.len() - LENGTH).map_err(Error::other)?;
    frame[..LENGTH].copy_from_slice(&length.to_le_bytes());
    Ok(frame)
}

fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T> {
    Ok(serde_json::from_slice(body)?)
}

/// Sends a request from the cluster.
pub(super) async fn send_request(
    socket: &tokio::net::UnixStream,
    request: &Request,
    output: Option<OwnedFd>,
) -> Result<()> {
    let frame = encode(request)?;
    let first = || send_beside(socket, &frame, output.as_ref());
    let mut sent = socket.async_io(Interest::WRITABLE, first).await?;
    while sent < frame.len() {
        match socket.try_write(&frame[sent..]) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => socket.writable().await?,
            written => sent += written?,
        }
    }
    Ok(())
}

/// Sends the beginning of a message, with an open file beside it. Returns how much was sent.
fn send_beside(socket: impl AsFd, frame: &[u8], file: Option<&OwnedFd>) -> Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    let file: Vec<_> = file.iter().map(|file| file.as_fd()).collect();
    if !file.is_empty() {
        beside.push(SendAncillaryMessage::ScmRights(&file));
    }
    Ok(sendmsg(socket, &[IoSlice::new(frame)], &mut beside, SendFlags::NOSIGNAL)?)
}

/// Sends a message from the supervisor to a process that it has started.
pub(super) fn send_start(mut socket: &UnixStream, start: &Start, beside: Option<&OwnedFd>) -> Result<()> {
    let frame = encode(start)?;
    let sent = send_beside(socket, &frame, beside)?;
    socket.write_all(&frame[sent..])
}

/// Receives a message at a process that the supervisor has started; `None` if that has ended.
pub(super) fn receive_start(socket: &UnixStream) -> Result<Option<(Start, Option<OwnedFd>)>> {
    receive(socket)
}

/// Receives a request at the supervisor; `None` if the cluster has ended.
pub(super) fn receive_request(socket: &UnixStream) -> Result<Option<(Request, Option<OwnedFd>)>> {
    receive(socket)
}

fn receive<T: DeserializeOwned>(mut socket: &UnixStream) -> Result<Option<(T, Option<OwnedFd>)>> {
    let mut length = [0; LENGTH];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let received =
        recvmsg(socket, &mut [IoSliceMut::new(&mut length)], &mut beside, RecvFlags::CMSG_CLOEXEC)?;
    if received.bytes == 0 {
        return Ok(None);
    }
    let files = beside.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    let output = files.flatten().next();
    socket.read_exact(&mut length[received.bytes..])?;
    let mut body = vec![0; u32::from_le_bytes(length) as usize];
    socket.read_exact(&mut body)?;
    Ok(Some((decode(&body)?, output)))
}

/// Sends a reply from the supervisor.
pub(super) fn send_reply(mut socket: &UnixStream, reply: &Reply) -> Result<()> {
    socket.write_all(&encode(reply)?)
}

/// Receives a reply at the cluster; `None` if the supervisor has ended.
pub(super) async fn receive_reply(socket: &mut ReadHalf<'_>) -> Result<Option<Reply>> {
    let mut length = [0; LENGTH];
    if let Err(error) = socket.read_exact(&mut length).await {
        return if error.kind() == std::io::ErrorKind::UnexpectedEof { Ok(None) } else { Err(error) };
    }
    let mut body = vec![0; u32::from_le_bytes(length) as usize];
    socket.read_exact(&mut body).await?;
    decode(&body).map(Some)
}
