//! The changes of tables as a stream of messages.

use std::sync::Arc;

use tokio::sync::mpsc;

use crate::object::Object;
use crate::server::Server;
use crate::store::{Change, Table};

/// How many changes are read at once.
const BATCH: usize = 1024;

/// News of one table.
pub(super) enum News {
    /// Changes in order.
    Changes(Vec<Change>),
    /// Everything there is, after changes were missed.
    Everything(Vec<Arc<Object>>),
}

/// News with the table's plural.
pub(super) type Message = (&'static str, News);

/// A channel with room for a few batches: the reader's pace is the history's, not the writers'.
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
        let news = match table.changes(revision, BATCH) {
            Ok((changes, read_to)) => {
                revision = read_to;
                News::Changes(changes)
            }
            Err(_) => match table.page("", None, None, None, |_| true) {
                Ok(page) => {
                    revision = page.revision;
                    News::Everything(page.items)
                }
                Err(_) => continue,
            },
        };
        let full = matches!(&news, News::Changes(changes) if changes.len() == BATCH);
        let empty = matches!(&news, News::Changes(changes) if changes.is_empty());
        if !empty && sender.send((plural, news)).await.is_err() {
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
