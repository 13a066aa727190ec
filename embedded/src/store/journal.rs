//! The journal of a durable store: a queue of writes to disk, in the order of their revisions.
//!
//! A thread commits the whole queue at once, so that concurrent writers share one flush. The disk therefore
//! always holds the store as it was at some revision, and never a later write without an earlier one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use tokio::sync::watch;

use crate::object::Key;

/// A write, as stored on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// The plural of the object's table.
    pub(crate) plural: &'static str,
    /// The object's key in its table.
    pub(crate) key: Key,
    /// The revision of the write.
    pub(crate) revision: u64,
    /// The new content; `None` if the write deletes the object.
    pub(crate) content: Option<Content>,
}

/// The stored part of one version of an object. Its header is rebuilt from this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    /// See [`Object::tail`](crate::object::Object::tail).
    pub(crate) tail: Bytes,
    /// See [`Header::lacks_defaults`](crate::object::Header::lacks_defaults).
    pub(crate) lacks_defaults: bool,
}

/// The target of a journal's commits.
pub(super) trait Sink: Send + 'static {
    /// Makes either all of these writes durable or none. They are in the order of their revisions.
    fn commit(&mut self, records: &[Record]) -> Result<(), String>;
}

/// The disk refused a write. Writes since then cannot be acknowledged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot keep what is written: {0}")]
pub(crate) struct Broken(Arc<str>);

/// The progress of commits.
#[derive(Clone, Debug)]
enum Progress {
    /// Everything up to this revision is on disk.
    Durable(u64),
    /// There will be no more commits.
    Broken(Broken),
}

#[derive(Default)]
struct Queue {
    records: Vec<Record>,
    closed: bool,
    broken: bool,
}

struct Shared {
    queue: Mutex<Queue>,
    /// Notified when there is something to commit or when the queue is closed.
    wake: Condvar,
    progress: watch::Sender<Progress>,
}

