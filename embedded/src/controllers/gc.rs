//! The garbage collector. It deletes dependents of absent owners. It removes the finalizers `orphan` and
//! `foregroundDeletion` from owners once their dependents are released or gone.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashSet, VecDeque};
use std::sync::Arc;

use serde_json::Value;

use super::MANAGER;
use super::feed::{Feed, TableEvent};
use super::graph::{Graph, Node, Uid};
use crate::exchange::delete_options::{DeleteOptions, Propagation};
use crate::object::{self, Object};
use crate::resources::{self, RESOURCES, Resource};
use crate::restarts::panics;
use crate::rules::Subresource;
use crate::server::Server;
use crate::verbs::delete::{self, FOREGROUND, ORPHAN};
use crate::verbs::{Writer, update};

/// Kinds that neither own nor have owners. Their many changes are skipped.
const IGNORED: &[&str] = &["events", "leases"];

/// The name of this controller in the log.
const NAME: &str = "the garbage collector";

/// Collects garbage until the server stops.
pub(super) async fn run(server: Arc<Server>) {
    let mut feed = Feed::start(&server, |_| true);
    let mut collector = Collector {
        server: Arc::clone(&server),
        graph: Graph::default(),
        due: VecDeque::new(),
        poisoned: HashSet::new(),
    };
    loop {
        let message = tokio::select! {
            message = feed.next() => message,
            () = server.stop.cancelled() => None,
        };
        let Some((plural, event)) = message else { return };
        if !IGNORED.contains(&plural) {
            collector.observe(plural, event);
        }
        while let Some(uid) = collector.due.pop_front() {
            if !collector.poisoned.contains(&uid) && panics(NAME, &uid, || collector.process(&uid)) {
                collector.poisoned.insert(uid);
            }
            tokio::task::yield_now().await;
        }
    }
}

struct Collector {
    server: Arc<Server>,
    graph: Graph,
    /// The work queue.
    due: VecDeque<Uid>,
    /// Objects that made the collector panic. They are left alone until they change.
    poisoned: HashSet<Uid>,
}

impl Collector {
    fn observe(&mut self, plural: &'static str, event: TableEvent) {
        match event {
            TableEvent::Changes(changes) => {
                for change in changes {
                    if change.deleted {
                        self.observe_removal(&change.new.header.uid);
                    } else {
                        self.observe_object(plural, &change.new);
                    }
                }
            }
            TableEvent::Relisted(objects) => {
                let present: BTreeSet<Uid> = objects.iter().map(|object| object.header.uid.clone()).collect();
                for uid in self.graph.of_table(plural) {
                    if !present.contains(&uid) {
                        self.observe_removal(&uid);
                    }
                }
                for object in &objects {
                    self.observe_object(plural, object);
                }
            }
        }
    }

    fn observe_object(&mut self, plural: &'static str, object: &Arc<Object>) {
        self.poisoned.remove(&object.header.uid);
        let former: Vec<Uid> = self.owners(&object.header.uid);
        self.graph.insert(plural, object);
        let header = &object.header;
        let orphaned = header.owners.iter().any(|owner| self.graph.get(&owner.uid).is_none());
        if header.deleting || orphaned {
            self.due.push_back(header.uid.clone());
        }
        // An owner that waits for the deletion of this object may stop or start waiting.
        self.due.extend(former);
        let waiting = header.owners.iter().filter(|owner| self.is_deleting(&owner.uid));
        self.due.extend(waiting.map(|owner| owner.uid.clone()).collect::<Vec<_>>());
    }

    fn observe_removal(&mut self, uid: &str) {
        self.poisoned.remove(uid);
        let owners = self.owners(uid);
        self.graph.remove(uid);
        self.due.extend(owners);
        // Dependents with the most owners come first. Their other owners may be deleted next, and still exist
        // when such a dependent is processed. The many parallel workers of Kubernetes have the same effect.
        let mut dependents: Vec<Uid> = self.graph.dependents(uid).cloned().collect();
        dependents
            .sort_by_key(|uid| Reverse(self.graph.get(uid).map(|node| node.object.header.owners.len())));
        self.due.extend(dependents);
    }

    /// Owners of an object that are being deleted.
    fn owners(&self, uid: &str) -> Vec<Uid> {
        let owners = self.graph.get(uid).map(|node| node.object.header.owners.iter());
        let deleting = owners.into_iter().flatten().filter(|owner| self.is_deleting(&owner.uid));
        deleting.map(|owner| owner.uid.clone()).collect()
    }

    fn is_deleting(&self, uid: &str) -> bool {
        self.graph.get(uid).is_some_and(|node| node.object.header.deleting)
    }

    fn process(&mut self, uid: &str) {
        let Some(node) = self.graph.get(uid) else { return };
        let Some(resource) = resources::stored(node.plural) else { return };
        // The newest version decides, not the version in the graph.
        let Some(current) = self.server.table(resource).get(&node.key) else { return };
        if &*current.header.uid != uid {
            return;
        }
        #[cfg(test)]
        super::tests::maybe_panic(&current.header.name);
        if current.header.deleting {
            let object = current.decode(resource);
            let finalizers = object::finalizers(&object);
            if finalizers.contains(&ORPHAN) {
                return self.orphan_dependents(resource, uid);
            }
            if finalizers.contains(&FOREGROUND) {
                return self.delete_dependents(resource, uid);
            }
        }
        self.check_owners(resource, &current);
    }

    /// Removes this owner from all dependents, then its finalizer.
    fn orphan_dependents(&self, resource: &'static Resource, uid: &str) {
        for dependent in self.graph.dependents(uid) {
            if let Some(node) = self.graph.get(dependent) {
                self.remove_owners(node, &|owner| owner == uid);
            }
        }
        self.remove_finalizer(resource, uid, ORPHAN);
    }

