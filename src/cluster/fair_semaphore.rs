//! A semaphore that is fair between namespaces and, within a namespace, between Jobs.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::fast::RandomState;
use tokio::sync::oneshot;

use super::fair_queue::{FairQueue, Room};
use super::fence::Fence;
use crate::job::job_id::JobId;
use crate::mutants::{Mutant, is};

/// The namespace that something is done for; `None` for the replica itself.
type Namespace = Option<Arc<str>>;

/// Gives out permits, in turns by namespace, and within a namespace by Job. A namespace
/// never holds more than its share. A tenant that waits for thousands of answers, or for
/// answers that never come, leaves the rest to others. Clones are the same semaphore.
#[derive(Clone)]
pub struct FairSemaphore(Arc<Mutex<State>>);

struct State {
    /// Permits of all.
    permits: usize,
    /// Most permits that a namespace may hold.
    share: usize,
    /// Permits that a namespace may hold although none is left.
    least: usize,
    held: usize,
    /// Permits by namespace; only those that hold some.
    held_by: HashMap<Namespace, usize, RandomState>,
    waiting: FairQueue<(), Namespace, Option<JobId>, oneshot::Sender<Permit>>,
}

/// How long refused work keeps its permit.
const PACE: Duration = Duration::from_secs(1);

/// The fence was closed before the work was done.
#[derive(Debug)]
pub struct Fenced;

/// The right to use the guarded resource, until it is dropped.
pub struct Permit {
    /// Absent once it has been given back.
    of: Option<FairSemaphore>,
    namespace: Namespace,
}

impl FairSemaphore {
    /// A semaphore with this many permits, of which a namespace gets at most `share`.
    pub fn new(permits: usize, share: usize) -> Self {
        let waiting = FairQueue::new(|(), _| true).without(oneshot::Sender::is_closed);
        Self(Arc::new(Mutex::new(State {
            permits,
            share,
            least: 0,
            held: 0,
            held_by: HashMap::default(),
            waiting,
        })))
    }

    /// A semaphore that bounds each namespace alone.
    pub fn of_each_namespace(share: usize) -> Self {
        Self::new(usize::MAX, share)
    }

