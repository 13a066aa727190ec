//! Containers as processes of this host.
//!
//! Every container is a process group of its own, so that its child processes end with it. Dropping a
//! [`Process`] kills the group: no process survives a shutdown, a panic or a forgotten task.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

use super::environment::Variables;
use super::logs::LogWriter;
use super::stop::StopSignal;

/// Time to continue reading the output of a container that has ended, in case a process that left its group
/// keeps the pipe open.
const OUTPUT_GRACE: Duration = Duration::from_secs(1);

/// A command that is ready to be started.
#[derive(Debug)]
pub(super) struct Launch {
    /// The program, as the container names it.
    pub(super) command: String,
    /// Its arguments.
    pub(super) args: Vec<String>,
    /// The whole environment.
    pub(super) environment: Variables,
    /// The working directory; `None` for the directory of this process.
    pub(super) directory: Option<PathBuf>,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exit {
    /// Exit code; 128 plus the signal if a signal ended the process.
    pub(super) code: i32,
    /// The signal that ended the process.
    pub(super) signal: Option<i32>,
}

impl From<ExitStatus> for Exit {
    fn from(status: ExitStatus) -> Self {
        let signal = status.signal();
        let code = status.code().or(signal.map(|signal| 128 + signal));
        Self { code: code.unwrap_or(255), signal }
    }
}

/// Why a process did not start, with the messages of container runtimes.
#[derive(Debug, thiserror::Error)]
pub(super) enum StartError {
    /// No such command.
    #[error("exec: \"{0}\": executable file not found in $PATH")]
    NotFound(String),
    /// No such path.
    #[error("exec: \"{0}\": stat {0}: no such file or directory")]
    NoSuchFile(String),
    /// The working directory cannot be entered.
    #[error("chdir to cwd (\"{0}\") set in config.json failed: {1}")]
    Directory(String, std::io::Error),
    /// Any other error of the operating system.
    #[error("exec: \"{0}\": {1}")]
    System(String, std::io::Error),
}

/// A running container.
#[derive(Debug)]
pub(super) struct Process {
    // Declared first, thus dropped first: the group must be killed before its leader is reaped.
    group: ProcessGroup,
    child: tokio::process::Child,
    output: pipe::Receiver,
}

impl Process {
    /// Starts the command.
    pub(super) fn start(launch: &Launch) -> Result<Self, StartError> {
        let name = &launch.command;
        if let Some(directory) = &launch.directory {
            std::fs::read_dir(directory)
                .map_err(|error| StartError::Directory(directory.display().to_string(), error))?;
        }
        let program = locate(launch)?;
        let system = |error| StartError::System(name.clone(), error);
        let (output, input) = std::io::pipe().map_err(system)?;
        let mut command = tokio::process::Command::new(program);
        command
            .arg0(name)
            .args(&launch.args)
            .env_clear()
            .envs(&launch.environment)
            .process_group(0)
            .kill_on_drop(true)
            .stdin(Stdio::null())
            .stdout(input.try_clone().map_err(system)?)
            .stderr(input);
        if let Some(directory) = &launch.directory {
            command.current_dir(directory);
        }
        let child = command.spawn().map_err(system)?;
        // The command holds the write end of the pipe. Without it, the output ends when the process ends.
        drop(command);
        let group = ProcessGroup(child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw));
        let output = pipe::Receiver::from_owned_fd(output.into()).map_err(system)?;
        Ok(Self { group, child, output })
    }

    /// Waits for the end of the process and copies its output. Stops it when the signal arrives.
    pub(super) async fn wait(mut self, log: &mut LogWriter, stop: StopSignal) -> Exit {
        let copying = copy(&mut self.output, log);
        tokio::pin!(copying);
        let mut copied = false;
        let mut terminating = false;
        let mut killed = false;
        let status = loop {
            tokio::select! {
                status = self.child.wait() => break status,
                () = &mut copying, if !copied => copied = true,
                () = stop.requested(), if !terminating => {
                    terminating = true;
                    self.group.signal(Signal::SIGTERM);
                }
                () = stop.expired(), if !killed => {
                    killed = true;
                    self.group.signal(Signal::SIGKILL);
                }
            }
        };
        self.group.signal(Signal::SIGKILL);
        if !copied && tokio::time::timeout(OUTPUT_GRACE, copying).await.is_err() {
            tracing::debug!("a process outside of the container's group keeps its output open");
        }
        self.group.0 = None;
        match status {
            Ok(status) => status.into(),
            Err(error) => {
                tracing::warn!(%error, "cannot determine how a process ended");
                Exit { code: 255, signal: None }
            }
        }
    }
}

/// The program file, found through the container's own PATH.
fn locate(launch: &Launch) -> Result<PathBuf, StartError> {
    let name = &launch.command;
    if name.contains('/') {
        let directory = launch.directory.clone().unwrap_or_default();
        let program = directory.join(name);
        return if program.exists() { Ok(program) } else { Err(StartError::NoSuchFile(name.clone())) };
    }
    let path = launch.environment.get("PATH").map(OsString::from);
    let directory = launch.directory.clone().unwrap_or_default();
    which::which_in(name, path, directory).map_err(|_| StartError::NotFound(name.clone()))
}

async fn copy(output: &mut pipe::Receiver, log: &mut LogWriter) {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        match output.read(&mut buffer).await {
            Ok(0) => break,
            Ok(length) => log.write(&buffer[..length]),
            Err(error) => {
                tracing::warn!(%error, "cannot read a container's output");
                break;
            }
        }
    }
}

/// A process group that is killed on drop.
#[derive(Debug)]
struct ProcessGroup(Option<Pid>);

impl ProcessGroup {
    fn signal(&self, signal: Signal) {
        if let Some(leader) = self.0 {
            // The group may already be gone, which is the aim of the signal.
            let _gone = killpg(leader, signal);
        }
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.signal(Signal::SIGKILL);
    }
}
