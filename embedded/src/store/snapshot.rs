//! The contents of a store at one revision, as a backup of etcd has them, and the way back to them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Store;
use crate::object::{self, Object};

/// All objects as they were at one revision.
pub(crate) struct Snapshot {
    revision: u64,
    objects: BTreeMap<&'static str, Vec<Arc<Object>>>,
}

impl Store {
    /// The contents as they are now.
    pub(crate) fn snapshot(&self) -> Snapshot {
        loop {
            let revision = self.revision();
            let objects: Result<_, u64> = self
                .tables()
                .map(|(plural, table)| {
                    Ok((plural, table.page("", None, Some(revision), None, |_| true)?.items))
                })
                .collect();
            // Read once more if a compaction came in between.
            if let Ok(objects) = objects {
                return Snapshot { revision, objects };
            }
        }
    }

    /// Goes back to a snapshot. The revision goes back as well, so later revisions are assigned once more.
    /// There is no history. Only for a store in memory, while nothing writes to it.
    pub(crate) fn restore(&self, snapshot: &Snapshot) {
        self.revisions.newest.store(snapshot.revision, Ordering::SeqCst);
        for (plural, table) in self.tables() {
            let objects = snapshot.objects.get(plural).into_iter().flatten().map(|object| {
                let namespace = Some(&*object.header.namespace).filter(|namespace| !namespace.is_empty());
                (object::key(namespace, &object.header.name), Arc::clone(object))
            });
            table.restore(objects, snapshot.revision);
        }
    }
}