    /// The same, with a permit for each namespace that holds none, although there may be
    /// more then than there are. For work that may take very long: however many
    /// namespaces keep their permits, others go on.
    #[must_use]
    pub fn with_one_for_each(self) -> Self {
        self.lock().least = 1;
        self
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Poisoning is ignored: the state is changed by steps that do not panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a permit, for a Job of this namespace. Without a namespace, the permit
    /// is for the replica itself; without a Job, for none in particular.
    pub async fn acquire(&self, namespace: Option<&Arc<str>>, job: Option<&JobId>) -> Permit {
        let namespace = namespace.filter(|_| !is(Mutant::TurnsByUid)).cloned();
        let mut waiter = {
            let mut state = self.lock();
            if state.has_room(&namespace) {
                state.hold(&namespace);
                return self.permit(namespace);
            }
            let (grant, granted) = oneshot::channel();
            state.waiting.push((), namespace.clone(), job.cloned(), grant);
            Waiter { of: self, namespace: &namespace, job, granted, waits: true }
        };
        // Its sender is dropped only by being used.
        let granted = (&mut waiter.granted).await;
        waiter.waits = false;
        drop(waiter);
        granted.unwrap_or(Permit { of: None, namespace })
    }

    /// Does something once there is a permit, unless the fence is closed before. Until then it takes little memory, however much
    /// it takes then.
    ///
    /// # Errors
    /// When the fence is closed.
    pub async fn run<F: Future>(
        &self,
        fence: &Fence,
        namespace: &Arc<str>,
        job: Option<&JobId>,
        work: impl FnOnce() -> F,
    ) -> Result<F::Output, Fenced> {
        let _permit = self.permitted(fence, namespace, job).await?;
        Ok(Box::pin(work()).await)
    }

    /// The same for work that may be refused again and again. Refused work keeps its
    /// permit for a second, so that the refusals of a namespace have a pace.
    ///
    /// # Errors
    /// When the fence is closed.
    pub async fn attempt<F: Future>(
        &self,
        fence: &Fence,
        namespace: &Arc<str>,
        job: Option<&JobId>,
        is_refused: impl Fn(&F::Output) -> bool,
        work: impl FnOnce() -> F,
    ) -> Result<F::Output, Fenced> {
        let permit = self.permitted(fence, namespace, job).await?;
        let output = Box::pin(work()).await;
        if is_refused(&output) {
            tokio::spawn(async move {
                tokio::time::sleep(PACE).await;
                drop(permit);
            });
        }
        Ok(output)
    }

    async fn permitted(
        &self,
        fence: &Fence,
        namespace: &Arc<str>,
        job: Option<&JobId>,
    ) -> Result<Permit, Fenced> {
        tokio::select! {
            biased;
            () = fence.closed() => Err(Fenced),
            permit = self.acquire(Some(namespace), job) => Ok(permit),
        }
    }

    fn permit(&self, namespace: Namespace) -> Permit {
        Permit { of: Some(self.clone()), namespace }
    }

    /// Gives out the permits that are free to the next that still wait.
    fn give_out(&self) {
        while let Some((namespace, grant)) = self.next() {
            if let Err(mut unwanted) = grant.send(self.permit(namespace)) {
                unwanted.of = None;
                self.lock().give_back(&unwanted);
            }
        }
    }

    fn next(&self) -> Option<(Namespace, oneshot::Sender<Permit>)> {
        let mut state = self.lock();
        let most = state.most();
        let State { waiting, held_by, .. } = &mut *state;
        if most == 0 {
            return None;
        }
        let room = |(), namespace: &Namespace, _| match held_by.get(namespace) {
            Some(held) if *held >= most => Room::None,
            _ => Room::Preferred,
        };
        let ((), namespace, grant) = waiting.pop(room)?;
        state.hold(&namespace);
        Some((namespace, grant))
    }
}

/// A task that waits for a permit. Dropped, it takes itself out of the queue.
struct Waiter<'a> {
    of: &'a FairSemaphore,
    namespace: &'a Namespace,
    job: Option<&'a JobId>,
    granted: oneshot::Receiver<Permit>,
    waits: bool,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if !self.waits {
            return;
        }
        self.granted.close();
        // A permit that has come meanwhile is given back.
        drop(self.granted.try_recv());
        self.of.lock().waiting.forget((), self.namespace, &self.job.cloned());
    }
}

impl State {
    fn has_room(&self, namespace: &Namespace) -> bool {
        self.held_by.get(namespace).copied().unwrap_or(0) < self.most()
    }

    /// Most permits that a namespace may hold at present.
    fn most(&self) -> usize {
        if self.held < self.permits { self.share } else { self.least }
    }

    fn hold(&mut self, namespace: &Namespace) {
        self.held += 1;
        *self.held_by.entry(namespace.clone()).or_default() += 1;
    }

