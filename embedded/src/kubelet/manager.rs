//! Runs one worker per pod of this node and assigns new pods to the node.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, pin_mut};
use kube::api::Api;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch_pods};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::KubeletMode;
use super::client::PodClient;
use super::node::MAX_PODS;
use super::pod::{self, Pod, PodKey, PodStatus};
use super::pod_folder::PodFolder;
use super::worker::{self, Context, Wanted};
use crate::restarts::{Restarts, supervise};

/// Maximum number of concurrent binding requests.
const MAX_BINDINGS: usize = 16;

/// The kubelet's main loop.
pub(super) struct Manager {
    context: Arc<Context>,
    /// Workers by pod uid, until the pod's object is gone.
    workers: HashMap<String, watch::Sender<Wanted>>,
    tasks: JoinSet<()>,
    /// Pods without a node, in order of arrival. Removed pods leave a stale key behind.
    queue: VecDeque<PodKey>,
    unscheduled: HashSet<String>,
    /// The node's capacity for pods.
    capacity: Arc<Semaphore>,
    bindings: Arc<Semaphore>,
    /// Permits of pods whose assignment has not arrived on the watch yet.
    reserved: HashMap<String, OwnedSemaphorePermit>,
    /// Pods seen since the watch restarted.
    seen: HashSet<String>,
    /// Folders of pods from before the start, until those of pods that no longer exist are removed.
    left: Vec<PodFolder>,
}

impl Manager {
    /// A manager without pods. A previous kubelet has left these folders.
    pub(super) fn new(context: Arc<Context>, left: Vec<PodFolder>) -> Self {
        Self {
            context,
            workers: HashMap::new(),
            tasks: JoinSet::new(),
            queue: VecDeque::new(),
            unscheduled: HashSet::new(),
            capacity: Arc::new(Semaphore::new(MAX_PODS)),
            bindings: Arc::new(Semaphore::new(MAX_BINDINGS)),
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
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                Some(event) = events.next() => self.observe(event),
                Ok(permit) = Arc::clone(&self.capacity).acquire_owned(), if !self.queue.is_empty() => {
                    self.schedule(permit);
                }
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
                self.unscheduled.retain(|uid| self.seen.contains(uid));
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
                if context.mode == KubeletMode::Process {
                    context.stragglers.kill(folder.uid()).await;
                }
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
                self.unscheduled.remove(&key.uid);
            }
        }
    }

    fn enqueue(&mut self, key: PodKey, pod: &Pod) {
        let waits = pod.spec.scheduling_gates.is_empty()
            && pod.metadata.deletion_timestamp.is_none()
            && !pod.status.as_ref().is_some_and(PodStatus::is_terminal)
            && !self.reserved.contains_key(&key.uid);
        if !waits {
            self.unscheduled.remove(&key.uid);
        } else if self.unscheduled.insert(key.uid.clone()) {
            self.queue.push_back(key);
        }
    }

    /// Assigns the first queued pod to this node.
    fn schedule(&mut self, permit: OwnedSemaphorePermit) {
        let Some(key) = self.queue.pop_front() else { return };
        if !self.unscheduled.remove(&key.uid) {
            return;
        }
        self.reserved.insert(key.uid.clone(), permit);
        let client = PodClient::new(self.context.client.clone(), key);
        let (bindings, context) = (Arc::clone(&self.bindings), Arc::clone(&self.context));
        self.tasks.spawn(async move {
            let _turn = bindings.acquire().await;
            let closing = context.closing.clone();
            supervise("the binding of a pod", closing, || client.bind(&context.node_name)).await;
        });
    }

    fn ensure_worker(&mut self, key: PodKey, pod: Pod) {
        self.unscheduled.remove(&key.uid);
        let permit = self.reserved.remove(&key.uid);
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
            self.tasks.spawn(worker::serve_logs(Arc::clone(&self.context), key, orders));
            return;
        }
        let (order, orders) = watch::channel(wanted);
        self.workers.insert(key.uid, order);
        let taken_over = permit.is_none();
        // A pod from a previous kubelet also takes capacity, if there is any left.
        let permit = permit.or_else(|| Arc::clone(&self.capacity).try_acquire_owned().ok());
        let (context, pod) = (Arc::clone(&self.context), Arc::new(pod));
        self.tasks.spawn(worker::run_pod(context, pod, taken_over, orders, permit));
    }

    fn pod_deleted(&mut self, uid: &str) {
        self.unscheduled.remove(uid);
        self.reserved.remove(uid);
        if let Some(worker) = self.workers.remove(uid) {
            worker.send_replace(Wanted::Gone);
        }
    }
}
