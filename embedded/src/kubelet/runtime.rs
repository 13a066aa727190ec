//! A run of a container: as a process, by an engine, or simulated.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use jiff::Timestamp;

use super::action::{self, Place, Target};
use super::engine::{self, Engine, ImageRequest, Ingredients, Recipe};
use super::environment::{self, Variables};
use super::events::Subject;
use super::gpus::OwnGpus;
use super::logs::{LogPlace, LogWriter};
use super::lookup::StartError;
use super::pod::{Container, Pod, PodSpec, Slot};
use super::pod_folder::PodFolder;
use super::process::{Exit, Launch, Process};
use super::setup::{PodSetup, SetupError};
use super::status::Termination;
use super::stop::StopOrder;
use super::stragglers::POD_UID_VARIABLE;
use super::supervisor::Namespace;
use super::view::View;
use super::worker::Worker;
use super::{KubeletMode, attend, images, refusals, service_account, volumes};

/// Annotation with the run time of simulated containers.
const RUN_TIME_ANNOTATION: &str = "yardmaster.dev/simulated-run-time";
/// Annotation with the exit code of simulated containers.
const EXIT_CODE_ANNOTATION: &str = "yardmaster.dev/simulated-exit-code";
/// Variables that containers inherit from this host.
const INHERITED: &[&str] = &["PATH", "LANG"];
/// The variable with the file for the termination message, because `terminationMessagePath` only exists where
/// volumes are mounted.
const TERMINATION_LOG_VARIABLE: &str = "YARDMASTER_TERMINATION_LOG";
/// The variable by which programs know their GPUs.
const VISIBLE_GPUS: &str = "CUDA_VISIBLE_DEVICES";
/// Maximum length of a termination message from a file, in bytes. Of a longer file the end counts.
const MAX_MESSAGE: u64 = 4096;
/// Maximum length of a termination message from the end of the log, in lines and bytes.
const MAX_LOG_MESSAGE: (usize, usize) = (80, 2048);
/// Permissions of a file that any user may write.
const ANYBODY_WRITES: u32 = 0o666;
/// How long the disk may take for a termination message.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(10);

/// A container that is ready to run.
#[derive(Debug)]
pub(super) enum Prepared {
    /// A process.
    Process(Launch, OwnGpus),
    /// A container of an engine.
    Container(Engine, Box<Recipe>, OwnGpus),
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
    attempt: u32,
    setup: &PodSetup,
) -> Result<Prepared, SetupError> {
    let gpus = || {
        let taken = worker.context.gpus.take(worker.pod.spec.container(slot));
        taken.ok_or_else(|| SetupError::waiting(refusals::CREATE_ERROR, "GPUs are still in use"))
    };
    match &worker.context.mode {
        KubeletMode::Process => {
            let gpus = gpus()?;
            Ok(Prepared::Process(launch(worker, slot, setup, &gpus).await?, gpus))
        }
        KubeletMode::Containers(engine) => {
            let gpus = gpus()?;
            let recipe = recipe(engine, worker, slot, attempt, setup, &gpus).await?;
            Ok(Prepared::Container(engine.clone(), Box::new(recipe), gpus))
        }
        KubeletMode::Simulated => simulation(&worker.pod),
    }
}

async fn recipe(
    engine: &Engine,
    worker: &Worker,
    slot: Slot,
    attempt: u32,
    setup: &PodSetup,
    gpus: &OwnGpus,
) -> Result<Recipe, SetupError> {
    let pod = &worker.pod;
    let container = pod.spec.container(slot);
    let request = ImageRequest { name: &container.image, policy: container.image_pull_policy.as_deref() };
    let subject = Subject::container(&worker.key, &pod.spec, slot);
    // As in Kubernetes, the images of volumes come first.
    let image_volumes = images::sources(worker, engine, container, setup).await?;
    let image = images::provide(worker, engine, request, subject).await?;
    // A manifest for processes finds its volumes as these do.
    let mounted = container.volume_mounts.iter();
    let mut given: Variables =
        mounted.map(|mount| (volumes::variable(&mount.name), mount.mount_path.clone())).collect();
    given.extend(setup.api.map(service_account::variables).unwrap_or_default());
    let environment = environment::resolve(&worker.client, pod, container, given).await?;
    let termination_log = provide_message(&worker.folder, container).await?;
    engine.recipe(Ingredients {
        key: &worker.key,
        spec: &pod.spec,
        slot,
        attempt,
        image,
        environment,
        volumes: &setup.volumes,
        image_volumes: &image_volumes,
        termination_log,
        sandbox: setup.sandbox.as_ref(),
        gpus: &gpus.numbers(),
        network: setup.network.as_ref(),
    })
}

