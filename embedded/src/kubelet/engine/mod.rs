//! The container engine: Docker or Podman, through the Docker Engine API.
//!
//! Every container that is made here has labels that say for which pod and by which process. So what is left of a process that
//! was killed is found, and nothing else is ever touched.

mod address;
mod container;
mod credentials;
mod image;
mod inside;
mod layers;
mod network;
mod patience;
mod pause;
mod ports;
mod sandbox;
mod spec;
mod states;
#[cfg(test)]
mod test_engine;
mod unpack;

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bollard::errors::Error;
use bollard::models::SystemVersion;
use bollard::query_parameters::RemoveContainerOptionsBuilder;
use bollard::{API_DEFAULT_VERSION, Docker};
use futures::future::join_all;
use tokio::sync::{Mutex, OnceCell};
use tokio::task::JoinHandle;
use tokio::time::timeout;

pub(super) use self::container::{Container, Output, StartError};
pub(super) use self::credentials::PullSecret;
use self::image::Images;
pub(super) use self::image::{Found, ImageRequest, LocalImage, Pulled, events_of_wait};
pub(super) use self::inside::Inside;
pub(super) use self::network::Network;
use self::patience::Patience;
pub(super) use self::sandbox::Sandbox;
pub(super) use self::spec::{ImageSource, Ingredients, Recipe};
use super::stragglers;

/// The label with the uid of the pod that a container belongs to.
const POD_UID_LABEL: &str = "dev.yardmaster.pod-uid";
/// The label with the identity of the process that made a container, and with a number that tells its engines apart.
const OWNER_LABEL: &str = "dev.yardmaster.owner";
/// The letter that separates the two.
const OF_PROCESS: char = '/';
/// The number of the next engine of this process.
static NEXT: AtomicU64 = AtomicU64::new(0);
/// The beginning of container IDs of Podman.
const PODMAN: &str = "podman";
/// How long an engine may take to say that it is there, on a busy machine.
const ANSWERS_WITHIN: Duration = Duration::from_secs(30);
/// Seconds that an answer of the engine may take: a disk that is busy unpacks images for minutes.
const PATIENCE: u64 = 600;
/// How long the end of a pod waits for the removal of a container. A frozen engine takes requests, and answers none.
const REMOVED_WITHIN: Duration = Duration::from_secs(20);
/// How long the end of the cluster waits for the removal of all that is left.
const ALL_REMOVED_WITHIN: Duration = Duration::from_secs(60);
/// How often the engine may refuse a removal, and the pause after each refusal.
const MOST_REFUSALS: u32 = 5;
const AFTER_REFUSAL: Duration = Duration::from_secs(1);
/// Seconds for the answer about a container's end: as long as it takes.
const ENDLESS: u64 = u32::MAX as u64;

/// Why no container engine is used.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// No usual address answers.
    #[error("no container engine answers ({})", tried.join("; "))]
    NoneAnswers {
        /// Each address with what was wrong.
        tried: Vec<String>,
    },
    /// The process table of this system says nothing of this process.
    #[error("containers could not be told from those of others: /proc has no entry of this process")]
    Unidentified,
}

/// A container engine that answers.
#[derive(Clone, Debug)]
pub struct Engine(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    docker: Docker,
    /// For requests that are answered when a container ends.
    waiting: Docker,
    name: String,
    /// The beginning of container IDs in a status.
    scheme: &'static str,
    /// The architecture of its images, by its name in Go.
    architecture: String,
    owner: String,
    images: Images,
    has_sandbox_image: OnceCell<()>,
    /// The names of the networks that were made.
    networks: Mutex<HashSet<String>>,
    /// Whether it is root's engine of this host: only its networks are those of the host.
    is_of_host: bool,
    /// The addresses that this host has in networks.
    hosts: Mutex<HashMap<String, IpAddr>>,
    /// The removal of what earlier processes have left.
    sweep: Mutex<Option<JoinHandle<()>>>,
}

impl Shared {
    fn new(docker: Docker, waiting: Docker, owner: String, is_of_host: bool, version: SystemVersion) -> Self {
        let components = version.components.unwrap_or_default();
        let is_podman = components.iter().any(|component| component.name.contains("Podman"));
        let (kind, scheme) = if is_podman { ("Podman", PODMAN) } else { ("Docker", "docker") };
        let number = version.version.unwrap_or_default();
        Self {
            docker,
            waiting,
            name: format!("{kind} {number}").trim_end().to_owned(),
            scheme,
            architecture: version.arch.unwrap_or_default(),
            owner,
            images: Images::default(),
            has_sandbox_image: OnceCell::new(),
            networks: Mutex::default(),
            is_of_host,
            hosts: Mutex::default(),
            sweep: Mutex::default(),
        }
    }

    fn is_podman(&self) -> bool {
        self.scheme == PODMAN
    }
}

