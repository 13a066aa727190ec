#![allow(clippy::unwrap_used)]
use std::sync::atomic::AtomicU64;

use super::*;
use crate::object;

fn table(changes: usize) -> Table {
    let limits = HistoryLimits { changes, bytes: usize::MAX };
    let revisions = Revisions { newest: AtomicU64::new(1), journal: None };
    Table::new("maps", Arc::new(revisions), limits)
}

fn version(name: &str, tail: &str) -> NewVersion {
    let header = Header { namespace: "n".into(), name: name.into(), ..Header::default() };
    NewVersion { header, tail: Bytes::copy_from_slice(tail.as_bytes()) }
}

fn create(table: &Table, name: &str) -> u64 {
    let key = object::key(Some("n"), name);
    table.put(&key, Expect::Absent, version(name, "created")).unwrap().revision
}

fn names(page: &Page) -> Vec<String> {
    page.items.iter().map(|object| object.header.name.to_string()).collect()
}

#[test]
fn a_write_is_refused_when_another_came_first() {
    let table = table(100);
    let first = create(&table, "a");
    let key = object::key(Some("n"), "a");
    let second = table.put(&key, Expect::Version(first), version("a", "x")).unwrap().revision;
    assert!(second > first);
    let Err(WriteError::Changed(now)) = table.put(&key, Expect::Version(first), version("a", "y")) else {
        panic!("overwrote version {second}")
    };
    assert_eq!(now.unwrap().revision, second);
    assert!(table.put(&key, Expect::Absent, version("a", "z")).is_err());
}

#[test]
fn a_restored_table_continues_after_its_last_write() {
    let old = table(100);
    let first = create(&old, "a");
    let last = create(&old, "b");
    let page = old.page("", None, None, None, |_| true).unwrap();
    let revisions = Revisions { newest: AtomicU64::new(last), journal: None };
    let restored = Table::new("maps", Arc::new(revisions), HistoryLimits::default());
    let key = |object: &Arc<Object>| (object::key(Some("n"), &object.header.name), Arc::clone(object));
    restored.restore(page.items.iter().map(key), last);
    let page = restored.page("n/", None, None, None, |_| true).unwrap();
    assert_eq!(names(&page), ["a", "b"]);
    assert!(restored.changes(first, 10).is_err(), "the change to b is not known any more");
    assert!(restored.changes(last, 10).unwrap().0.is_empty());
    let key = object::key(Some("n"), "a");
    assert!(restored.put(&key, Expect::Absent, version("a", "x")).is_err());
    restored.put(&key, Expect::Version(first), version("a", "x")).unwrap();
}

#[test]
fn pages_show_one_revision_despite_later_writes() {
    let table = table(100);
    for name in ["a", "b", "c", "d"] {
        create(&table, name);
    }
    let first = table.page("n/", None, None, Some(2), |_| true).unwrap();
    assert_eq!((names(&first), first.remaining), (vec!["a".to_owned(), "b".to_owned()], 2));
    let key = object::key(Some("n"), "c");
    let doomed = table.get(&key).unwrap();
    table.delete(&key, Expect::Version(doomed.revision), version("c", "gone")).unwrap();
    create(&table, "bb");
    let after = first.next.as_deref();
    let second = table.page("n/", after, Some(first.revision), None, |_| true).unwrap();
    assert_eq!(names(&second), ["c", "d"]);
    let now = table.page("n/", after, None, None, |_| true).unwrap();
    assert_eq!(names(&now), ["bb", "d"]);
}

#[test]
fn the_history_is_bounded_and_reports_its_beginning() {
    let table = table(3);
    let first = create(&table, "a");
    for name in ["b", "c", "d", "e"] {
        create(&table, name);
    }
    let Err(oldest) = table.changes(first, 10) else { panic!("the history is longer than its limit") };
    let (changes, read_to) = table.changes(oldest, 10).unwrap();
    assert_eq!(changes.len(), 3);
    assert_eq!(changes.last().unwrap().revision, read_to);
    assert!(table.page("n/", None, Some(first), None, |_| true).is_err(), "the past is forgotten, too");
    assert_eq!(table.page("n/", None, None, None, |_| true).unwrap().items.len(), 5);
}

#[test]
fn deleted_objects_leave_nothing_behind() {
    let table = table(2);
    for round in 0..10 {
        let revision = create(&table, &format!("a{round}"));
        let key = object::key(Some("n"), &format!("a{round}"));
        table.delete(&key, Expect::Version(revision), version("a", "gone")).unwrap();
    }
    assert!(table.contents.read().objects.len() <= 2, "only keys in the history are kept");
}

#[test]
fn a_compaction_drops_old_versions_but_not_the_watch_history() {
    let table = table(100);
    let first = create(&table, "a");
    let second = create(&table, "b");
    table.compact();
    assert!(table.page("n/", None, Some(first), None, |_| true).is_err());
    assert_eq!(table.changes(first, 10).unwrap().0.len(), 1);
    assert_eq!(table.page("n/", None, Some(second), None, |_| true).unwrap().items.len(), 2);
}
