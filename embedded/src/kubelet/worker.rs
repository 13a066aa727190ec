//! The life of one pod on this node, from its assignment to its removal.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::task::JoinSet;

use super::client::PodClient;
use super::environment::Variables;
use super::events::Events;
use super::leftovers::Leftovers;
use super::logs::LogIndex;
use super::pod::{Pod, PodKey, RestartPolicy, Slot};
use super::setup::SetupError;
use super::status::{Failure, PodRecord, Termination};
use super::stop::StopOrder;
use super::stragglers::Stragglers;
use super::{KubeletMode, reporter, runtime, volumes};

/// How long processes may go on after SIGTERM when the kubelet itself ends.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);
/// How often to look for a ConfigMap, Secret or key that a container waits for.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// First delay before a failed container is started again; doubles up to [`MAX_RESTART_DELAY`].
const RESTART_DELAY: Duration = Duration::from_secs(10);
const MAX_RESTART_DELAY: Duration = Duration::from_secs(300);
/// A container that ran this long starts over with the first delay.
const STABLE: Duration = Duration::from_secs(600);

/// What all pods of this node share.
pub(super) struct Context {
    pub(super) client: kube::Client,
    pub(super) node_name: String,
    pub(super) mode: KubeletMode,
    /// Holds a directory per pod.
    pub(super) directory: PathBuf,
    pub(super) logs: Arc<LogIndex>,
    pub(super) events: Events,
    pub(super) stragglers: Stragglers,
}

impl Context {
    /// Where a pod has its logs and volumes.
    pub(super) fn directory_of(&self, pod: &PodKey) -> PathBuf {
        self.directory.join(format!("{}_{}_{}", pod.namespace, pod.name, pod.uid))
    }
}

/// What is to become of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// It runs to its end.
    Run,
    /// It is to end within the grace period, and its object removed after that.
    Delete {
        /// Time between SIGTERM and SIGKILL.
        grace: Duration,
    },
    /// Its object is gone: whatever still runs ends at once.
    Gone,
    /// The kubelet ends: processes end, the object stays as it is.
    Abandon,
}

impl Wanted {
    fn object_remains_ours(&self) -> bool {
        matches!(self, Self::Run | Self::Delete { .. })
    }
}

/// Runs a pod, reports on it, and cleans up once it is gone. `taken_over` tells that another kubelet may have run it.
/// `place` is held while the pod takes room on the node.
pub(super) async fn live(
    context: Arc<Context>,
    pod: Arc<Pod>,
    taken_over: bool,
    wanted: watch::Receiver<Wanted>,
    place: Option<OwnedSemaphorePermit>,
) {
    let key = PodKey::of(&pod);
    let client = PodClient::new(context.client.clone(), key.clone());
    let left = if taken_over { Leftovers::of(&context.directory_of(&key)) } else { Leftovers::default() };
    context.logs.add_pod(&key, &left);
    let worker = Arc::new(Worker::new(Arc::clone(&context), pod, &left, client.clone()));
    if taken_over && context.mode == KubeletMode::Process {
        // The former kubelet may have left processes when it was killed.
        context.stragglers.kill(&key.uid).await;
    }
    let conditions = worker.pod.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
    let report = reporter::report(&client, &worker.pod.spec, conditions, worker.record.subscribe());
    let mut orders = wanted.clone();
    let reporting = async {
        tokio::select! {
            () = report => {}
            _ = orders.wait_for(|wanted| !wanted.object_remains_ours()) => {}
        }
    };
    tokio::join!(worker.run(wanted.clone()), reporting);
    drop(place);

    let_go(&context, &client, &key, wanted).await;
}

/// Keeps the logs of a pod that a former kubelet brought to its end.
pub(super) async fn keep(context: Arc<Context>, key: PodKey, wanted: watch::Receiver<Wanted>) {
    let client = PodClient::new(context.client.clone(), key.clone());
    context.logs.add_pod(&key, &Leftovers::of(&context.directory_of(&key)));
    let_go(&context, &client, &key, wanted).await;
}

