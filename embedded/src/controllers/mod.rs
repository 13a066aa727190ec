//! Controllers of every Kubernetes cluster: the garbage collector, the namespace controller and the CronJob
//! controller. Two more do what kube-apiserver does by itself: one keeps the objects that every cluster has, one
//! removes expired Events.

mod cronjobs;
mod event_expiry;
mod events;
mod feed;
mod gc;
mod graph;
mod namespace;
mod system_objects;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use tokio_util::task::TaskTracker;

use super::restarts::supervise;
use super::server::Server;

pub(crate) use system_objects::{ROOT_CERTIFICATES, SystemObjects};

/// The field manager of writes by controllers.
const MANAGER: &str = "kube-controller-manager";

/// Starts the garbage collector, the namespace controller and the CronJob controller, which stop with the
/// server.
pub(crate) fn start(server: &Arc<Server>, tasks: &TaskTracker) {
    let (stop, owned) = (server.stop.clone(), Arc::clone(server));
    tasks.spawn(supervise("the garbage collector", stop.clone(), move || gc::run(Arc::clone(&owned))));
    let (owned, more) = (Arc::clone(server), tasks.clone());
    let run = move || namespace::run(Arc::clone(&owned), more.clone());
    tasks.spawn(supervise("the namespace controller", stop.clone(), run));
    let owned = Arc::clone(server);
    tasks.spawn(supervise("the CronJob controller", stop, move || cronjobs::run(Arc::clone(&owned))));
}

/// Keeps the objects that every cluster has, and removes expired Events, until the server stops.
pub(crate) fn keep(objects: SystemObjects, server: &Arc<Server>, tasks: &TaskTracker) {
    let (objects, owned) = (Arc::new(objects), Arc::clone(server));
    let run = move || Arc::clone(&objects).run(Arc::clone(&owned));
    tasks.spawn(supervise("the keeper of system objects", server.stop.clone(), run));
    let owned = Arc::clone(server);
    let run = move || event_expiry::run(Arc::clone(&owned));
    tasks.spawn(supervise("the expiry of Events", server.stop.clone(), run));
}
