//! Controllers of every Kubernetes cluster: the garbage collector and the namespace controller.

mod feed;
mod gc;
mod graph;
mod namespace;

use std::sync::Arc;

use tokio_util::task::TaskTracker;

use super::server::Server;

/// Starts the controllers, which stop with the server.
pub(crate) fn start(server: &Arc<Server>, tasks: &TaskTracker) {
    let (sender, receiver) = feed::channel();
    for (plural, table) in server.store.tables() {
        tasks.spawn(feed::forward(Arc::clone(server), plural, Arc::clone(table), sender.clone()));
    }
    tasks.spawn(gc::run(Arc::clone(server), receiver));
    tasks.spawn(namespace::run(Arc::clone(server), tasks.clone()));
}
