//! Faults that tests inject: late, refused and lost responses, broken and held watches.
//!
//! The scope of a fault can name a part of the User-Agent of the clients that it affects. A test can thus cut
//! one replica off from the server and leave the others alone.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::StatusCode;
use parking_lot::RwLock;
use tokio::sync::Notify;

use crate::signal::{Signal, Subscriber};

/// The effect of a fault on requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Responses are delayed by this long.
    Delay(Duration),
    /// Requests are refused with this status (429, 500, 503) and change nothing.
    Refuse(StatusCode),
    /// Requests are refused after this long, and change nothing, as when a webhook gives no answer.
    FailWebhook(Duration),
    /// Requests are refused by a webhook with a message of this many bytes, and change nothing.
    DenyByWebhook(usize),
    /// Writes are applied, but the connection breaks before the response.
    LoseReplies,
    /// The connection breaks before the request takes effect, as in a network partition.
    Partition,
    /// Watches end with an error event of code 410.
    ExpireWatches,
    /// Watches deliver nothing until the fault is removed.
    HoldWatches,
}

/// The requests that a fault affects.
#[derive(Clone, Debug, Default)]
pub struct FaultScope {
    /// A part of the User-Agent; empty matches every client.
    pub user_agent: String,
    /// HTTP methods; empty matches every method.
    pub methods: Vec<http::Method>,
    /// A part of the path; empty matches every path.
    pub path: String,
    /// With N, affects only every Nth of these requests, beginning with the first; 0 and 1 affect all.
    pub every: usize,
}

/// Handle of an injected fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultId(usize);

struct Active {
    id: FaultId,
    fault: Fault,
    scope: FaultScope,
    /// Number of further requests to affect; `None` for all until removed.
    left: Option<AtomicUsize>,
    /// Requests in scope so far.
    seen: AtomicUsize,
}

/// The faults of one server; none at first.
#[derive(Default)]
pub struct Faults {
    active: RwLock<Vec<Active>>,
    next: AtomicUsize,
    changed: Notify,
    broken: Signal,
}

impl Faults {
    /// Injects a fault into the next `times` requests in scope, or into all until removed.
    pub fn inject(&self, fault: Fault, scope: FaultScope, times: Option<usize>) -> FaultId {
        let id = FaultId(self.next.fetch_add(1, Ordering::Relaxed));
        let left = times.map(AtomicUsize::new);
        self.active.write().push(Active { id, fault, scope, left, seen: AtomicUsize::new(0) });
        self.changed.notify_waiters();
        id
    }

    /// Removes a fault.
    pub fn remove(&self, id: FaultId) {
        self.active.write().retain(|active| active.id != id);
        self.changed.notify_waiters();
    }

    /// Removes all faults.
    pub fn clear(&self) {
        self.active.write().clear();
        self.changed.notify_waiters();
    }

    /// Ends all open watches without an error.
    pub fn break_watches(&self) {
        self.broken.raise();
    }

    /// The faults that affect a request; each use counts against `times`.
    pub(crate) fn hitting(&self, user_agent: &str, method: &http::Method, path: &str) -> Vec<Fault> {
        let active = self.active.read();
        active
            .iter()
            .filter(|active| !matches!(active.fault, Fault::ExpireWatches | Fault::HoldWatches))
            .filter(|active| {
                let scope = &active.scope;
                user_agent.contains(&scope.user_agent)
                    && path.contains(&scope.path)
                    && (scope.methods.is_empty() || scope.methods.contains(method))
            })
            .filter(|active| active.take())
            .map(|active| active.fault.clone())
            .collect()
    }

    /// Whether a watch of this client must end as expired.
    pub(crate) fn expires(&self, user_agent: &str) -> bool {
        let active = self.active.read();
        active.iter().any(|active| {
            active.fault == Fault::ExpireWatches
                && user_agent.contains(&active.scope.user_agent)
                && active.take()
        })
    }

    /// Waits while watches of this client are held.
    pub(crate) async fn watch_gate(&self, user_agent: &str) {
        loop {
            let changed = self.changed.notified();
            let held = self.active.read().iter().any(|active| {
                active.fault == Fault::HoldWatches && user_agent.contains(&active.scope.user_agent)
            });
            if !held {
                return;
            }
            changed.await;
        }
    }

    /// A subscriber that wakes up when the currently open watches are broken.
    pub(crate) fn breaks(&self) -> Subscriber {
        self.broken.subscribe()
    }
}

impl Active {
    fn take(&self) -> bool {
        let seen = self.seen.fetch_add(1, Ordering::Relaxed);
        if !seen.is_multiple_of(self.scope.every.max(1)) {
            return false;
        }
        let Some(left) = &self.left else { return true };
        left.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(1)).is_ok()
    }
}
