//! The pods of one Job, sorted into the queues that the rules read.
//!
//! Invariant: cost follows change. A pod event moves one pod between ordered sets, in O(log n); no query
//! iterates over all pods, but for those that complete a list. Every change goes through [`PodSet::relink`],
//! which classifies the pod again ([`classify::Tags`]), moves it between the [`queues`], and updates its place
//! ([`places`]).
//!
//! In a large Job, the cost of an event is memory access that misses the caches. So a pod is looked up by
//! UID once and then identified by its slot ([`slots`]). An event reads and writes only the parts of the
//! set that it changes.

mod attempts;
mod by_time;
mod classify;
mod counted;
mod entry;
mod exit_codes;
mod follow;
mod given;
mod ledger;
mod lessons;
mod lineages;
mod names;
mod occupants;
mod places;
mod queries;
mod queues;
mod relink;
mod slots;
mod step;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::backoff::{Ended, History};
use super::exponential::Exponential;
use super::index_set::IndexSet;
use super::options::{Needs, PodBackoff};
use super::pod::{Outcome, Place, Pod};
use super::pod_failure_policy::decisive;
use super::spec::{Job, JobSpec};
use super::uid::{Uid, UidSet};
use crate::mutants::{Mutant, is};
use attempts::Attempts;
use by_time::Times;
use classify::fails_job;
pub use counted::CountedPod;
use counted::CountedPods;
use entry::Entry;
pub use entry::PendingRequest;
use exit_codes::ExitCodes;
use given::Given;
use ledger::Ledger;
use lineages::{CurrentAttempt, Lineages};
pub use places::DelayedDeletion;
use queues::Queues;
use slots::{Slot, Slots};
use step::Step;

/// The source of a reading of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The watch, in the API server's order.
    Watch,
    /// The answer to one of our writes. It may be ahead of the watch or behind it.
    Answer,
    /// The answer to a creation that the watch has not shown: as `Answer`, but the pod may be new.
    Created,
}

/// Numbers of pods that have not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gauges {
    /// Pending or running.
    pub active: usize,
    /// Active pods whose Ready condition is True.
    pub ready: usize,
    /// Being deleted.
    pub terminating: usize,
}

/// The pods of one Job.
#[derive(Clone, Debug)]
pub struct PodSet {
    spec: Arc<JobSpec>,
    given: Given,
    backoff: Exponential,
    backoff_limits: PodBackoff,
    ledger: Ledger,
    pods: Slots,

    queues: Queues,
    /// Pods with an unanswered request.
    flights: usize,
    /// Pods with an unanswered request that removes them.
    removals: usize,
    held: BTreeMap<u32, DelayedDeletion>,

    /// Indexes that have succeeded, recorded or not.
    succeeded: IndexSet,
    /// Indexes that have failed, recorded or not.
    failed: IndexSet,
    /// Indexes that want a pod (Indexed).
    free: IndexSet,
    /// Ordinals that pods have had, that were requested, or with a name that another object has (not Indexed).
    taken: IndexSet,

    /// Creations that have been sent and not answered: place -> attempt.
    pending: BTreeMap<u32, u32>,
    /// Creations that were answered without a pod, and not sent again: place -> attempt. Their pods may have been created, and
    /// be seen later.
    unmade: BTreeMap<u32, u32>,
    /// Creations that have not been answered, and whose pods have been seen. If a creation was sent again,
    /// since an answer was lost, it may still arrive: until then the name must stay taken.
    seen_unanswered: BTreeSet<Place>,
    attempts: Attempts,
    /// How many pods that others may have created may yet claim a place.
    claims_left: usize,

    /// The facts about pods that options need.
    needs: Needs,
    /// Absent unless options need them. Boxed, as nearly all Jobs have none.
    lineages: Option<Box<Lineages>>,
    times: Option<Box<Times>>,
    exit_codes: Option<Box<ExitCodes>>,
    /// The attempt that pods belong to, if they restart together.
    current_attempt: Option<CurrentAttempt>,
    /// Places with creations that were sent for an earlier attempt and are not answered.
    pending_before: BTreeSet<u32>,