impl Engine {
    /// Finds the engine at `DOCKER_HOST`, or else that of the Docker context. Without both, it looks at the usual
    /// sockets of Docker and Podman, of this user and of the machine.
    ///
    /// # Errors
    /// If none answers.
    pub async fn find() -> Result<Self, EngineError> {
        let mut tried = Vec::new();
        for address in address::candidates(&address::Settings::of_this_process()) {
            match Self::at(&address).await {
                Err(EngineError::NoneAnswers { tried: why }) => tried.extend(why),
                found => return found,
            }
        }
        Err(EngineError::NoneAnswers { tried })
    }

    /// The engine at an address, such as `unix:///var/run/docker.sock`.
    ///
    /// # Errors
    /// If it does not answer.
    pub async fn at(address: &str) -> Result<Self, EngineError> {
        let process = stragglers::identity(std::process::id()).ok_or(EngineError::Unidentified)?;
        let owner = format!("{process}{OF_PROCESS}{}", NEXT.fetch_add(1, Ordering::Relaxed));
        match connect(address).await {
            Ok((docker, waiting)) => Ok(Self::of(docker, waiting, owner, is_roots(address)).await),
            Err(why) => Err(EngineError::NoneAnswers { tried: vec![format!("{address}: {why}")] }),
        }
    }

    async fn of(docker: Docker, waiting: Docker, owner: String, is_of_host: bool) -> Self {
        let version = docker.version().await.unwrap_or_default();
        Self(Arc::new(Shared::new(docker, waiting, owner, is_of_host, version)))
    }

    /// The engine's name and version, such as `Podman 4.3.1`.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Removes the containers of a pod. Waits for the engine.
    pub(super) async fn remove_pod(&self, uid: &str) {
        let label = format!("{POD_UID_LABEL}={uid}");
        insist("remove the containers of a pod", || self.remove_where(&label, |_| true)).await;
    }

    /// Begins to remove the containers and networks of processes of this host that have ended.
    pub(super) async fn sweep(&self) {
        let engine = self.clone();
        *self.0.sweep.lock().await = Some(tokio::spawn(async move { engine.remove_orphans().await }));
    }

    async fn remove_orphans(&self) {
        let has_ended = |owner: &str| {
            owner.split_once(OF_PROCESS).is_some_and(|(process, _)| stragglers::has_ended(process))
        };
        insist("remove containers that are left", || self.remove_where(OWNER_LABEL, has_ended)).await;
        self.remove_networks(OWNER_LABEL, has_ended).await;
    }

    /// Removes all containers and networks that were made through this, and waits for the [`sweep`](Self::sweep). Takes
    /// [`ALL_REMOVED_WITHIN`] at most. If the engine is away or frozen, the next start removes the rest.
    pub(super) async fn remove_all(&self) {
        let label = format!("{OWNER_LABEL}={}", self.0.owner);
        let removal = async {
            let removed = self.remove_where(&label, |_| true).await;
            self.remove_networks(&label, |_| true).await;
            // A short run does not end before that.
            if let Some(sweep) = self.0.sweep.lock().await.take() {
                let _ended = sweep.await;
            }
            removed
        };
        let why = match timeout(ALL_REMOVED_WITHIN, removal).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => said(&error),
            Err(_) => format!("not done after {} s", ALL_REMOVED_WITHIN.as_secs()),
        };
        tracing::warn!(error = why, "containers may be left until the next start");
    }

    /// Removes the containers with this label whose owner is such a one.
    async fn remove_where(&self, label: &str, is_one: impl Fn(&str) -> bool) -> Result<(), Error> {
        let found = self.labelled(label).await?;
        let owner = |labels: &Option<HashMap<String, String>>| labels.as_ref()?.get(OWNER_LABEL).cloned();
        let left = found.into_iter().filter(|found| owner(&found.labels).is_some_and(|owner| is_one(&owner)));
        let removals = left.filter_map(|found| found.id).map(async |id| self.try_to_remove(&id).await);
        join_all(removals).await.into_iter().collect()
    }

    /// Removes a container, running or not, and its anonymous volumes. Waits for the first attempt, but no longer than
    /// [`REMOVED_WITHIN`]. An engine that is away, or refuses, is asked again from another task, so that a
    /// container does not outlive its pod for long.
    async fn remove(&self, id: &str) {
        let (engine, id) = (self.clone(), id.to_owned());
        // An attempt that takes longer goes on: the engine may be half way through.
        let first = tokio::spawn(async move {
            if engine.try_to_remove(&id).await.is_err() {
                tokio::spawn(async move { insist("remove a container", || engine.try_to_remove(&id)).await });
            }
        });
        if timeout(REMOVED_WITHIN, first).await.is_err() {
            tracing::warn!("the engine takes long to remove a container, which its pod does not wait for");
        }
    }

    /// Removes a container. There may be none.
    async fn try_to_remove(&self, id: &str) -> Result<(), Error> {
        let options = RemoveContainerOptionsBuilder::default().force(true).v(true).build();
        match self.0.docker.remove_container(id, Some(options)).await {
            Err(error) if !is_absent(&error) => Err(error),
            _ => Ok(()),
        }
    }

    fn labels(&self, pod_uid: &str) -> HashMap<String, String> {
        [(POD_UID_LABEL, pod_uid), (OWNER_LABEL, &self.0.owner)]
            .map(|(label, value)| (label.to_owned(), value.to_owned()))
            .into()
    }
}