/// Logs and volumes of a pod that has ended stay for readers until it is deleted.
async fn let_go(context: &Context, client: &PodClient, key: &PodKey, mut wanted: watch::Receiver<Wanted>) {
    let mut order = wanted.wait_for(|wanted| *wanted != Wanted::Run).await.map(|order| *order);
    if let Ok(Wanted::Delete { .. }) = order {
        let mut orders = wanted.clone();
        tokio::select! {
            () = client.remove() => {}
            _ = orders.wait_for(|wanted| !wanted.object_remains_ours()) => {}
        }
        // The object may stay as long as it has finalizers.
        order = wanted.wait_for(|wanted| !wanted.object_remains_ours()).await.map(|order| *order);
    }
    context.logs.remove_pod(key);
    // The next kubelet may want to know what there was.
    if !matches!(order, Ok(Wanted::Abandon)) {
        remove_directory(&context.directory_of(key)).await;
    }
}

/// Removes the directory of a pod, if there is one.
pub(super) async fn remove_directory(directory: &Path) {
    if let Err(error) = tokio::fs::remove_dir_all(directory).await
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!(directory = %directory.display(), %error, "cannot remove a pod's directory");
    }
}

/// One pod while its containers run.
pub(super) struct Worker {
    pub(super) context: Arc<Context>,
    pub(super) pod: Arc<Pod>,
    pub(super) key: PodKey,
    pub(super) client: PodClient,
    /// Volumes and logs of this pod.
    pub(super) directory: PathBuf,
    pub(super) record: watch::Sender<PodRecord>,
    /// Whether none of its containers is to be started: a former kubelet ran it, and it is not restarted.
    over: bool,
    /// Ends everything but sidecars.
    stop: StopOrder,
    /// Ends sidecars, which outlive the containers that they serve.
    stop_sidecars: StopOrder,
}

impl Worker {
    fn new(context: Arc<Context>, pod: Arc<Pod>, left: &Leftovers, client: PodClient) -> Self {
        let key = PodKey::of(&pod);
        let directory = context.directory_of(&key);
        let status = pod.status.clone().unwrap_or_default();
        let (record, over) = PodRecord::resume(&pod.spec, &status, left, Timestamp::now());
        let record = watch::Sender::new(record);
        let (stop, stop_sidecars) = (StopOrder::default(), StopOrder::default());
        Self { context, pod, key, client, directory, record, over, stop, stop_sidecars }
    }

    /// Runs the pod to its end, which an order or its deadline may bring forward.
    async fn run(self: &Arc<Self>, mut wanted: watch::Receiver<Wanted>) {
        let order = *wanted.borrow_and_update();
        self.obey(order);
        let containers = self.run_containers();
        let deadline = self.deadline();
        tokio::pin!(containers, deadline);
        let mut exceeded = false;
        loop {
            tokio::select! {
                () = &mut containers => break,
                () = &mut deadline, if !exceeded => {
                    exceeded = true;
                    self.fail("DeadlineExceeded", "Pod was active on the node longer than the specified deadline");
                }
                Ok(()) = wanted.changed() => {
                    let order = *wanted.borrow_and_update();
                    self.obey(order);
                }
            }
        }
        if self.context.mode == KubeletMode::Process {
            self.context.stragglers.kill(&self.key.uid).await;
        }
        self.record.send_modify(|record| record.finish(Timestamp::now()));
    }

    fn obey(&self, order: Wanted) {
        match order {
            Wanted::Run => {}
            Wanted::Delete { grace } => self.stop.request(grace),
            Wanted::Gone => self.stop.request(Duration::ZERO),
            Wanted::Abandon => self.stop.request(self.pod.spec.grace().min(SHUTDOWN_GRACE)),
        }
    }

    /// Resolves when the pod has been active for longer than it may.
    async fn deadline(&self) {
        match self.pod.spec.active_deadline_seconds.map(u64::try_from) {
            Some(Ok(seconds)) => {
                let active = Timestamp::now().duration_since(self.record.borrow().started_at());
                let left = Duration::from_secs(seconds)
                    .saturating_sub(Duration::try_from(active).unwrap_or_default());
                tokio::time::sleep(left).await;
            }
            _ => std::future::pending().await,
        }
    }