    /// Counted pods, which no other field includes.
    counted: CountedPods,

    /// Somebody else has removed the finalizer of a pod that has ended or is gone, and so may have counted
    /// it: the newest version that shows this.
    released_by_others: Option<u64>,
    listed: Listed,

    newly_ended: Vec<Ended>,
    /// Earlier failures that pods show, until all pods have been observed.
    history: Option<History>,
    /// The last live list, and its version, while creations are not answered that were under way then.
    live_list: Option<Box<(UidSet, u64)>>,
    /// How often a pod was classified.
    #[cfg(test)]
    relinks: usize,
}

/// Claims of places that are remembered once the pods have been listed, but for those of the Job's own pods.
const LATE_CLAIMS: usize = 256;

/// The part of an outcome that decides by the rules of a Job.
fn judged(spec: &JobSpec, outcome: Option<Box<Outcome>>) -> Option<Box<Outcome>> {
    decisive(spec.pod_failure_policy.as_deref()?, &*outcome?).map(Box::new)
}

/// Which pods have been shown to the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listed {
    /// Pods that came by the watch since the Job is known. Others may have ended before.
    Partly,
    /// A list is in progress.
    Listing,
    /// All of a list from its beginning to its end, and the watch goes on from there. If the watch shows a
    /// pod as ended and released for the first time, it was counted before.
    Completely,
}

impl PodSet {
    /// An empty set for a Job, whose back-off the controller limits.
    pub fn new(job: &Job, backoff_limits: PodBackoff) -> Self {
        let mut set = Self {
            ledger: Ledger::of(job),
            spec: job.spec.clone(),
            given: Given::by(job),
            backoff: job.options.backoff(backoff_limits),
            backoff_limits,
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
            unmade: BTreeMap::new(),
            seen_unanswered: BTreeSet::new(),
            attempts: Attempts::default(),
            claims_left: usize::MAX,
            needs: job.options.needs(),
            lineages: Lineages::of(job),
            times: Times::needed(job.options.needs()),
            exit_codes: ExitCodes::needed(job.options.needs()),
            current_attempt: None,
            pending_before: BTreeSet::new(),
            counted: CountedPods::of(job),
            released_by_others: None,
            listed: Listed::Partly,
            newly_ended: Vec::new(),
            history: Some(History::default()),
            live_list: None,
            #[cfg(test)]
            relinks: 0,
        };
        set.init_places();
        set.follow_names(job);
        set.follow_attempt();
        set.follow_runs(job.spec.suspend);
        set
    }

