//! All Jobs, pods and Events of the pairs under way, kept up to date by one watch of each kind. No pair has to ask.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde::Deserialize;
use serde_json::Value;
use tokio::task::JoinSet;

use super::class::Class;
use super::meanwhile::Activity;
use super::state::Objects;
use crate::views::{Meta, Viewed};
use crate::watch::{Collection, Event};

/// A whole object.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Value")]
struct Object {
    meta: Meta,
    value: Arc<Value>,
}

impl TryFrom<Value> for Object {
    type Error = serde_json::Error;

    fn try_from(value: Value) -> Result<Self, Self::Error> {
        Ok(Self { meta: Meta::deserialize(&value["metadata"])?, value: Arc::new(value) })
    }
}

impl Viewed for Object {
    fn meta(&self) -> &Meta {
        &self.meta
    }
}

/// A kind of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Jobs,
    Pods,
    Events,
}

const KINDS: [(Kind, &str); 3] =
    [(Kind::Jobs, "/apis/batch/v1/jobs"), (Kind::Pods, "/api/v1/pods"), (Kind::Events, "/api/v1/events")];

/// A namespace.
#[derive(Debug)]
struct Space {
    /// Objects by kind and name.
    objects: BTreeMap<(Kind, String), Object>,
    /// Time of the last change of a Job or pod.
    changed: Instant,
    activity: Activity,
    finalizer: &'static str,
}

/// The namespaces that are looked at.
#[derive(Clone, Debug, Default)]
pub(super) struct Mirror(Arc<Mutex<HashMap<String, Space>>>);

impl Mirror {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Space>> {
        // A panic leaves no harmful partial update, so a poisoned lock is usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches everything until the tasks are dropped.
    pub(super) fn follow(&self, client: &kube::Client, tasks: &mut JoinSet<()>) {
        for (kind, path) in KINDS {
            let (mirror, client) = (self.clone(), client.clone());
            tasks.spawn(async move {
                let mut events = Collection::new(path).follow::<Object>(client);
                while let Some(event) = events.recv().await {
                    mirror.apply(kind, event);
                }
            });
        }
    }

    /// Begins to keep a namespace, where this is the tracking finalizer. It must be new.
    pub(super) fn open(&self, namespace: &str, finalizer: &'static str) {
        let space = Space {
            objects: BTreeMap::new(),
            changed: Instant::now(),
            activity: Activity::default(),
            finalizer,
        };
        self.lock().insert(namespace.to_owned(), space);
    }

    /// Forgets a namespace.
    pub(super) fn close(&self, namespace: &str) {
        self.lock().remove(namespace);
    }

    /// The namespaces that are looked at.
    pub(super) fn namespaces(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }

    /// The objects of a namespace.
    pub(super) fn objects(&self, namespace: &str) -> Objects {
        let spaces = self.lock();
        let mut objects = Objects::default();
        for ((kind, _), object) in spaces.get(namespace).into_iter().flat_map(|space| &space.objects) {
            let of_kind = match kind {
                Kind::Jobs => &mut objects.jobs,
                Kind::Pods => &mut objects.pods,
                Kind::Events => &mut objects.events,
            };
            of_kind.push(Arc::clone(&object.value));
        }
        objects
    }

    /// Time of the last change of a Job or pod of a namespace.
    pub(super) fn changed(&self, namespace: &str) -> Option<Instant> {
        self.lock().get(namespace).map(|space| space.changed)
    }

    /// By how many pods `active` of each Job was too low since the last call.
    pub(super) fn too_low(&self, namespace: &str) -> BTreeMap<String, u32> {
        self.lock().get_mut(namespace).map(|space| space.activity.look()).unwrap_or_default()
    }

    fn apply(&self, kind: Kind, event: Event<Object>) {
        let mut spaces = self.lock();
        match event {
            Event::Applied(object) => {
                if let Some(space) = spaces.get_mut(&object.meta.namespace) {
                    space.set(kind, object, false);
                }
            }
            Event::Deleted(object) => {
                if let Some(space) = spaces.get_mut(&object.meta.namespace) {
                    space.set(kind, object, true);
                }
            }
            Event::Listed(objects) => {
                for (namespace, space) in spaces.iter_mut() {
                    let listed = objects.iter().filter(|object| object.meta.namespace == *namespace);
                    space.list(kind, listed.cloned().collect());
                }
            }
        }
    }
}

impl Space {
    fn set(&mut self, kind: Kind, object: Object, gone: bool) {
        let key = (kind, object.meta.name.clone());
        let known = self.objects.get(&key).map(|known| &known.meta.resource_version);
        if !gone && known == Some(&object.meta.resource_version) {
            return;
        }
        self.note(kind, &object, gone);
        if kind != Kind::Events {
            self.changed = Instant::now();
        }
        if gone {
            self.objects.remove(&key);
        } else {
            self.objects.insert(key, object);
        }
    }

    fn note(&mut self, kind: Kind, object: &Object, gone: bool) {
        let Ok(version) = object.meta.resource_version.parse() else { return };
        match kind {
            Kind::Pods => {
                let class = Class::of(&object.value, self.finalizer);
                let active = !gone && class.owned && class.is_active();
                self.activity.pod(version, &object.meta.uid, &class.job, active);
            }
            Kind::Jobs if !gone => {
                let active = object.value["status"]["active"].as_u64().unwrap_or_default();
                self.activity.status(version, &object.meta.name, active);
            }
            Kind::Jobs | Kind::Events => {}
        }
    }

    fn list(&mut self, kind: Kind, listed: Vec<Object>) {
        let gone: Vec<Object> = self
            .objects
            .iter()
            .filter(|((of, name), _)| *of == kind && !listed.iter().any(|object| object.meta.name == *name))
            .map(|(_, object)| object.clone())
            .collect();
        gone.into_iter().for_each(|object| self.set(kind, object, true));
        listed.into_iter().for_each(|object| self.set(kind, object, false));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn object(name: &str, version: &str) -> Object {
        let metadata = json!({"name": name, "namespace": "n", "uid": name, "resourceVersion": version});
        serde_json::from_value(json!({"metadata": metadata, "status": {"phase": "Running"}})).unwrap()
    }

    #[test]
    fn a_mirror_shows_what_its_namespaces_have() {
        let mirror = Mirror::default();
        mirror.open("n", "f");
        let pods = |mirror: &Mirror| -> Vec<String> {
            let pods = mirror.objects("n").pods;
            pods.iter().map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned()).collect()
        };
        mirror.apply(Kind::Pods, Event::Listed(vec![object("a", "1"), object("b", "2")]));
        mirror.apply(Kind::Pods, Event::Applied(object("c", "3")));
        mirror.apply(Kind::Pods, Event::Deleted(object("a", "4")));
        assert_eq!(pods(&mirror), ["b", "c"]);
        let changed = mirror.changed("n").unwrap();
        mirror.apply(Kind::Pods, Event::Listed(vec![object("c", "3"), object("b", "2")]));
        mirror.apply(Kind::Events, Event::Applied(object("e", "9")));
        assert_eq!(mirror.changed("n"), Some(changed), "nothing new of Jobs and pods");
        mirror.apply(Kind::Pods, Event::Listed(vec![object("c", "3")]));
        assert_eq!(pods(&mirror), ["c"]);
        assert_eq!(mirror.namespaces(), ["n"]);
        mirror.close("n");
        assert!(mirror.changed("n").is_none() && pods(&mirror).is_empty());
    }
}