    /// Deletes the dependents that block this owner's deletion. Removes its finalizer once there are none.
    fn delete_dependents(&mut self, resource: &'static Resource, uid: &str) {
        let blocking: Vec<Uid> = self
            .graph
            .dependents(uid)
            .filter(|dependent| {
                let owners = self.graph.get(dependent).map(|node| node.object.header.owners.iter());
                owners.into_iter().flatten().any(|owner| &*owner.uid == uid && owner.blocks_deletion)
            })
            .cloned()
            .collect();
        if blocking.is_empty() {
            self.remove_finalizer(resource, uid, FOREGROUND);
        }
        let blocking = blocking.into_iter().filter(|dependent| !self.is_deleting(dependent));
        let blocking: Vec<Uid> = blocking.collect();
        self.due.extend(blocking);
    }

    /// Deletes an object without a remaining owner. If it has one, removes only references to absent owners.
    fn check_owners(&self, resource: &'static Resource, current: &Object) {
        if current.header.owners.is_empty() {
            return;
        }
        let object = current.decode(resource);
        let references = object["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
        let (mut solid, mut waiting, mut absent) = (0, 0, HashSet::new());
        for reference in &references {
            match self.owner(&current.header.namespace, reference) {
                Owner::Solid | Owner::Unknown => solid += 1,
                Owner::WaitsForDependents => waiting += 1,
                Owner::Absent => drop(absent.insert(reference["uid"].as_str().unwrap_or_default())),
            }
        }
        if solid > 0 {
            if let Some(node) = self.graph.get(&current.header.uid).filter(|_| !absent.is_empty()) {
                self.remove_owners(node, &|owner| absent.contains(owner));
            }
            return;
        }
        let finalizers = object::finalizers(&object);
        let has_dependents = self.graph.dependents(&current.header.uid).next().is_some();
        let policy = if (waiting > 0 && has_dependents) || finalizers.contains(&FOREGROUND) {
            Propagation::Foreground
        } else if finalizers.contains(&ORPHAN) {
            Propagation::Orphan
        } else {
            Propagation::Background
        };
        if current.header.deleting {
            return;
        }
        let options = DeleteOptions {
            propagation: Some(policy),
            uid: Some(current.header.uid.to_string()),
            resource_version: Some(current.revision.to_string()),
            ..DeleteOptions::default()
        };
        let namespace = (!current.header.namespace.is_empty()).then_some(&*current.header.namespace);
        let key = object::key(namespace, &current.header.name);
        // Refused only if the object has changed. The event of that change queues the object.
        let _ = delete::remove(&self.server, resource, &key, &options);
    }

    fn owner(&self, namespace: &str, reference: &Value) -> Owner {
        let text = |field: &str| reference[field].as_str().unwrap_or_default();
        let found = RESOURCES
            .iter()
            .find(|resource| resource.kind == text("kind") && resource.api_version() == text("apiVersion"));
        let Some(resource) = found else { return Owner::Unknown };
        let key = object::key(resource.namespaced.then_some(namespace), text("name"));
        match self.server.table(resource).get(&key) {
            Some(owner) if &*owner.header.uid == text("uid") => {
                let waits = owner.header.deleting
                    && object::finalizers(&owner.decode(resource)).contains(&FOREGROUND);
                if waits && reference["blockOwnerDeletion"] == true {
                    Owner::WaitsForDependents
                } else {
                    Owner::Solid
                }
            }
            _ => Owner::Absent,
        }
    }

    fn remove_owners(&self, node: &Node, is_gone: &dyn Fn(&str) -> bool) {
        let Some(resource) = resources::stored(node.plural) else { return };
        let uid = &node.object.header.uid;
        let writer = Writer::internal(&self.server, MANAGER);
        let result = update::modify(&self.server, resource, &node.key, Subresource::Main, writer, |old| {
            let mut new = old.clone();
            if object::meta(old, "uid") != &**uid {
                return Ok(new);
            }
            if let Some(metadata) = object::metadata_mut(&mut new) {
                let references = metadata.get_mut("ownerReferences").and_then(Value::as_array_mut);
                let emptied = references.is_some_and(|references| {
                    references.retain(|one| !is_gone(one["uid"].as_str().unwrap_or_default()));
                    references.is_empty()
                });
                if emptied {
                    metadata.remove("ownerReferences");
                }
            }
            Ok(new)
        });
        if let Err(error) = result {
            tracing::debug!(error = %error.message, key = %node.key, "owner references stay");
        }
    }

    fn remove_finalizer(&self, resource: &'static Resource, uid: &str, finalizer: &str) {
        let Some(node) = self.graph.get(uid) else { return };
        let writer = Writer::internal(&self.server, MANAGER);
        let result = update::modify(&self.server, resource, &node.key, Subresource::Main, writer, |old| {
            let mut new = old.clone();
            if object::meta(old, "uid") == uid {
                let others = object::finalizers(old).into_iter().filter(|one| *one != finalizer);
                let others: Vec<String> = others.map(str::to_owned).collect();
                object::set_finalizers(&mut new, &others);
            }
            Ok(new)
        });
        if let Err(error) = result {
            tracing::debug!(error = %error.message, key = %node.key, finalizer, "finalizer stays");
        }
    }
}

enum Owner {
    /// It exists and keeps its dependents.
    Solid,
    /// It is being deleted in the foreground and waits for this dependent.
    WaitsForDependents,
    /// It does not exist, or another object has its name.
    Absent,
    /// Its kind is not served, so its existence is unknown.
    Unknown,
}