/// Makes the file for a container's termination message, which its processes may write as any user.
async fn provide_message(pod: &PodFolder, container: &Container) -> Result<PathBuf, SetupError> {
    let (folder, file) = (pod.clone(), termination_log(container));
    let made = tokio::task::spawn_blocking(move || {
        folder.create()?.write_anew(&file, ANYBODY_WRITES)?;
        Ok(folder.path().join(file))
    });
    let made = made.await.unwrap_or_else(|panic| Err(panic.into()));
    made.map_err(|error| volumes::unusable("the file for the termination message", &error))
}

async fn launch(worker: &Worker, slot: Slot, setup: &PodSetup, gpus: &OwnGpus) -> Result<Launch, SetupError> {
    let pod = &worker.pod;
    let container = pod.spec.container(slot);
    let refused = |message| SetupError::refused(refusals::CREATE_ERROR, message);
    let (command, first_args) = refusals::command(container).map_err(refused)?;
    let place = worker.context.workspace.provide(&worker.folder).await;
    let place = place.map_err(|error| volumes::unusable("the pod's folders", &error))?;
    let mut given: Variables =
        INHERITED.iter().filter_map(|name| Some(((*name).into(), std::env::var(name).ok()?))).collect();
    let view = view(worker, slot, setup).await?;
    let hostname = pod.spec.host_name(&worker.key.name);
    let termination_log = view.path(&worker.folder.path().join(termination_log(container)));
    given.extend([
        ("HOSTNAME".into(), hostname),
        (POD_UID_VARIABLE.into(), worker.key.uid.clone()),
        (TERMINATION_LOG_VARIABLE.into(), termination_log.to_string_lossy().into_owned()),
    ]);
    let place = place.seen(|path| view.path(path));
    let directory = place.starts_in(container.working_dir.as_deref());
    given.extend(place.variables());
    given.extend(view.variables(container, &setup.volumes));
    given.extend(setup.api.map(service_account::variables).unwrap_or_default());
    if !gpus.numbers().is_empty() {
        given.insert(VISIBLE_GPUS.into(), gpus.numbers().join(","));
    }
    let environment = environment::resolve(&worker.client, pod, container, given).await?;

    let expanded = |word: &String| environment::expand(word, &environment);
    let command = expanded(command);
    let args = first_args.iter().chain(&container.args).map(expanded).collect();
    let namespace = namespace(worker, slot, setup, view, &environment).await?;
    Ok(Launch { command, args, environment, directory, namespace })
}

/// The files that the container finds as a process.
async fn view(worker: &Worker, slot: Slot, setup: &PodSetup) -> Result<View, SetupError> {
    let spec = &worker.pod.spec;
    if !worker.context.mounting.mounts(spec, spec.container(slot)) {
        return Ok(View::of_host(worker.folder.path()));
    }
    let (pod, volumes, folder) = (Arc::clone(&worker.pod), setup.volumes.clone(), worker.folder.clone());
    let of = move || View::mounted(pod.spec.container(slot), &volumes, folder.path());
    tokio::task::spawn_blocking(of).await.map_err(|panic| volumes::unusable("the volumes", &panic.into()))
}

