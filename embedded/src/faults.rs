//! Faults that tests switch on: late, refused and lost answers, broken and held watches.
//!
//! Every fault names a part of the User-Agent of the clients that it hits, so that a test can part one replica from the
//! server and leave the others alone.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::StatusCode;
use parking_lot::RwLock;
use tokio::sync::{Notify, watch};

/// What happens to requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Answers come this much later.
    Delay(Duration),
    /// Requests are refused with this status (429, 500, 503) and change nothing.
    Refuse(StatusCode),
    /// Writes are applied, but the connection breaks instead of an answer.
    LoseReplies,
    /// The connection breaks before anything happens, as if the network were parted.
    Partition,
    /// Watches end with an error event of code 410.
    ExpireWatches,
    /// Watches deliver nothing until the fault is removed.
    HoldWatches,
}

/// Which requests a fault hits.
#[derive(Clone, Debug, Default)]
pub struct FaultScope {
    /// A part of the User-Agent; empty hits every client.
    pub user_agent: String,
    /// HTTP methods; empty hits every method.
    pub methods: Vec<http::Method>,
    /// A part of the path; empty hits every path.
    pub path: String,
    /// Hits only every so-manieth of these requests, beginning with the first; 0 and 1 hit all.
    pub every: usize,
}

/// Handle of a fault that is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultId(usize);

struct Active {
    id: FaultId,
    fault: Fault,
    scope: FaultScope,
    /// How many more requests it hits; `None` until it is removed.
    left: Option<AtomicUsize>,
    /// Requests in scope so far.
    seen: AtomicUsize,
}

/// The faults of one server. None are on at first.
#[derive(Default)]
pub struct Faults {
    active: RwLock<Vec<Active>>,
    next: AtomicUsize,
    changed: Notify,
    broken: watch::Sender<()>,
}

impl Faults {
    /// Switches a fault on, for the next `times` requests that it hits or until it is removed.
    pub fn inject(&self, fault: Fault, scope: FaultScope, times: Option<usize>) -> FaultId {
        let id = FaultId(self.next.fetch_add(1, Ordering::Relaxed));
        let left = times.map(AtomicUsize::new);
        self.active.write().push(Active { id, fault, scope, left, seen: AtomicUsize::new(0) });
        self.changed.notify_waiters();
        id
    }

    /// Switches a fault off.
    pub fn remove(&self, id: FaultId) {
        self.active.write().retain(|active| active.id != id);
        self.changed.notify_waiters();
    }

    /// Switches all faults off.
    pub fn clear(&self) {
        self.active.write().clear();
        self.changed.notify_waiters();
    }

    /// Ends all watches that are open, without an error.
    pub fn break_watches(&self) {
        self.broken.send_replace(());
    }

    /// The faults that hit a request; counted ones are used up.
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

    /// Whether a watch of this client is to end as expired.
    pub(crate) fn expires(&self, user_agent: &str) -> bool {
        let active = self.active.read();
        active.iter().any(|active| {
            active.fault == Fault::ExpireWatches
                && user_agent.contains(&active.scope.user_agent)
                && active.take()
        })
    }

    /// Waits while deliveries to this client are held.
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

    /// Changes when watches that are open now are broken.
    pub(crate) fn breaks(&self) -> watch::Receiver<()> {
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
