//! A run of a container by an engine.

use std::collections::BTreeMap;
use std::time::Duration;

use bollard::container::LogOutput;
use bollard::errors::Error;
use bollard::query_parameters::{
    AttachContainerOptionsBuilder, CreateContainerOptionsBuilder, KillContainerOptionsBuilder,
};
use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::super::logs::LogWriter;
use super::super::process::Exit;
use super::super::stop::StopSignal;
use super::super::sub_path::Source;
use super::patience::Patience;
use super::{Engine, Inside, Recipe, is_absent, said};

/// How often the output of a container is asked for again when it has broken off.
const ASKED_AGAIN: Duration = Duration::from_secs(1);
/// Time to wait for more output of a container that has ended: an engine on a busy machine is late with it.
const OUTPUT_GRACE: Duration = Duration::from_secs(10);
/// Bytes after which a line is copied though it goes on.
const LONGEST_LINE: usize = 16 << 10;
/// How often SIGKILL is sent to a container that goes on.
const KILLED_AGAIN: Duration = Duration::from_secs(5);
/// How often one after the other an engine may not answer a signal.
const MOST_UNHEARD: u32 = 4;
/// Podman's answer to a wait before it has noted the exit code.
const NO_CODE: i64 = -1;
/// The beginning of a time in the place of none.
const YEAR_ONE: &str = "0001-";
/// The number of SIGKILL.
const KILL: i32 = 9;

/// How a container ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::kubelet) struct Ended {
    pub(in crate::kubelet) exit: Exit,
    /// It was killed because it took more memory than it may.
    pub(in crate::kubelet) out_of_memory: bool,
}

/// Why a container did not start, in the engine's words.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(in crate::kubelet) struct StartError(String);

impl StartError {
    fn of(error: &Error) -> Self {
        Self(said(error))
    }

    /// Of a container that had to stop before the engine had started it.
    pub(in crate::kubelet) fn stopped() -> Self {
        Self("stopped before it had started".into())
    }
}

/// A container that exists. It is removed when it is dropped.
#[derive(Debug)]
pub(in crate::kubelet) struct Container {
    engine: Engine,
    id: String,
    stop_signal: String,
}

/// The output of a container, as it comes.
pub(in crate::kubelet) type Output = BoxStream<'static, Result<LogOutput, Error>>;

impl Engine {
    /// Makes a container and starts it.
    ///
    /// # Errors
    /// If the engine does not start it. Nothing is left of it then.
    pub(in crate::kubelet) async fn start(&self, recipe: Recipe) -> Result<(Container, Output), StartError> {
        let container = self.create(&recipe).await.map_err(|error| StartError::of(&error))?;
        let begun = match container.begin().await {
            // The engine has mounted the volumes by their paths, which other containers of the pod may change.
            Ok(_) if recipe.sources.iter().any(Source::leads_out) => {
                Err(StartError("a subPath led out of its volume while it was mounted".into()))
            }
            Ok(output) => Ok(output),
            Err(error) => Err(StartError::of(&error)),
        };
        match begun {
            Ok(output) => Ok((container, output)),
            Err(error) => {
                container.remove().await;
                Err(error)
            }
        }
    }

    pub(super) async fn create(&self, recipe: &Recipe) -> Result<Container, Error> {
        let named = CreateContainerOptionsBuilder::default().name(&recipe.name).build();
        let create = || self.0.docker.create_container(Some(named.clone()), recipe.body.clone());
        let (mut patience, mut is_freed) = (Patience::new("make a container"), false);
        let made = loop {
            match create().await {
                Ok(made) => break made,
                // A run, or an attempt without an answer, has left it.
                Err(Error::DockerResponseServerError { status_code: 409 | 500, message })
                    if message.contains("already in use") && !is_freed =>
                {
                    match self.try_to_remove(&recipe.name).await {
                        Ok(()) => is_freed = true,
                        Err(error) => patience.after(error).await?,
                    }
                }
                Err(error) => {
                    patience.after(error).await?;
                    is_freed = false;
                }
            }
        };
        Ok(Container { engine: self.clone(), id: made.id, stop_signal: recipe.stop_signal.clone() })
    }
}

impl Container {
    /// The name of the container in a status.
    pub(in crate::kubelet) fn status_id(&self) -> String {
        format!("{}://{}", self.engine.0.scheme, self.id)
    }

    /// Where its commands run.
    pub(in crate::kubelet) fn inside(&self) -> Inside {
        Inside { engine: self.engine.clone(), id: self.id.clone() }
    }

