//! Many clients that each watch one Job, as `kubectl wait` does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::views::Job;
use crate::watch::{Collection, Event};

/// Counts of all watches together.
#[derive(Debug, Default)]
struct Counts {
    /// Watches that were open at least once.
    opened: AtomicU64,
    /// Lists after the first one of each watch.
    relists: AtomicU64,
    events: AtomicU64,
}

/// Open watches. They end when this is dropped.
pub(crate) struct Watches {
    count: usize,
    counts: Arc<Counts>,
    _following: JoinSet<()>,
}

impl Watches {
    /// Opens `count` watches on the Jobs under this path, each on a connection of its own and on one of these
    /// names in turn.
    pub(crate) fn open(client: &kube::Client, path: &str, names: &[String], count: usize) -> Self {
        let counts = Arc::new(Counts::default());
        let mut following = JoinSet::new();
        for name in names.iter().cycle().take(count) {
            let one = Collection::new(path).fields(&format!("metadata.name={name}"));
            let (client, counts) = (client.clone(), Arc::clone(&counts));
            following.spawn(async move {
                let mut events = one.follow::<Job>(client);
                let mut lists = 0_u64;
                while let Some(event) = events.recv().await {
                    let count = match event {
                        Event::Listed(_) if lists == 0 => &counts.opened,
                        Event::Listed(_) => &counts.relists,
                        Event::Applied(_) | Event::Deleted(_) => &counts.events,
                    };
                    lists += u64::from(matches!(event, Event::Listed(_)));
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        Self { count, counts, _following: following }
    }

    /// The counts for a report.
    pub(crate) fn findings(&self) -> Value {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        json!({
            "watches": self.count,
            "opened": read(&self.counts.opened),
            "relists": read(&self.counts.relists),
            "events": read(&self.counts.events),
        })
    }

    /// Whether each has been open.
    pub(crate) fn all_opened(&self) -> bool {
        self.counts.opened.load(Ordering::Relaxed) == self.count as u64
    }
}
