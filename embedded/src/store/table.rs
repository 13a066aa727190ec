//! The versions of all objects of one kind.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::RwLock;

use super::topics::{Label, Topics};
use super::{Content, HistoryLimits, Record, Revisions};
use crate::object::{Header, Key, Object};
use crate::signal::{Signal, Subscriber};

/// A write, as watchers see it.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    /// The revision of the write.
    pub(crate) revision: u64,
    /// The previous version; `None` for a creation.
    pub(crate) old: Option<Arc<Object>>,
    /// The new version; for a deletion, the last state under the deletion's revision.
    pub(crate) new: Arc<Object>,
    /// Whether this write deletes the object.
    pub(crate) deleted: bool,
}

/// An encoded object that has no revision yet.
pub(crate) struct NewVersion {
    /// The fields that selectors use.
    pub(crate) header: Header,
    /// See [`Object::tail`].
    pub(crate) tail: Bytes,
}

/// The precondition of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expect {
    /// No object is stored under the key.
    Absent,
    /// The object's version is this one.
    Version(u64),
}

/// Why a write was refused.
#[derive(Debug)]
pub(crate) enum WriteError {
    /// The precondition does not hold; this is the current version.
    Changed(Option<Arc<Object>>),
}

/// A page of a list.
pub(crate) struct Page {
    /// The revision that the page shows.
    pub(crate) revision: u64,
    /// The objects, in the order of their keys.
    pub(crate) items: Vec<Arc<Object>>,
    /// The key after which the next page begins, if there is one.
    pub(crate) next: Option<Key>,
    /// Number of keys after the page, matching or not.
    pub(crate) remaining: usize,
}

/// Versions of one key, oldest first; `None` is a deletion. Never empty.
type Versions = Vec<(u64, Option<Arc<Object>>)>;

#[derive(Default)]
struct Contents {
    objects: BTreeMap<Key, Versions>,
    history: VecDeque<(Key, Change)>,
    /// Total size, in bytes, of the objects that the history refers to.
    history_bytes: usize,
    /// Changes up to this revision are no longer in the history.
    compacted: u64,
    /// Versions before this revision can no longer be read. At least `compacted`.
    readable: u64,
    /// New watches cannot begin before this revision, even if the history goes back further.
    watchable: u64,
    /// Watches of single label values.
    topics: Topics,
}

/// All objects of one kind.
pub(crate) struct Table {
    plural: &'static str,
    revisions: Arc<Revisions>,
    limits: HistoryLimits,
    contents: RwLock<Contents>,
    /// Raised by each write.
    written: Signal,
}

impl Table {
    pub(super) fn new(plural: &'static str, revisions: Arc<Revisions>, limits: HistoryLimits) -> Self {
        let contents = RwLock::new(Contents::default());
        Self { plural, revisions, limits, contents, written: Signal::default() }
    }

    /// A number that each write changes.
    pub(crate) fn version(&self) -> u64 {
        self.written.raised()
    }

    /// Replaces the contents by the objects of an earlier process or time; `newest` is the revision of their
    /// last write. Watches can continue from that revision, but not from an earlier one.
    pub(crate) fn restore(&self, objects: impl Iterator<Item = (Key, Arc<Object>)>, newest: u64) {
        let mut contents = self.contents.write();
        let objects = objects.map(|(key, object)| (key, vec![(object.revision, Some(object))])).collect();
        *contents = Contents {
            objects,
            compacted: newest,
            readable: newest,
            watchable: newest,
            ..Contents::default()
        };
        self.written.raise();
    }

    /// The newest version of an object.
    pub(crate) fn get(&self, key: &str) -> Option<Arc<Object>> {
        self.contents.read().current(key)
    }

    /// Stores a version, if `expect` holds.
    pub(crate) fn put(
        &self,
        key: &Key,
        expect: Expect,
        version: NewVersion,
    ) -> Result<Arc<Object>, WriteError> {
        self.write(key, expect, version, false)
    }

    /// Removes an object, if `expect` holds. `last` is the final state that watchers and the caller see.
    pub(crate) fn delete(
        &self,
        key: &Key,
        expect: Expect,
        last: NewVersion,
    ) -> Result<Arc<Object>, WriteError> {
        self.write(key, expect, last, true)
    }

    fn write(
        &self,
        key: &Key,
        expect: Expect,
        version: NewVersion,
        deleted: bool,
    ) -> Result<Arc<Object>, WriteError> {
        let mut contents = self.contents.write();
        let old = contents.current(key);
        let holds = match (expect, &old) {
            (Expect::Absent, None) => true,
            (Expect::Version(wanted), Some(old)) => old.revision == wanted,
            _ => false,
        };
        if !holds {
            return Err(WriteError::Changed(old));
        }
        let revision = self.revisions.next(|revision| Record {
            plural: self.plural,
            key: Arc::clone(key),
            revision,
            content: (!deleted).then(|| Content {
                tail: version.tail.clone(),
                lacks_defaults: version.header.lacks_defaults,
            }),
        });
        let new = Arc::new(Object { revision, header: version.header, tail: version.tail });
        let stored = (!deleted).then(|| Arc::clone(&new));
        contents
            .objects
            .entry(Arc::clone(key))
            .or_insert_with(|| Vec::with_capacity(1))
            .push((revision, stored));
        contents.history_bytes += new.tail.len();
        let change = Change { revision, old, new: Arc::clone(&new), deleted };
        let compacted = contents.compacted;
        contents.topics.record(&change, compacted);
        contents.history.push_back((Arc::clone(key), change));
        while contents.history.len() > self.limits.changes || contents.history_bytes > self.limits.bytes {
            contents.forget_oldest();
        }
        self.written.raise();
        Ok(new)
    }

