//! The pods of one Job, sorted into the queues that the rules ask for.
//!
//! Invariant: cost follows change. A pod event moves one pod between ordered sets, in O(log n); no question walks over
//! all pods. Every change goes through [`PodSet::relink`], which reads the pod afresh ([`classify::Tags`]), moves it
//! between the queues ([`step`]), and settles what depends on its place ([`places`]).

mod classify;
mod counted;
mod ledger;
mod places;
mod queries;
mod step;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use foldhash::fast::RandomState;
use jiff::Timestamp;

use super::backoff::{BackoffPolicy, Ended, History};
use super::index_set::IndexSet;
use super::pod::{Phase, Place, Pod};
use super::spec::{Completion, Job, JobSpec};
use super::uid::{Uid, UidMap, UidSet};
use classify::{Rank, Standing, Tags, Tracking};
pub use counted::CountedPod;
use counted::CountedPods;
use ledger::Ledger;
pub use places::Held;
use step::{Queue, Step};

/// A request about a pod that has been sent and not answered, as far as it changes what the pod is to the Job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flight {
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

impl Flight {
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
    flight: Flight,
    /// The pod's end has been told to back-off.
    judged: bool,
    /// All that was to be recorded of the pod is, as far as is known: without its finalizer, it is counted.
    settled: bool,
    /// An answer told that the pod has no finalizer any more; the watch may tell otherwise before.
    released: bool,
    /// An answer told that the pod no longer exists; the watch has yet to say so, and may tell old news before.
    gone: bool,
    tags: Option<Tags>,
}

/// The pods of one Job.
#[derive(Clone, Debug)]
pub struct PodSet {
    spec: Arc<JobSpec>,
    backoff: BackoffPolicy,
    default_backoff: BackoffPolicy,
    ledger: Ledger,
    pods: UidMap<Entry>,

    active: Queue<Rank>,
    ready: usize,
    restarts: u64,
    /// Pods with the tracking finalizer, and those of them that the status lists as uncounted.
    tracked: usize,
    listed_and_tracked: usize,
    /// Pods with an unanswered request, and those of them whose removal is asked for.
    flights: usize,
    removals: usize,
    /// Active pods by place (Indexed).
    occupants: Queue<u32>,
    /// Places with more than one active pod (Indexed).
    crowded: BTreeSet<u32>,
    /// Active pods of an Indexed Job without an index in range.
    misplaced: Queue<Rank>,
    terminating: Queue<u32>,

    /// By place (`u32::MAX` without one), so that indexes are handled in ascending order.
    unfinished: Queue<u32>,
    to_record_success: Queue<u32>,
    to_record_failure: Queue<u32>,
    to_release: Queue<u32>,
    /// Failures to be recorded, held ones included.
    fresh_failures: usize,

