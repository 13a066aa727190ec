//! Runs one worker per pod of this node and assigns new pods to the node.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, pin_mut};
use k8s_openapi::api::core::v1::Node;
use kube::api::Api;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch_pods};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::client::PodClient;
use super::context::Context;
use super::lifecycle::{self, Wanted};
use super::pod::{self, Pod, PodKey, PodStatus};
use super::pod_folder::PodFolder;
use super::scheduling::{NodeView, Scheduler, Unschedulable};
use crate::restarts::{Restarts, supervise};

/// Maximum number of concurrent binding requests, and of those that say why a pod does not start.
const MAX_BINDINGS: usize = 16;
/// How often pods that wait are told why: those that start sooner need not know.
const EXPLAINED_EVERY: Duration = Duration::from_secs(1);

/// The place of a pod on the node. Dropping it frees the place.
#[derive(Debug)]
pub(super) struct Seat {
    uid: String,
    freed: UnboundedSender<String>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        // Without a manager the place is not needed.
        self.freed.send(std::mem::take(&mut self.uid)).ok();
    }
}

/// The kubelet's main loop.
pub(super) struct Manager {
    context: Arc<Context>,
    /// Workers by pod uid, until the pod's object is gone.
    workers: HashMap<String, watch::Sender<Wanted>>,
    tasks: JoinSet<()>,
    scheduler: Scheduler,
    /// Whether pods may have a place since the scheduler was asked.
    is_changed: bool,
    /// UIDs of pods that have left their place.
    left_places: (UnboundedSender<String>, UnboundedReceiver<String>),
    /// The last explanation to each pod that waits, by UID.
    explained: HashMap<String, String>,
    bindings: Arc<Semaphore>,
    explanations: Arc<Semaphore>,
    /// Places of pods whose assignment has not arrived on the watch yet.
    reserved: HashMap<String, Seat>,
    /// Pods seen since the watch restarted.
    seen: HashSet<String>,
    /// Folders of pods from before the start, until those of pods that no longer exist are removed.
    left: Vec<PodFolder>,
}

impl Manager {
    /// A manager without pods. A previous kubelet has left these folders.
    pub(super) fn new(context: Arc<Context>, left: Vec<PodFolder>, node: &Node) -> Self {
        let mut scheduler = Scheduler::default();
        scheduler.node(NodeView::of(node));
        Self {
            context,
            workers: HashMap::new(),
            tasks: JoinSet::new(),
            scheduler,
            is_changed: false,
            left_places: mpsc::unbounded_channel(),
            explained: HashMap::new(),
            bindings: Arc::new(Semaphore::new(MAX_BINDINGS)),
            explanations: Arc::new(Semaphore::new(MAX_BINDINGS)),
            reserved: HashMap::new(),
            seen: HashSet::new(),
            left,
        }
    }