    /// Takes in a reading of a pod; true if it was new.
    pub fn observe(&mut self, mut pod: Pod, source: Source) -> bool {
        pod.forced &= self.needs.lost_nodes;
        let gone_for_good = pod.phase.is_final() && !pod.tracked;
        let Some(slot) = self.pods.find(&pod.uid) else {
            let is_late = source == Source::Answer || self.counted.is_newer_than(&pod);
            if is_late {
                return false;
            }
            if let Some(lineages) = &mut self.lineages {
                lineages.learn(&pod, &self.spec, &self.given);
            }
            if let Some(codes) = self.exit_codes.as_mut().filter(|_| pod.tracked) {
                codes.note(&pod);
            }
            pod.forget_lessons();
            pod.outcome = judged(&self.spec, pod.outcome);
            pod.place = self.given.place(pod.place, &pod.name, self.spec.completion);
            let news = self.admit(pod, gone_for_good, source);
            self.bound_lessons();
            self.follow_attempt();
            return news;
        };
        let Some(entry) = self.pods.get_mut(slot).filter(|e| !e.gone && e.pod.version <= pod.version) else {
            return false;
        };
        // A pod that we remove has not failed.
        if let Some(lineages) = self.lineages.as_mut().filter(|_| entry.flight != PendingRequest::Forget) {
            lineages.learn(&pod, &self.spec, &self.given);
        }
        self.exit_codes.iter_mut().for_each(|codes| codes.note(&pod));
        pod.forget_lessons();
        // Lists show a pod again and again, and who writes its conditions decides how long it takes to judge them.
        pod.outcome = match entry.pod.version == pod.version && entry.pod.phase == pod.phase {
            true => entry.pod.outcome.clone(),
            false => judged(&self.spec, pod.outcome),
        };
        pod.tracked &= !entry.released;
        if pod.place != entry.pod.place {
            // The place follows from the name, which never changes.
            let given = || self.given.place(pod.place, &entry.pod.name, self.spec.completion);
            pod.place = entry.pod.place.or_else(given);
        }
        // Labels are the business of the watch.
        if source != Source::Watch {
            pod.selected = entry.pod.selected;
        }
        // The pod is dropped only when the watch confirms its end, also if an answer has shown it before.
        let ends_here = gone_for_good && source == Source::Watch;
        let news = entry.pod.version != pod.version || entry.pod != pod;
        let ours = matches!(entry.flight, PendingRequest::Release | PendingRequest::Forget);
        let released = gone_for_good && entry.pod.tracked && !ours;
        let counted = ends_here && entry.recorded;
        let moved = pod.place.filter(|_| entry.pod.place != pod.place);
        if released {
            self.note_released(&pod);
        }
        if counted {
            self.counted.take_in(&pod);
        }
        if let Some(place) = moved {
            self.note_place(place);
        }
        if ends_here && !self.keep_to_fail_job(slot, &pod) {
            self.forget(slot);
        } else if news {
            self.replace(slot, pod);
        }
        self.bound_lessons();
        self.follow_attempt();
        news
    }

    /// Whether a pod that has ended without finalizer stays because it fails the Job. A rule of the pod
    /// failure policy applies to all failed pods, counted or not.
    fn keep_to_fail_job(&mut self, slot: Slot, pod: &Pod) -> bool {
        let keeps = self.ledger.is_open && fails_job(pod, &self.spec);
        if let Some(entry) = self.pods.get_mut(slot) {
            entry.only_fails_job = keeps;
        }
        keeps
    }

    /// Drops the pods that were kept only because they fail the Job, once its end is announced.
    fn drop_job_failures(&mut self) {
        let kept: Vec<Slot> =
            self.pods.iter().filter(|(_, entry)| entry.only_fails_job).map(|(slot, _)| slot).collect();
        kept.into_iter().for_each(|slot| self.forget(slot));
    }

    /// Replaces the older reading of a pod by the newer. A name never changes; the old copy stays, because
    /// freeing it would read memory that nothing else needs.
    fn replace(&mut self, slot: Slot, mut pod: Pod) {
        if let Some(entry) = self.pods.get_mut(slot) {
            std::mem::swap(&mut pod.name, &mut entry.pod.name);
            entry.pod = pod;
            self.relink(slot);
        }
    }

    fn admit(&mut self, pod: Pod, gone_for_good: bool, source: Source) -> bool {
        if let Some(history) = &mut self.history {
            history.carry(pod.backoff());
        }
        if let Some(place) = pod.place {
            self.note_place(place);
        }
        if gone_for_good {
            if source != Source::Watch || self.listed != Listed::Completely {
                self.note_released(&pod);
            }
            let failed = pod.is_failed(self.spec.replace_only_failed);
            let ended = Ended { at: pod.finished.into(), failed };
            self.history.iter_mut().for_each(|history| history.counted(&pod.uid, ended));
            self.counted.take_in(&pod);
            if !self.ledger.is_open || !fails_job(&pod, &self.spec) {
                return false;
            }
        } else {
            self.counted.forget(&pod.uid);
        }
        let slot = self.pods.insert(Entry { only_fails_job: gone_for_good, ..Entry::of(pod) });
        self.relink(slot);
        true
    }

    /// Records that another client has released a pod.
    fn note_released(&mut self, pod: &Pod) {
        if !self.ledger.counts(pod) {
            self.released_by_others = self.released_by_others.max(Some(pod.version));
        }
    }

