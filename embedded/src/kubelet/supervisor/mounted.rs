//! A process in a mount namespace: the supervisor starts this program once more, and that becomes the
//! process.
//!
//! Linux lets an ordinary user mount only in a user namespace, which a process with several threads cannot
//! enter. So this program has one thread until it is in its namespace. There it looks for the container's
//! program, which takes its place: the process has the same number, group and output as any other.

use std::convert::Infallible;
use std::io::{Error, Read as _, Result, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command};

use super::namespace;
use super::protocol::{Location, Mount, Namespace, Start, receive_start, send_start};
use crate::kubelet::lookup::{StartError, locate};
use crate::kubelet::stragglers::{POD_UID_VARIABLE, SUPERVISOR_VARIABLE};

/// The argument that makes this program a process in a mount namespace.
pub const START_MOUNTED: &str = "start-mounted";
/// A further argument, with which it only tries whether it could be one.
pub const TRY: &str = "try";

/// This program, also if its file has been replaced.
const THIS_PROGRAM: &str = "/proc/self/exe";
/// A name that no folder of the machine has.
const NOWHERE: &str = ".yardmaster-trial";

/// Starts a process in its namespace, which may be that of a neighbour with this folder in `/proc`. The disk
/// may hold this up.
pub(super) fn spawn(
    start: &Start,
    neighbour: Option<&OwnedFd>,
    output: OwnedFd,
    identity: &str,
) -> Result<Child> {
    let (mut own, theirs) = UnixStream::pair()?;
    let mut command = Command::new(THIS_PROGRAM);
    // The variables of the container would have their effects on this program, too.
    command.arg(START_MOUNTED).env_clear().env(SUPERVISOR_VARIABLE, identity).process_group(0);
    command.envs(start.environment.get_key_value(POD_UID_VARIABLE));
    command.stdin(OwnedFd::from(theirs)).stdout(output.try_clone()?).stderr(output);
    let mut child = command.spawn()?;
    // This end of the socket is closed, and the other once the program runs.
    drop(command);
    let mut problem = String::new();
    let told = send_start(&own, start, neighbour).and_then(|()| own.read_to_string(&mut problem));
    match told {
        Ok(_) if problem.is_empty() => Ok(child),
        told => {
            let _ended = child.kill().and_then(|()| child.wait());
            Err(told.err().unwrap_or_else(|| Error::other(problem)))
        }
    }
}

/// Becomes the process that the supervisor asks for by the socket that is standard input. With [`TRY`] as
/// `mode`, it only tries whether that is possible.
///
/// # Errors
///
/// If this is no child of a supervisor, or if the trial fails.
pub fn start_mounted(mode: Option<&str>) -> Result<()> {
    if mode == Some(TRY) {
        let mount = |source: &str, folder: &str| {
            let target = Path::new(folder).join(NOWHERE);
            Mount { source: source.into(), target, read_only: true }
        };
        return namespace::make(&[mount("/", "/"), mount("/dev/null", "/dev")]).map_err(Error::other);
    }
    let mut socket = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    socket.peer_addr().map_err(|_| Error::other("only yardmaster itself starts this command"))?;
    let Some((start, neighbour)) = receive_start(&socket)? else { return Ok(()) };
    let Err(error) = become_process(&start, neighbour.as_ref());
    // Fails when the supervisor has ended, which ends this process, too.
    write!(socket, "{error}")
}

fn become_process(start: &Start, neighbour: Option<&OwnedFd>) -> std::result::Result<Infallible, StartError> {
    let system = |error| StartError::System(start.name.clone(), error);
    // A relative path begins in the folder of this process, which the new namespace may change.
    let directory = start.directory.as_deref().map_or_else(std::env::current_dir, std::path::absolute);
    let directory = directory.map_err(system)?;
    match (&start.location, neighbour) {
        (Location::Namespace(Namespace::Own(mounts)), _) => namespace::make(mounts)?,
        (Location::Namespace(Namespace::Of(_)), Some(neighbour)) => {
            namespace::join(neighbour).map_err(StartError::Namespace)?;
        }
        (Location::Namespace(Namespace::Of(_)) | Location::Host { .. }, _) => {
            return Err(system(std::io::ErrorKind::InvalidInput.into()));
        }
    }
    enter(&directory)?;
    let program = locate(&start.name, &start.environment, Some(&directory))?;
    let mut command = start.command(&program);
    command.envs(std::env::vars_os().filter(|(name, _)| name == SUPERVISOR_VARIABLE));
    Err(system(command.exec()))
}

fn enter(directory: &Path) -> std::result::Result<(), StartError> {
    std::env::set_current_dir(directory)
        .map_err(|error| StartError::Directory(directory.display().to_string(), error))
}
