//! The pods of one Job, sorted into the queues that the rules ask for.
//!
//! Invariant: cost follows change. A pod event moves one pod between ordered sets, in O(log n); no question walks over
//! all pods. Every change goes through [`PodSet::relink`], which reads the pod afresh ([`classify::Tags`]), moves it
//! between the [`queues`], and settles what depends on its place ([`places`]).
//!
//! What an event costs in a large Job is memory that no cache holds. So pods are found by UID once and go by number then
//! ([`slots`]), and an event reads and writes of the set only what it changes.

mod attempts;
mod classify;
mod counted;
mod ledger;
mod occupants;
mod places;
mod queries;
mod queues;
mod slots;
mod step;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::backoff::{BackoffPolicy, Ended, History};
use super::index_set::IndexSet;
use super::pod::{Place, Pod};
use super::spec::{Completion, Job, JobSpec};
use super::uid::{Uid, UidSet};
use attempts::Attempts;
use classify::{Tags, Tracking};
pub use counted::CountedPod;
use counted::CountedPods;
use ledger::Ledger;
pub use places::DelayedDeletion;
use queues::Queues;
use slots::{Slot, Slots};
use step::Step;

/// A request about a pod that has been sent and not answered, as far as it changes what the pod is to the Job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PendingRequest {
    /// None.
    #[default]
    None,
    /// DELETE.
    Delete,
    /// The finalizer is taken off, then DELETE: the pod will not count.
    Forget,
    /// The finalizer is taken off.
    Release,
}

impl PendingRequest {
    /// Whether the pod may still be active on the API server although it is not to be.
    fn removes(self) -> bool {
        matches!(self, Self::Delete | Self::Forget)
    }
}

/// Where a reading of a pod comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The watch: the API server's own order.
    Watch,
    /// The answer to one of our writes: may be ahead of the watch, or behind it.
    Answer,
    /// The answer to a creation that the watch has not shown: the same, of a pod that may be new.
    Created,
}

#[derive(Clone, Debug)]
struct Entry {
    pod: Pod,
    flight: PendingRequest,
    /// The pod's end has been told to back-off.
    judged: bool,
    /// All that was to be recorded of the pod is, as far as is known: without its finalizer, it is counted.
    recorded: bool,
    /// An answer told that the pod has no finalizer any more; the watch may tell otherwise before.
    released: bool,
    /// An answer told that the pod no longer exists; the watch has yet to say so, and may tell old news before.
    gone: bool,
    /// What the queues know the pod as.
    tags: Option<Tags>,
}

impl Entry {
    fn of(pod: Pod) -> Self {
        Self {
            pod,
            flight: PendingRequest::None,
            judged: false,
            recorded: false,
            released: false,
            gone: false,
            tags: None,
        }
    }
}

/// The pods of one Job.
#[derive(Clone, Debug)]
pub struct PodSet {
    spec: Arc<JobSpec>,
    backoff: BackoffPolicy,
    default_backoff: BackoffPolicy,
    ledger: Ledger,
    pods: Slots,

    queues: Queues,
    /// Pods with an unanswered request, and those of them whose removal is asked for.
    flights: usize,
    removals: usize,
    held: BTreeMap<u32, DelayedDeletion>,

    /// Recorded or to be recorded as succeeded.
    succeeded: IndexSet,
    /// Recorded or to be recorded as failed.
    failed: IndexSet,
    /// Indexes that want a pod (Indexed).
    free: IndexSet,
    /// Ordinals of pods that have been seen or asked for (not Indexed).
    taken: IndexSet,

    /// Creations that have been sent and not answered: place -> attempt.
    pending: BTreeMap<u32, u32>,
    attempts: Attempts,

    /// Pods with nothing left to be counted, which all other fields leave out.
    counted: CountedPods,

    /// Somebody else has taken the finalizer off a pod that has ended or is gone, as whoever has counted it does.
    released_by_others: bool,

    newly_ended: Vec<Ended>,
    /// Until all pods have been observed: what they tell of failures before.
    history: Option<History>,
}