    condemned: Queue<u32>,
    job_condemned: Queue<Timestamp>,
    /// Tracked failed pods by place, how many failures they stand for, and finish time.
    failures_at: Queue<(u32, (u32, Timestamp))>,
    held: BTreeMap<u32, Held>,

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
    /// Next attempt at a place where a name has been used.
    attempts: HashMap<u32, u32, RandomState>,

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
            pods: UidMap::default(),
            active: BTreeSet::new(),
            ready: 0,
            restarts: 0,
            tracked: 0,
            listed_and_tracked: 0,
            flights: 0,
            removals: 0,
            occupants: BTreeSet::new(),
            crowded: BTreeSet::new(),
            misplaced: BTreeSet::new(),
            terminating: BTreeSet::new(),
            unfinished: BTreeSet::new(),
            to_record_success: BTreeSet::new(),
            to_record_failure: BTreeSet::new(),
            to_release: BTreeSet::new(),
            fresh_failures: 0,
            condemned: BTreeSet::new(),
            job_condemned: BTreeSet::new(),
            failures_at: BTreeSet::new(),
            held: BTreeMap::new(),
            succeeded: IndexSet::new(),
            failed: IndexSet::new(),
            free: IndexSet::new(),
            taken: IndexSet::new(),
            pending: BTreeMap::new(),
            attempts: HashMap::default(),
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
        let uid = pod.uid.clone();
        let gone_for_good = pod.phase.is_final() && !pod.tracked;
        let counted = self.is_known_to_count(&pod);
        pod.tracked &= !self.pods.get(&uid).is_some_and(|entry| entry.released);
        match self.pods.get_mut(&uid) {
            Some(entry) if entry.gone || entry.pod.version > pod.version => false,
            Some(entry) => {
                // A watch event that brings what an answer told before still ends the wait for it.
                let news = entry.pod != pod;
                let ours = matches!(entry.flight, Flight::Release | Flight::Forget);
                self.released_by_others |= gone_for_good && entry.pod.tracked && !ours && !counted;
                if gone_for_good && source == Source::Watch && entry.settled {
                    self.counted.take_in(&pod);
                }
                if news {
                    entry.pod = pod;
                    self.relink(&uid);
                }
                if gone_for_good && source == Source::Watch {
                    self.forget(&uid);
                }
                news
            }
            None if source == Source::Answer => false,
            None => self.admit(pod, gone_for_good),
        }
    }

    /// Whether the status as it is known says that a pod is counted, whoever has set it free.
    fn is_known_to_count(&self, pod: &Pod) -> bool {
        pod.phase == Phase::Succeeded && pod.index.is_some_and(|index| self.ledger.completed.contains(index))
    }

    fn admit(&mut self, pod: Pod, gone_for_good: bool) -> bool {
        if let Some(history) = &mut self.history {
            history.carry(pod.backoff);
        }
        if let Some(place) = pod.place {
            self.note_place(place);
        }
        if gone_for_good {
            self.released_by_others |= !self.is_known_to_count(&pod);
            let failed = pod.is_failed(self.spec.replace_only_failed);
            self.history.iter_mut().for_each(|history| history.counted(Ended { at: pod.finished, failed }));
            self.counted.take_in(&pod);
            return false;
        }
        let uid = pod.uid.clone();
        self.counted.forget(&uid);
        self.pods.insert(
            uid.clone(),
            Entry {
                pod,
                flight: Flight::None,
                judged: false,
                settled: false,
                released: false,
                gone: false,
                tags: None,
            },
        );
        self.relink(&uid);
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
            Completion::Indexed(_) => self.note_attempt(place),
            _ => _ = self.taken.insert(place.number),
        }
        if self.pending.get(&place.number).is_some_and(|attempt| *attempt == place.attempt) {
            self.pending.remove(&place.number);
            self.settle_place(place.number);
        }
    }

    fn note_attempt(&mut self, place: Place) {
        let next = self.attempts.entry(place.number).or_insert(0);
        *next = (*next).max(place.attempt.saturating_add(1));
    }

    /// Takes in an answer that tells that a pod has lost its tracking finalizer.
    pub fn answered_released(&mut self, uid: &Uid) {
        if let Some(entry) = self.pods.get_mut(uid) {
            entry.released = true;
            entry.pod.tracked = false;
            self.relink(uid);
        }
    }

    /// Takes in an answer that tells that a pod no longer exists. What the watch still says of it is old.
    pub fn answered_gone(&mut self, uid: &Uid) {
        self.counted.forget(uid);
        if let Some(entry) = self.pods.get_mut(uid) {
            entry.gone = true;
            self.relink(uid);
        }
    }

    /// Takes in from the watch that a pod is gone; true if it was known.
    pub fn vanished(&mut self, uid: &Uid) -> bool {
        let known = self.pods.contains_key(uid);
        self.counted.forget(uid);
        self.lose(uid);
        known
    }

    /// Forgets a pod that is gone. Somebody else must have taken its finalizer off if we have not.
    fn lose(&mut self, uid: &Uid) {
        let ours = |entry: &Entry| entry.gone || !entry.pod.tracked || entry.flight != Flight::None;
        self.released_by_others |= self.pods.get(uid).is_some_and(|entry| !ours(entry));
        self.forget(uid);
    }

    fn forget(&mut self, uid: &Uid) {
        if let Some(entry) = self.pods.remove(uid) {
            self.count_flight(entry.flight, Flight::None);
            self.shift(uid, entry.tags, None);
            self.settle_places([entry.tags.and_then(|tags| tags.place), None]);
        }
    }

    /// Drops the pods that a complete list of `version` did not name.
    pub fn retain_listed(&mut self, listed: &UidSet, version: u64) {
        let missing: Vec<Uid> = self
            .pods
            .values()
            .filter(|e| (e.gone || e.pod.version <= version) && !listed.contains(&e.pod.uid))
            .map(|e| e.pod.uid.clone())
            .collect();
        missing.iter().for_each(|uid| self.lose(uid));
        self.counted.retain_listed(listed, version);
    }

    /// Marks a request about a pod as sent, or (`Flight::None`) as answered.
    pub fn set_flight(&mut self, uid: &Uid, flight: Flight) {
        self.counted.set_leaving(uid, flight.removes());
        if let Some(entry) = self.pods.get_mut(uid) {
            let before = std::mem::replace(&mut entry.flight, flight);
            self.count_flight(before, flight);
            self.relink(uid);
        }
    }

    fn count_flight(&mut self, before: Flight, after: Flight) {
        self.flights += usize::from(after != Flight::None);
        self.flights -= usize::from(before != Flight::None);
        self.removals += usize::from(after.removes());
        self.removals -= usize::from(before.removes());
    }

    /// Marks the creation of a pod as sent.
    pub fn create_sent(&mut self, place: Place) {
        self.pending.insert(place.number, place.attempt);
        if self.spec.completion.indexes().is_none() {
            self.taken.insert(place.number);
        }
        self.settle_place(place.number);
    }

    /// Takes in the answer to a creation. Without a pod, the place is free again; a pod is taken in unless the watch has
    /// shown it before (it may even be gone again by now).
    pub fn create_answered(&mut self, place: Place, pod: Option<Pod>) {
        if self.pending.get(&place.number) != Some(&place.attempt) {
            return;
        }
        self.pending.remove(&place.number);
        self.settle_place(place.number);
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
        self.note_attempt(place);
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
        if pods_mean_the_same && self.ledger.winding == ledger.winding {
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
        let uids: Vec<Uid> = rebuilt.pods.keys().cloned().collect();
        for uid in &uids {
            if let Some(entry) = rebuilt.pods.get_mut(uid) {
                entry.tags = None;
            }
            rebuilt.relink(uid);
        }
        let pending: Vec<u32> = rebuilt.pending.keys().copied().collect();
        pending.into_iter().for_each(|place| rebuilt.settle_place(place));
        *self = rebuilt;
    }

    fn follow_ledger(&mut self, ledger: Ledger) {
        let (uids, indexes) = self.ledger.difference(&ledger);
        self.ledger = ledger;
        for uid in &uids {
            self.relink(uid);
        }
        for index in indexes.iter() {
            for uid in self.ended_at(index) {
                self.relink(&uid);
            }
            self.settle_place(index);
        }
    }

    fn ended_at(&self, index: u32) -> Vec<Uid> {
        let queues = [&self.to_record_success, &self.to_record_failure, &self.to_release];
        let held = self.held.get(&index).map(|held| &held.uid);
        queues.into_iter().flat_map(|queue| step::at_place(queue, index)).chain(held).cloned().collect()
    }

    fn relink(&mut self, uid: &Uid) {
        let Some(entry) = self.pods.get_mut(uid) else { return };
        let tags = Tags::of(entry, &self.spec, &self.ledger);
        entry.settled |= tags.tracking == Tracking::Release || entry.flight == Flight::Release;
        let before = entry.tags.replace(tags);
        if before == Some(tags) {
            return self.settle_places([tags.place, None]);
        }
        if let Some(place) = entry.pod.place {
            self.note_place(place);
        }
        self.shift(uid, before, Some(tags));
        self.judge(uid, tags);
        self.settle_places([before.and_then(|tags| tags.place), tags.place]);
    }

    /// Brings the queues and sums up to date with a change of what a pod is; `None` is a pod that they leave out.
    fn shift(&mut self, uid: &Uid, before: Option<Tags>, after: Option<Tags>) {
        let indexed = self.spec.completion.indexes().is_some();
        let per_index = self.spec.per_index.is_some();
        let step = Step { uid, before, after };
        step.shift(&mut self.active, Tags::rank);
        step.shift(&mut self.occupants, |tags| tags.rank().filter(|_| indexed).and(tags.place));
        step.shift(&mut self.misplaced, |tags| tags.rank().filter(|_| indexed && tags.place.is_none()));
        step.shift(&mut self.terminating, |tags| {
            (tags.standing == Standing::Terminating).then_some(tags.key())
        });
        for tracking in Tracking::QUEUED {
            if let Some(queue) = self.queue(tracking) {
                step.shift(queue, |tags| (tags.tracking == tracking).then_some(tags.key()));
            }
        }
        step.shift(&mut self.condemned, |tags| tags.counted_failure()?.condemns_index.then_some(tags.key()));
        step.shift(&mut self.job_condemned, |tags| tags.failure?.condemns_job.then_some(tags.created));
        step.shift(&mut self.failures_at, |tags| {
            let failure = tags.counted_failure().filter(|_| per_index)?;
            Some((tags.place?, failure.rank_in_index))
        });
        step.count(&mut self.ready, Tags::is_ready);
        step.count(&mut self.tracked, |tags| tags.tracked);
        step.count(&mut self.listed_and_tracked, |tags| tags.tracked && tags.listed);
        step.count(&mut self.fresh_failures, |tags| tags.tracking == Tracking::RecordFailure);
        let restarts = |tags: Option<Tags>| tags.map_or(0, |tags| u64::from(tags.restarts));
        self.restarts = self.restarts + restarts(after) - restarts(before);
    }

    /// Tells back-off of a pod that has ended, once: as news, or as history when its end was recorded before we saw it.
    fn judge(&mut self, uid: &Uid, tags: Tags) {
        let has_place = self.spec.completion.indexes().is_none() || tags.place.is_some();
        let ended =
            matches!(tags.tracking, Tracking::RecordSuccess | Tracking::RecordFailure | Tracking::Release);
        let known = self.ledger.records(uid);
        let Some(entry) = self.pods.get_mut(uid).filter(|e| ended && has_place && !e.judged) else { return };
        entry.judged = true;
        let ended = Ended { at: entry.pod.finished, failed: tags.failure.is_some() };
        if known {
            self.history.iter_mut().for_each(|history| history.counted(ended));
        } else {
            self.newly_ended.push(ended);
        }
    }

    fn queue(&mut self, tracking: Tracking) -> Option<&mut Queue<u32>> {
        match tracking {
            Tracking::None => None,
            Tracking::Unfinished => Some(&mut self.unfinished),
            Tracking::RecordSuccess => Some(&mut self.to_record_success),
            Tracking::RecordFailure => Some(&mut self.to_record_failure),
            Tracking::Release => Some(&mut self.to_release),
        }
    }
}
