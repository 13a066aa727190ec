//! A panic ends the smallest unit that can be rebuilt from the cluster.
//!
//! | what panics | what follows |
//! |---|---|
//! | a Job actor, or a request of a Job | its shard rebuilds the Job ([`shard_actor`](crate::actors::shards::shard_actor)) |
//! | a shard actor, or a task of its own | the shard is released, and claimed again after a pause |
//! | the search for stripped pods | it restarts |
//! | a watch, the write gate, the recorder of Events, the election | it restarts ([`supervised`]) |
//! | the lease manager, the replica actor, or a task of its own | the process ends: everything depends on them |
//!
//! The process also ends if resource versions go back, as after a restore of etcd. Known state then means
//! nothing, and the next start lists everything.
//!
//! [`supervised`]: crate::cluster::supervision::supervised

use std::sync::Arc;

use futures::FutureExt;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::cluster::supervision::caught;

/// A part of a replica that fails as a whole. Clones are the same unit.
#[derive(Clone)]
pub struct Unit {
    runtime: Handle,
    fails: Arc<dyn Fn() + Send + Sync>,
}

impl Unit {
    /// A unit whose tasks run on this runtime. `fails` is called after each panic of a part of it.
    pub fn new(runtime: Handle, fails: impl Fn() + Send + Sync + 'static) -> Self {
        Self { runtime, fails: Arc::new(fails) }
    }

    /// Runs a task of this unit. `what` names it in the log.
    pub fn spawn(
        &self,
        what: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        // The handle of a task that has ended keeps the memory of the task, but not what the task has allocated.
        self.runtime.spawn(Box::pin(self.guarded(what, task)))
    }

    /// A task of this unit, for callers that run it themselves.
    pub fn guarded<F: Future<Output = ()>>(
        &self,
        what: &'static str,
        task: F,
    ) -> impl Future<Output = ()> + use<F> {
        let fails = self.fails.clone();
        caught(what, task).map(move |done| {
            if done.is_none() {
                fails();
            }
        })
    }

    /// A guard for an actor to hold: the unit fails if the actor panics.
    pub fn notice(&self) -> PanicNotice {
        PanicNotice(self.clone())
    }
}

/// Fails its unit when a panic drops it. Actix drops an actor that panics, without a report.
pub struct PanicNotice(Unit);

impl Drop for PanicNotice {
    fn drop(&mut self) {
        if std::thread::panicking() {
            (self.0.fails)();
        }
    }
}

/// Why a whole replica must end. A new process takes its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fatal {
    /// This part has panicked, and the whole replica depends on it.
    #[error("{0} has panicked; its shards go to other replicas when the Lease expires")]
    Panicked(&'static str),
    /// The API server shows an earlier version of an object than before, so known state means nothing.
    #[error(
        "resource versions have gone back, as after a restore of etcd; a new start reads everything again"
    )]
    VersionsWentBack,
}

/// Whether the whole replica must end. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Downfall(Arc<watch::Sender<Option<Fatal>>>);

impl Downfall {
    /// The replica must end, for this reason. The first reason counts.
    pub fn cause(&self, why: Fatal) {
        self.0.send_if_modified(|cause| cause.is_none() && cause.replace(why).is_none());
    }

    /// Why the replica must end, if it must.
    pub fn has_come(&self) -> Option<Fatal> {
        *self.0.borrow()
    }

    /// Returns once the replica must end.
    pub async fn comes(&self) -> Fatal {
        let mut cause = self.0.subscribe();
        let why = cause.wait_for(Option::is_some).await.ok().and_then(|why| *why);
        match why {
            Some(why) => why,
            // The sender lives as long as this.
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test]
    async fn a_unit_fails_with_each_of_its_tasks_that_panics() {
        let failures = Arc::new(AtomicU32::new(0));
        let counted = failures.clone();
        let unit = Unit::new(Handle::current(), move || _ = counted.fetch_add(1, Ordering::Relaxed));
        assert!(unit.spawn("a good task", async {}).await.is_ok());
        drop(unit.notice());
        assert_eq!(failures.load(Ordering::Relaxed), 0);
        assert!(unit.spawn("a bad task", async { panic!("as planned") }).await.is_ok());
        assert_eq!(failures.load(Ordering::Relaxed), 1);
        let notice = unit.notice();
        let actor = tokio::spawn(async move {
            let _notice = notice;
            tokio::task::yield_now().await;
            panic!("as planned");
        });
        assert!(actor.await.is_err());
        assert_eq!(failures.load(Ordering::Relaxed), 2);
    }

    #[test]
    #[allow(clippy::unwrap_used)]
    fn a_task_that_has_ended_keeps_little_memory_while_its_handle_is_kept() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let unit = Unit::new(runtime.handle().clone(), || {});
        let large = [0_u8; 1500];
        let mut task = None;
        let used = allocation_counter::measure(|| {
            task = Some(unit.spawn("a large task", async move {
                tokio::task::yield_now().await;
                std::hint::black_box(large);
            }));
            runtime.block_on(async { tokio::task::yield_now().await });
            runtime.block_on(async { tokio::task::yield_now().await });
        });
        assert!(task.is_some_and(|task| task.is_finished()));
        assert!(used.bytes_current < 1000, "{used:?}");
    }

    #[tokio::test]
    async fn the_first_cause_of_a_downfall_counts() {
        let downfall = Downfall::default();
        assert_eq!(downfall.has_come(), None);
        downfall.cause(Fatal::VersionsWentBack);
        downfall.cause(Fatal::Panicked("a part"));
        assert_eq!(downfall.comes().await, Fatal::VersionsWentBack);
        assert_eq!(downfall.has_come(), Some(Fatal::VersionsWentBack));
    }
}
