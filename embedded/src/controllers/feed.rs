//! The changes of tables as a stream of messages.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::object::Object;
use crate::server::Server;
use crate::store::{Change, Table};

/// Maximum number of changes per message.
const BATCH: usize = 1024;

/// An event of one table.
pub(super) enum TableEvent {
    /// Changes in order.
    Changes(Vec<Change>),
    /// All current objects, after changes were missed.
    Relisted(Vec<Arc<Object>>),
}

/// An event with the table's plural.
pub(super) type Message = (&'static str, TableEvent);

/// The changes of some tables, from their current objects on.
pub(super) struct Feed {
    messages: mpsc::Receiver<Message>,
    /// A task for each table, which ends with this feed.
    forwarders: JoinSet<()>,
}

impl Feed {
    /// Starts to read the tables of the plurals that are `wanted`.
    pub(super) fn start(server: &Arc<Server>, wanted: impl Fn(&str) -> bool) -> Self {
        // Room for a few batches. A slow reader delays reading of the history, but not the writers.
        let (sender, messages) = mpsc::channel(64);
        let mut forwarders = JoinSet::new();
        for (plural, table) in server.store.tables().filter(|(plural, _)| wanted(plural)) {
            forwarders.spawn(forward(Arc::clone(server), plural, Arc::clone(table), sender.clone()));
        }
        Self { messages, forwarders }
    }

    /// The next event; `None` once the server stops.
    ///
    /// # Panics
    ///
    /// If reading a table has panicked.
    pub(super) async fn next(&mut self) -> Option<Message> {
        tokio::select! {
            message = self.messages.recv() => message,
            Some(Err(ended)) = self.forwarders.join_next() => match ended.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => None,
            },
        }
    }
}

/// Forwards all changes of a table until the server stops.
async fn forward(
    server: Arc<Server>,
    plural: &'static str,
    table: Arc<Table>,
    sender: mpsc::Sender<Message>,
) {
    let mut newest = table.subscribe();
    let mut revision = 0;
    loop {
        newest.mark_seen();
        let event = match table.changes(revision, BATCH) {
            Ok((changes, read_to)) => {
                revision = read_to;
                TableEvent::Changes(changes)
            }
            Err(_) => match table.page("", None, None, None, |_| true) {
                Ok(page) => {
                    revision = page.revision;
                    TableEvent::Relisted(page.items)
                }
                Err(_) => continue,
            },
        };
        let full = matches!(&event, TableEvent::Changes(changes) if changes.len() == BATCH);
        let empty = matches!(&event, TableEvent::Changes(changes) if changes.is_empty());
        if !empty && sender.send((plural, event)).await.is_err() {
            return;
        }
        if full {
            continue;
        }
        tokio::select! {
            () = newest.changed() => {}
            () = server.stop.cancelled() => return,
        }
    }
}
