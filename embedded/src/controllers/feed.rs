//! The changes of all tables as a stream of messages.

use std::sync::Arc;

use tokio::sync::mpsc;

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

/// A channel with room for a few batches. A slow reader delays reading of the history, but not the writers.
pub(super) fn channel() -> (mpsc::Sender<Message>, mpsc::Receiver<Message>) {
    mpsc::channel(64)
}

/// Forwards all changes of a table until the server stops.
pub(super) async fn forward(
    server: Arc<Server>,
    plural: &'static str,
    table: Arc<Table>,
    sender: mpsc::Sender<Message>,
) {
    let mut newest = table.subscribe();
    let mut revision = 0;
    loop {
        newest.borrow_and_update();
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
            changed = newest.changed() => if changed.is_err() { return },
            () = server.stop.cancelled() => return,
        }
    }
}
