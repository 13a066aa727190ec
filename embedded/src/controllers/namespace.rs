//! The namespace controller. It empties a deleted namespace, pods first, and then releases it.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio_util::task::TaskTracker;

use crate::exchange::delete_options::{DeleteOptions, Propagation};
use crate::object::{self, Object};
use crate::resources::{self, RESOURCES, Resource};
use crate::restarts::supervise;
use crate::server::Server;
use crate::signal::Subscriber;
use crate::store::Page;
use crate::verbs::{delete, namespaces};

/// The finalizer in `spec.finalizers` that protects the contents.
const CONTENTS: &str = "kubernetes";

/// Runs the controller until the server stops.
pub(super) async fn run(server: Arc<Server>, tasks: TaskTracker) {
    let Some(resource) = resources::stored("namespaces") else { return };
    let mut newest = server.table(resource).subscribe();
    let mut terminating = BTreeSet::new();
    loop {
        newest.mark_seen();
        for namespace in all(&server, resource, "").items {
            let (name, uid) = (&namespace.header.name, &namespace.header.uid);
            if namespace.header.deleting && terminating.insert(uid.clone()) {
                let (owned, name) = (Arc::clone(&server), name.to_string());
                let run = move || terminate(Arc::clone(&owned), resource, name.clone());
                tasks.spawn(supervise("the deletion of a namespace", server.stop.clone(), run));
            }
        }
        tokio::select! {
            () = newest.changed() => {}
            () = server.stop.cancelled() => return,
        }
    }
}

/// Objects of a kind whose key begins with a prefix.
fn all(server: &Server, resource: &Resource, prefix: &str) -> Page {
    let nothing = |_| Page { revision: 0, items: Vec::new(), next: None, remaining: 0 };
    server.table(resource).page(prefix, None, None, None, |_| true).unwrap_or_else(nothing)
}

/// Empties a namespace and removes its finalizer.
async fn terminate(server: Arc<Server>, resource: &'static Resource, name: String) {
    let pods_first = |pods: bool| RESOURCES.iter().filter(move |one| (one.plural == "pods") == pods);
    for pods in [true, false] {
        let kinds: Vec<&'static Resource> =
            pods_first(pods).filter(|one| one.namespaced && one.has_verb("list")).collect();
        if !empty(&server, &kinds, &name).await {
            return;
        }
    }
    let others = |namespace: &Object| {
        let mut finalizers = namespace.decode(resource)["spec"]["finalizers"].take();
        if let Some(finalizers) = finalizers.as_array_mut() {
            finalizers.retain(|finalizer| finalizer != CONTENTS);
        }
        Ok(finalizers)
    };
    if let Err(error) = namespaces::set_finalizers(&server, resource, &name, others) {
        tracing::debug!(error = %error.message, namespace = name, "namespace stays");
    }
}

/// Deletes all objects of some kinds in a namespace and waits until they are gone; false if the server stops
/// first.
async fn empty(server: &Arc<Server>, kinds: &[&'static Resource], namespace: &str) -> bool {
    let prefix = format!("{namespace}/");
    let mut newest: Vec<Subscriber> =
        kinds.iter().map(|resource| server.table(resource).subscribe()).collect();
    loop {
        for receiver in &mut newest {
            receiver.mark_seen();
        }
        let mut left = 0;
        for resource in kinds {
            for object in all(server, resource, &prefix).items {
                if !object.header.deleting {
                    let key = object::key(Some(namespace), &object.header.name);
                    let options = DeleteOptions {
                        propagation: Some(Propagation::Background),
                        uid: Some(object.header.uid.to_string()),
                        ..DeleteOptions::default()
                    };
                    // Refused only if the object is gone or replaced by another, which the next round
                    // observes.
                    let _ = delete::remove(server, resource, &key, &options);
                }
            }
            left += all(server, resource, &prefix).items.len();
        }
        if left == 0 {
            return true;
        }
        let changes = newest.iter_mut().map(|receiver| Box::pin(receiver.changed()));
        tokio::select! {
            _ = futures::future::select_all(changes) => {}
            () = server.stop.cancelled() => return false,
        }
    }
}
