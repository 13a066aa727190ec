//! Reads of one object that are one read. A read joins one of the same object that has not left yet. If a
//! read is in flight, its answer may be older than the question. So the next one waits for a moment, and
//! serves all callers since.
//!
//! The read includes the decoding. A tenant chooses how long an object is and how many ask for it, so it is decoded once for
//! all of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::fast::RandomState;
use futures::FutureExt;
use futures::future::{BoxFuture, OptionFuture, Shared, WeakShared};
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::timeout;

use super::read_gate::ReadGate;
use crate::job::job_id::JobId;

/// How long a read waits for one of the same object that is in flight, so that others may join it.
const GATHERING: Duration = Duration::from_secs(1);

/// The reads of the objects of one kind; `T` is the result of a read. Clones are the same reads.
pub(super) struct JoinedReads<T> {
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

/// Removes an object from the table after its last read.
struct Forget<T> {
    reads: JoinedReads<T>,
    path: Arc<str>,
    /// Shared by all reads of the object and the table. Absent once it is given back.
    in_flight: Option<Arc<AsyncMutex<()>>>,
}

impl<T> Clone for JoinedReads<T> {
    fn clone(&self) -> Self {
        Self { objects: self.objects.clone() }
    }
}

impl<T> Default for JoinedReads<T> {
    fn default() -> Self {
        Self { objects: Arc::default() }
    }
}

impl<T> JoinedReads<T> {
    fn lock(&self) -> MutexGuard<'_, Objects<T>> {
        // Poisoning is ignored: the table is changed by steps that do not panic.
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Clone + Send + Sync + 'static> JoinedReads<T> {
    /// Reads an object of a namespace by `read`, in its turn, or joins another read of it that has not left yet.
    pub(super) fn read<F: Future<Output = T> + Send + 'static>(
        &self,
        gate: &ReadGate,
        path: &str,
        namespace: Arc<str>,
        asker: Option<JobId>,
        read: impl FnOnce() -> F + Send + 'static,
    ) -> Shared<BoxFuture<'static, T>> {
        let path: Arc<str> = path.into();
        let mut objects = self.lock();
        let object =
            objects.entry(path.clone()).or_insert_with(|| Object { in_flight: Arc::default(), next: None });
        if let Some(next) = object.next.as_ref().and_then(WeakShared::upgrade) {
            return next;
        }
        let (gate, this) = (gate.clone(), self.clone());
        let in_flight = Some(object.in_flight.clone());
        let forget = Forget { reads: self.clone(), path: path.clone(), in_flight };
        let next = async move {
            let forget = forget;
            let in_flight = OptionFuture::from(forget.in_flight.clone().map(AsyncMutex::lock_owned));
            // After that time it leaves beside the other one, which may hang.
            let _alone = timeout(GATHERING, in_flight).await;
            let _turn = gate.turn(Some(&namespace), asker.as_ref()).await;
            if let Some(object) = this.lock().get_mut(&path) {
                object.next = None;
            }
            // There may be very many that wait, so the read itself takes no memory before.
            Box::pin(read()).await
        };
        let next = next.boxed().shared();
        object.next = next.downgrade();
        next
    }
}

impl<T> Drop for Forget<T> {
    fn drop(&mut self) {
        let mut objects = self.reads.lock();
        self.in_flight = None;
        let is_last = |object: &Object<T>| Arc::strong_count(&object.in_flight) == 1;
        if objects.get(&self.path).is_some_and(is_last) {
            objects.remove(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::join_all;
    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::cluster::read_gate::{AT_ONCE, SHARE};

    const LATENCY: Duration = Duration::from_millis(10);

    fn reading(seen: &Arc<Seen>) -> impl FnOnce() -> BoxFuture<'static, usize> + Send + 'static {
        let seen = seen.clone();
        move || seen.read().boxed()
    }

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
        let (gate, reads, seen) = (ReadGate::default(), JoinedReads::default(), Arc::new(Seen::default()));
        let read = |namespace: &str, object: usize| {
            reads.read(&gate, &format!("{namespace}/{object}"), namespace.into(), None, reading(&seen))
        };
        join_all((0..1000).map(|object| read("one", object))).await;
        assert_eq!((seen.most.load(Ordering::Relaxed), seen.all.load(Ordering::Relaxed)), (SHARE, 1000));
        join_all((0..1000).map(|object| read(&(object % 10).to_string(), object))).await;
        assert_eq!((seen.most.load(Ordering::Relaxed), seen.all.load(Ordering::Relaxed)), (AT_ONCE, 2000));
        assert!(reads.lock().is_empty());
    }

    /// Two in all: the first has left when the others ask, and its answer may be older than their question.
    #[tokio::test(start_paused = true)]
    async fn reads_of_one_object_are_one_unless_it_has_left() {
        let (gate, reads, seen) = (ReadGate::default(), JoinedReads::default(), Arc::new(Seen::default()));
        let first = tokio::spawn(reads.read(&gate, "o", "n".into(), None, reading(&seen)));
        sleep(LATENCY / 2).await;
        let others = (0..100)
            .map(|number| reads.read(&gate, "o", "n".into(), job(&number.to_string()), reading(&seen)));
        let others = join_all(others).await;
        assert_eq!(first.await.unwrap(), 0);
        assert!(others.iter().all(|number| *number == 1), "{others:?}");
        assert!(reads.lock().is_empty());
    }

    /// A second read waits for the first one, and its askers go away.
    #[tokio::test(start_paused = true)]
    async fn a_read_that_nobody_waits_for_any_more_does_not_let_others_leave_beside_the_one_in_flight() {
        let (gate, reads, seen) = (ReadGate::default(), JoinedReads::default(), Arc::new(Seen::default()));
        let read = || reads.read(&gate, "o", "n".into(), None, reading(&seen));
        let first = tokio::spawn(read());
        sleep(LATENCY / 4).await;
        for is_polled in [false, true] {
            let left = tokio::spawn(read());
            if is_polled {
                sleep(LATENCY / 4).await;
            }
            left.abort();
            sleep(LATENCY / 8).await;
        }
        assert_eq!(read().await, 1);
        assert_eq!((first.await.unwrap(), seen.most.load(Ordering::Relaxed)), (0, 1));
        drop(read());
        assert!(reads.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_that_hangs_holds_up_others_of_its_object_for_a_moment_only() {
        let (gate, reads) = (ReadGate::default(), JoinedReads::default());
        let hanging = tokio::spawn(reads.read(&gate, "o", "n".into(), None, std::future::pending));
        sleep(LATENCY).await;
        let begun = Instant::now();
        reads.read(&gate, "o", "n".into(), None, async || {}).await;
        assert_eq!(begun.elapsed(), GATHERING);
        hanging.abort();
    }
}