/// The mount namespace of the container, if it has one, with all that is mounted there.
async fn namespace(
    worker: &Worker,
    slot: Slot,
    setup: &PodSetup,
    view: View,
    environment: &Variables,
) -> Result<Option<Namespace>, SetupError> {
    if !view.is_mounted() {
        return Ok(None);
    }
    let pod = Arc::clone(&worker.pod);
    let message = provide_message(&worker.folder, pod.spec.container(slot)).await?;
    let (volumes, environment) = (setup.volumes.clone(), environment.clone());
    let make = move || view.namespace(&pod.spec, pod.spec.container(slot), &volumes, &environment, &message);
    let made = tokio::task::spawn_blocking(make).await;
    made.unwrap_or_else(|panic| Err(volumes::unusable("the volumes", &panic.into())))
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
    setup: &PodSetup,
    prepared: Prepared,
    stop: &StopOrder,
) -> Run {
    let container = worker.pod.spec.container(slot);
    let place = LogPlace { pod: worker.folder.clone(), container: container.name.clone(), run: attempt };
    let mut log = match LogWriter::create(place.clone()).await {
        Ok(log) => log,
        Err(error) => return Run::without_start(worker, format!("log file: {error}")).await,
    };
    worker.context.logs.add(&worker.key, &container.name, log.log());

    let started_at;
    let mut is_out_of_memory = false;
    let is_attended = !matches!(prepared, Prepared::Simulated { .. });
    let announce = |id: String, image: String| {
        let now = Timestamp::now();
        worker.record.send_modify(|record| {
            record.running(slot, id, image, now);
            if is_attended && attend::must_prove_itself(container) {
                record.probed(slot);
            }
        });
        now
    };
    let (run_stop, is_killed) = (StopOrder::default(), AtomicBool::new(false));
    // There is no image without an engine.
    let own_id = (format!("yardmaster://{}/{}/{attempt}", worker.key.uid, container.name), String::new());
    let exit = match prepared {
        Prepared::Container(engine, recipe, _gpus) => {
            let (image, variables) = (recipe.image_id.clone(), recipe.variables.clone());
            let (started, output) = match start_container(&engine, *recipe, stop).await {
                Ok(started) => started,
                Err(error) => return Run::without_start(worker, error.to_string()).await,
            };
            started_at = announce(started.status_id(), image);
            worker.context.events.note_start(Subject::container(&worker.key, &worker.pod.spec, slot));
            let target = target_in_engine(&started, variables, container, &worker.pod.spec, setup).await;
            let attending = attend::attend(worker, slot, &target, stop, &run_stop, &is_killed);
            let ended = tokio::select! {
                ended = started.wait(output, &mut log, run_stop.signal()) => ended,
                never = attending => match never {},
            };
            is_out_of_memory = ended.out_of_memory;
            ended.exit
        }
        Prepared::Process(launch, _gpus) => {
            let mut target = target_on_host(worker, container, &launch);
            let process = match start(worker, launch, stop).await {
                Ok(process) => process,
                Err(error) => return Run::without_start(worker, error.to_string()).await,
            };
            target.enter_namespace_of(&process);
            started_at = announce(own_id.0, own_id.1);
            let attending = attend::attend(worker, slot, &target, stop, &run_stop, &is_killed);
            tokio::select! {
                exit = process.wait(&mut log, run_stop.signal()) => exit,
                never = attending => match never {},
            }
        }
        Prepared::Simulated { run_time, exit_code } => {
            started_at = announce(own_id.0, own_id.1);
            let stop = stop.signal();
            tokio::select! {
                () = tokio::time::sleep(run_time) => Exit { code: exit_code, signal: None },
                () = stop.requested() => Exit { code: 143, signal: Some(15) },
            }
        }
    };
    log.finish().await;
    let termination = Termination {
        exit_code: exit.code,
        signal: exit.signal,
        reason: match exit.code {
            0 => "Completed",
            _ if is_out_of_memory => "OOMKilled",
            _ => "Error",
        }
        .into(),
        message: message(worker, container, exit, place).await,
        started_at: Some(started_at),
        finished_at: Timestamp::now(),
    };
    Run { termination, is_killed: is_killed.into_inner() }
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

/// Has the engine start a container. It is removed if it has to stop before it has started.
async fn start_container(
    engine: &Engine,
    recipe: Recipe,
    stop: &StopOrder,
) -> Result<(engine::Container, engine::Output), engine::StartError> {
    let stop = stop.signal();
    tokio::select! {
        started = engine.start(recipe) => started,
        () = stop.expired() => Err(engine::StartError::stopped()),
    }
}

/// Where the probes and hooks of a process reach it.
fn target_on_host(worker: &Worker, container: &Container, launch: &Launch) -> Target {
    let runs_commands = action::runs_commands(container);
    let supervisor = worker.context.supervisor.clone().filter(|_| runs_commands);
    let place = supervisor.map(|supervisor| Place::Host {
        supervisor,
        directory: launch.directory.clone(),
        namespace: launch.namespace.clone(),
    });
    let variables = if runs_commands { launch.environment.clone() } else { Variables::new() };
    Target { place, variables, published: BTreeMap::new() }
}

/// Where the probes and hooks of an engine's container reach it.
async fn target_in_engine(
    started: &engine::Container,
    variables: Variables,
    container: &Container,
    spec: &PodSpec,
    setup: &PodSetup,
) -> Target {
    let asks_ports = action::all(container).any(|action| action.port(container).is_some());
    let published = match &setup.sandbox {
        _ if !asks_ports || spec.host_network => BTreeMap::new(),
        Some(sandbox) => sandbox.published().await,
        None => started.published().await,
    };
    Target { place: Some(Place::Container(started.inside())), variables, published }
}

/// How a run ended.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) termination: Termination,
    /// A probe has ended it.
    pub(super) is_killed: bool,
}

impl Run {
    async fn without_start(worker: &Worker, message: String) -> Self {
        worker.context.events.warn(&worker.key, "Failed", &format!("Error: {message}")).await;
        let termination = Termination::not_started("StartError", message, Timestamp::now());
        Self { termination, is_killed: false }
    }
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

/// The content of the container's termination message file. The file is removed, because the next run must
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
