//! Places: the state that follows from all pods at one place together. It decides which index wants a pod,
//! which one has succeeded or failed, and which failed pod is held until its successor carries the failures
//! of the index.

use jiff::Timestamp;

use super::PodSet;
use super::classify::Tracking;
use super::ledger::Termination;
use super::slots::Slot;
use super::step::{Step, at_place};
use crate::job::index_set::IndexSet;
use crate::job::pod::{BackoffRecord, IndexFailures, Place};
use crate::job::spec::Completion;
use crate::job::uid::Uid;
use crate::mutants::{Mutant, is};

/// The failed pod that carries all failures of an index (`backoffLimitPerIndex`). It keeps its tracking
/// finalizer until its successor exists, which carries the failure counts in its annotations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DelayedDeletion {
    /// The pod.
    pub uid: Uid,
    /// When the index's back-off ends.
    pub ready_at: Timestamp,
    /// The failure counts for the successor's annotations.
    pub successor: IndexFailures,
}

impl PodSet {
    /// Sets the state of all places from the ledger alone, before any pod is classified.
    pub(super) fn init_places(&mut self) {
        if let Completion::Indexed(end) = self.spec.completion {
            self.failed = self.ledger.failed_indexes.clone();
            self.succeeded = self.ledger.completed_indexes.difference(&self.failed);
            self.free = IndexSet::below(end).difference(&self.succeeded).difference(&self.failed);
        }
    }

    /// Sets the state of these places, which are in range, from the ledger alone, as if they had no pods. Costs
    /// O(log intervals) for each interval.
    pub(super) fn reset_places(&mut self, places: &IndexSet) {
        let failed = self.ledger.failed_indexes.intersection(places);
        let mut succeeded = self.ledger.completed_indexes.intersection(places);
        succeeded.remove_all(&failed);
        let free = places.difference(&succeeded).difference(&failed);
        for (set, members) in
            [(&mut self.succeeded, succeeded), (&mut self.failed, failed), (&mut self.free, free)]
        {
            set.remove_all(places);
            set.insert_all(&members);
        }
    }

    /// Updates the old and the new place of a changed pod, unless the change does not affect them.
    pub(super) fn refresh_places(&mut self, step: Step<'_>) {
        let [was, is] = step.both(|tags| Some(tags.place_inputs()));
        if was == is {
            return;
        }
        let [before, after] = step.both(|tags| tags.place);
        let left = before.filter(|_| before != after);
        after.into_iter().chain(left).for_each(|place| self.refresh_place(place));
    }

    pub(super) fn refresh_place(&mut self, place: u32) {
        if self.spec.completion.indexes().is_none_or(|end| place >= end) {
            return;
        }
        let active = self.queues.occupants.any(place);
        let recorded_failed = self.ledger.failed_indexes.contains(place);
        let succeeds = || {
            !is(Mutant::UnrecordedSuccessForgotten)
                && at_place(&self.queues.to_record_success, place).next().is_some()
        };
        let succeeded = !recorded_failed && (succeeds() || self.ledger.completed_indexes.contains(place));
        let failed =
            recorded_failed || (!succeeded && at_place(&self.queues.fails_index, place).next().is_some());
        let recorded = succeeded || failed;
        let is_kept = || at_place(&self.queues.keep_place, place).next().is_some();
        let wanted = || !active && !self.pending.contains_key(&place) && !is_kept();
        let free = !recorded && wanted();
        toggle(&mut self.succeeded, place, succeeded);
        toggle(&mut self.failed, place, failed);
        toggle(&mut self.free, place, free);
        if self.spec.per_index.is_some() {
            self.refresh_delayed_deletion(
                place,
                recorded || active || self.ledger.termination != Termination::No,
            );
        }
    }

    fn refresh_delayed_deletion(&mut self, index: u32, no_successor_needed: bool) {
        let held = if no_successor_needed { None } else { self.last_failure(index) };
        let after = held.as_ref().map(|held| held.uid.clone());
        let before = match held {
            Some(held) => self.held.insert(index, held),
            None => self.held.remove(&index),
        };
        if let Some(before) = before.filter(|b| Some(&b.uid) != after.as_ref()) {
            self.requeue(index, &before.uid, true);
        }
        if let Some(after) = after {
            self.requeue(index, &after, false);
        }
    }

    /// The latest failure of an index.
    fn last_failure(&self, index: u32) -> Option<DelayedDeletion> {
        let first = |index: u32| ((index, (0, Timestamp::MIN.into(), Uid::LOWEST)), Slot::LOWEST);
        // No place is the largest index.
        let (_, slot) =
            self.queues.failures_at.range(first(index)..first(index.saturating_add(1))).next_back()?;
        let failure = self.pods.get(*slot)?.tags.as_ref()?.failure.as_deref()?;
        let before = failure.before;
        let step = if is(Mutant::IndexFailuresForgotten) { 0 } else { 1 };
        let successor = if failure.counts {
            IndexFailures { counted: before.counted.saturating_add(step), ..before }
        } else {
            IndexFailures { ignored: before.ignored.saturating_add(1), ..before }
        };
        let streak = BackoffRecord { failures: successor.total(), last: failure.finished.into() };
        Some(DelayedDeletion {
            uid: failure.uid.clone(),
            ready_at: self.backoff.after(streak.last, streak.failures),
            successor,
        })
    }

    /// Puts a pod back into its queue, or removes it from the queue while it is held. A pod that has lost its
    /// index stays where it is.
    fn requeue(&mut self, index: u32, uid: &Uid, queued: bool) {
        let Some(slot) = self.pods.find(uid) else { return };
        let tags = self.pods.get(slot).and_then(|e| e.tags.as_ref()).filter(|tags| tags.place == Some(index));
        let tracking = tags.map_or(Tracking::None, |tags| tags.tracking);
        if let Some(queue) = self.queues.of(tracking) {
            let key = (index, slot);
            if queued {
                queue.insert(key);
            } else {
                queue.remove(&key);
            }
        }
    }

    /// The places that want a pod, ascending; unlimited unless Indexed.
    ///
    /// An ordinal gets a second pod only if the first is gone from the cluster and from memory. It gets
    /// none if its name is another object's. So an owner with an outdated view, such as a former one, finds
    /// the names of all pods taken that it might still create.
    pub fn free_places(&self) -> Box<dyn Iterator<Item = u32> + '_> {
        match self.spec.completion {
            Completion::Indexed(_) => Box::new(self.free.iter()),
            _ => Box::new(self.taken.gaps()),
        }
    }

    /// The next pod at a place.
    pub fn next_at(&self, number: u32) -> Place {
        Place { number, attempt: self.attempts.next_at(number) }
    }

    /// The failed pod whose failures a new pod at this index carries on.
    pub fn held_at(&self, index: u32) -> Option<&DelayedDeletion> {
        self.held.get(&index)
    }
}

fn toggle(set: &mut IndexSet, index: u32, member: bool) {
    if member {
        set.insert(index);
    } else {
        set.remove(index);
    }
}
