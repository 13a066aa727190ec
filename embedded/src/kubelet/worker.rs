//! The lifecycle of one pod on this node, from assignment to removal.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use super::client::PodClient;
use super::environment::Variables;
use super::events::Events;
use super::leftovers::Leftovers;
use super::logs::LogIndex;
use super::pod::{Pod, PodKey, RestartPolicy, Slot};
use super::pod_folder::{PodFolder, PodFolders};
use super::restart_delays::RestartDelays;
use super::setup::SetupError;
use super::status::{Failure, PodRecord, Termination};
use super::stop::StopOrder;
use super::stragglers::Stragglers;
use super::supervisor::Supervisor;
use super::workspace::Workspace;
use super::{KubeletMode, refusals, reporter, runtime, volumes};
use crate::restarts::Restarts;

/// Grace period of processes after SIGTERM when the kubelet itself stops.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);
/// Interval between checks for a ConfigMap, Secret or key that a container waits for.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// State shared by all pods of this node.
pub(super) struct Context {
    pub(super) client: kube::Client,
    pub(super) node_name: String,
    pub(super) mode: KubeletMode,
    pub(super) workspace: Workspace,
    pub(super) pods: PodFolders,
    pub(super) logs: Arc<LogIndex>,
    pub(super) events: Events,
    pub(super) stragglers: Stragglers,
    /// Runs processes; absent if there are none.
    pub(super) supervisor: Option<Arc<Supervisor>>,
    /// Cancelled when the kubelet stops.
    pub(super) closing: CancellationToken,
}

/// The desired state of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The pod runs to completion.
    Run,
    /// The pod stops within the grace period; then its object is removed.
    Delete {
        /// Time between SIGTERM and SIGKILL.
        grace: Duration,
    },
    /// The object is gone: running processes are stopped at once.
    Gone,
    /// The kubelet stops: processes are stopped, the object stays unchanged.
    Abandon,
}

impl Wanted {
    fn manages_object(&self) -> bool {
        matches!(self, Self::Run | Self::Delete { .. })
    }
}

/// Runs a pod, reports its status, and cleans up once it is gone. `taken_over` means that a previous kubelet
/// may have run it. `permit` is held while the pod counts against the node's capacity.
pub(super) async fn run_pod(
    context: Arc<Context>,
    pod: Arc<Pod>,
    taken_over: bool,
    wanted: watch::Receiver<Wanted>,
    mut permit: Option<OwnedSemaphorePermit>,
) {
    let key = PodKey::of(&pod);
    let mut restarts = Restarts::of(format!("the worker of pod {key}"), &context.closing);
    loop {
        let is_restart = restarts.count() > 0;
        let run = async {
            let mut pod = Arc::clone(&pod);
            if is_restart {
                // Continued as by another kubelet, from what is on the API server and on the disk.
                let client = PodClient::new(context.client.clone(), key.clone());
                pod = client.read().await.map_or(pod, Arc::new);
            }
            run_pod_once(&context, pod, taken_over || is_restart, wanted.clone(), &mut permit).await;
        };
        if restarts.run(run).await.is_some() {
            return;
        }
    }
}

async fn run_pod_once(
    context: &Arc<Context>,
    pod: Arc<Pod>,
    taken_over: bool,
    wanted: watch::Receiver<Wanted>,
    permit: &mut Option<OwnedSemaphorePermit>,
) {
    let key = PodKey::of(&pod);
    let client = PodClient::new(context.client.clone(), key.clone());
    let left = if taken_over { Leftovers::of(context.pods.of(&key)).await } else { Leftovers::default() };
    context.logs.add_pod(&key, &left);
    let worker = Arc::new(Worker::new(Arc::clone(context), pod, &left, client.clone()));
    if taken_over && context.mode == KubeletMode::Process {
        // If the previous kubelet was killed, it may have left processes behind.
        context.stragglers.kill(&key.uid).await;
    }
    let conditions = worker.pod.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
    let report = reporter::report(&client, &worker.pod.spec, conditions, worker.record.subscribe());
    let mut orders = wanted.clone();
    let reporting = async {
        tokio::select! {
            () = report => {}
            _ = orders.wait_for(|wanted| !wanted.manages_object()) => {}
        }
    };
    tokio::join!(worker.run(wanted.clone()), reporting);
    *permit = None;

    await_removal(context, &client, &key, wanted).await;
}

/// Serves the logs of a pod that finished under a previous kubelet.
pub(super) async fn serve_logs(context: Arc<Context>, key: PodKey, wanted: watch::Receiver<Wanted>) {
    let mut restarts = Restarts::of(format!("the worker of pod {key}"), &context.closing);
    let client = PodClient::new(context.client.clone(), key.clone());
    let serve = async || {
        context.logs.add_pod(&key, &Leftovers::of(context.pods.of(&key)).await);
        await_removal(&context, &client, &key, wanted.clone()).await;
    };
    while restarts.run(serve()).await.is_none() {}
}

/// Keeps logs and volumes of a finished pod available until it is deleted.
async fn await_removal(
    context: &Context,
    client: &PodClient,
    key: &PodKey,
    mut wanted: watch::Receiver<Wanted>,
) {
    let mut order = wanted.wait_for(|wanted| *wanted != Wanted::Run).await.map(|order| *order);
    if let Ok(Wanted::Delete { .. }) = order {
        let mut orders = wanted.clone();
        tokio::select! {
            () = client.remove() => {}
            _ = orders.wait_for(|wanted| !wanted.manages_object()) => {}
        }
        // The object may stay while it has finalizers.
        order = wanted.wait_for(|wanted| !wanted.manages_object()).await.map(|order| *order);
    }
    context.logs.remove_pod(key);
    // The next kubelet needs the directory to continue this pod.
    if !matches!(order, Ok(Wanted::Abandon)) {
        context.pods.of(key).remove().await;
    }
}

