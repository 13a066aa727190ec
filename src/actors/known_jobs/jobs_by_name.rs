//! The Jobs of the cluster by name, for Jobs that wait for the ends of others ([`order`](crate::job::order)).
//!
//! A replica watches all Jobs, so it knows those of other shards, and of other controllers, without a request. A Job's actor asks
//! here before each plan while the Job waits. It is woken when one of its predecessors appears, ends or is gone ([`wake_round`]).
//! If a predecessor waits for other Jobs than before, no actor is woken. This matters for cycles only, and a search for a cycle has a
//! time of its own ([`JobState::begins_cycle_search`]).
//!
//! During a list, Jobs may be shown in any order. So nothing is known until the list is complete.

mod cycle_search;
mod wake_round;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use self::cycle_search::CycleSearch;
use self::wake_round::{Waiting, WakeRound};
use crate::actors::messages::inbox::Inbox;
use crate::actors::messages::job_input::JobInput;
use crate::cluster::wire::ObservedJob;
use crate::job::job_id::JobId;
use crate::job::options::Predecessors;
use crate::job::predecessors::{JobOutcome, OrderLook, names_met};
use crate::job::spec::Job;
use crate::job::state::JobState;
use crate::job::status::ConditionKind;
use crate::job::uid::Uid;

/// The Jobs of the cluster by name. Clones are the same index.
#[derive(Clone, Debug, Default)]
pub struct JobsByName {
    contents: Arc<Mutex<NamespaceIndex>>,
    /// There are actors to wake.
    changed: Arc<Notify>,
}

#[derive(Debug, Default)]
struct NamespaceIndex {
    /// No list is in progress.
    listed: bool,
    namespaces: BTreeMap<Arc<str>, NamespaceJobs>,
    /// The actors to wake, by namespace.
    rounds: BTreeMap<Arc<str>, WakeRound>,
}

/// The Jobs of a namespace.
#[derive(Debug, Default)]
struct NamespaceJobs {
    jobs: BTreeMap<Arc<str>, KnownJob>,
    waiting: BTreeMap<Waiting, Inbox<JobInput>>,
}

/// A Job as the watch has last shown it.
#[derive(Debug)]
struct KnownJob {
    uid: Uid,
    outcome: JobOutcome,
    /// The Jobs that it still waits for, unless it has begun.
    awaited: Option<Arc<Predecessors>>,
}

impl KnownJob {
    /// `manages`: it is this controller's. Others know no order.
    fn of(seen: &ObservedJob, manages: bool) -> Self {
        let job = seen.may_have_pods();
        let outcome = match job.and_then(|job| job.status.finished()).map(|end| end.kind) {
            Some(ConditionKind::Complete) => JobOutcome::Succeeded,
            Some(_) => JobOutcome::Failed,
            None => JobOutcome::Unfinished,
        };
        let waits =
            |job: &&Job| manages && outcome == JobOutcome::Unfinished && job.status.start_time.is_none();
        let awaited = job.filter(waits).and_then(|job| {
            let met: BTreeSet<&str> = names_met(job.status.after_met.as_deref()).collect();
            Some(job.options.after.as_ref()?.without(&met))
        });
        Self { uid: seen.uid.clone(), outcome, awaited }
    }
}

impl NamespaceJobs {
    /// Whether a Job waits for one of this name.
    fn has_waiting(&self, name: &str) -> bool {
        let next = self.waiting.range((Box::from(name), Uid::LOWEST)..).next();
        next.is_some_and(|((waited_for, _), _)| **waited_for == *name)
    }

    /// The names of the Jobs that the Job of this name still waits for.
    fn awaited_by(&self, name: &str) -> impl Iterator<Item = &str> {
        let awaited = self.jobs.get(name).and_then(|known| known.awaited.as_deref());
        awaited.into_iter().flat_map(Predecessors::iter).map(|(name, _)| name)
    }
}

impl JobsByName {
    fn contents(&self) -> MutexGuard<'_, NamespaceIndex> {
        // A panic while changing leaves the maps whole.
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies a Job that the watch shows. `manages`: it is this controller's.
    pub fn seen(&self, seen: &ObservedJob, manages: bool) {
        let known = KnownJob::of(seen, manages);
        let (uid, outcome) = (known.uid.clone(), known.outcome);
        let mut contents = self.contents();
        let names = contents.namespaces.entry(seen.namespace.clone()).or_default();
        let before = names.jobs.insert(seen.name.clone(), known);
        if before.is_none_or(|before| (before.uid, before.outcome) != (uid, outcome)) {
            self.changed(&mut contents, &seen.namespace, &seen.name);
        }
    }

    /// Records that a Job is gone.
    pub fn gone(&self, job: &JobId) {
        let mut contents = self.contents();
        let Some(names) = contents.namespaces.get_mut(job.namespace()) else { return };
        // Another Job may have its name by now.
        if names.jobs.get(job.name()).is_none_or(|known| known.uid != *job.uid()) {
            return;
        }
        names.jobs.remove(job.name());
        self.changed(&mut contents, job.namespace(), job.name());
        contents.tidy(job.namespace());
    }

