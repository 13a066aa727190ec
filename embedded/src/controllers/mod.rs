//! Controllers of every Kubernetes cluster: the garbage collector and the namespace controller.

mod feed;
mod gc;
mod graph;
mod namespace;
mod supervisor;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use tokio_util::task::TaskTracker;

use super::server::Server;
use supervisor::supervise;

/// Starts the controllers, which stop with the server.
pub(crate) fn start(server: &Arc<Server>, tasks: &TaskTracker) {
    let owned = Arc::clone(server);
    tasks.spawn(supervise(Arc::clone(server), "garbage collector", move || gc::run(Arc::clone(&owned))));
    let (owned, more) = (Arc::clone(server), tasks.clone());
    let run = move || namespace::run(Arc::clone(&owned), more.clone());
    tasks.spawn(supervise(Arc::clone(server), "namespace controller", run));
}