    /// Up to `limit` objects that match, whose keys begin with `prefix` and come after `after`, as of
    /// `revision` or now. `Err` is the oldest revision that can be read.
    pub(crate) fn page(
        &self,
        prefix: &str,
        after: Option<&str>,
        revision: Option<u64>,
        limit: Option<usize>,
        matches: impl Fn(&Object) -> bool,
    ) -> Result<Page, u64> {
        let contents = self.contents.read();
        let shown = revision.unwrap_or_else(|| self.revisions.current());
        if revision.is_some_and(|revision| revision < contents.readable) {
            return Err(contents.readable);
        }
        let start = match after {
            Some(after) => Bound::Excluded(after),
            None => Bound::Included(prefix),
        };
        let mut range = contents
            .objects
            .range::<str, _>((start, Bound::Unbounded))
            .take_while(|(key, _)| key.starts_with(prefix))
            .filter_map(|(key, versions)| Some((key, at(versions, shown)?)));
        let mut page = Page { revision: shown, items: Vec::new(), next: None, remaining: 0 };
        let mut last: Option<&Key> = None;
        for (key, object) in range.by_ref() {
            if !matches(object) {
                continue;
            }
            if limit.is_some_and(|limit| page.items.len() == limit) {
                page.next = last.cloned();
                page.remaining = 1 + range.count();
                break;
            }
            page.items.push(Arc::clone(object));
            last = Some(key);
        }
        Ok(page)
    }

    /// Up to `limit` changes after `revision`, and the revision up to which the table has been read. `Err` is
    /// the oldest revision from which changes can be read.
    pub(crate) fn changes(&self, revision: u64, limit: usize) -> Result<(Vec<Change>, u64), u64> {
        let contents = self.contents.read();
        if revision < contents.compacted {
            return Err(contents.compacted);
        }
        let first = contents.history.partition_point(|(_, change)| change.revision <= revision);
        let changes = contents.history.range(first..).map(|(_, change)| change);
        Ok(self.read(changes, revision, limit))
    }

    /// Like [`changes`](Self::changes), but only of objects that have a label now or had it before the
    /// change. Requires a [subscription](Self::subscribe_to) to the label.
    pub(crate) fn changes_of(
        &self,
        label: &Label,
        revision: u64,
        limit: usize,
    ) -> Result<(Vec<Change>, u64), u64> {
        let contents = self.contents.read();
        let revisions = contents.topics.after(label, revision, contents.compacted)?;
        Ok(self.read(revisions.filter_map(|revision| contents.change(revision)), revision, limit))
    }

    /// Called under the lock, so that the newest revision covers all changes.
    fn read<'a>(
        &self,
        changes: impl Iterator<Item = &'a Change>,
        revision: u64,
        limit: usize,
    ) -> (Vec<Change>, u64) {
        let changes: Vec<Change> = changes.take(limit).cloned().collect();
        let read_to = match changes.last() {
            Some(last) if changes.len() == limit => last.revision,
            _ => self.revisions.current(),
        };
        (changes, read_to.max(revision))
    }

    /// A subscriber that wakes up when the table is written.
    pub(crate) fn subscribe(&self) -> Subscriber {
        self.written.subscribe()
    }

    /// A subscriber that wakes up when an object that has or had this label is written.
    pub(crate) fn subscribe_to(&self, label: &Label) -> Subscriber {
        let contents = &mut *self.contents.write();
        let history = contents.history.iter().map(|(_, change)| change);
        contents.topics.subscribe(label, history, contents.compacted)
    }

    /// Drops old versions, as a compaction of etcd does. The past cannot be read any more, but watches
    /// continue from memory.
    pub(crate) fn compact(&self) {
        let mut contents = self.contents.write();
        contents.readable = self.revisions.current();
        contents.objects.retain(|_, versions| {
            let newest = versions.pop();
            versions.clear();
            versions.extend(newest.filter(|(_, object)| object.is_some()));
            !versions.is_empty()
        });
    }

    /// Drops the history. The past cannot be read any more, and watches cannot begin there. Watches that have
    /// read all changes continue.
    pub(crate) fn forget(&self) {
        let mut contents = self.contents.write();
        while !contents.history.is_empty() {
            contents.forget_oldest();
        }
        contents.readable = self.revisions.current();
        contents.watchable = contents.readable;
    }

    /// A new watch cannot begin before this revision.
    pub(crate) fn watchable(&self) -> u64 {
        self.contents.read().watchable
    }
}

impl Contents {
    fn current(&self, key: &str) -> Option<Arc<Object>> {
        self.objects.get(key)?.last()?.1.clone()
    }

    fn change(&self, revision: u64) -> Option<&Change> {
        let found = self.history.binary_search_by_key(&revision, |(_, change)| change.revision).ok()?;
        self.history.get(found).map(|(_, change)| change)
    }

    /// Drops the oldest change and the versions that only this change kept readable.
    fn forget_oldest(&mut self) {
        let Some((key, change)) = self.history.pop_front() else { return };
        self.compacted = change.revision;
        self.readable = self.readable.max(change.revision);
        self.history_bytes = self.history_bytes.saturating_sub(change.new.tail.len());
        let Some(versions) = self.objects.get_mut(&key) else { return };
        let kept = versions.partition_point(|(revision, _)| *revision < change.revision);
        versions.drain(..kept);
        if let [(_, None)] = versions.as_slice() {
            self.objects.remove(&key);
        } else if matches!(versions.first(), Some((_, None))) {
            versions.remove(0);
        }
    }
}

/// The version that was the newest at `revision`.
fn at(versions: &Versions, revision: u64) -> Option<&Arc<Object>> {
    let end = versions.partition_point(|(made, _)| *made <= revision);
    versions.get(end.checked_sub(1)?)?.1.as_ref()
}

#[cfg(test)]
mod tests;
