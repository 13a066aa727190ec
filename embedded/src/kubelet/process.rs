//! Containers as processes of this host.
//!
//! Every container is a process group of its own, so that its child processes end with it. Dropping a
//! [`Process`] kills the group: no process survives a shutdown, a panic or a forgotten task.

use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio_util::sync::CancellationToken;

use super::environment::Variables;
use super::logs::LogWriter;
use super::lookup::{StartError, locate};
use super::stop::StopSignal;
pub(super) use super::supervisor::Exit;
use super::supervisor::{Location, Namespace, Running, Start, Supervisor};

/// Time to wait for more output of a container that has ended, in case a process that left its group keeps the
/// pipe open.
const OUTPUT_GRACE: Duration = Duration::from_secs(1);
/// Size of the pieces in which output is read, in bytes.
const PIECE: usize = 16 * 1024;
/// Size of a pipe, in bytes.
const PIPE: usize = 64 * 1024;

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
    /// The mount namespace that it runs in; `None` for that of this process.
    pub(super) namespace: Option<Namespace>,
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
        let is_mounted = matches!(start.location, Location::Namespace(_));
        let running = supervisor.spawn(start, input.into()).await;
        let running =
            running.map_err(|error| if is_mounted { StartError::Told(error) } else { system(error) })?;
        let output = pipe::Receiver::from_owned_fd(output.into()).map_err(system)?;
        Ok(Self { running, output })
    }

    /// The namespace in which it runs, if other processes shall run there.
    pub(super) fn namespace(&self) -> Namespace {
        Namespace::Of(self.running.id())
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

/// Finds what the command needs on the disk. In another namespace that may be somewhere else.
fn prepare(launch: Launch) -> Result<Start, StartError> {
    let Launch { command: name, args, environment, directory, namespace } = launch;
    let location = match namespace {
        Some(namespace) => Location::Namespace(namespace),
        None => {
            if let Some(directory) = &directory {
                std::fs::read_dir(directory)
                    .map_err(|error| StartError::Directory(directory.display().to_string(), error))?;
            }
            Location::Host { program: locate(&name, &environment, directory.as_deref())? }
        }
    };
    Ok(Start { name, args, environment, directory, location })
}

/// Copies the output to the log, until it ends or until there has been no end for [`OUTPUT_GRACE`] after that of
/// the container. Output that was read is always written, however slow the disk is.
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