    /// Records that another client has released a pod, at an unknown time.
    pub fn released_unseen(&mut self) {
        self.released_by_others = Some(u64::MAX);
    }

    /// Whether another client has released pods that a status of this version need not count yet. The count
    /// of a pod is recorded in the status before the pod is released.
    pub fn released_by_others_since(&self, version: u64) -> bool {
        self.released_by_others.is_some_and(|released| released > version)
    }

    /// Takes in that a read of the status has begun: releases seen from now on may be newer than its result.
    pub fn reading_status(&mut self) {
        self.released_by_others = None;
    }

    /// Takes in that a list of the pods begins.
    pub fn listing(&mut self) {
        self.listed = Listed::Listing;
    }

    /// Takes in an answer that a pod has no tracking finalizer.
    pub fn answered_released(&mut self, uid: &Uid) {
        self.change(uid, |entry| {
            entry.released = true;
            entry.pod.tracked = false;
        });
    }

    /// Takes in an answer that a pod no longer exists. Later readings of it from the watch are old.
    pub fn answered_gone(&mut self, uid: &Uid) {
        self.counted.forget(uid);
        self.change(uid, |entry| entry.gone = true);
    }

    /// Changes the entry of a pod, if it is in the set.
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
        known.into_iter().for_each(|slot| self.drop_gone(slot));
        known.is_some()
    }

    /// Drops a pod that is gone. If we have not removed its finalizer, somebody else must have.
    fn drop_gone(&mut self, slot: Slot) {
        if let Some(entry) = self.pods.get(slot).filter(|entry| entry.must_exist()) {
            let lost = (!entry.pod.phase.is_final()).then(|| entry.pod.attempt());
            lost.into_iter().for_each(|attempt| self.learn_lost(attempt));
            // Nothing tells when.
            self.released_unseen();
        }
        self.forget(slot);
        self.follow_attempt();
    }

    fn forget(&mut self, slot: Slot) {
        if let Some(Entry { pod, flight, tags, .. }) = self.pods.remove(slot) {
            self.count_flight(flight, PendingRequest::None);
            self.exit_codes.iter_mut().for_each(|codes| codes.forget(&pod.uid));
            let step = Step { slot, before: tags.as_ref(), after: None };
            self.times.iter_mut().for_each(|times| times.forget(slot));
            self.queues.shift(step, &self.spec);
            self.refresh_places(step);
        }
        self.bound_lessons();
        if self.pods.is_empty() {
            // Many Jobs only wait for their TTL. They should keep no memory for pods.
            self.queues = Queues::default();
            self.newly_ended.shrink_to_fit();
        }
    }

    /// Drops the pods that are missing from a complete list of `version`.
    pub fn retain_listed(&mut self, listed: &UidSet, version: u64) {
        if self.listed == Listed::Listing {
            self.listed = Listed::Completely;
        }
        self.claims_left = self.claims_left.min(LATE_CLAIMS);
        if is(Mutant::RelistKeepsGonePods) {
            return;
        }
        let is_missing = |e: &Entry| (e.gone || e.pod.version <= version) && !listed.contains(&e.pod.uid);
        let missing: Vec<Slot> =
            self.pods.iter().filter(|(_, entry)| is_missing(entry)).map(|(slot, _)| slot).collect();
        missing.into_iter().for_each(|slot| self.drop_gone(slot));
        self.counted.retain_listed(listed, version);
    }

    /// Takes in a complete list of all pods of the Job, whatever labels they have, that the watch may not have reached.
    pub fn listed_live(&mut self, listed: &UidSet, version: u64) {
        self.live_list = (!self.pending.is_empty()).then(|| Box::new((listed.clone(), version)));
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

    /// Marks the end of the Job as being announced: it removes the pods that are active now. Costs O(active pods).
    pub fn end_sent(&mut self) {
        let active: Vec<Slot> = self.queues.active.iter().map(|(_, slot)| *slot).collect();
        for slot in active {
            if let Some(entry) = self.pods.get_mut(slot) {
                entry.ends_with_job = true;
            }
        }
    }
}
