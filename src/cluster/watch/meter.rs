//! Metrics of a watch.

use prometheus_client::metrics::counter::Counter;

use crate::telemetry::metrics::Metrics;
use crate::telemetry::metrics::labels::{WatchEventLabels, WatchLabels};

/// The counters of one watch, looked up once rather than for every event.
pub(super) struct Meter {
    pub(super) lists: Counter,
    pub(super) bytes: Counter,
    events: [(&'static str, Counter); 6],
}

impl Meter {
    pub(super) fn new(metrics: &Metrics, resource: &'static str) -> Self {
        let types = ["MODIFIED", "ADDED", "DELETED", "BOOKMARK", "ERROR", "UNREADABLE"];
        Self {
            lists: metrics.watch_lists.get_or_create_owned(&WatchLabels { resource }),
            bytes: metrics.watch_bytes.get_or_create_owned(&WatchLabels { resource }),
            events: types.map(|r#type| {
                (r#type, metrics.watch_events.get_or_create_owned(&WatchEventLabels { resource, r#type }))
            }),
        }
    }

    /// Counts an event of this type.
    pub(super) fn count(&self, r#type: &str) {
        if let Some((_, events)) = self.events.iter().find(|(name, _)| *name == r#type) {
            events.inc();
        }
    }
}