    /// The pod fails as a whole; what still runs is ended.
    fn fail(&self, reason: &str, message: impl Into<String>) {
        let failure = Failure { reason: reason.into(), message: message.into() };
        self.record.send_modify(|record| record.fail(failure));
        self.stop.request(self.pod.spec.grace());
    }

    async fn run_containers(self: &Arc<Self>) {
        if self.over {
            return;
        }
        let Some(volumes) = self.volumes().await else { return };
        let volumes = Arc::new(volumes);
        let mut sidecars = JoinSet::new();
        if self.run_init_containers(&volumes, &mut sidecars).await {
            let main = (0..self.pod.spec.containers.len()).map(Slot::Main);
            join_all(main.map(|slot| self.run_container(slot, &volumes, &self.stop))).await;
        }
        match self.stop.deadline() {
            Some(deadline) => self.stop_sidecars.request_until(deadline),
            None => self.stop_sidecars.request(self.pod.spec.grace()),
        }
        while sidecars.join_next().await.is_some() {}
    }

    /// Runs the init containers one after the other; `true` if the main containers may start.
    async fn run_init_containers(
        self: &Arc<Self>,
        volumes: &Arc<Variables>,
        sidecars: &mut JoinSet<()>,
    ) -> bool {
        for slot in (0..self.pod.spec.init_containers.len()).map(Slot::Init) {
            if self.pod.spec.is_sidecar(slot) {
                let (worker, volumes) = (Arc::clone(self), Arc::clone(volumes));
                sidecars.spawn(async move {
                    worker.run_container(slot, &volumes, &worker.stop_sidecars).await;
                });
                let mut record = self.record.subscribe();
                tokio::select! {
                    _ = record.wait_for(|record| record.has_started(slot)) => {}
                    () = self.stopped() => return false,
                }
            } else if !self.run_container(slot, volumes, &self.stop).await {
                return false;
            }
        }
        true
    }

    async fn stopped(&self) {
        self.stop.signal().requested().await;
    }

    /// Runs one container, again and again if its restart policy says so; `true` if it did its work in the end.
    async fn run_container(&self, slot: Slot, volumes: &Variables, stop: &StopOrder) -> bool {
        let policy = self.pod.spec.restart_policy(slot);
        let (starts, succeeded) = {
            let record = self.record.borrow();
            (record.starts(slot), record.has_succeeded(slot))
        };
        // Under a former kubelet. Init containers are run again, as on a node that was restarted.
        if succeeded && matches!(slot, Slot::Main(_)) && policy == RestartPolicy::OnFailure {
            return true;
        }
        let mut delays = RestartDelays::default();
        for attempt in starts.. {
            let Some(termination) = self.run_once(slot, attempt, volumes, stop).await else { return false };
            let succeeded = termination.succeeded();
            let ran_for = termination
                .started_at
                .and_then(|start| Duration::try_from(termination.finished_at.duration_since(start)).ok());
            self.record.send_modify(|record| record.terminated(slot, termination));
            let over = match policy {
                RestartPolicy::Never => true,
                RestartPolicy::OnFailure => succeeded,
                RestartPolicy::Always => false,
            };
            if over || stop.deadline().is_some() {
                return succeeded;
            }
            if !self.back_off(slot, delays.next(ran_for.unwrap_or_default()), stop).await {
                return false;
            }
        }
        false
    }

    /// Waits before the next start; `false` if there must not be one.
    async fn back_off(&self, slot: Slot, delay: Duration, stop: &StopOrder) -> bool {
        if delay.is_zero() {
            return true;
        }
        let name = &self.pod.spec.container(slot).name;
        let message =
            format!("back-off {}s restarting failed container={name} pod={}", delay.as_secs(), self.key);
        self.context.events.warn(&self.key, "BackOff", &message).await;
        self.record.send_modify(|record| record.waiting(slot, "CrashLoopBackOff", message));
        let stop = stop.signal();
        tokio::select! {
            () = tokio::time::sleep(delay) => true,
            () = stop.requested() => false,
        }
    }