impl PodSet {
    /// An empty set for a Job. Back-off is `default` where the Job has no own.
    pub fn new(job: &Job, default: BackoffPolicy) -> Self {
        let mut set = Self {
            ledger: Ledger::of(job),
            spec: job.spec.clone(),
            backoff: job.options.backoff(default),
            default_backoff: default,
            pods: Slots::default(),
            queues: Queues::default(),
            flights: 0,
            removals: 0,
            held: BTreeMap::new(),
            succeeded: IndexSet::new(),
            failed: IndexSet::new(),
            free: IndexSet::new(),
            taken: IndexSet::new(),
            pending: BTreeMap::new(),
            attempts: Attempts::default(),
            counted: CountedPods::of(job),
            released_by_others: false,
            newly_ended: Vec::new(),
            history: Some(History::default()),
        };
        set.lay_out_places();
        set
    }

    /// Takes in a reading of a pod; true if it told something new.
    pub fn observe(&mut self, mut pod: Pod, source: Source) -> bool {
        let gone_for_good = pod.phase.is_final() && !pod.tracked;
        let Some(slot) = self.pods.find(&pod.uid) else {
            return source != Source::Answer && self.admit(pod, gone_for_good);
        };
        let Some(entry) = self.pods.get_mut(slot).filter(|e| !e.gone && e.pod.version <= pod.version) else {
            return false;
        };
        pod.tracked &= !entry.released;
        // A watch event that brings what an answer told before still ends the wait for it.
        let ends_here = gone_for_good && source == Source::Watch;
        let news = entry.pod.version != pod.version || entry.pod != pod;
        let ours = matches!(entry.flight, PendingRequest::Release | PendingRequest::Forget);
        let freed = gone_for_good && entry.pod.tracked && !ours;
        let counted = ends_here && entry.recorded;
        let moved = pod.place.filter(|_| entry.pod.place != pod.place);
        self.released_by_others |= freed && !self.ledger.counts(&pod);
        if counted {
            self.counted.take_in(&pod);
        }
        if let Some(place) = moved {
            self.note_place(place);
        }
        if ends_here {
            self.forget(slot);
        } else if news {
            self.replace(slot, pod);
        }
        news
    }

    /// Puts the newer reading of a pod in place of the older. A name never changes; the one that is here stays, since freeing
    /// it would cost a read of memory that nothing else needs.
    fn replace(&mut self, slot: Slot, mut pod: Pod) {
        if let Some(entry) = self.pods.get_mut(slot) {
            std::mem::swap(&mut pod.name, &mut entry.pod.name);
            entry.pod = pod;
            self.relink(slot);
        }
    }

    fn admit(&mut self, pod: Pod, gone_for_good: bool) -> bool {
        if let Some(history) = &mut self.history {
            history.carry(pod.backoff.as_deref().copied());
        }
        if let Some(place) = pod.place {
            self.note_place(place);
        }
        if gone_for_good {
            self.released_by_others |= !self.ledger.counts(&pod);
            let failed = pod.is_failed(self.spec.replace_only_failed);
            self.history
                .iter_mut()
                .for_each(|history| history.counted(Ended { at: pod.finished.into(), failed }));
            self.counted.take_in(&pod);
            return false;
        }
        self.counted.forget(&pod.uid);
        let slot = self.pods.insert(Entry::of(pod));
        self.relink(slot);
        true
    }

    /// Whether pods have been seen that somebody else has set free: the status that counts them may be newer than the one known.
    pub fn released_by_others(&self) -> bool {
        self.released_by_others
    }

    /// Takes note that the status is being read: what is seen from now on may be newer again.
    pub fn reading_status(&mut self) {
        self.released_by_others = false;
    }

    fn note_place(&mut self, place: Place) {
        match self.spec.completion {
            Completion::Indexed(_) => self.attempts.note(place),
            _ => _ = self.taken.insert(place.number),
        }
        if self.pending.get(&place.number).is_some_and(|attempt| *attempt == place.attempt) {
            self.pending.remove(&place.number);
            self.refresh_place(place.number);
        }
    }

    /// Takes in an answer that tells that a pod has lost its tracking finalizer.
    pub fn answered_released(&mut self, uid: &Uid) {
        self.change(uid, |entry| {
            entry.released = true;
            entry.pod.tracked = false;
        });
    }

