//! Watches of one label value and the changes that concern them. Other changes cost such a watch nothing.

use std::collections::VecDeque;

use super::table::Change;
use crate::object::Header;
use crate::signal::{Signal, Subscriber};
use fnv::FnvHashMap;

/// A label with its value, such as `yardmaster.dev/shard=7`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Label {
    /// The key.
    pub(crate) key: Box<str>,
    /// The value.
    pub(crate) value: Box<str>,
}

/// The changes that concern the watches of one label value.
struct Topic {
    /// Raised by each change.
    changed: Signal,
    /// The revisions of the changes that may still be in the history, oldest first.
    revisions: VecDeque<u64>,
    /// Changes up to this revision may have been dropped from `revisions`.
    forgotten: u64,
}

/// The watched labels, by key and value.
#[derive(Default)]
pub(super) struct Topics(FnvHashMap<Box<str>, FnvHashMap<Box<str>, Topic>>);

impl Topics {
    /// A subscriber that wakes up at changes of objects that have or had the label. `history` holds the
    /// changes after `compacted`.
    pub(super) fn subscribe<'a>(
        &mut self,
        label: &Label,
        history: impl Iterator<Item = &'a Change>,
        compacted: u64,
    ) -> Subscriber {
        self.0.retain(|_, topics| {
            topics.retain(|_, topic| topic.changed.subscribers() > 0);
            !topics.is_empty()
        });
        let topics = self.0.entry(label.key.clone()).or_default();
        let topic = topics.entry(label.value.clone()).or_insert_with(|| {
            let revisions = history.filter(|change| concerns(change, label)).map(|change| change.revision);
            Topic { changed: Signal::default(), revisions: revisions.collect(), forgotten: compacted }
        });
        topic.changed.subscribe()
    }

    /// Records a change and wakes the watches that it concerns. The history goes back to `compacted`.
    pub(super) fn record(&mut self, change: &Change, compacted: u64) {
        for (key, topics) in &mut self.0 {
            let now = change.new.header.label(key);
            let before = change.old.as_ref().and_then(|old| old.header.label(key));
            for value in now.into_iter().chain(before.filter(|_| before != now)) {
                if let Some(topic) = topics.get_mut(value) {
                    topic.record(change.revision, compacted);
                }
            }
        }
    }

    /// The revisions of the changes after `revision` that concern a label, oldest first. `Err` if some of
    /// them may have left the history, which goes back to `compacted`.
    pub(super) fn after(
        &self,
        label: &Label,
        revision: u64,
        compacted: u64,
    ) -> Result<impl Iterator<Item = u64>, u64> {
        let topic = self.0.get(&label.key).and_then(|topics| topics.get(&label.value)).ok_or(compacted)?;
        let first = topic.revisions.partition_point(|have| *have <= revision);
        let oldest = topic.revisions.get(first).copied();
        if revision < topic.forgotten || oldest.is_some_and(|oldest| oldest <= compacted) {
            return Err(compacted);
        }
        Ok(topic.revisions.range(first..).copied())
    }
}

impl Topic {
    fn record(&mut self, revision: u64, compacted: u64) {
        while let Some(oldest) = self.revisions.front().filter(|oldest| **oldest <= compacted) {
            self.forgotten = *oldest;
            self.revisions.pop_front();
        }
        self.revisions.push_back(revision);
        self.changed.raise();
    }
}

fn concerns(change: &Change, label: &Label) -> bool {
    let has = |header: &Header| header.label(&label.key) == Some(&label.value);
    has(&change.new.header) || change.old.as_ref().is_some_and(|old| has(&old.header))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    use bytes::Bytes;
    use proptest::prelude::*;

    use super::super::{Expect, HistoryLimits, NewVersion, Revisions, Table};
    use super::*;
    use crate::object;

    fn watched() -> Label {
        Label { key: "shard".into(), value: "0".into() }
    }

    fn version(name: &str, shard: Option<&str>) -> NewVersion {
        let labels = [("app", "x")].into_iter().chain(shard.map(|shard| ("shard", shard))).collect();
        NewVersion { header: Header { name: name.into(), labels, ..Header::default() }, tail: Bytes::new() }
    }

    /// Writes an object with this label value, or removes the object. Returns the revision and whether the
    /// object has the watched label now or had it before. If there is nothing to remove, returns `None`.
    fn write(table: &Table, name: &str, write: Option<Option<&str>>) -> Option<(u64, bool)> {
        let key = object::key(None, name);
        let old = table.get(&key);
        let had = old.as_ref().is_some_and(|old| old.header.label("shard") == Some("0"));
        let expect = old.as_ref().map_or(Expect::Absent, |old| Expect::Version(old.revision));
        let written = match write {
            Some(shard) => table.put(&key, expect, version(name, shard)).unwrap(),
            None => {
                let old = old?;
                let last = NewVersion { header: old.header.clone(), tail: Bytes::new() };
                table.delete(&key, expect, last).unwrap()
            }
        };
        Some((written.revision, had || written.header.label("shard") == Some("0")))
    }

    proptest! {
        /// A watch gets all changes of its label from any start, or an error if it may have missed some. It
        /// gets the error only if a watch of the whole table would get one too.
        #[test]
        fn a_watch_of_a_label_misses_nothing(
            writes in proptest::collection::vec(
                (0..3_usize, proptest::option::of(proptest::option::of(0..3_usize))), 1..24),
            changes in 1..8_usize,
            begin in 0..24_usize,
        ) {
            const NAMES: [&str; 3] = ["0", "1", "2"];
            let limits = HistoryLimits { changes, bytes: usize::MAX };
            let table = Table::new("pods", Arc::new(Revisions { newest: AtomicU64::new(1), journal: None }), limits);
            let (mut receiver, mut concerning) = (None, Vec::new());
            for (step, (name, shard)) in writes.into_iter().enumerate() {
                if step == begin.min(8) {
                    receiver = Some(table.subscribe_to(&watched()));
                }
                let Some((revision, concerns)) = write(&table, NAMES[name], shard.map(|shard| shard.map(|at| NAMES[at])))
                else { continue };
                if concerns {
                    concerning.push(revision);
                }
                let Some(receiver) = &mut receiver else { continue };
                prop_assert_eq!(receiver.is_raised(), concerns);
                receiver.mark_seen();
                for start in 1..=revision {
                    match table.changes_of(&watched(), start, usize::MAX) {
                        Ok((changes, read_to)) => {
                            let wanted = concerning.iter().copied().filter(|have| *have > start);
                            let got = changes.iter().map(|change| change.revision);
                            prop_assert_eq!(got.collect::<Vec<_>>(), wanted.collect::<Vec<_>>());
                            prop_assert_eq!(read_to, revision);
                        }
                        Err(_) => prop_assert!(table.changes(start, 1).is_err()),
                    }
                }
            }
        }
    }

    #[test]
    fn a_quiet_label_outlives_the_history() {
        let limits = HistoryLimits { changes: 4, bytes: usize::MAX };
        let table =
            Table::new("pods", Arc::new(Revisions { newest: AtomicU64::new(1), journal: None }), limits);
        let receiver = table.subscribe_to(&watched());
        let (start, _) = write(&table, "mine", Some(Some("0"))).unwrap();
        for _ in 0..10 {
            write(&table, "other", Some(Some("1"))).unwrap();
        }
        assert!(table.changes(start, 10).is_err());
        let (changes, read_to) = table.changes_of(&watched(), start, 10).unwrap();
        assert!(changes.is_empty());
        assert_eq!(read_to, start + 10);
        drop(receiver);
    }
}
