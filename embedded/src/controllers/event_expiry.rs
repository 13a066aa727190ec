//! Events expire an hour after their last write, as those of kube-apiserver do by default.
//!
//! A revision says when a write was made: every period notes the time and the newest revision. So no Event is decoded,
//! and clocks of other machines do not matter. A restart forgets the notes, and the Events that it finds stay for an
//! hour.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::object;
use crate::resources::{self, Resource};
use crate::server::Server;
use crate::store::{Expect, NewVersion};

/// How long an Event is kept after its last write.
const KEPT: SignedDuration = SignedDuration::from_hours(1);
/// How often expired Events are removed.
const PERIOD: Duration = Duration::from_secs(60);

/// Removes expired Events until the server stops.
pub(super) async fn run(server: Arc<Server>) {
    let Some(events) = resources::stored("events") else { return };
    let mut notes = Notes::default();
    loop {
        if let Some(revision) = notes.expired(server.now(), server.store.revision()) {
            remove(&server, events, revision).await;
        }
        tokio::select! {
            () = tokio::time::sleep(PERIOD) => {}
            () = server.stop.cancelled() => return,
        }
    }
}

/// The newest revision at some times of the last hour, in order.
#[derive(Debug, Default)]
struct Notes(VecDeque<(Timestamp, u64)>);

impl Notes {
    /// Notes the newest revision. Returns the last one that is as old as an expired Event.
    fn expired(&mut self, now: Timestamp, newest: u64) -> Option<u64> {
        self.0.push_back((now, newest));
        let mut expired = None;
        while let Some((_, revision)) = self.0.pop_front_if(|(at, _)| now.duration_since(*at) >= KEPT) {
            expired = Some(revision);
        }
        expired
    }
}

/// Removes the Events that were last written at this revision or before.
async fn remove(server: &Server, events: &'static Resource, revision: u64) {
    let table = server.table(events);
    let Ok(page) = table.page("", None, None, None, |event| event.revision <= revision) else { return };
    for event in page.items {
        let key = object::key(Some(&event.header.namespace), &event.header.name);
        let last = NewVersion { header: event.header.clone(), tail: event.tail.clone() };
        // An Event that was written meanwhile stays.
        let _written = table.delete(&key, Expect::Version(event.revision), last);
        tokio::task::yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revision_expires_an_hour_after_it_was_noted() {
        let mut notes = Notes::default();
        let mut expired = |minute: i64, newest| {
            notes.expired(Timestamp::UNIX_EPOCH + SignedDuration::from_mins(minute), newest)
        };
        assert_eq!(expired(0, 10), None);
        assert_eq!(expired(1, 20), None);
        assert_eq!(expired(59, 30), None);
        assert_eq!(expired(60, 40), Some(10));
        // The machine has slept.
        assert_eq!(expired(119, 40), Some(30));
        // The clock was set back.
        assert_eq!(expired(90, 50), None);
        assert_eq!(expired(120, 50), Some(40));
    }
}
