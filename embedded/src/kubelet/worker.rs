//! The lifecycle of one pod on this node, from assignment to removal.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use super::claims::Claims;
use super::client::PodClient;
use super::engine::{Engine, Network};
use super::events::Events;
use super::gpus::Gpus;
use super::leftovers::Leftovers;
use super::logs::LogIndex;
use super::manager::Seat;
use super::mounting::Mounting;
use super::pod::{Pod, PodKey, RestartPolicy, Slot};
use super::pod_folder::{PodFolder, PodFolders};
use super::pod_names::Named;
use super::pulls::PullObserver;
use super::restart_delays::RestartDelays;
use super::runtime::Run;
use super::service_account::Accounts;
use super::setup::{PodSetup, SetupError};
use super::status::{Failure, PodRecord, Termination};
use super::stop::StopOrder;
use super::stragglers::Stragglers;
use super::supervisor::Supervisor;
use super::workspace::Workspace;
use super::{
    KubeletMode, action, attend, evictions, images, pod_names, refusals, reporter, runtime, service_account,
    token_renewal, volumes,
};
use crate::pod_entrance::PodEntrance;
use crate::restarts::Restarts;
use crate::time::from_now;

/// Grace period of processes after SIGTERM when the kubelet itself stops.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);
/// Reason of a pod that takes more of the node than it may.
const EVICTED: &str = "Evicted";
/// Grace period of an evicted pod.
const EVICTION_GRACE: Duration = Duration::from_secs(1);
/// Interval between checks for a ConfigMap, Secret or key that a container waits for.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// State shared by all pods of this node.
pub(super) struct Context {
    pub(super) client: kube::Client,
    pub(super) node_name: String,
    pub(super) mode: KubeletMode,
    /// The way of pods to the API server, if they have one.
    pub(super) api: Option<PodEntrance>,
    pub(super) accounts: Accounts,
    pub(super) claims: Claims,
    pub(super) workspace: Workspace,
    pub(super) mounting: Mounting,
    pub(super) pulls: Arc<dyn PullObserver>,
    pub(super) pods: PodFolders,
    pub(super) logs: Arc<LogIndex>,
    pub(super) events: Events,
    /// Events of the scheduler.
    pub(super) scheduler_events: Events,
    pub(super) gpus: Gpus,
    pub(super) stragglers: Stragglers,
    /// Runs processes; absent if there are none.
    pub(super) supervisor: Option<Arc<Supervisor>>,
    /// Cancelled when the kubelet stops.
    pub(super) closing: CancellationToken,
}