    /// Where its ports are reached on this machine.
    pub(in crate::kubelet) async fn published(&self) -> BTreeMap<u16, u16> {
        self.engine.published(&self.id).await
    }

    /// The ID by which the engine knows it.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Starts it. The output is followed from before that, so that none is lost.
    pub(super) async fn begin(&self) -> Result<Output, Error> {
        let (mut patience, mut may_run) = (Patience::new("start a container"), false);
        loop {
            match self.try_to_begin(may_run).await {
                Ok(output) => return Ok(output),
                Err(error) => patience.after(error).await?,
            }
            may_run = true;
        }
    }

    /// Starts it, unless an attempt without an answer has started it: it runs once.
    async fn try_to_begin(&self, may_run: bool) -> Result<Output, Error> {
        if may_run && self.has_started().await? {
            let output = self.attach_again().await.ok().flatten();
            return Ok(output.unwrap_or_else(|| futures::stream::empty().boxed()));
        }
        let output = self.attach().await?;
        self.engine.0.docker.start_container(&self.id, None).await?;
        Ok(output)
    }

    /// Its output from now on.
    async fn attach(&self) -> Result<Output, Error> {
        let all = AttachContainerOptionsBuilder::default().stdout(true).stderr(true).stream(true).build();
        Ok(self.engine.0.docker.attach_container(&self.id, Some(all)).await?.output)
    }

    /// Its output from now on, if it runs. Podman prepares a container that has ended for another start if a client attaches to
    /// it, and forgets its exit code.
    async fn attach_again(&self) -> Result<Option<Output>, Error> {
        let state = self.engine.inspect_container(&self.id).await?.state;
        if state.and_then(|state| state.running) != Some(true) {
            return Ok(None);
        }
        self.attach().await.map(Some)
    }

    async fn has_started(&self) -> Result<bool, Error> {
        let found = self.engine.inspect_container(&self.id).await?;
        Ok(is_time(found.state.and_then(|state| state.started_at)))
    }

    /// Waits for its end and copies its output. Stops it when the signal arrives, and removes it.
    pub(in crate::kubelet) async fn wait(
        self,
        mut output: Output,
        log: &mut LogWriter,
        stop: StopSignal,
    ) -> Ended {
        let mut ended = Box::pin(self.ended());
        let mut lines = Lines::default();
        let (mut printed, mut terminating, mut killed, mut unheard) = (true, false, false, 0);
        let mut is_away = false;
        let mut again = interval(KILLED_AGAIN);
        again.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut attaching = interval(ASKED_AGAIN);
        attaching.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let code = loop {
            let signal = tokio::select! {
                // A container that prints without end is stopped like any other. Its output until then is copied first.
                biased;
                () = stop.expired(), if !killed => {
                    killed = true;
                    again.reset();
                    "SIGKILL"
                }
                // The engine may not have heard it.
                _ = again.tick(), if killed => "SIGKILL",
                () = stop.requested(), if !terminating => {
                    terminating = true;
                    self.stop_signal.as_str()
                }
                piece = output.next(), if printed => {
                    printed = lines.take(piece, log).await;
                    attaching.reset();
                    continue;
                }
                // It goes on without its output if the engine is restarted.
                _ = attaching.tick(), if !printed => {
                    if let Ok(Ok(Some(more))) = timeout(KILLED_AGAIN, self.attach_again()).await {
                        (output, printed) = (more, true);
                    }
                    continue;
                }
                code = &mut ended => break code,
            };
            let is_heard = timeout(KILLED_AGAIN, self.signal(signal)).await.unwrap_or(false);
            unheard = if is_heard { 0 } else { unheard + 1 };
            if killed && unheard > MOST_UNHEARD {
                tracing::warn!(
                    container = self.id,
                    "the engine is gone: what became of a container is not known"
                );
                is_away = true;
                break i64::from(128 + KILL);
            }
        };
        drop(ended);
        if printed {
            let rest = async { while lines.take(output.next().await, log).await {} };
            if timeout(OUTPUT_GRACE, rest).await.is_err() {
                tracing::debug!(container = self.id, "the output of a container goes on after its end");
            }
        }
        lines.flush(log).await;
        let is_asked = code == i64::from(128 + KILL) && !is_away;
        let out_of_memory = is_asked && self.ran_out_of_memory().await;
        // The pod does not wait for an engine that is away: the removal goes on without it.
        if !is_away {
            self.remove().await;
        }
        Ended { exit: exit(code), out_of_memory }
    }