/// One pod while its containers run.
pub(super) struct Worker {
    pub(super) context: Arc<Context>,
    pub(super) pod: Arc<Pod>,
    pub(super) key: PodKey,
    pub(super) client: PodClient,
    /// Volumes and logs of this pod.
    pub(super) folder: PodFolder,
    pub(super) record: watch::Sender<PodRecord>,
    /// Whether to start no containers, because a previous kubelet ran the pod and it must not be restarted.
    over: bool,
    /// Stops all containers except sidecars.
    stop: StopOrder,
    /// Stops sidecars, which outlive the main containers.
    stop_sidecars: StopOrder,
}

impl Worker {
    fn new(context: Arc<Context>, pod: Arc<Pod>, left: &Leftovers, client: PodClient) -> Self {
        let key = PodKey::of(&pod);
        let folder = context.pods.of(&key);
        let status = pod.status.clone().unwrap_or_default();
        let (record, over) = PodRecord::resume(&pod.spec, &status, left, Timestamp::now());
        let record = watch::Sender::new(record);
        let (stop, stop_sidecars) = (StopOrder::default(), StopOrder::default());
        Self { context, pod, key, client, folder, record, over, stop, stop_sidecars }
    }

    /// Runs the pod until it finishes, is stopped, or exceeds its deadline.
    async fn run(self: &Arc<Self>, mut wanted: watch::Receiver<Wanted>) {
        let order = *wanted.borrow_and_update();
        self.apply_order(order);
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
                    self.apply_order(order);
                }
            }
        }
        if self.context.mode == KubeletMode::Process {
            self.context.stragglers.kill(&self.key.uid).await;
        }
        self.record.send_modify(|record| record.finish(Timestamp::now()));
    }

    fn apply_order(&self, order: Wanted) {
        match order {
            Wanted::Run => {}
            Wanted::Delete { grace } => self.stop.request(grace),
            Wanted::Gone => self.stop.request(Duration::ZERO),
            Wanted::Abandon => self.stop.request(self.pod.spec.grace().min(SHUTDOWN_GRACE)),
        }
    }

    /// Resolves when the pod exceeds `activeDeadlineSeconds`.
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

    /// Fails the pod as a whole and stops its containers.
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
        while let Some(ended) = sidecars.join_next().await {
            propagate_panic(ended);
        }
    }

    /// Runs the init containers in sequence; `true` if the main containers may start.
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
                    Some(ended @ Err(_)) = sidecars.join_next() => propagate_panic(ended),
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

    /// Runs one container, with restarts according to its policy; `true` if it finally succeeded.
    async fn run_container(&self, slot: Slot, volumes: &Variables, stop: &StopOrder) -> bool {
        let policy = self.pod.spec.restart_policy(slot);
        let (starts, succeeded) = {
            let record = self.record.borrow();
            (record.starts(slot), record.has_succeeded(slot))
        };
        // It succeeded under a previous kubelet. Init containers run again, as after a node restart.
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

    /// Waits before the next start; `false` if the container must not start again.
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

    /// Runs one container once; `None` if it will never start.
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

    /// Creates the pod's volumes; `None` if the pod, or a volume of it, is impossible here.
    async fn volumes(&self) -> Option<Variables> {
        if self.context.mode == KubeletMode::Simulated {
            return Some(Variables::new());
        }
        if let Some(refusal) = refusals::of(&self.pod.spec).into_iter().next() {
            self.refuse(None, refusal.reason, refusal.message).await;
            return None;
        }
        self.await_setup(None, &self.stop, || volumes::prepare(&self.client, &self.pod, &self.folder)).await
    }

    /// Repeats the preparations until they succeed; `None` if they never will, or if a stop is requested.
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
        let mut reported = None;
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
                Err(SetupError::Missing(message)) if reported.as_ref() != Some(&message) => {
                    let reason =
                        if slot.is_some() { "CreateContainerConfigError" } else { "ContainerCreating" };
                    let first = slot.unwrap_or(Slot::Main(0));
                    self.record.send_modify(|record| record.waiting(first, reason, message.clone()));
                    let event = if slot.is_some() { "Failed" } else { refusals::FAILED_MOUNT };
                    self.context.events.warn(&self.key, event, &message).await;
                    reported = Some(message);
                }
                Err(SetupError::Missing(_)) => {}
            }
            tokio::select! {
                () = stop.requested() => return None,
                () = tokio::time::sleep(RETRY_INTERVAL) => {}
            }
        }
    }

    /// Fails the pod because it, or one container, requires something that this kubelet does not support.
    async fn refuse(&self, slot: Option<Slot>, reason: &str, message: String) {
        match slot {
            Some(slot) => {
                let termination = Termination::not_started(reason, message.clone(), Timestamp::now());
                self.record.send_modify(|record| record.terminated(slot, termination));
                self.fail(reason, message.clone());
            }
            None => {
                let failure = Failure { reason: reason.into(), message: message.clone() };
                self.record.send_modify(|record| record.refuse(failure));
            }
        }
        let event = if reason == refusals::FAILED_MOUNT { reason } else { "Failed" };
        self.context.events.warn(&self.key, event, &message).await;
    }
}

/// A panic of a part is one of the whole.
fn propagate_panic(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && let Ok(panic) = error.try_into_panic()
    {
        std::panic::resume_unwind(panic);
    }
}