impl Context {
    /// Ends what another kubelet has left running of a pod.
    pub(super) async fn kill_left(&self, pod_uid: &str) {
        match &self.mode {
            KubeletMode::Process => self.stragglers.kill(pod_uid).await,
            KubeletMode::Containers(engine) => engine.remove_pod(pod_uid).await,
            KubeletMode::Simulated => {}
        }
    }
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
    seat: Seat,
) {
    let key = PodKey::of(&pod);
    let mut seat = Some(seat);
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
            run_pod_once(&context, pod, taken_over || is_restart, wanted.clone(), &mut seat).await;
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
    seat: &mut Option<Seat>,
) {
    let key = PodKey::of(&pod);
    let client = PodClient::new(context.client.clone(), key.clone());
    let pod = service_account::give(context, &client, pod).await;
    let left = if taken_over { Leftovers::of(context.pods.of(&key)).await } else { Leftovers::default() };
    context.logs.add_pod(&key, &left);
    let worker = Arc::new(Worker::new(Arc::clone(context), pod, &left, client.clone()));
    if taken_over {
        // If the previous kubelet was killed, it may have left something behind.
        context.kill_left(&key.uid).await;
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
    *seat = None;

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
        let outgrown = evictions::outgrown(&self.pod.spec, &self.folder);
        tokio::pin!(containers, deadline, outgrown);
        let (mut exceeded, mut evicted) = (false, false);
        loop {
            tokio::select! {
                () = &mut containers => break,
                () = &mut deadline, if !exceeded => {
                    exceeded = true;
                    self.fail("DeadlineExceeded", "Pod was active on the node longer than the specified deadline");
                }
                why = &mut outgrown, if !evicted => {
                    evicted = true;
                    self.evict(why).await;
                }
                Ok(()) = wanted.changed() => {
                    let order = *wanted.borrow_and_update();
                    self.apply_order(order);
                }
            }
        }
        if self.may_have_stragglers() {
            self.context.stragglers.kill(&self.key.uid).await;
        }
        self.record.send_modify(|record| record.finish(Timestamp::now()));
    }

    /// Whether processes of this pod may be left, now that its containers have ended. Commands of hooks and probes may still
    /// run, with children of their own.
    fn may_have_stragglers(&self) -> bool {
        let spec = &self.pod.spec;
        let mut containers = spec.init_containers.iter().chain(&spec.containers);
        let may_have = |supervisor: &Arc<Supervisor>| supervisor.may_have_orphans();
        matches!(self.context.mode, KubeletMode::Process)
            && (containers.any(action::runs_commands)
                || self.context.supervisor.as_ref().is_none_or(may_have))
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
        self.fail_within(self.pod.spec.grace(), reason, message.into());
    }

    /// Fails the pod as a whole, and stops its containers in this time.
    fn fail_within(&self, grace: Duration, reason: &str, message: String) {
        let failure = Failure { reason: reason.into(), message };
        self.record.send_modify(|record| record.fail(failure));
        self.stop.request(grace);
    }

    /// Evicts the pod for what it takes of the node.
    async fn evict(&self, why: String) {
        self.context.events.warn(&self.key, EVICTED, &why).await;
        self.fail_within(EVICTION_GRACE, EVICTED, why);
    }

    async fn run_containers(self: &Arc<Self>) {
        if self.over {
            return;
        }
        let Some(setup) = self.setup().await else { return };
        let setup = Arc::new(setup);
        tokio::select! {
            () = self.run_all(&setup) => {}
            never = token_renewal::renew(self) => match never {},
        }
        if let Some(PodSetup { sandbox: Some(sandbox), .. }) = Arc::into_inner(setup) {
            sandbox.remove().await;
        }
    }

    async fn run_all(self: &Arc<Self>, setup: &Arc<PodSetup>) {
        let mut sidecars = JoinSet::new();
        if self.run_init_containers(setup, &mut sidecars).await {
            let main = (0..self.pod.spec.containers.len()).map(Slot::Main);
            join_all(main.map(|slot| self.run_container(slot, setup, &self.stop))).await;
        }
        match self.stop.deadline() {
            // The main containers may have taken all the time.
            Some(deadline) => self.stop_sidecars.request_until(deadline.max(from_now(SHUTDOWN_GRACE))),
            None => self.stop_sidecars.request(self.pod.spec.grace()),
        }
        while let Some(ended) = sidecars.join_next().await {
            propagate_panic(ended);
        }
    }

    /// Runs the init containers in sequence; `true` if the main containers may start.
    async fn run_init_containers(
        self: &Arc<Self>,
        setup: &Arc<PodSetup>,
        sidecars: &mut JoinSet<()>,
    ) -> bool {
        for slot in (0..self.pod.spec.init_containers.len()).map(Slot::Init) {
            if self.pod.spec.is_sidecar(slot) {
                let (worker, setup) = (Arc::clone(self), Arc::clone(setup));
                sidecars.spawn(async move {
                    worker.run_container(slot, &setup, &worker.stop_sidecars).await;
                });
                let mut record = self.record.subscribe();
                let starts_slowly = attend::starts_slowly(self.pod.spec.container(slot));
                let is_up = |record: &PodRecord| match starts_slowly {
                    true => record.is_up(slot),
                    false => record.has_started(slot),
                };
                tokio::select! {
                    _ = record.wait_for(|record| is_up(record)) => {}
                    () = self.stopped() => return false,
                    Some(ended @ Err(_)) = sidecars.join_next() => propagate_panic(ended),
                }
            } else if !self.run_container(slot, setup, &self.stop).await {
                return false;
            }
        }
        true
    }

    async fn stopped(&self) {
        self.stop.signal().requested().await;
    }

    /// Runs one container, with restarts according to its policy; `true` if it finally succeeded.
    async fn run_container(&self, slot: Slot, setup: &PodSetup, stop: &StopOrder) -> bool {
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
            let Some(run) = self.run_once(slot, attempt, setup, stop).await else { return false };
            let Run { termination, is_killed } = run;
            let (succeeded, exit_code) = (termination.succeeded(), termination.exit_code);
            let ran_for = termination
                .started_at
                .and_then(|start| Duration::try_from(termination.finished_at.duration_since(start)).ok());
            self.record.send_modify(|record| record.terminated(slot, termination));
            // What a probe has ended goes on, whatever its exit code is.
            let goes_on = is_killed && policy != RestartPolicy::Never;
            let over = !goes_on && !self.pod.spec.restarts(slot, exit_code);
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
    async fn run_once(&self, slot: Slot, attempt: u32, setup: &PodSetup, stop: &StopOrder) -> Option<Run> {
        let prepare = || runtime::prepare(self, slot, attempt, setup);
        let launch = self.await_setup(Some(slot), stop, prepare).await?;
        Some(runtime::run(self, slot, attempt, setup, launch, stop).await)
    }

    /// Makes what the pod's containers share; `None` if the pod, or a volume of it, is impossible here.
    async fn setup(&self) -> Option<PodSetup> {
        let (refusals, engine) = match &self.context.mode {
            KubeletMode::Process => (refusals::of_processes(&self.pod.spec, &self.context.mounting), None),
            KubeletMode::Containers(engine) => (refusals::of_containers(&self.pod.spec), Some(engine)),
            KubeletMode::Simulated => return Some(PodSetup::default()),
        };
        if let Some(refusal) = refusals.into_iter().next() {
            self.refuse(None, refusal.reason, refusal.message).await;
            return None;
        }
        let volumes = || volumes::prepare(self);
        let volumes = self.await_setup(None, &self.stop, volumes).await?;
        let network = match engine {
            Some(engine) => self.await_setup(None, &self.stop, || self.network(engine)).await?,
            None => None,
        };
        let (spec, api) = (&self.pod.spec, self.context.api.as_ref());
        let api = service_account::address(api, spec, engine, network.as_ref()).await;
        let Some(engine) = engine else {
            if let Some(why) = self.context.mounting.why_not(spec) {
                self.context.events.note(&self.key, "MountsByVariable", &why).await;
            }
            return Some(PodSetup { volumes, api, ..PodSetup::default() });
        };
        let make = || engine.sandbox(&self.key, spec, network.as_ref());
        let sandbox = self.await_setup(None, &self.stop, make).await?;
        Some(PodSetup { volumes, api, network, sandbox, ..PodSetup::default() })
    }

    /// The place of the pod in a network, if its namespace has Services: pods find each other by name there.
    async fn network(&self, engine: &Engine) -> Result<Option<Network>, SetupError> {
        let spec = &self.pod.spec;
        if spec.host_network {
            return Ok(None);
        }
        let services = self.client.services().await?;
        if services.is_empty() {
            return Ok(None);
        }
        let names = pod_names::of(
            Named {
                namespace: &self.key.namespace,
                labels: self.pod.metadata.labels.as_ref().unwrap_or(&BTreeMap::new()),
                hostname: &spec.host_name(&self.key.name),
                subdomain: spec.subdomain.as_deref().unwrap_or_default(),
            },
            &services,
        );
        engine.network(&self.key.namespace, names).await.map(Some)
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
                Err(SetupError::Missing { reason, message }) => {
                    if reported.as_ref() != Some(&message) {
                        self.report_wait(slot, reason, &message).await;
                        reported = Some(message);
                    }
                }
            }
            tokio::select! {
                () = stop.requested() => return None,
                () = tokio::time::sleep(RETRY_INTERVAL) => {}
            }
        }
    }

    /// Says what the pod, or one container, waits for.
    async fn report_wait(&self, slot: Option<Slot>, reason: Option<&'static str>, message: &str) {
        let (shown, event) = match slot {
            Some(_) => (reason.unwrap_or(refusals::CONFIG_ERROR), "Failed"),
            None => ("ContainerCreating", reason.unwrap_or(refusals::FAILED_MOUNT)),
        };
        let first = slot.unwrap_or(Slot::Main(0));
        self.record.send_modify(|record| record.waiting(first, shown, message.to_owned()));
        let is_told = match slot {
            Some(slot) => images::report_wait(self, slot, shown, message).await,
            None => false,
        };
        if !is_told {
            self.context.events.warn(&self.key, event, message).await;
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