/// Repeats a removal while the engine is away, and some times if it refuses.
async fn insist<F>(aim: &'static str, attempt: impl Fn() -> F)
where
    F: Future<Output = Result<(), Error>>,
{
    let (mut patience, mut refusals) = (Patience::new(aim), 0);
    while let Err(error) = attempt().await {
        let Err(refusal) = patience.after(error).await else { continue };
        refusals += 1;
        if refusals == MOST_REFUSALS {
            tracing::warn!(error = said(&refusal), "the engine does not {aim}");
            return;
        }
        // A container may wait for another one that is removed at the same time.
        tokio::time::sleep(AFTER_REFUSAL).await;
    }
}

/// Whether an address is a socket of root's.
fn is_roots(address: &str) -> bool {
    let socket = address.strip_prefix("unix://").and_then(|path| std::fs::metadata(path).ok());
    socket.is_some_and(|socket| socket.uid() == 0)
}

/// Two clients of the engine at an address, the second without limits on time, once it has answered.
async fn connect(address: &str) -> Result<(Docker, Docker), String> {
    let client = |seconds| {
        let docker = match address.strip_prefix("unix://") {
            Some(_) => Docker::connect_with_unix(address, seconds, API_DEFAULT_VERSION),
            None => Docker::connect_with_host(address)
                .map(|docker| docker.with_timeout(Duration::from_secs(seconds))),
        };
        docker.map_err(|error| said(&error))
    };
    let docker = client(PATIENCE)?;
    match timeout(ANSWERS_WITHIN, docker.negotiate_version()).await {
        Ok(Ok(docker)) => {
            let waiting = client(ENDLESS)?;
            let waiting = waiting.negotiate_version().await.map_err(|error| said(&error))?;
            Ok((docker, waiting))
        }
        Ok(Err(error)) => Err(said(&error)),
        Err(_) => Err(format!("no answer for {} s", ANSWERS_WITHIN.as_secs())),
    }
}

/// The answer of the engine, or the obstacle on the way to it.
fn said(error: &Error) -> String {
    if let Error::DockerResponseServerError { message, .. } = error {
        return message.trim().to_owned();
    }
    if let Error::DockerStreamError { error } = error {
        return error.trim().to_owned();
    }
    // The innermost error is that of the system.
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// Whether the engine has not answered: it may have done what it was asked for, or not.
fn is_unanswered(error: &Error) -> bool {
    matches!(
        error,
        Error::HyperLegacyError { .. }
            | Error::HyperResponseError { .. }
            | Error::IOError { .. }
            | Error::RequestTimeoutError
            | Error::SocketNotFoundError(_)
    )
}

/// Whether there is no such object.
fn is_absent(error: &Error) -> bool {
    matches!(error, Error::DockerResponseServerError { status_code: 404, .. })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use tokio::net::UnixListener;
    use tokio::sync::mpsc;
    use tokio::time::Instant;

    use super::test_engine::{at, reply, serve};
    use super::*;

    #[tokio::test]
    async fn a_container_is_removed_once_its_engine_is_back() {
        let folder = tempfile::tempdir().unwrap();
        let answers = [None, None, Some("500 Internal Server Error"), Some("204 No Content")];
        let (told, mut asked) = mpsc::unbounded_channel();
        let mut next = answers.into_iter();
        let engine = serve(&folder.path().join("engine"), move |request| {
            told.send(request.to_owned()).unwrap();
            next.next().unwrap().map(|status| reply(status, ""))
        });
        engine.remove("abc").await;
        for _ in answers {
            let line = timeout(Duration::from_secs(60), asked.recv()).await.unwrap().unwrap();
            assert!(line.starts_with("DELETE ") && line.contains("/containers/abc?"), "{line}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_pod_and_of_the_cluster_waits_for_a_frozen_engine_for_a_while_only() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("engine");
        // It never accepts a connection, which Linux makes all the same.
        let _frozen = UnixListener::bind(&socket).unwrap();
        let (engine, begun) = (at(&socket), Instant::now());
        engine.remove("abc").await;
        assert_eq!(begun.elapsed().as_secs(), REMOVED_WITHIN.as_secs());
        engine.remove_all().await;
        assert_eq!(begun.elapsed().as_secs(), (REMOVED_WITHIN + ALL_REMOVED_WITHIN).as_secs());
    }
}