    /// The exit code, once it has ended.
    async fn ended(&self) -> i64 {
        let mut pause = Duration::from_millis(100);
        loop {
            let code = match self.waited_for().await {
                Some(..0) => self.exit_code().await,
                answer => answer,
            };
            if let Some(code) = code {
                return code;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(5));
        }
    }

    /// Waits until the engine says that it has ended. The code is below 0 if the answer has none, and absent without an answer.
    async fn waited_for(&self) -> Option<i64> {
        match self.engine.0.waiting.wait_container(&self.id, None).try_next().await {
            Ok(answer) => answer.map(|answer| answer.status_code),
            Err(Error::DockerContainerWaitError { code: code @ 1.., .. }) => Some(code),
            // The wait itself has failed, so its code is not that of the container.
            Err(Error::DockerContainerWaitError { .. }) => Some(NO_CODE),
            // Another program has removed it.
            Err(error) if is_absent(&error) => Some(i64::from(128 + KILL)),
            Err(error) => {
                tracing::warn!(container = self.id, error = said(&error), "a container is not waited for");
                None
            }
        }
    }

    /// The exit code that the engine keeps, if the container has ended.
    async fn exit_code(&self) -> Option<i64> {
        let state = self.engine.inspect_container(&self.id).await.ok()?.state?;
        let has_ended = state.running != Some(true) && is_time(state.finished_at);
        state.exit_code.filter(|_| has_ended)
    }

    /// Sends a signal. Returns whether the engine has heard it.
    async fn signal(&self, signal: &str) -> bool {
        let options = KillContainerOptionsBuilder::default().signal(signal).build();
        // A container that has ended takes no signal.
        let Err(error) = self.engine.0.docker.kill_container(&self.id, Some(options)).await else {
            return true;
        };
        tracing::debug!(container = self.id, signal, error = said(&error), "a container was not signalled");
        matches!(error, Error::DockerResponseServerError { .. })
    }

    async fn ran_out_of_memory(&self) -> bool {
        let found = self.engine.inspect_container(&self.id).await;
        found.is_ok_and(|found| found.state.is_some_and(|state| state.oom_killed == Some(true)))
    }

    /// Removes it, running or not.
    pub(super) async fn remove(mut self) {
        let id = std::mem::take(&mut self.id);
        self.engine.remove(&id).await;
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        if !self.id.is_empty()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let (engine, id) = (self.engine.clone(), std::mem::take(&mut self.id));
            runtime.spawn(async move { engine.remove(&id).await });
        }
    }
}

/// The beginnings of lines. Standard output and standard error arrive apart, so a line of one could end within one of the other.
#[derive(Default)]
struct Lines {
    output: Vec<u8>,
    error: Vec<u8>,
}

impl Lines {
    /// Copies the whole lines of a piece of output to the log; `false` after the last piece.
    async fn take(&mut self, piece: Option<Result<LogOutput, Error>>, log: &mut LogWriter) -> bool {
        let piece = match piece {
            Some(Ok(piece)) => piece,
            Some(Err(error)) => {
                tracing::warn!(error = said(&error), "the output of a container breaks off");
                return false;
            }
            None => return false,
        };
        let line = match &piece {
            LogOutput::StdErr { .. } => &mut self.error,
            _ => &mut self.output,
        };
        line.extend_from_slice(piece.as_ref());
        let whole = line.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        let whole = if line.len() - whole > LONGEST_LINE { line.len() } else { whole };
        if whole > 0 {
            log.write(&line[..whole]).await;
            line.drain(..whole);
        }
        true
    }

    /// Copies what does not end with a line break.
    async fn flush(self, log: &mut LogWriter) {
        for line in [self.output, self.error] {
            if !line.is_empty() {
                log.write(&line).await;
            }
        }
    }
}

/// Whether the engine gives a time, and not one in the place of none.
fn is_time(given: Option<String>) -> bool {
    given.is_some_and(|time| !time.is_empty() && !time.starts_with(YEAR_ONE))
}

/// An exit code above 128 stands for a signal, as a shell and every engine have it.
fn exit(code: i64) -> Exit {
    let code = i32::try_from(code).unwrap_or(i32::MAX);
    let signal = code.checked_sub(128).filter(|signal| (1..=64).contains(signal));
    Exit { code, signal }
}

#[cfg(test)]
mod tests;