    /// Runs until `stop`, then until the last process has ended.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        let mut restarts = Restarts::of("the kubelet's manager", &stop);
        while restarts.run(self.manage(&stop)).await.is_none() {}
        for wanted in self.workers.values() {
            wanted.send_replace(Wanted::Abandon);
        }
        while self.tasks.join_next().await.is_some() {}
    }

    /// Watches pods until `stop`.
    async fn manage(&mut self, stop: &CancellationToken) {
        let pods: Api<Pod> = Api::all_with(self.context.client.clone(), &pod::resource());
        let events = watch_pods(pods, watcher::Config::default())
            .default_backoff()
            .inspect_err(|error| tracing::debug!(%error, "the watch of pods was interrupted"))
            .filter_map(|event| std::future::ready(event.ok()));
        pin_mut!(events);
        let own = watcher::Config::default().fields(&format!("metadata.name={}", self.context.node_name));
        let nodes = watch_pods(Api::<Node>::all(self.context.client.clone()), own)
            .default_backoff()
            .filter_map(|event| std::future::ready(event.ok()));
        pin_mut!(nodes);
        let mut explaining = tokio::time::interval(EXPLAINED_EVERY);
        explaining.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                Some(event) = events.next() => self.observe(event),
                Some(Event::Apply(node) | Event::InitApply(node)) = nodes.next() => {
                    self.scheduler.node(NodeView::of(&node));
                    self.is_changed = true;
                }
                Some(uid) = self.left_places.1.recv() => {
                    self.scheduler.leave(&uid);
                    self.is_changed = true;
                }
                _ = explaining.tick() => self.explain(),
                () = std::future::ready(()), if self.is_changed => self.schedule(),
                Some(ended) = self.tasks.join_next() => {
                    if let Err(error) = ended {
                        tracing::error!(%error, "a task of the kubelet panicked");
                    }
                }
            }
        }
    }

    fn observe(&mut self, event: Event<Pod>) {
        match event {
            Event::Init => self.seen.clear(),
            Event::InitApply(pod) => {
                self.seen.extend(pod.metadata.uid.clone());
                self.apply(pod);
            }
            Event::InitDone => {
                let gone = self.workers.keys().filter(|uid| !self.seen.contains(*uid)).cloned();
                for uid in gone.collect::<Vec<_>>() {
                    self.pod_deleted(&uid);
                }
                self.scheduler.retain(&self.seen);
                self.reserved.retain(|uid, _| self.seen.contains(uid));
                self.is_changed = true;
                self.explained.retain(|uid, _| self.seen.contains(uid));
                self.seen.clear();
                self.clean_up_leftovers();
            }
            Event::Apply(pod) => self.apply(pod),
            Event::Delete(pod) => self.pod_deleted(pod.metadata.uid.as_deref().unwrap_or_default()),
        }
    }

    /// Removes processes and files that a previous kubelet left of pods that no longer exist.
    fn clean_up_leftovers(&mut self) {
        let left = std::mem::take(&mut self.left).into_iter();
        for folder in left.filter(|folder| !self.workers.contains_key(folder.uid())) {
            let context = Arc::clone(&self.context);
            self.tasks.spawn(async move {
                context.kill_left(folder.uid()).await;
                folder.remove().await;
            });
        }
    }

    fn apply(&mut self, mut pod: Pod) {
        pod.metadata.managed_fields = None;
        let key = PodKey::of(&pod);
        match &pod.spec.node_name {
            None => self.enqueue(key, &pod),
            Some(node) if *node == self.context.node_name => self.ensure_worker(key, pod),
            Some(_) => {
                self.reserved.remove(&key.uid);
                self.withdraw(&key.uid);
            }
        }
    }

    fn enqueue(&mut self, key: PodKey, pod: &Pod) {
        let waits = pod.spec.scheduling_gates.is_empty()
            && pod.metadata.deletion_timestamp.is_none()
            && !pod.status.as_ref().is_some_and(PodStatus::is_terminal)
            && !self.reserved.contains_key(&key.uid);
        if waits {
            self.is_changed |= self.scheduler.wait(key, pod);
        } else {
            self.withdraw(&key.uid);
        }
    }

    /// A pod waits no longer, so others may start that it held up.
    fn withdraw(&mut self, uid: &str) {
        self.is_changed |= self.scheduler.withdraw(uid);
    }

    /// Assigns the pods that have a place now to this node.
    fn schedule(&mut self) {
        let starting = self.scheduler.start();
        // Some pods wait for others that they want beside them.
        self.is_changed = !starting.is_empty();
        for key in starting {
            self.explained.remove(&key.uid);
            self.reserved.insert(key.uid.clone(), self.seat(&key.uid));
            let client = PodClient::new(self.context.client.clone(), key);
            let (bindings, context) = (Arc::clone(&self.bindings), Arc::clone(&self.context));
            self.tasks.spawn(async move {
                let _turn = bindings.acquire().await;
                let closing = context.closing.clone();
                supervise("the binding of a pod", closing, || client.bind(&context.node_name)).await;
            });
        }
    }

    fn seat(&self, uid: &str) -> Seat {
        Seat { uid: uid.to_owned(), freed: self.left_places.0.clone() }
    }

    /// Tells pods that wait why, unless they know.
    fn explain(&mut self) {
        for Unschedulable { key, message } in self.scheduler.explain() {
            if self.explained.get(&key.uid) == Some(&message) {
                continue;
            }
            self.explained.insert(key.uid.clone(), message.clone());
            let client = PodClient::new(self.context.client.clone(), key.clone());
            let (turns, context) = (Arc::clone(&self.explanations), Arc::clone(&self.context));
            self.tasks.spawn(async move {
                let _turn = turns.acquire().await;
                client.tell_unschedulable(&message).await;
                context.scheduler_events.warn(&key, "FailedScheduling", &message).await;
            });
        }
    }

    fn ensure_worker(&mut self, key: PodKey, pod: Pod) {
        let seat = self.reserved.remove(&key.uid);
        let wanted = match (&pod.metadata.deletion_timestamp, pod.metadata.deletion_grace_period_seconds) {
            (None, _) => Wanted::Run,
            (Some(_), Some(seconds)) => Wanted::Delete { grace: pod::grace(seconds) },
            (Some(_), None) => Wanted::Delete { grace: pod.spec.grace() },
        };
        if let Some(worker) = self.workers.get(&key.uid) {
            worker.send_if_modified(|current| {
                let changed = *current != wanted && wanted != Wanted::Run;
                if changed {
                    *current = wanted;
                }
                changed
            });
            return;
        }
        if pod.status.as_ref().is_some_and(PodStatus::is_terminal) {
            // It finished under a previous kubelet: its logs are served until it is deleted.
            let (order, orders) = watch::channel(wanted);
            self.workers.insert(key.uid.clone(), order);
            self.tasks.spawn(lifecycle::serve_logs(Arc::clone(&self.context), key, orders));
            return;
        }
        let (order, orders) = watch::channel(wanted);
        self.workers.insert(key.uid.clone(), order);
        let taken_over = seat.is_none();
        // A pod that a previous kubelet or its author has assigned also takes its place.
        self.scheduler.place(key, &pod);
        self.is_changed = true;
        let seat = seat.unwrap_or_else(|| self.seat(pod.metadata.uid.as_deref().unwrap_or_default()));
        let (context, pod) = (Arc::clone(&self.context), Arc::new(pod));
        self.tasks.spawn(lifecycle::run_pod(context, pod, taken_over, orders, seat));
    }

    fn pod_deleted(&mut self, uid: &str) {
        self.withdraw(uid);
        self.explained.remove(uid);
        self.reserved.remove(uid);
        if let Some(worker) = self.workers.remove(uid) {
            worker.send_replace(Wanted::Gone);
        }
    }
}