/// The queue of writes to disk. Dropping it commits pending writes.
pub(crate) struct Journal {
    shared: Arc<Shared>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl Journal {
    /// Starts the committing thread. Everything up to `revision` is already durable.
    pub(super) fn start(sink: impl Sink, revision: u64) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            wake: Condvar::new(),
            progress: watch::Sender::new(Progress::Durable(revision)),
        });
        let ours = Arc::clone(&shared);
        let writer =
            std::thread::Builder::new().name("store-writer".into()).spawn(move || ours.commit_all(sink))?;
        Ok(Self { shared, writer: Mutex::new(Some(writer)) })
    }

    /// Assigns the next revision and queues its write. Both happen under one lock, so that the queue is in
    /// the order of revisions.
    pub(super) fn append(&self, newest: &AtomicU64, record: impl FnOnce(u64) -> Record) -> u64 {
        let mut queue = self.shared.queue.lock();
        let revision = newest.fetch_add(1, Ordering::SeqCst) + 1;
        if !queue.broken {
            queue.records.push(record(revision));
            self.shared.wake.notify_one();
        }
        revision
    }

    /// Resolves once everything up to `revision` is durable.
    pub(super) async fn wait_durable(&self, revision: u64) -> Result<(), Broken> {
        let reached = |progress: &Progress| match progress {
            Progress::Durable(durable) => *durable >= revision,
            Progress::Broken(_) => true,
        };
        let mut progress = self.shared.progress.subscribe();
        // The sender lives as long as this journal, so `Err` cannot occur.
        match progress.wait_for(reached).await.as_deref() {
            Ok(Progress::Broken(broken)) => Err(broken.clone()),
            Ok(Progress::Durable(_)) | Err(_) => Ok(()),
        }
    }

    /// Resolves once the disk refuses a write, and never before.
    pub(super) async fn broken(&self) -> Broken {
        match self.wait_durable(u64::MAX).await {
            Err(broken) => broken,
            Ok(()) => std::future::pending().await,
        }
    }

    /// Commits pending writes and stops; blocks until then. Later writes are lost.
    pub(super) fn close(&self) {
        self.shared.queue.lock().closed = true;
        self.shared.wake.notify_one();
        let writer = self.writer.lock().take();
        if writer.is_some_and(|writer| writer.join().is_err()) {
            tracing::error!("the thread that writes to disk panicked");
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn commit_all(&self, mut sink: impl Sink) {
        while let Some(records) = self.take() {
            let Some(last) = records.last().map(|record| record.revision) else { continue };
            match sink.commit(&records) {
                Ok(()) => drop(self.progress.send_replace(Progress::Durable(last))),
                Err(problem) => {
                    self.queue.lock().broken = true;
                    self.progress.send_replace(Progress::Broken(Broken(problem.into())));
                    return;
                }
            }
        }
    }

    /// Waits for pending writes and takes all of them; `None` once the queue is closed and empty.
    fn take(&self) -> Option<Vec<Record>> {
        let mut queue = self.queue.lock();
        self.wake.wait_while(&mut queue, |queue| queue.records.is_empty() && !queue.closed);
        if queue.records.is_empty() { None } else { Some(std::mem::take(&mut queue.records)) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::mpsc;

    use super::*;

    /// A disk whose commits wait for the test to permit or to refuse them.
    struct Gated {
        permits: mpsc::Receiver<Result<(), String>>,
        committed: Arc<Mutex<Vec<Vec<u64>>>>,
    }

    impl Sink for Gated {
        fn commit(&mut self, records: &[Record]) -> Result<(), String> {
            self.permits.recv().unwrap_or(Ok(()))?;
            self.committed.lock().push(records.iter().map(|record| record.revision).collect());
            Ok(())
        }
    }

    type Gate = (mpsc::Sender<Result<(), String>>, Arc<Mutex<Vec<Vec<u64>>>>);

    fn journal() -> (Journal, Gate) {
        let (open, permits) = mpsc::channel();
        let committed = Arc::new(Mutex::new(Vec::new()));
        let sink = Gated { permits, committed: Arc::clone(&committed) };
        (Journal::start(sink, 0).unwrap(), (open, committed))
    }

    fn append(journal: &Journal, newest: &AtomicU64) -> u64 {
        journal.append(newest, |revision| Record {
            plural: "jobs",
            key: "n/a".into(),
            revision,
            content: None,
        })
    }

    #[tokio::test]
    async fn nothing_is_durable_before_it_is_on_disk() {
        let (journal, (open, _)) = journal();
        let newest = AtomicU64::new(0);
        let revision = append(&journal, &newest);
        let early = std::pin::pin!(journal.wait_durable(revision));
        assert!(futures::poll!(early).is_pending());
        open.send(Ok(())).unwrap();
        journal.wait_durable(revision).await.unwrap();
    }

    #[tokio::test]
    async fn a_hundred_waiting_writes_take_at_most_three_commits() {
        let (journal, (open, committed)) = journal();
        let newest = AtomicU64::new(0);
        append(&journal, &newest);
        // The thread may be committing the first one alone by now; the others wait.
        for _ in 0..99 {
            append(&journal, &newest);
        }
        open.send(Ok(())).unwrap();
        open.send(Ok(())).unwrap();
        drop(open);
        journal.wait_durable(100).await.unwrap();
        let committed = committed.lock();
        assert!(committed.len() <= 3, "{} commits for 100 writes", committed.len());
        let revisions: Vec<u64> = committed.iter().flatten().copied().collect();
        assert_eq!(revisions, (1..=100).collect::<Vec<_>>());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn concurrent_writes_are_committed_in_revision_order() {
        let (journal, (open, committed)) = journal();
        drop(open);
        let newest = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    (0..500).for_each(|_| {
                        append(&journal, &newest);
                    })
                });
            }
        });
        journal.wait_durable(4_000).await.unwrap();
        let revisions: Vec<u64> = committed.lock().iter().flatten().copied().collect();
        assert_eq!(revisions, (1..=4_000).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn every_waiter_learns_that_the_disk_refused() {
        let (journal, (open, committed)) = journal();
        let newest = AtomicU64::new(0);
        let first = append(&journal, &newest);
        open.send(Err("no space left".into())).unwrap();
        let broken = journal.wait_durable(first).await.unwrap_err();
        assert_eq!(broken.to_string(), "cannot keep what is written: no space left");
        let later = append(&journal, &newest);
        assert_eq!(journal.wait_durable(later).await, Err(broken.clone()));
        assert_eq!(journal.broken().await, broken);
        assert!(committed.lock().is_empty());
    }

    #[tokio::test]
    async fn closing_commits_pending_writes() {
        let (journal, (open, committed)) = journal();
        drop(open);
        let newest = AtomicU64::new(0);
        (0..10).for_each(|_| {
            append(&journal, &newest);
        });
        journal.close();
        assert_eq!(committed.lock().iter().flatten().count(), 10);
    }
}
