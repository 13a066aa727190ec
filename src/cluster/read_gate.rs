//! The gate of live reads: how many are in flight, whose turn it is, and which of them are one.
//!
//! No more than [`AT_ONCE`] reads of a replica are in flight. Those that wait take turns by Job, so a Job with
//! thousands of reads delays the single read of another by one. A read of an object joins one of the same object
//! that has not left yet, and waits for a moment if one is in flight: its answer may be older than the question,
//! but the next read can serve all who ask meanwhile.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::fast::RandomState;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};
use tokio::sync::{Mutex as AsyncMutex, oneshot};
use tokio::time::timeout;

use super::fair_queue::{FairQueue, Room};
use crate::job::uid::Uid;

/// Live reads of a replica that may be in flight at once.
pub(super) const AT_ONCE: usize = 32;
/// How long a read waits for one of the same object that is in flight, so that others may join it.
const GATHERING: Duration = Duration::from_secs(1);

/// The gate. Clones are the same gate; `T` is the answer to the read of an object.
pub(super) struct ReadGate<T>(Arc<Mutex<State<T>>>);

struct State<T> {
    in_flight: usize,
    /// By the Job that asks.
    waiting: FairQueue<(), (), Option<Uid>, oneshot::Sender<Turn<T>>>,
    /// By path.
    objects: HashMap<Arc<str>, Object<T>, RandomState>,
}

/// The reads of one object.
struct Object<T> {
    /// Held while one is in flight.
    in_flight: Arc<AsyncMutex<()>>,
    /// The one that has not left yet.
    next: Option<WeakShared<BoxFuture<'static, T>>>,
}

/// The right to have a read in flight, until it is dropped.
pub(super) struct Turn<T>(Option<ReadGate<T>>);

/// Forgets an object that nobody reads any more.
struct Forget<T> {
    gate: ReadGate<T>,
    path: Arc<str>,
}

impl<T> Clone for ReadGate<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Default for ReadGate<T> {
    fn default() -> Self {
        let waiting = FairQueue::new(|(), _| true);
        Self(Arc::new(Mutex::new(State { in_flight: 0, waiting, objects: HashMap::default() })))
    }
}

impl<T> ReadGate<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // Poisoning is ignored: the state is changed by steps that do not panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the turn of a read that a Job asks for.
    pub(super) async fn turn(&self, asker: Option<Uid>) -> Turn<T> {
        let granted = {
            let mut state = self.lock();
            if state.in_flight < AT_ONCE {
                state.in_flight += 1;
                return Turn(Some(self.clone()));
            }
            let (turn, granted) = oneshot::channel();
            state.waiting.push((), (), asker, turn);
            granted
        };
        // Its sender is dropped only by being used.
        granted.await.unwrap_or(Turn(None))
    }

    /// Gives the turn of a read that has ended to the next that still waits.
    fn pass_on(self) {
        loop {
            let Some(next) = self.next() else { return };
            match next.send(Turn(Some(self.clone()))) {
                Ok(()) => return,
                // Nobody waits for it any more.
                Err(mut turn) => turn.0 = None,
            }
        }
    }

    fn next(&self) -> Option<oneshot::Sender<Turn<T>>> {
        let mut state = self.lock();
        let next = state.waiting.pop(|(), (), _| Room::Preferred);
        if next.is_none() {
            state.in_flight -= 1;
        }
        next.map(|((), (), waiting)| waiting)
    }
}

impl<T> Drop for Turn<T> {
    fn drop(&mut self) {
        if let Some(gate) = self.0.take() {
            gate.pass_on();
        }
    }
}

impl<T: Clone + Send + Sync + 'static> ReadGate<T> {
    /// Reads an object by `read`, or joins another read of it that has not left yet.
    pub(super) fn read(
        &self,
        path: &str,
        asker: Option<Uid>,
        read: impl Future<Output = T> + Send + 'static,
    ) -> Shared<BoxFuture<'static, T>> {
        let path: Arc<str> = path.into();
        let mut state = self.lock();
        let object = state
            .objects
            .entry(path.clone())
            .or_insert_with(|| Object { in_flight: Arc::default(), next: None });
        if let Some(next) = object.next.as_ref().and_then(WeakShared::upgrade) {
            return next;
        }
        let (in_flight, gate) = (object.in_flight.clone(), self.clone());
        let forget = Forget { gate: self.clone(), path: path.clone() };
        let next = async move {
            let _forget = forget;
            // After that time it leaves beside the other one, which may hang.
            let _alone = timeout(GATHERING, in_flight.lock_owned()).await;
            let _turn = gate.turn(asker).await;
            if let Some(object) = gate.lock().objects.get_mut(&path) {
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
        let mut state = self.gate.lock();
        let Some(object) = state.objects.get(&self.path) else { return };
        let next = object.next.as_ref().and_then(WeakShared::upgrade);
        if next.is_none() {
            state.objects.remove(&self.path);
        }
        // Its owner may have gone meanwhile. If it is the last one, dropping it comes here again.
        drop(state);
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

    #[tokio::test(start_paused = true)]
    async fn few_are_in_flight_and_a_job_with_many_does_not_delay_others() {
        let (gate, seen) = (ReadGate::default(), Arc::new(Seen::default()));
        let read = |job: &str, object: usize| {
            gate.read(&format!("{job}/{object}"), Some(job.into()), seen.clone().read())
        };
        let many = tokio::spawn(join_all((0..1000).map(|object| read("many", object))));
        sleep(LATENCY / 2).await;
        let begun = Instant::now();
        read("one", 0).await;
        assert!(begun.elapsed() <= 2 * LATENCY, "{:?}", begun.elapsed());
        assert_eq!(many.await.unwrap().len(), 1000);
        assert_eq!((seen.most.load(Ordering::Relaxed), seen.all.load(Ordering::Relaxed)), (AT_ONCE, 1001));
        let state = gate.lock();
        assert!(state.in_flight == 0 && state.objects.is_empty());
    }

    /// Two in all: the first has left when the others ask, and its answer may be older than their question.
    #[tokio::test(start_paused = true)]
    async fn reads_of_one_object_are_one_unless_it_has_left() {
        let (gate, seen) = (ReadGate::default(), Arc::new(Seen::default()));
        let first = tokio::spawn(gate.read("o", None, seen.clone().read()));
        sleep(LATENCY / 2).await;
        let others =
            (0..100).map(|job| gate.read("o", Some(Uid::from(&*job.to_string())), seen.clone().read()));
        let others = join_all(others).await;
        assert_eq!(first.await.unwrap(), 0);
        assert!(others.iter().all(|number| *number == 1), "{others:?}");
        assert!(gate.lock().objects.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_that_hangs_holds_up_others_of_its_object_for_a_moment_only() {
        let gate = ReadGate::default();
        let hanging = tokio::spawn(gate.read("o", None, std::future::pending()));
        sleep(LATENCY).await;
        let begun = Instant::now();
        gate.read("o", None, async {}).await;
        assert_eq!(begun.elapsed(), GATHERING);
        hanging.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn turns_of_reads_that_nobody_waits_for_go_to_the_next() {
        let gate = ReadGate::<()>::default();
        let held = join_all((0..AT_ONCE).map(|_| gate.turn(None))).await;
        let mut waiting: Vec<_> = (0..10_000).map(|_| gate.turn(None).boxed()).collect();
        assert!(waiting.iter_mut().all(|turn| turn.now_or_never().is_none()));
        let last = gate.turn(None);
        drop(waiting);
        drop(held);
        drop(timeout(LATENCY, last).await.unwrap());
        assert_eq!(gate.lock().in_flight, 0);
    }
}
