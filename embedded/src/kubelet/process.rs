//! Containers as processes of this host.
//!
//! Every container is a process group of its own, so that its child processes end with it. Dropping a
//! [`Process`] kills the group: no process survives a shutdown, a panic or a forgotten task.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio_util::sync::CancellationToken;

use super::environment::Variables;
use super::logs::LogWriter;
use super::stop::StopSignal;
pub(super) use super::supervisor::Exit;
use super::supervisor::{Running, Start, Supervisor};

/// Time to wait for more output of a container that has ended, in case a process that left its group keeps the
/// pipe open.
const OUTPUT_GRACE: Duration = Duration::from_secs(1);
/// Size of the pieces in which output is read, in bytes.
const PIECE: usize = 16 * 1024;
/// Size of a pipe, in bytes.
const PIPE: usize = 64 * 1024;

/// Bytes of the first line of a script that systems read.
const FIRST_LINE: u64 = 256;
/// Permissions of which a program has one.
const EXECUTABLE: u32 = 0o111;

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
    /// The disk did not answer before the container had to stop.
    #[error("exec: \"{0}\": stopped before it had started")]
    Stopped(String),
    /// Any other error of the operating system.
    #[error("exec: \"{0}\": {1}")]
    System(String, std::io::Error),
}

/// A running container.
#[derive(Debug)]
pub(super) struct Process {
    running: Running,
    output: pipe::Receiver,
}

impl Process {
    /// Starts the command.
    pub(super) async fn start(supervisor: &Supervisor, launch: Launch) -> Result<Self, StartError> {
        let name = launch.command.clone();
        let system = |error| StartError::System(name.clone(), error);
        let start = tokio::task::spawn_blocking(move || prepare(launch)).await;
        let start = start.map_err(|panic| system(panic.into()))??;
        let (output, input) = std::io::pipe().map_err(system)?;
        let running = supervisor.spawn(start, input.into()).await.map_err(system)?;
        let output = pipe::Receiver::from_owned_fd(output.into()).map_err(system)?;
        Ok(Self { running, output })
    }

    /// Waits for the end of the process, and returns also the beginning of its output.
    pub(super) async fn collect(self, most: usize) -> (Exit, Vec<u8>) {
        let Self { mut running, mut output } = self;
        let (mut printed, mut buffer, mut is_open) = (Vec::new(), vec![0; PIECE], true);
        let mut keep =
            |piece: &[u8]| printed.extend_from_slice(&piece[..piece.len().min(most - printed.len())]);
        let exit = loop {
            tokio::select! {
                exit = running.wait() => break exit,
                read = output.read(&mut buffer), if is_open => match read {
                    Ok(length @ 1..) => keep(&buffer[..length]),
                    _ => is_open = false,
                },
            }
        };
        let rest = async {
            while let Ok(length @ 1..) = output.read(&mut buffer).await {
                keep(&buffer[..length]);
            }
        };
        // A process that left its group may keep the pipe open.
        let _read = tokio::time::timeout(OUTPUT_GRACE, rest).await;
        (exit.unwrap_or(Exit::KILLED), printed)
    }

    /// Waits for the end of the process and copies its output. Stops it when the signal arrives.
    pub(super) async fn wait(self, log: &mut LogWriter, stop: StopSignal) -> Exit {
        let Self { mut running, mut output } = self;
        let ended = CancellationToken::new();
        let copying = copy(&mut output, log, &ended);
        tokio::pin!(copying);
        let mut copied = false;
        let mut terminating = false;
        let mut killed = false;
        let exit = loop {
            let signal = tokio::select! {
                exit = running.wait() => break exit,
                () = &mut copying, if !copied => {
                    copied = true;
                    continue;
                }
                () = stop.requested(), if !terminating => {
                    terminating = true;
                    Signal::TERM
                }
                () = stop.expired(), if !killed => {
                    killed = true;
                    Signal::KILL
                }
            };
            running.signal(signal);
        };
        ended.cancel();
        if !copied {
            copying.await;
        }
        exit.unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot determine how a process ended");
            Exit::KILLED
        })
    }
}

/// Finds what the command needs on the disk.
fn prepare(launch: Launch) -> Result<Start, StartError> {
    if let Some(directory) = &launch.directory {
        std::fs::read_dir(directory)
            .map_err(|error| StartError::Directory(directory.display().to_string(), error))?;
    }
    let program = locate(&launch.command, &launch.environment, launch.directory.as_deref())?;
    let Launch { command: name, args, environment, directory } = launch;
    Ok(Start { program, name, args, environment, directory })
}

/// The program file, found through the container's own PATH.
pub(super) fn locate(
    name: &str,
    environment: &Variables,
    directory: Option<&Path>,
) -> Result<PathBuf, StartError> {
    let directory = directory.unwrap_or(Path::new(""));
    if name.contains('/') {
        let program = directory.join(name);
        let Ok(found) = std::fs::metadata(&program) else {
            return Err(StartError::NoSuchFile(name.to_owned()));
        };
        let kind = match found.mode() & EXECUTABLE {
            _ if found.is_dir() => ErrorKind::IsADirectory,
            0 => ErrorKind::PermissionDenied,
            _ => return with_interpreter(program),
        };
        return Err(StartError::System(name.to_owned(), kind.into()));
    }
    let path = environment.get("PATH").map(OsString::from);
    let found = which::which_in(name, path, directory);
    found.map_err(|_| StartError::NotFound(name.to_owned())).and_then(with_interpreter)
}

