//! Controllers of every Kubernetes cluster: the garbage collector and the namespace controller.

mod feed;
mod gc;
mod graph;
mod namespace;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use tokio_util::task::TaskTracker;

use super::restarts::supervise;
use super::server::Server;

/// Starts the controllers, which stop with the server.
pub(crate) fn start(server: &Arc<Server>, tasks: &TaskTracker) {
    let (stop, owned) = (server.stop.clone(), Arc::clone(server));
    tasks.spawn(supervise("the garbage collector", stop.clone(), move || gc::run(Arc::clone(&owned))));
    let (owned, more) = (Arc::clone(server), tasks.clone());
    let run = move || namespace::run(Arc::clone(&owned), more.clone());
    tasks.spawn(supervise("the namespace controller", stop, run));
}