    /// Runs one container once; `None` if it could not be started and will not be.
    async fn run_once(
        &self,
        slot: Slot,
        attempt: u32,
        volumes: &Variables,
        stop: &StopOrder,
    ) -> Option<Termination> {
        let launch = self.await_setup(Some(slot), stop, || runtime::prepare(self, slot, volumes)).await?;
        Some(runtime::run(self, slot, attempt, launch, stop).await)
    }

    /// The pod's volumes; `None` if they cannot be made.
    async fn volumes(&self) -> Option<Variables> {
        if self.context.mode == KubeletMode::Simulated {
            return Some(Variables::new());
        }
        let directory = self.directory.join("volumes");
        let prepare = || volumes::prepare(&self.client, &self.pod, &directory);
        let variables = self.await_setup(None, &self.stop, prepare).await?;
        let mounts = self.pod.spec.containers.iter().any(|container| !container.volume_mounts.is_empty());
        if mounts {
            let note = "Volumes are directories of this host and are not mounted: \
                        find their paths in the variables YARDMASTER_VOLUME_<NAME>";
            self.context.events.note(&self.key, "VolumesNotMounted", note).await;
        }
        Some(variables)
    }

    /// Tries until the preparations succeed; `None` if they never will, or the end is asked for.
    async fn await_setup<T, F>(
        &self,
        slot: Option<Slot>,
        stop: &StopOrder,
        mut prepare: impl FnMut() -> F,
    ) -> Option<T>
    where
        F: Future<Output = Result<T, SetupError>>,
    {
        let stop = stop.signal();
        let mut told = None;
        loop {
            let attempt = tokio::select! {
                biased;
                () = stop.requested() => return None,
                attempt = prepare() => attempt,
            };
            match attempt {
                Ok(ready) => return Some(ready),
                Err(SetupError::Refused { reason, message }) => {
                    self.refuse(slot, reason, message).await;
                    return None;
                }
                Err(SetupError::Missing(message)) if told.as_ref() != Some(&message) => {
                    let reason =
                        if slot.is_some() { "CreateContainerConfigError" } else { "ContainerCreating" };
                    let first = slot.unwrap_or(Slot::Main(0));
                    self.record.send_modify(|record| record.waiting(first, reason, message.clone()));
                    let event = if slot.is_some() { "Failed" } else { "FailedMount" };
                    self.context.events.warn(&self.key, event, &message).await;
                    told = Some(message);
                }
                Err(SetupError::Missing(_)) => {}
            }
            tokio::select! {
                () = stop.requested() => return None,
                () = tokio::time::sleep(LOOK_AGAIN) => {}
            }
        }
    }

    /// A container, or the whole pod, asks for what this kubelet cannot do.
    async fn refuse(&self, slot: Option<Slot>, reason: &str, message: String) {
        self.context.events.warn(&self.key, "Failed", &message).await;
        if let Some(slot) = slot {
            let termination = Termination::not_started(reason, message.clone(), Timestamp::now());
            self.record.send_modify(|record| record.terminated(slot, termination));
        }
        self.fail(reason, message);
    }
}

/// The delays between restarts of a container: none before the first, then 10 s, 20 s, ... up to 5 min.
#[derive(Debug, Default)]
struct RestartDelays {
    next: Duration,
}

impl RestartDelays {
    fn next(&mut self, ran_for: Duration) -> Duration {
        if ran_for >= STABLE {
            self.next = Duration::ZERO;
        }
        let delay = self.next;
        self.next = (delay * 2).clamp(RESTART_DELAY, MAX_RESTART_DELAY);
        delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restarts_slow_down() {
        let mut delays = RestartDelays::default();
        let seconds = |ran_for| delays.next(Duration::from_secs(ran_for)).as_secs();
        let sequence: Vec<_> = [1; 8].into_iter().chain([700, 1]).map(seconds).collect();
        assert_eq!(sequence, [0, 10, 20, 40, 80, 160, 300, 300, 0, 10]);
    }
}
