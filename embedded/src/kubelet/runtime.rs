//! One run of one container, as a process or simulated.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use super::environment::{self, Variables};
use super::logs::{LogPlace, LogWriter};
use super::pod::{Container, Pod, Slot};
use super::pod_folder::PodFolder;
use super::process::{Exit, Launch, Process, StartError};
use super::setup::SetupError;
use super::status::Termination;
use super::stop::StopOrder;
use super::stragglers::POD_UID_VARIABLE;
use super::worker::Worker;
use super::{KubeletMode, refusals, volumes};

/// Annotation with the run time of simulated containers.
const RUN_TIME_ANNOTATION: &str = "yardmaster.dev/simulated-run-time";
/// Annotation with the exit code of simulated containers.
const EXIT_CODE_ANNOTATION: &str = "yardmaster.dev/simulated-exit-code";
/// Variables that containers inherit from this host.
const INHERITED: &[&str] = &["PATH", "LANG"];
/// The variable with the file for the termination message, because `terminationMessagePath` does not exist
/// here.
const TERMINATION_LOG_VARIABLE: &str = "YARDMASTER_TERMINATION_LOG";
/// Maximum length of a termination message from a file, in bytes. Of a longer file the end counts.
const MAX_MESSAGE: u64 = 4096;
/// Maximum length of a termination message from the end of the log, in lines and bytes.
const MAX_LOG_MESSAGE: (usize, usize) = (80, 2048);
/// How long the disk may take for a termination message.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(10);

/// A container that is ready to run.
#[derive(Debug)]
pub(super) enum Prepared {
    /// A process.
    Process(Launch),
    /// A simulation.
    Simulated {
        /// Run time.
        run_time: Duration,
        /// Exit code.
        exit_code: i32,
    },
}

/// Prepares everything that the container needs.
pub(super) async fn prepare(
    worker: &Worker,
    slot: Slot,
    volumes: &Variables,
) -> Result<Prepared, SetupError> {
    match worker.context.mode {
        KubeletMode::Process => launch(worker, slot, volumes).await.map(Prepared::Process),
        KubeletMode::Simulated => simulation(&worker.pod),
    }
}

async fn launch(worker: &Worker, slot: Slot, volumes: &Variables) -> Result<Launch, SetupError> {
    let pod = &worker.pod;
    let container = pod.spec.container(slot);
    let refused = |message| SetupError::refused(refusals::CREATE_ERROR, message);
    let (command, first_args) = refusals::command(container).map_err(refused)?;
    let place = worker.context.workspace.provide(&worker.folder).await;
    let place = place.map_err(|error| volumes::unusable("the pod's folders", &error))?;
    let mut given: Variables =
        INHERITED.iter().filter_map(|name| Some(((*name).into(), std::env::var(name).ok()?))).collect();
    let hostname = pod.spec.hostname.as_ref().unwrap_or(&worker.key.name);
    let termination_log = worker.folder.path().join(termination_log(container));
    given.extend([
        ("HOSTNAME".into(), hostname.clone()),
        (POD_UID_VARIABLE.into(), worker.key.uid.clone()),
        (TERMINATION_LOG_VARIABLE.into(), termination_log.to_string_lossy().into_owned()),
    ]);
    let directory = place.starts_in(container.working_dir.as_deref());
    given.extend(place.variables);
    given.extend(volumes.clone());
    let environment = environment::resolve(&worker.client, pod, container, given).await?;

    let expanded = |word: &String| environment::expand(word, &environment);
    let command = expanded(command);
    let args = first_args.iter().chain(&container.args).map(expanded).collect();
    Ok(Launch { command, args, environment, directory })
}

fn simulation(pod: &Pod) -> Result<Prepared, SetupError> {
    let none = BTreeMap::new();
    let annotations = pod.metadata.annotations.as_ref().unwrap_or(&none);
    let invalid = |name: &str, value: &str| {
        let message = format!("annotation {name}: invalid value {value:?}");
        SetupError::refused("CreateContainerConfigError", message)
    };
    let run_time = annotations.get(RUN_TIME_ANNOTATION).map_or(Ok(Duration::from_secs(1)), |value| {
        humantime::parse_duration(value).map_err(|_| invalid(RUN_TIME_ANNOTATION, value))
    })?;
    let exit_code = annotations.get(EXIT_CODE_ANNOTATION).map_or(Ok(0), |value| {
        value.parse::<u8>().map(i32::from).map_err(|_| invalid(EXIT_CODE_ANNOTATION, value))
    })?;
    Ok(Prepared::Simulated { run_time, exit_code })
}