/// The program, if there is what runs it: the interpreter that the first line of a script names.
fn with_interpreter(program: PathBuf) -> Result<PathBuf, StartError> {
    let mut line = Vec::new();
    // A program that cannot be read may still run.
    let _unread = File::open(&program)
        .and_then(|file| BufReader::new(file.take(FIRST_LINE)).read_until(b'\n', &mut line));
    let interpreter = line.strip_prefix(b"#!").map(|rest| String::from_utf8_lossy(rest).into_owned());
    match interpreter.as_deref().and_then(|rest| rest.split_whitespace().next()) {
        Some(missing) if missing.starts_with('/') && !Path::new(missing).exists() => {
            Err(StartError::NoSuchFile(missing.to_owned()))
        }
        _ => Ok(program),
    }
}

/// Copies the output to the log, until it ends or until there has been no end for [`OUTPUT_GRACE`] after that of
/// the container. What was read is always written, however slow the disk is.
async fn copy(output: &mut pipe::Receiver, log: &mut LogWriter, ended: &CancellationToken) {
    let grace = async {
        ended.cancelled().await;
        tokio::time::sleep(OUTPUT_GRACE).await;
    };
    tokio::pin!(grace);
    let mut buffer = vec![0; PIECE];
    loop {
        let read = tokio::select! {
            read = output.read(&mut buffer) => read,
            () = &mut grace => break,
        };
        match read {
            Ok(0) => return,
            Ok(length) => log.write(&buffer[..length]).await,
            Err(error) => {
                tracing::warn!(%error, "cannot read a container's output");
                return;
            }
        }
    }
    tracing::debug!("a process outside of the container's group keeps its output open");
    // The pipe may still have output of the container itself if writing took long.
    for _ in 0..PIPE / PIECE {
        match output.try_read(&mut buffer) {
            Ok(length @ 1..) => log.write(&buffer[..length]).await,
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::Write as _;

    use tokio::time::Instant;

    use super::*;
    use crate::kubelet::logs::reader::tests::place;

    /// The pipe of a container that has ended, its log, and how long copying takes while `other` goes on.
    async fn copied(
        other: impl FnOnce(std::io::PipeWriter) + Send + 'static,
        after: Duration,
    ) -> (String, Duration) {
        let directory = tempfile::tempdir().unwrap();
        let place = place(directory.path(), 0);
        let mut log = LogWriter::create(place.clone()).await.unwrap();
        let (reader, mut writer) = std::io::pipe().unwrap();
        let mut output = pipe::Receiver::from_owned_fd(reader.into()).unwrap();
        writer.write_all(b"its own\n").unwrap();
        let ended = CancellationToken::new();
        ended.cancel();
        let other = tokio::spawn(async move {
            tokio::time::sleep(after).await;
            other(writer);
        });
        let begun = Instant::now();
        copy(&mut output, &mut log, &ended).await;
        let took = begun.elapsed();
        other.await.unwrap();
        log.finish().await;
        (place.tail(usize::MAX, 1 << 20).unwrap(), took)
    }

    #[tokio::test(start_paused = true)]
    async fn output_counts_for_a_second_after_the_end_of_a_container() {
        let late = |mut pipe: std::io::PipeWriter| pipe.write_all(b"of a daemon\n").unwrap();
        // Its pipe ends with the last process that holds it.
        let ms = Duration::from_millis;
        assert_eq!(copied(drop, ms(0)).await, ("its own\n".into(), ms(0)));
        assert_eq!(copied(late, ms(600)).await, ("its own\nof a daemon\n".into(), ms(600)));
        let unread = |mut pipe: std::io::PipeWriter| drop(pipe.write_all(b"too late\n"));
        assert_eq!(copied(unread, ms(3_000)).await, ("its own\n".into(), OUTPUT_GRACE));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_in_the_pipe_at_the_end_is_written_however_long_that_takes() {
        let directory = tempfile::tempdir().unwrap();
        let place = place(directory.path(), 0);
        let mut log = LogWriter::create(place.clone()).await.unwrap();
        let (reader, mut writer) = std::io::pipe().unwrap();
        let mut output = pipe::Receiver::from_owned_fd(reader.into()).unwrap();
        // A daemon keeps the pipe open, which is full.
        let full = format!("{}\n", "x".repeat(1_023)).repeat(PIPE / 1024);
        writer.write_all(full.as_bytes()).unwrap();
        let ended = CancellationToken::new();
        ended.cancel();
        {
            let mut copying = std::pin::pin!(copy(&mut output, &mut log, &ended));
            // The grace is over before all is read.
            assert!(futures::poll!(copying.as_mut()).is_pending());
            tokio::time::advance(2 * OUTPUT_GRACE).await;
            copying.await;
        }
        log.finish().await;
        assert_eq!(place.tail(usize::MAX, 1 << 20).unwrap().len(), full.len());
        drop(writer);
    }
}
