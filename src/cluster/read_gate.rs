//! The gate of live reads: how many are in flight, whose turn it is, and which of them are one.
//!
//! No more than [`AT_ONCE`] reads of objects are in flight in a replica, [`SHARE`] of one namespace, and [`LISTS`] lists,
//! [`LISTS_SHARE`] of one namespace. A list has its turn as long as its objects are kept, and these take no more than
//! [`SHORT_LIST`]: two lists at a time may be longer. Those that wait take turns by namespace, and then by Job. A read of an object joins one of the same object that has not left yet, and waits for a
//! moment if one is in flight: its answer may be older than the question, but the next read can serve all who ask
//! meanwhile.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::fast::RandomState;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::timeout;

use super::fair_semaphore::{FairSemaphore, Permit};
use crate::job::job_id::JobId;

/// Live reads of a replica that may be in flight at once.
const AT_ONCE: usize = 32;
/// Those of them that may be in flight for one namespace.
const SHARE: usize = 16;
/// Lists of a replica that may be in flight at once, beside the reads of objects: they take longer.
const LISTS: usize = 16;
/// Those of them that may be in flight for one namespace.
const LISTS_SHARE: usize = 4;
/// Most bytes that the objects of such a list may take, unless the replica lists all namespaces.
pub(super) const SHORT_LIST: usize = 4 << 20;
/// Longer lists that may be in flight at once, one of a namespace, beside the others.
const LONG_LISTS: usize = 2;
/// How long a read waits for one of the same object that is in flight, so that others may join it.
const GATHERING: Duration = Duration::from_secs(1);

/// The gate. Clones are the same gate; `T` is the answer to the read of an object.
pub(super) struct ReadGate<T> {
    turns: FairSemaphore,
    lists: FairSemaphore,
    long_lists: FairSemaphore,
    objects: Arc<Mutex<Objects<T>>>,
}

/// The reads of objects, by path.
type Objects<T> = HashMap<Arc<str>, Object<T>, RandomState>;

/// The reads of one object.
struct Object<T> {
    /// Held while one is in flight.
    in_flight: Arc<AsyncMutex<()>>,
    /// The one that has not left yet.
    next: Option<WeakShared<BoxFuture<'static, T>>>,
}

/// Forgets an object that nobody reads any more.
struct Forget<T> {
    gate: ReadGate<T>,
    path: Arc<str>,
}

/// How much memory the objects of a list may take.
#[derive(Clone, Copy, Debug)]
pub(super) enum Length {
    /// [`SHORT_LIST`].
    Short,
    /// As much as they need.
    Long,
}

/// The turn of a list, until its objects are dropped.
#[derive(Debug)]
pub(super) struct ListTurn {
    _permit: Permit,
    room: usize,
}

impl ListTurn {
    /// Whether an object of so many bytes has room beside those before it.
    pub(super) fn has_room(&mut self, bytes: usize) -> bool {
        let left = self.room.checked_sub(bytes);
        self.room = left.unwrap_or(0);
        left.is_some()
    }
}

impl<T> Clone for ReadGate<T> {
    fn clone(&self) -> Self {
        Self {
            turns: self.turns.clone(),
            lists: self.lists.clone(),
            long_lists: self.long_lists.clone(),
            objects: self.objects.clone(),
        }
    }
}

impl<T> Default for ReadGate<T> {
    fn default() -> Self {
        Self {
            turns: FairSemaphore::new(AT_ONCE, SHARE),
            lists: FairSemaphore::new(LISTS, LISTS_SHARE),
            long_lists: FairSemaphore::new(LONG_LISTS, 1),
            objects: Arc::default(),
        }
    }
}

impl<T> ReadGate<T> {
    fn lock(&self) -> MutexGuard<'_, Objects<T>> {
        // Poisoning is ignored: the table is changed by steps that do not panic.
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the turn of a list of this namespace, or of the whole cluster, that a Job asks for.
    pub(super) async fn list_turn(
        &self,
        length: Length,
        namespace: Option<&Arc<str>>,
        asker: Option<&JobId>,
    ) -> ListTurn {
        let (lists, room) = match length {
            Length::Short if namespace.is_some() => (&self.lists, SHORT_LIST),
            Length::Short => (&self.lists, usize::MAX),
            Length::Long => (&self.long_lists, usize::MAX),
        };
        ListTurn { _permit: lists.acquire(namespace, asker).await, room }
    }

    /// Waits for the turn of a read in this namespace, or in the whole cluster, that a Job asks for.
    pub(super) async fn turn(&self, namespace: Option<&Arc<str>>, asker: Option<&JobId>) -> Permit {
        self.turns.acquire(namespace, asker).await
    }
}