/// Runs the container once until it terminates.
pub(super) async fn run(
    worker: &Worker,
    slot: Slot,
    attempt: u32,
    prepared: Prepared,
    stop: &StopOrder,
) -> Termination {
    let container = worker.pod.spec.container(slot);
    let place = LogPlace { pod: worker.folder.clone(), container: container.name.clone(), run: attempt };
    let mut log = match LogWriter::create(place.clone()).await {
        Ok(log) => log,
        Err(error) => return not_started(worker, format!("log file: {error}")).await,
    };
    worker.context.logs.add(&worker.key, &container.name, log.log());

    let started_at;
    let announce = || {
        let id = format!("yardmaster://{}/{}/{attempt}", worker.key.uid, container.name);
        let now = Timestamp::now();
        worker.record.send_modify(|record| record.running(slot, id, now));
        now
    };
    let exit = match prepared {
        Prepared::Process(launch) => {
            let process = match start(worker, launch, stop).await {
                Ok(process) => process,
                Err(error) => return not_started(worker, error.to_string()).await,
            };
            started_at = announce();
            process.wait(&mut log, stop.signal()).await
        }
        Prepared::Simulated { run_time, exit_code } => {
            started_at = announce();
            let stop = stop.signal();
            tokio::select! {
                () = tokio::time::sleep(run_time) => Exit { code: exit_code, signal: None },
                () = stop.requested() => Exit { code: 143, signal: Some(15) },
            }
        }
    };
    log.finish().await;
    Termination {
        exit_code: exit.code,
        signal: exit.signal,
        reason: if exit.code == 0 { "Completed" } else { "Error" }.into(),
        message: message(worker, container, exit, place).await,
        started_at: Some(started_at),
        finished_at: Timestamp::now(),
    }
}

/// Starts a process. The disk may take any time for that, but a pod that has to stop waits no longer than for a
/// process that runs.
async fn start(worker: &Worker, launch: Launch, stop: &StopOrder) -> Result<Process, StartError> {
    let Some(supervisor) = &worker.context.supervisor else {
        return Err(StartError::System(launch.command, std::io::ErrorKind::Unsupported.into()));
    };
    let (command, stop) = (launch.command.clone(), stop.signal());
    tokio::select! {
        started = Process::start(supervisor, launch) => started,
        () = stop.expired() => Err(StartError::Stopped(command)),
    }
}

async fn not_started(worker: &Worker, message: String) -> Termination {
    worker.context.events.warn(&worker.key, "Failed", &format!("Error: {message}")).await;
    Termination::not_started("StartError", message, Timestamp::now())
}

/// The file for the termination message, in the folder of the pod.
fn termination_log(container: &Container) -> String {
    format!("{}.termination", container.name)
}

/// The termination message: the container's own, or the end of its log if its policy says so.
async fn message(worker: &Worker, container: &Container, exit: Exit, log: LogPlace) -> Option<String> {
    let fall_back =
        exit.code != 0 && container.termination_message_policy.as_deref() == Some("FallbackToLogsOnError");
    let (pod, file) = (worker.folder.clone(), termination_log(container));
    let read = tokio::task::spawn_blocking(move || {
        let own = own_message(&pod, &file);
        let (lines, bytes) = MAX_LOG_MESSAGE;
        own.or_else(|| if fall_back { log.tail(lines, bytes).ok() } else { None })
    });
    match tokio::time::timeout(MESSAGE_TIMEOUT, read).await {
        Ok(Ok(message)) => message,
        Ok(Err(panic)) => Some(format!("Error on reading termination log: {panic}")),
        Err(_) => Some("Error on reading termination log: the disk did not answer in time".into()),
    }
}

/// What the container wrote to its termination message file. The file is removed, because the next run must
/// not report the same message.
fn own_message(pod: &PodFolder, file: &str) -> Option<String> {
    let folder = pod.open().ok()?;
    let message = match folder.read_end(file, MAX_MESSAGE) {
        Ok(message) => String::from_utf8_lossy(&message).into_owned(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(error) => {
            format!("Error on reading termination log {}: {error}", pod.path().join(file).display())
        }
    };
    if let Err(error) = folder.remove(file) {
        tracing::debug!(%error, "cannot remove a termination message");
    }
    Some(message).filter(|message| !message.is_empty())
}
