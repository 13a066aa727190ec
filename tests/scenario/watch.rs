//! Watches a namespace: when it is quiet, how many pods ever existed, and which objects exist now.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::StreamExt;
use kube::{
    Api, Resource,
    api::{ApiResource, DynamicObject, GroupVersionKind},
    runtime::watcher::{self, Event},
};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep_until, timeout_at},
};

use crate::scenario::file::Until;

/// Everything seen so far in one namespace.
#[derive(Default)]
struct Seen {
    /// Uids of all pods that ever existed.
    ever: BTreeSet<String>,
    /// Existing objects by kind and uid.
    present: BTreeMap<(Kind, String), DynamicObject>,
    /// Uids that the current list of a kind has shown so far.
    listed: BTreeSet<(Kind, String)>,
    /// Kinds that were listed completely at least once.
    synced: BTreeSet<Kind>,
    last_change: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Job,
    Pod,
}

/// A running watch of the Jobs and pods of one namespace. It ends when dropped.
pub(crate) struct NamespaceWatch {
    seen: Arc<Mutex<Seen>>,
    changed: watch::Receiver<()>,
    /// Aborts the watching tasks when dropped.
    _tasks: JoinSet<()>,
}

impl NamespaceWatch {
    /// Starts watching. Returns when both kinds are listed.
    pub(crate) async fn start(client: &kube::Client, namespace: &str) -> Self {
        let seen = Arc::<Mutex<Seen>>::default();
        let (notify, changed) = watch::channel(());
        let mut tasks = JoinSet::new();
        for (kind, group, name) in [(Kind::Job, "batch", "Job"), (Kind::Pod, "", "Pod")] {
            let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", name));
            let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
            let (seen, notify) = (Arc::clone(&seen), notify.clone());
            tasks.spawn(async move {
                let mut events = watcher::watcher(api, watcher::Config::default()).boxed();
                while let Some(event) = events.next().await {
                    // The watcher retries errors.
                    let Ok(event) = event else { continue };
                    lock(&seen).note(kind, event);
                    notify.send_replace(());
                }
            });
        }
        let mut changed_once = changed.clone();
        while lock(&seen).synced.len() < 2 && changed_once.changed().await.is_ok() {}
        Self { seen, changed, _tasks: tasks }
    }

    /// Names of the existing pods.
    pub(crate) fn pod_names(&self) -> Vec<String> {
        let seen = lock(&self.seen);
        let pods = seen.present.iter().filter(|((kind, _), _)| *kind == Kind::Pod);
        pods.filter_map(|(_, pod)| pod.meta().name.clone()).collect()
    }

    /// Waits for a condition of the Job `job`. Returns false if `limit` expires first.
    pub(crate) async fn wait_until(&self, until: &Until, job: &str, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        let mut changed = self.changed.clone();
        while !lock(&self.seen).holds(until, job) {
            if timeout_at(deadline, changed.changed()).await.is_err() {
                return false;
            }
        }
        true
    }

    /// Waits until nothing has changed for `quiet`, counted from `begin` or the last change. Returns after
    /// `limit` at the latest.
    pub(crate) async fn wait_quiet(&self, begin: Instant, quiet: Duration, limit: Duration) {
        let deadline = Instant::now() + limit;
        loop {
            let until = (self.quiet_since(begin) + quiet).min(deadline);
            if until <= Instant::now() {
                return;
            }
            sleep_until(until).await;
        }
    }

    /// Time of the last change, `begin` at the earliest.
    pub(crate) fn quiet_since(&self, begin: Instant) -> Instant {
        lock(&self.seen).last_change.map_or(begin, |change| change.max(begin))
    }
}

impl Seen {
    fn note(&mut self, kind: Kind, event: Event<DynamicObject>) {
        let changed = match event {
            Event::Apply(object) | Event::InitApply(object) => {
                let uid = object.meta().uid.clone().unwrap_or_default();
                if kind == Kind::Pod {
                    self.ever.insert(uid.clone());
                }
                self.listed.insert((kind, uid.clone()));
                let version = object.meta().resource_version.clone();
                let before = self.present.insert((kind, uid), object);
                before.is_none_or(|before| before.metadata.resource_version != version)
            }
            Event::Delete(object) => {
                let uid = object.meta().uid.clone().unwrap_or_default();
                self.present.remove(&(kind, uid)).is_some()
            }
            Event::Init => {
                self.listed.retain(|(listed, _)| *listed != kind);
                false
            }
            Event::InitDone => {
                let before = self.present.len();
                self.present.retain(|key, _| key.0 != kind || self.listed.contains(key));
                self.synced.insert(kind);
                self.present.len() < before
            }
        };
        if changed {
            self.last_change = Some(Instant::now());
        }
    }

    fn holds(&self, until: &Until, job: &str) -> bool {
        let jobs = || self.present.iter().filter(|((kind, _), o)| *kind == Kind::Job && named(o, job));
        match until {
            Until::PodsCreated(count) => self.ever.len() >= *count,
            Until::PodsGone(gone) => *gone != self.present.keys().any(|(kind, _)| *kind == Kind::Pod),
            Until::JobGone(gone) => *gone == (jobs().count() == 0),
            Until::Condition(wanted) => jobs().any(|(_, job)| {
                let conditions = job.data.pointer("/status/conditions").and_then(|c| c.as_array());
                conditions.into_iter().flatten().any(|c| c["type"] == **wanted && c["status"] == "True")
            }),
        }
    }
}

fn named(object: &DynamicObject, name: &str) -> bool {
    object.metadata.name.as_deref() == Some(name)
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}
