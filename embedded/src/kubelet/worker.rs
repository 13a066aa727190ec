//! A pod while its containers run: their order, their restarts, and the reasons to stop them.

mod preparation;

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};

use super::client::PodClient;
use super::context::Context;
use super::leftovers::Leftovers;
use super::lifecycle::Wanted;
use super::pod::{Pod, PodKey, RestartPolicy, Slot};
use super::pod_folder::PodFolder;
use super::restart_delays::RestartDelays;
use super::runtime::Run;
use super::setup::PodSetup;
use super::status::{Failure, PodRecord};
use super::stop::StopOrder;
use super::supervisor::Supervisor;
use super::volumes::Volumes;
use super::{KubeletMode, action, attend, evictions, runtime, token_renewal};
use crate::time::from_now;

/// Grace period of processes after SIGTERM when the kubelet itself stops.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);
/// How much longer than its grace period a pod waits for the end of what a previous kubelet has left of it.
const LEFT_ENDS_WITHIN: Duration = Duration::from_secs(10);
/// Reason of a pod that takes more of the node than it may.
const EVICTED: &str = "Evicted";
/// Grace period of an evicted pod.
const EVICTION_GRACE: Duration = Duration::from_secs(1);

/// A pod while its containers run.
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
    /// A worker that has not run yet. A previous kubelet has left these logs of the pod.
    pub(super) fn new(context: Arc<Context>, pod: Arc<Pod>, left: &Leftovers, client: PodClient) -> Self {
        let key = PodKey::of(&pod);
        let folder = context.pods.of(&key);
        let status = pod.status.clone().unwrap_or_default();
        let (record, over) = PodRecord::resume(&pod.spec, &status, left, Timestamp::now());
        let record = watch::Sender::new(record);
        let (stop, stop_sidecars) = (StopOrder::default(), StopOrder::default());
        Self { context, pod, key, client, folder, record, over, stop, stop_sidecars }
    }

    /// Ends what a previous kubelet has left running of the pod. If the pod has to end meanwhile, the wait is over
    /// soon after its grace period: the engine may be away or frozen. The rest goes on without the pod.
    pub(super) async fn kill_left(&self, mut wanted: watch::Receiver<Wanted>) {
        let (context, uid) = (Arc::clone(&self.context), self.key.uid.clone());
        let mut killing = tokio::spawn(async move { context.kill_left(&uid).await });
        let stop = self.stop.signal();
        let late = async {
            stop.expired().await;
            tokio::time::sleep(LEFT_ENDS_WITHIN).await;
        };
        tokio::pin!(late);
        let order = *wanted.borrow_and_update();
        self.apply_order(order);
        loop {
            tokio::select! {
                ended = &mut killing => return propagate_panic(ended),
                () = &mut late => {
                    tracing::warn!(pod = %self.key, "a pod ends, and what was left of it may still run");
                    return;
                }
                Ok(()) = wanted.changed() => {
                    let order = *wanted.borrow_and_update();
                    self.apply_order(order);
                }
            }
        }
    }

    /// Runs the pod until it finishes, is stopped, or exceeds its deadline.
    pub(super) async fn run(self: &Arc<Self>, mut wanted: watch::Receiver<Wanted>) {
        let order = *wanted.borrow_and_update();
        self.apply_order(order);
        let containers = self.run_containers();
        let deadline = self.deadline();
        let outgrown = evictions::outgrown(self);
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
        let Some((volumes, issued)) = self.volumes().await else { return };
        // The rest of the preparations may take longer than a token is valid.
        tokio::select! {
            () = self.run_with(volumes) => {}
            never = token_renewal::renew(self, issued) => match never {},
        }
    }

    async fn run_with(self: &Arc<Self>, volumes: Volumes) {
        let Some(setup) = self.setup(volumes).await else { return };
        let setup = Arc::new(setup);
        self.run_all(&setup).await;
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
            // A container that a probe has ended goes on, whatever its exit code is.
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
}

/// A panic of a part is one of the whole.
fn propagate_panic(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && let Ok(panic) = error.try_into_panic()
    {
        std::panic::resume_unwind(panic);
    }
}