    /// Wakes the actors that wait for this name, soon.
    fn changed(&self, contents: &mut NamespaceIndex, namespace: &Arc<str>, name: &str) {
        if contents.namespaces.get(namespace).is_some_and(|names| names.has_waiting(name)) {
            contents.rounds.entry(namespace.clone()).or_default().add(name);
            self.changed.notify_one();
        }
    }

    /// Wakes the actors whose predecessors have changed, until dropped.
    pub async fn wake_waiting(self) {
        loop {
            let changed = self.changed.notified();
            match self.wake_some(Instant::now()) {
                Some(at) => _ = timeout_at(at, changed).await,
                None => changed.await,
            }
        }
    }

    /// Wakes a portion of the actors of each namespace that has some to wake and does not pause. Returns when the next pause
    /// ends, if there is one.
    fn wake_some(&self, now: Instant) -> Option<Instant> {
        let (mut woken, mut next) = (Vec::new(), None::<Instant>);
        {
            let mut contents = self.contents();
            let NamespaceIndex { namespaces, rounds, .. } = &mut *contents;
            rounds.retain(|namespace, round| {
                let names = namespaces.get(namespace);
                let pause = names.and_then(|names| round.wake_some(&names.waiting, now, &mut woken));
                next = next.into_iter().chain(pause).min();
                pause.is_some()
            });
        }
        wake(woken);
        next
    }

    /// A list of all Jobs begins.
    pub fn listing(&self) {
        self.contents().listed = false;
    }

    /// A list of all Jobs is complete.
    pub fn listed(&self) {
        let waiting = {
            let mut contents = self.contents();
            contents.listed = true;
            let waiting = contents.namespaces.values().flat_map(|names| &names.waiting);
            let waiting: BTreeMap<&Uid, Inbox<JobInput>> =
                waiting.map(|((_, uid), inbox)| (uid, inbox.clone())).collect();
            waiting.into_values().collect()
        };
        wake(waiting);
    }

    /// Forgets all Jobs.
    pub fn clear(&self) {
        let mut contents = self.contents();
        contents.listed = false;
        contents.namespaces.values_mut().for_each(|names| names.jobs.clear());
        contents.namespaces.retain(|_, names| !names.waiting.is_empty());
    }

    /// Looks at the predecessors of a Job. Before the list of all Jobs is complete, none has ended. `searches`: the look is to
    /// search for a cycle. Otherwise, the cycle of the last look is still one while its predecessor waits for some Job.
    pub fn look(&self, state: &JobState, searches: bool) -> OrderLook {
        let job = &state.job;
        let Some(after) = job.options.after.as_deref() else { return OrderLook::default() };
        let (met, known_cycle) = (state.names_met(), state.known_cycle());
        let contents = self.contents();
        let names = contents.namespaces.get(&job.namespace);
        let outcome = |name: &str| match names.filter(|_| contents.listed) {
            Some(names) => names.jobs.get(name).map(|known| known.outcome),
            None => Some(JobOutcome::Unfinished),
        };
        let mut search = CycleSearch::new(names, &job.name);
        let waits_for_it = |name| match searches {
            true => search.leads_back_from(name),
            false => {
                known_cycle == Some(name)
                    && names.is_some_and(|names| names.awaited_by(name).next().is_some())
            }
        };
        OrderLook::new(after, |name| met.contains(name), outcome, waits_for_it)
    }

    /// Wakes an actor whenever one of the predecessors of its Job changes, until the answer is dropped.
    pub fn follow(&self, job: &Job, inbox: &Inbox<JobInput>) -> Option<Followed> {
        let after = job.options.after.clone()?;
        let mut contents = self.contents();
        let names = contents.namespaces.entry(job.namespace.clone()).or_default();
        for (name, _) in after.iter() {
            names.waiting.insert((name.into(), job.uid.clone()), inbox.clone());
        }
        drop(contents);
        Some(Followed { index: self.clone(), job: job.id(), after })
    }
}

impl NamespaceIndex {
    fn tidy(&mut self, namespace: &str) {
        if self
            .namespaces
            .get(namespace)
            .is_some_and(|names| names.jobs.is_empty() && names.waiting.is_empty())
        {
            self.namespaces.remove(namespace);
        }
    }
}

/// The inboxes are woken without the lock: an actor asks as soon as it is awake.
fn wake(waiting: Vec<Inbox<JobInput>>) {
    waiting.into_iter().for_each(|inbox| inbox.push(JobInput::PredecessorChanged));
}

/// The predecessors that an actor follows.
#[derive(Debug)]
pub struct Followed {
    index: JobsByName,
    job: JobId,
    after: Arc<Predecessors>,
}

impl Followed {
    /// Whether it is these.
    pub fn is(&self, after: &Predecessors) -> bool {
        *self.after == *after
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        let mut contents = self.index.contents();
        let Some(names) = contents.namespaces.get_mut(self.job.namespace()) else { return };
        for (name, _) in self.after.iter() {
            names.waiting.remove(&(name.into(), self.job.uid().clone()));
        }
        contents.tidy(self.job.namespace());
    }
}

#[cfg(test)]
mod tests;