    /// Takes in an answer that tells that a pod no longer exists. What the watch still says of it is old.
    pub fn answered_gone(&mut self, uid: &Uid) {
        self.counted.forget(uid);
        self.change(uid, |entry| entry.gone = true);
    }

    /// Changes what is known of a pod, if it is in the set.
    fn change(&mut self, uid: &Uid, change: impl FnOnce(&mut Entry)) {
        let Some(slot) = self.pods.find(uid) else { return };
        if let Some(entry) = self.pods.get_mut(slot) {
            change(entry);
            self.relink(slot);
        }
    }

    /// Takes in from the watch that a pod is gone; true if it was known.
    pub fn vanished(&mut self, uid: &Uid) -> bool {
        self.counted.forget(uid);
        let known = self.pods.find(uid);
        known.into_iter().for_each(|slot| self.lose(slot));
        known.is_some()
    }

    /// Forgets a pod that is gone. Somebody else must have taken its finalizer off if we have not.
    fn lose(&mut self, slot: Slot) {
        let ours = |entry: &Entry| entry.gone || !entry.pod.tracked || entry.flight != PendingRequest::None;
        self.released_by_others |= self.pods.get(slot).is_some_and(|entry| !ours(entry));
        self.forget(slot);
    }

    fn forget(&mut self, slot: Slot) {
        if let Some(Entry { flight, tags, .. }) = self.pods.remove(slot) {
            self.count_flight(flight, PendingRequest::None);
            let step = Step { slot, before: tags.as_ref(), after: None };
            self.queues.shift(step, &self.spec);
            self.refresh_places(step);
        }
        if self.pods.is_empty() {
            // Jobs that wait for nothing but their TTL are many, and keep no memory for pods.
            self.queues = Queues::default();
            self.newly_ended.shrink_to_fit();
        }
    }

    /// Drops the pods that a complete list of `version` did not name.
    pub fn retain_listed(&mut self, listed: &UidSet, version: u64) {
        let is_missing = |e: &Entry| (e.gone || e.pod.version <= version) && !listed.contains(&e.pod.uid);
        let missing: Vec<Slot> =
            self.pods.iter().filter(|(_, entry)| is_missing(entry)).map(|(slot, _)| slot).collect();
        missing.into_iter().for_each(|slot| self.lose(slot));
        self.counted.retain_listed(listed, version);
    }

    /// Marks a request about a pod as sent, or (`PendingRequest::None`) as answered.
    pub fn set_flight(&mut self, uid: &Uid, flight: PendingRequest) {
        self.counted.set_leaving(uid, flight.removes());
        let mut before = flight;
        self.change(uid, |entry| before = std::mem::replace(&mut entry.flight, flight));
        self.count_flight(before, flight);
    }

    fn count_flight(&mut self, before: PendingRequest, after: PendingRequest) {
        self.flights += usize::from(after != PendingRequest::None);
        self.flights -= usize::from(before != PendingRequest::None);
        self.removals += usize::from(after.removes());
        self.removals -= usize::from(before.removes());
    }

    /// Marks the creation of a pod as sent.
    pub fn create_sent(&mut self, place: Place) {
        self.pending.insert(place.number, place.attempt);
        if self.spec.completion.indexes().is_none() {
            self.taken.insert(place.number);
        }
        self.refresh_place(place.number);
    }

    /// Takes in the answer to a creation. Without a pod, the place is free again; a pod is taken in unless the watch has
    /// shown it before (it may even be gone again by now).
    pub fn create_answered(&mut self, place: Place, pod: Option<Pod>) {
        if self.pending.get(&place.number) != Some(&place.attempt) {
            return;
        }
        self.pending.remove(&place.number);
        self.refresh_place(place.number);
        match pod {
            Some(pod) => {
                self.note_place(place);
                self.observe(pod, Source::Created);
            }
            None => _ = self.taken.remove(place.number),
        }
    }

    /// Takes note that a name is taken by something else: the place's next pod gets another one.
    pub fn skip_attempt(&mut self, place: Place) {
        self.create_answered(place, None);
        self.attempts.note(place);
    }