impl<T: Clone + Send + Sync + 'static> ReadGate<T> {
    /// Reads an object of a namespace by `read`, or joins another read of it that has not left yet.
    pub(super) fn read(
        &self,
        path: &str,
        namespace: Arc<str>,
        asker: Option<JobId>,
        read: impl Future<Output = T> + Send + 'static,
    ) -> Shared<BoxFuture<'static, T>> {
        let path: Arc<str> = path.into();
        let mut objects = self.lock();
        let object =
            objects.entry(path.clone()).or_insert_with(|| Object { in_flight: Arc::default(), next: None });
        if let Some(next) = object.next.as_ref().and_then(WeakShared::upgrade) {
            return next;
        }
        let (in_flight, gate) = (object.in_flight.clone(), self.clone());
        let forget = Forget { gate: self.clone(), path: path.clone() };
        let next = async move {
            let _forget = forget;
            // After that time it leaves beside the other one, which may hang.
            let _alone = timeout(GATHERING, in_flight.lock_owned()).await;
            let _turn = gate.turn(Some(&namespace), asker.as_ref()).await;
            if let Some(object) = gate.lock().get_mut(&path) {
                object.next = None;
            }
            read.await
        };
        let next = next.boxed().shared();
        object.next = next.downgrade();
        next
    }
}

impl<T> Drop for Forget<T> {
    fn drop(&mut self) {
        let mut objects = self.gate.lock();
        let Some(object) = objects.get(&self.path) else { return };
        let next = object.next.as_ref().and_then(WeakShared::upgrade);
        if next.is_none() {
            objects.remove(&self.path);
        }
        // Its owner may have gone meanwhile. If it is the last one, dropping it comes here again.
        drop(objects);
        drop(next);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::join_all;
    use tokio::time::{Instant, sleep};

    use super::*;

    const LATENCY: Duration = Duration::from_millis(10);

    /// The number of reads in flight, of the most at once, and of all.
    #[derive(Default)]
    struct Seen {
        now: AtomicUsize,
        most: AtomicUsize,
        all: AtomicUsize,
    }

    impl Seen {
        async fn read(self: Arc<Self>) -> usize {
            let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
            self.most.fetch_max(now, Ordering::Relaxed);
            let number = self.all.fetch_add(1, Ordering::Relaxed);
            sleep(LATENCY).await;
            self.now.fetch_sub(1, Ordering::Relaxed);
            number
        }
    }

    fn job(name: &str) -> Option<JobId> {
        Some(JobId::new("n".into(), name.into(), name.into()))
    }

    #[tokio::test(start_paused = true)]
    async fn few_are_in_flight_and_fewer_of_one_namespace() {
        let (gate, seen) = (ReadGate::default(), Arc::new(Seen::default()));
        let read = |namespace: &str, object: usize| {
            gate.read(&format!("{namespace}/{object}"), namespace.into(), None, seen.clone().read())
        };
        join_all((0..1000).map(|object| read("one", object))).await;
        assert_eq!((seen.most.load(Ordering::Relaxed), seen.all.load(Ordering::Relaxed)), (SHARE, 1000));
        join_all((0..1000).map(|object| read(&(object % 10).to_string(), object))).await;
        assert_eq!((seen.most.load(Ordering::Relaxed), seen.all.load(Ordering::Relaxed)), (AT_ONCE, 2000));
        assert!(gate.lock().is_empty());
    }

    /// Two in all: the first has left when the others ask, and its answer may be older than their question.
    #[tokio::test(start_paused = true)]
    async fn reads_of_one_object_are_one_unless_it_has_left() {
        let (gate, seen) = (ReadGate::default(), Arc::new(Seen::default()));
        let first = tokio::spawn(gate.read("o", "n".into(), None, seen.clone().read()));
        sleep(LATENCY / 2).await;
        let others =
            (0..100).map(|number| gate.read("o", "n".into(), job(&number.to_string()), seen.clone().read()));
        let others = join_all(others).await;
        assert_eq!(first.await.unwrap(), 0);
        assert!(others.iter().all(|number| *number == 1), "{others:?}");
        assert!(gate.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_that_hangs_holds_up_others_of_its_object_for_a_moment_only() {
        let gate = ReadGate::default();
        let hanging = tokio::spawn(gate.read("o", "n".into(), None, std::future::pending()));
        sleep(LATENCY).await;
        let begun = Instant::now();
        gate.read("o", "n".into(), None, async {}).await;
        assert_eq!(begun.elapsed(), GATHERING);
        hanging.abort();
    }
}
