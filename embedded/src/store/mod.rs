//! The store: one table per kind, every version of an object under a global revision, a bounded history.
//!
//! Writers never wait for watchers. A watcher reads a table's history at its own pace and gets an error once
//! the history no longer goes back far enough. Each shard of a controller watches one label value. A watcher
//! of one label value wakes up only for the changes that concern it, so its cost follows what it receives.
//!
//! A store may have a [`journal`] to a [`disk`]. Writes then still take effect in memory at once. At the end
//! of every request and before every chunk of a watch, the server waits until they are
//! [durable](Store::wait_durable). Only then can clients see them.

mod disk;
mod journal;
mod snapshot;
mod table;
mod topics;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use disk::DataDirError;
pub(crate) use disk::{Contents, Disk};
use journal::Journal;
pub(crate) use journal::{Broken, Content, Record};
pub(crate) use snapshot::Snapshot;
pub(crate) use table::{Change, Expect, NewVersion, Page, Table, WriteError};
pub(crate) use topics::Label;

/// Limits of the history that a table keeps for watches, paging and reads at past revisions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HistoryLimits {
    /// Maximum number of changes.
    pub(crate) changes: usize,
    /// Maximum size, in bytes, of the objects that these changes refer to.
    pub(crate) bytes: usize,
}

impl Default for HistoryLimits {
    fn default() -> Self {
        Self { changes: 65_536, bytes: 128 << 20 }
    }
}

/// The clock of the store: the revision of the newest write in any table.
pub(crate) struct Revisions {
    newest: AtomicU64,
    /// The journal of a durable store.
    journal: Option<Journal>,
}

impl Revisions {
    /// The newest revision. Called under a table's lock, it covers every write of that table.
    pub(crate) fn current(&self) -> u64 {
        self.newest.load(Ordering::SeqCst)
    }

    /// Assigns the revision of a new write; `record` builds the journal's record of it.
    fn next(&self, record: impl FnOnce(u64) -> Record) -> u64 {
        match &self.journal {
            None => self.newest.fetch_add(1, Ordering::SeqCst) + 1,
            Some(journal) => journal.append(&self.newest, record),
        }
    }
}

/// The revision of an empty store. It is not 0, which means any version to clients.
const FIRST_REVISION: u64 = 1;

/// The plurals that a store has a table for.
pub(crate) type Kinds<'a> = &'a [&'static str];

/// All objects.
pub(crate) struct Store {
    revisions: Arc<Revisions>,
    tables: BTreeMap<&'static str, Arc<Table>>,
}

impl Store {
    /// An empty store with a table for every kind, in memory only.
    pub(crate) fn new(kinds: Kinds<'_>, limits: HistoryLimits) -> Self {
        Self::with(kinds, limits, Revisions { newest: AtomicU64::new(FIRST_REVISION), journal: None })
    }

    /// An empty store that begins after `revision` and keeps writes on this disk.
    pub(crate) fn durable(
        kinds: Kinds<'_>,
        limits: HistoryLimits,
        disk: Disk,
        revision: u64,
    ) -> std::io::Result<Self> {
        let revision = revision.max(FIRST_REVISION);
        let journal = Some(Journal::start(disk, revision)?);
        Ok(Self::with(kinds, limits, Revisions { newest: AtomicU64::new(revision), journal }))
    }

    fn with(kinds: Kinds<'_>, limits: HistoryLimits, revisions: Revisions) -> Self {
        let revisions = Arc::new(revisions);
        let table = |plural| Arc::new(Table::new(plural, Arc::clone(&revisions), limits));
        let tables = kinds.iter().map(|plural| (*plural, table(plural))).collect();
        Self { revisions, tables }
    }

    /// Resolves once everything up to `revision` is durable; at once without a disk. Everything that a client
    /// sees must be durable, or a crash could revert it.
    pub(crate) async fn wait_durable(&self, revision: u64) -> Result<(), Broken> {
        match &self.revisions.journal {
            None => Ok(()),
            Some(journal) => journal.wait_durable(revision).await,
        }
    }

    /// Resolves once the disk refuses a write, and never before.
    pub(crate) async fn broken(&self) -> Broken {
        match &self.revisions.journal {
            None => std::future::pending().await,
            Some(journal) => journal.broken().await,
        }
    }

    /// Closes the journal after its pending writes; blocks until then.
    pub(crate) fn close(&self) {
        if let Some(journal) = &self.revisions.journal {
            journal.close();
        }
    }

    /// The table of a plural, which resources of the same plural share. Returns `None` if no resource has
    /// this plural.
    pub(crate) fn table(&self, plural: &str) -> Option<&Arc<Table>> {
        self.tables.get(plural)
    }

    /// The newest revision of all tables.
    pub(crate) fn revision(&self) -> u64 {
        self.revisions.current()
    }

    /// Whether nothing was ever written.
    pub(crate) fn is_new(&self) -> bool {
        self.revision() == FIRST_REVISION
    }

    /// Every table with its plural.
    pub(crate) fn tables(&self) -> impl Iterator<Item = (&'static str, &Arc<Table>)> {
        self.tables.iter().map(|(plural, table)| (*plural, table))
    }

    /// Drops old versions in all tables; see [`Table::compact`].
    pub(crate) fn compact(&self) {
        self.tables.values().for_each(|table| table.compact());
    }

    /// Drops the history of all tables; see [`Table::forget`].
    pub(crate) fn forget(&self) {
        self.tables.values().for_each(|table| table.forget());
    }
}