    fn give_back(&mut self, permit: &Permit) {
        self.held -= 1;
        if let Some(held) = self.held_by.get_mut(&permit.namespace) {
            *held -= 1;
            if *held == 0 {
                self.held_by.remove(&permit.namespace);
            }
        }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(of) = self.of.take() {
            of.lock().give_back(self);
            of.give_out();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use futures::FutureExt;
    use futures::future::join_all;
    use tokio::time::{Instant, sleep, timeout};

    use super::*;

    const LATENCY: Duration = Duration::from_millis(10);

    fn job(namespace: &str, name: &str) -> JobId {
        JobId::new(namespace.into(), name.into(), name.into())
    }

    async fn work(of: &FairSemaphore, job: &JobId) {
        let _permit = of.acquire(Some(job.namespace()), Some(job)).await;
        sleep(LATENCY).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_with_many_requests_does_not_delay_others_of_its_namespace() {
        let semaphore = FairSemaphore::new(8, 8);
        let (many, one) = (job("n", "many"), job("n", "one"));
        let begun = semaphore.clone();
        let busy = tokio::spawn(async move { join_all((0..1_000).map(|_| work(&begun, &many))).await });
        sleep(LATENCY / 2).await;
        let asked = Instant::now();
        work(&semaphore, &one).await;
        assert!(asked.elapsed() <= 2 * LATENCY, "{:?}", asked.elapsed());
        busy.await.unwrap();
        let state = semaphore.lock();
        assert!(state.held == 0 && state.held_by.is_empty() && state.waiting.is_empty());
    }

    /// The tenant chooses the UIDs that its pods name: each would be a flow of its own.
    #[tokio::test(start_paused = true)]
    async fn a_namespace_whose_answers_never_come_holds_up_only_itself() {
        let semaphore = FairSemaphore::new(32, 16);
        let tenant: Arc<str> = "evil".into();
        let hung = (0..400).map(|n| {
            let (semaphore, tenant) = (semaphore.clone(), tenant.clone());
            tokio::spawn(async move {
                let job = job("evil", &n.to_string());
                let _permit = semaphore.acquire(Some(&tenant), Some(&job)).await;
                std::future::pending::<()>().await;
            })
        });
        let hung: Vec<_> = hung.collect();
        sleep(LATENCY).await;
        let asked = Instant::now();
        for n in 0..100 {
            work(&semaphore, &job("victim", &n.to_string())).await;
        }
        assert_eq!(asked.elapsed(), 100 * LATENCY);
        hung.iter().for_each(tokio::task::JoinHandle::abort);
    }

    #[tokio::test(start_paused = true)]
    async fn each_namespace_has_a_permit_however_many_others_keep_theirs() {
        let semaphore = FairSemaphore::new(16, 4).with_one_for_each();
        let mut hung = Vec::new();
        for namespace in 0..50 {
            let namespace: Arc<str> = format!("evil-{namespace}").into();
            let permits = (0..8).map(|_| semaphore.acquire(Some(&namespace), None).now_or_never());
            hung.extend(permits.flatten());
        }
        assert_eq!((hung.len(), semaphore.lock().held), (16 + 46, 16 + 46));
        let asked = Instant::now();
        join_all((0..10).map(|n| {
            let (semaphore, job) = (semaphore.clone(), job("victim", &n.to_string()));
            async move { work(&semaphore, &job).await }
        }))
        .await;
        assert_eq!(asked.elapsed(), 10 * LATENCY, "one at a time");
        drop(hung);
        let state = semaphore.lock();
        assert!(state.held == 0 && state.held_by.is_empty() && state.waiting.is_empty());
    }

    /// Its permit may not come for as long as others keep theirs.
    #[tokio::test(start_paused = true)]
    async fn what_waits_for_a_permit_ends_with_its_right() {
        let semaphore = FairSemaphore::of_each_namespace(1);
        let (namespace, fence) = ("n".into(), Fence::unlimited().part());
        let held = semaphore.acquire(Some(&namespace), None).await;
        let (begun, right) = (semaphore.clone(), fence.clone());
        let waits =
            tokio::spawn(async move { begun.run(&right, &namespace, None, async || ()).await.is_ok() });
        sleep(LATENCY).await;
        assert!(!waits.is_finished());
        fence.withdraw();
        assert!(!waits.await.unwrap(), "it was not done");
        drop(held);
        assert!(semaphore.run(&Fence::unlimited(), &"n".into(), None, async || ()).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn permits_that_nobody_waits_for_go_to_the_next() {
        let semaphore = FairSemaphore::new(4, 4);
        let held = join_all((0..4).map(|_| semaphore.acquire(None, None))).await;
        let mut waiting: Vec<_> = (0..10_000).map(|_| semaphore.acquire(None, None).boxed()).collect();
        assert!(waiting.iter_mut().all(|permit| permit.now_or_never().is_none()));
        let last = semaphore.acquire(None, None);
        drop(waiting);
        drop(held);
        drop(timeout(LATENCY, last).await.unwrap());
        assert_eq!(semaphore.lock().held, 0);
    }
}
