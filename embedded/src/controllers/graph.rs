//! The graph of owner references.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::object::{self, Key, Object};

/// A uid.
pub(super) type Uid = Box<str>;

/// An object of the graph.
pub(super) struct Node {
    /// The plural of its table.
    pub(super) plural: &'static str,
    /// Its key there.
    pub(super) key: Key,
    /// The newest observed version.
    pub(super) object: Arc<Object>,
}

/// All objects, and their dependents by owner.
#[derive(Default)]
pub(super) struct Graph {
    nodes: HashMap<Uid, Node>,
    dependents: HashMap<Uid, BTreeSet<Uid>>,
}

impl Graph {
    /// Adds an object or replaces its version.
    pub(super) fn insert(&mut self, plural: &'static str, object: &Arc<Object>) {
        let uid = &object.header.uid;
        self.unlink(uid);
        for owner in &object.header.owners {
            self.dependents.entry(owner.uid.clone()).or_default().insert(uid.clone());
        }
        let namespace = (!object.header.namespace.is_empty()).then_some(&*object.header.namespace);
        let key = object::key(namespace, &object.header.name);
        self.nodes.insert(uid.clone(), Node { plural, key, object: Arc::clone(object) });
    }

    /// Removes an object.
    pub(super) fn remove(&mut self, uid: &str) {
        self.unlink(uid);
        self.nodes.remove(uid);
    }

    fn unlink(&mut self, uid: &str) {
        let Some(node) = self.nodes.get(uid) else { return };
        for owner in &node.object.header.owners {
            if let Some(dependents) = self.dependents.get_mut(&owner.uid) {
                dependents.remove(uid);
                if dependents.is_empty() {
                    self.dependents.remove(&owner.uid);
                }
            }
        }
    }

    /// An object by its uid.
    pub(super) fn get(&self, uid: &str) -> Option<&Node> {
        self.nodes.get(uid)
    }

    /// The uids of the objects that name this one as an owner.
    pub(super) fn dependents(&self, uid: &str) -> impl Iterator<Item = &Uid> {
        self.dependents.get(uid).into_iter().flatten()
    }

    /// The uids of all objects of a table.
    pub(super) fn of_table(&self, plural: &str) -> Vec<Uid> {
        self.nodes.iter().filter(|(_, node)| node.plural == plural).map(|(uid, _)| uid.clone()).collect()
    }
}