    /// Follows a new reading of the Job. Costs O(changes), unless what pods mean has changed altogether (completions,
    /// policies, an end in sight).
    pub fn follow(&mut self, job: &Job) {
        let (old, new) = (&self.spec, &job.spec);
        let pods_mean_the_same = old.completion == new.completion
            && old.replace_only_failed == new.replace_only_failed
            && old.per_index == new.per_index
            && self.backoff == job.options.backoff(self.default_backoff)
            && old.pod_failure_policy == new.pod_failure_policy;
        let ledger = Ledger::of(job);
        self.counted.follow(job);
        if pods_mean_the_same && self.ledger.termination == ledger.termination {
            self.spec = job.spec.clone();
            self.follow_ledger(ledger);
        } else {
            self.rebuild(job);
        }
    }

    fn rebuild(&mut self, job: &Job) {
        let mut rebuilt = Self::new(job, self.default_backoff);
        rebuilt.pending = std::mem::take(&mut self.pending);
        rebuilt.attempts = std::mem::take(&mut self.attempts);
        rebuilt.taken = std::mem::take(&mut self.taken);
        (rebuilt.flights, rebuilt.removals) = (self.flights, self.removals);
        rebuilt.counted = std::mem::take(&mut self.counted);
        rebuilt.history = self.history.take();
        rebuilt.newly_ended = std::mem::take(&mut self.newly_ended);
        rebuilt.pods = std::mem::take(&mut self.pods);
        rebuilt.pods.values_mut().for_each(|entry| entry.tags = None);
        rebuilt.relink_all();
        let pending: Vec<u32> = rebuilt.pending.keys().copied().collect();
        pending.into_iter().for_each(|place| rebuilt.refresh_place(place));
        *self = rebuilt;
    }

    fn follow_ledger(&mut self, ledger: Ledger) {
        let (uids, indexes) = self.ledger.difference(&ledger);
        self.ledger = ledger;
        for slot in uids.iter().filter_map(|uid| self.pods.find(uid)).collect::<Vec<_>>() {
            self.relink(slot);
        }
        for index in indexes.iter() {
            for slot in self.ended_at(index) {
                self.relink(slot);
            }
            self.refresh_place(index);
        }
    }

    fn ended_at(&self, index: u32) -> Vec<Slot> {
        let Queues { to_record_success, to_record_failure, to_release, .. } = &self.queues;
        let held = self.held.get(&index).and_then(|held| self.pods.find(&held.uid));
        [to_record_success, to_record_failure, to_release]
            .into_iter()
            .flat_map(|queue| step::at_place(queue, index))
            .chain(held)
            .collect()
    }

    fn relink_all(&mut self) {
        let slots: Vec<Slot> = self.pods.iter().map(|(slot, _)| slot).collect();
        slots.into_iter().for_each(|slot| self.relink(slot));
    }

    fn relink(&mut self, slot: Slot) {
        let Some(entry) = self.pods.get_mut(slot) else { return };
        let tags = Tags::of(entry, &self.spec, &self.ledger);
        entry.recorded |= tags.tracking == Tracking::Release || entry.flight == PendingRequest::Release;
        if entry.tags.as_ref() == Some(&tags) {
            return;
        }
        let before = entry.tags.replace(tags.clone());
        let step = Step { slot, before: before.as_ref(), after: Some(&tags) };
        self.queues.shift(step, &self.spec);
        self.judge(slot, &tags);
        self.refresh_places(step);
    }

    /// Tells back-off of a pod that has ended, once: as news, or as history when its end was recorded before we saw it.
    fn judge(&mut self, slot: Slot, tags: &Tags) {
        let has_place = self.spec.completion.indexes().is_none() || tags.place.is_some();
        let ended =
            matches!(tags.tracking, Tracking::RecordSuccess | Tracking::RecordFailure | Tracking::Release);
        let Some(entry) = self.pods.get_mut(slot).filter(|e| ended && has_place && !e.judged) else { return };
        entry.judged = true;
        let ended = Ended { at: entry.pod.finished.into(), failed: tags.failure.is_some() };
        if tags.listed {
            self.history.iter_mut().for_each(|history| history.counted(ended));
        } else {
            self.newly_ended.push(ended);
        }
    }
}
