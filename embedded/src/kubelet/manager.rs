//! Keeps one worker per pod of this node, and assigns new pods to it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, pin_mut};
use kube::api::Api;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch_pods};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::client::PodClient;
use super::node::MAX_PODS;
use super::pod::{self, Pod, PodKey, PodStatus};
use super::worker::{self, Context, Wanted};
use super::{KubeletMode, leftovers};

/// Assignments on their way at the same time.
const MAX_BINDINGS: usize = 16;

/// The kubelet's main loop.
pub(super) struct Manager {
    context: Arc<Context>,
    /// Pods that a worker looks after, until their objects are gone.
    workers: HashMap<String, watch::Sender<Wanted>>,
    tasks: JoinSet<()>,
    /// Pods without a node in the order in which they came; those that are gone leave a key behind.
    queue: VecDeque<PodKey>,
    unscheduled: HashSet<String>,
    /// Room for pods on the node.
    places: Arc<Semaphore>,
    bindings: Arc<Semaphore>,
    /// Places of pods whose assignment the watch has not shown yet.
    reserved: HashMap<String, OwnedSemaphorePermit>,
    /// Pods seen since the watch began anew.
    seen: HashSet<String>,
    /// Whether nothing of pods that were gone before is left.
    tidy: bool,
}

impl Manager {
    /// A manager that knows no pod yet.
    pub(super) fn new(context: Context) -> Self {
        Self {
            context: Arc::new(context),
            workers: HashMap::new(),
            tasks: JoinSet::new(),
            queue: VecDeque::new(),
            unscheduled: HashSet::new(),
            places: Arc::new(Semaphore::new(MAX_PODS)),
            bindings: Arc::new(Semaphore::new(MAX_BINDINGS)),
            reserved: HashMap::new(),
            seen: HashSet::new(),
            tidy: false,
        }
    }

    /// Runs until `stop`, then until the last process has ended.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        let pods: Api<Pod> = Api::all_with(self.context.client.clone(), &pod::resource());
        let events = watch_pods(pods, watcher::Config::default())
            .default_backoff()
            .inspect_err(|error| tracing::debug!(%error, "the watch of pods was interrupted"))
            .filter_map(|event| std::future::ready(event.ok()));
        pin_mut!(events);
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                Some(event) = events.next() => self.observe(event),
                Ok(place) = Arc::clone(&self.places).acquire_owned(), if !self.queue.is_empty() => {
                    self.schedule(place);
                }
                Some(ended) = self.tasks.join_next() => {
                    if let Err(error) = ended {
                        tracing::error!(%error, "a pod's worker broke off");
                    }
                }
            }
        }
        for wanted in self.workers.values() {
            wanted.send_replace(Wanted::Abandon);
        }
        while self.tasks.join_next().await.is_some() {}
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
                    self.forget(&uid);
                }
                self.unscheduled.retain(|uid| self.seen.contains(uid));
                self.seen.clear();
                if !std::mem::replace(&mut self.tidy, true) {
                    self.tidy_up();
                }
            }
            Event::Apply(pod) => self.apply(pod),
            Event::Delete(pod) => self.forget(pod.metadata.uid.as_deref().unwrap_or_default()),
        }
    }

    /// Ends what a former kubelet left of pods that do not exist any more.
    fn tidy_up(&mut self) {
        let left = leftovers::pods(&self.context.directory).into_iter();
        for (uid, directory) in left.filter(|(uid, _)| !self.workers.contains_key(uid)) {
            let context = Arc::clone(&self.context);
            self.tasks.spawn(async move {
                if context.mode == KubeletMode::Process {
                    context.stragglers.kill(&uid).await;
                }
                worker::remove_directory(&directory).await;
            });
        }
    }

    fn apply(&mut self, mut pod: Pod) {
        pod.metadata.managed_fields = None;
        let key = PodKey::of(&pod);
        match &pod.spec.node_name {
            None => self.enqueue(key, &pod),
            Some(node) if *node == self.context.node_name => self.look_after(key, pod),
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

    /// Assigns the pod that has waited longest to this node.
    fn schedule(&mut self, place: OwnedSemaphorePermit) {
        let Some(key) = self.queue.pop_front() else { return };
        if !self.unscheduled.remove(&key.uid) {
            return;
        }
        self.reserved.insert(key.uid.clone(), place);
        let client = PodClient::new(self.context.client.clone(), key);
        let (bindings, context) = (Arc::clone(&self.bindings), Arc::clone(&self.context));
        self.tasks.spawn(async move {
            let _turn = bindings.acquire().await;
            client.bind(&context.node_name).await;
        });
    }

    fn look_after(&mut self, key: PodKey, pod: Pod) {
        self.unscheduled.remove(&key.uid);
        let place = self.reserved.remove(&key.uid);
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
            // A former kubelet ran it; all that is left to do is to show its logs and to let it go.
            let (order, orders) = watch::channel(wanted);
            self.workers.insert(key.uid.clone(), order);
            self.tasks.spawn(worker::keep(Arc::clone(&self.context), key, orders));
            return;
        }
        let (order, orders) = watch::channel(wanted);
        self.workers.insert(key.uid, order);
        let taken_over = place.is_none();
        // One that a former kubelet left takes room as well, as far as there is some.
        let place = place.or_else(|| Arc::clone(&self.places).try_acquire_owned().ok());
        let (context, pod) = (Arc::clone(&self.context), Arc::new(pod));
        self.tasks.spawn(worker::live(context, pod, taken_over, orders, place));
    }

    fn forget(&mut self, uid: &str) {
        self.unscheduled.remove(uid);
        self.reserved.remove(uid);
        if let Some(worker) = self.workers.remove(uid) {
            worker.send_replace(Wanted::Gone);
        }
    }
}
