//! Queries: how the rules read the pods of a Job.

use std::collections::BTreeSet;

use super::classify::Tracking;
use super::queues::Queues;
use super::slots::Slot;
use super::step::Queue;
use super::{CountedPod, DelayedDeletion, Entry, Gauges, PendingRequest, PodSet};
use crate::job::backoff::{Ended, History};
use crate::job::index_set::IndexSet;
use crate::job::pod::{Place, Pod};
use crate::job::uid::{Uid, UidSet};
use crate::mutants::{Mutant, is};

impl PodSet {
    /// Number of pods that are pending or running and not being deleted, without those whose removal has been sent.
    pub fn active(&self) -> usize {
        self.queues.active.len()
    }

    /// The numbers of pods as the status shows them. A pod is active until its removal is answered: who reads that none is
    /// left may give its place to others.
    pub fn gauges(&self) -> Gauges {
        let queues = &self.queues;
        let early = is(Mutant::ActiveUntilRemovalSent);
        let (going, going_ready) = if early { (0, 0) } else { (queues.going, queues.going_ready) };
        Gauges {
            active: queues.active.len() + going,
            ready: queues.ready + going_ready,
            terminating: queues.leaving - going,
        }
    }

    /// Number of pods that may still succeed or fail: tracked ones that have not ended, unless they are being removed.
    pub fn undecided(&self) -> usize {
        self.queues.undecided
    }

    /// Number of those whose failure would fail their index: it has no retry left.
    pub fn last_chances(&self) -> usize {
        self.queues.last_chances
    }

    /// Number of pods that are not active but still occupy their place. If only failed pods are replaced,
    /// these are all terminating pods; else those with an unanswered removal.
    pub fn leaving(&self) -> usize {
        if self.spec.replace_only_failed { self.queues.leaving } else { self.removals }
    }

    /// Whether a creation has not been answered, and the watch has not shown its pod.
    pub fn awaits(&self, place: Place) -> bool {
        self.pending.get(&place.number) == Some(&place.attempt)
    }

    /// Number of creations that have been sent and not answered.
    pub fn pending_creates(&self) -> usize {
        self.pending.len()
    }

    /// Number of container restarts of running and pending pods.
    pub fn restarts(&self) -> u64 {
        self.queues.restarts
    }

    /// Number of successes that the status does not record yet, or records as failures. Not meaningful for Indexed
    /// Jobs, which count indexes.
    pub fn fresh_successes(&self) -> usize {
        self.queues.to_record_success.len() + self.queues.late_successes
    }

    /// Number of failures that count and that the status does not record yet.
    pub fn fresh_failures(&self) -> usize {
        self.queues.fresh_failures
    }

    /// Indexes that have succeeded, recorded or not.
    pub fn succeeded_indexes(&self) -> &IndexSet {
        &self.succeeded
    }

    /// Indexes that have failed, recorded or not.
    pub fn failed_indexes(&self) -> &IndexSet {
        &self.failed
    }

    /// The oldest pod that matched a `FailJob` rule.
    pub fn fails_job(&self) -> Option<&Pod> {
        self.queues.fails_job.first().and_then(|(_, slot)| self.pod_in(*slot))
    }

    /// A pod of the set.
    pub fn get(&self, uid: &Uid) -> Option<&Pod> {
        self.pods.of(uid).map(|e| &e.pod)
    }

    /// The pods that the Job keeps although it no longer selects them.
    pub fn unselected(&self) -> impl Iterator<Item = &Uid> {
        self.pods.iter().map(|(_, entry)| &entry.pod).filter(|pod| !pod.selected).map(|pod| &pod.uid)
    }

    /// Whether the status lists the pod in `uncountedTerminatedPods`.
    pub fn is_uncounted(&self, uid: &Uid) -> bool {
        self.ledger.records(uid)
    }

    /// Whether the set knows a later version of a pod than this.
    pub fn knows_newer(&self, pod: &Pod) -> bool {
        self.get(&pod.uid).is_some_and(|known| known.version > pod.version) || self.counted.is_newer_than(pod)
    }

    /// Whether the set has a pod, counted or not.
    pub fn holds(&self, uid: &Uid) -> bool {
        self.pods.of(uid).is_some() || self.counted.holds(uid)
    }

    fn pod_in(&self, slot: Slot) -> Option<&Pod> {
        self.pods.get(slot).map(|e| &e.pod)
    }

    /// Number of pods in the set, without counted ones.
    pub fn len(&self) -> usize {
        self.pods.len()
    }

    /// Whether the set has no pods but counted ones.
    pub fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }

    /// Whether the set has no pods, and no counted ones that may have to be deleted.
    pub fn holds_nothing(&self) -> bool {
        self.is_empty() && self.counted.is_empty()
    }

    /// Whether the pod exists, unless somebody else has removed our finalizer. A watch by labels says DELETED also for a
    /// pod that has lost a label.
    pub fn must_exist(&self, uid: &Uid) -> bool {
        self.pods.of(uid).is_some_and(Entry::must_exist)
    }

    /// Whether the pod may still have our finalizer. If so, its recorded UID must not be counted yet.
    pub fn is_tracked(&self, uid: &Uid) -> bool {
        self.pods.of(uid).is_some_and(|e| e.pod.tracked && !e.gone)
    }

    /// Whether answers have shown that a pod of the set has lost our finalizer or is gone, ahead of the watch.
    pub fn is_released(&self, uid: &Uid) -> bool {
        self.pods.of(uid).is_some_and(|e| e.released || e.gone)
    }

    /// Number of pods that the status lists as uncounted and that may still have our finalizer.
    pub fn listed_and_tracked(&self) -> usize {
        self.queues.listed_and_tracked
    }

    /// Whether a request about pods, creations included, is unanswered: their number is about to change.
    pub fn has_flights(&self) -> bool {
        !self.pending.is_empty() || self.flights > 0
    }

    /// Number of unanswered requests about existing pods.
    pub fn flights(&self) -> usize {
        self.flights
    }

    /// Ended pods to record, in order: successes and failures by ascending index, without held ones.
    pub fn to_record(&self) -> impl Iterator<Item = &Pod> {
        merge(&self.queues.to_record_success, &self.queues.to_record_failure)
            .filter_map(|slot| self.pod_in(slot))
    }

    /// Number of pods in [`Self::to_record`].
    pub fn unrecorded(&self) -> usize {
        self.queues.to_record_success.len() + self.unrecorded_failures()
    }

    /// Number of those that count as failed.
    pub fn unrecorded_failures(&self) -> usize {
        self.queues.to_record_failure.len()
    }

    /// Failed pods that are held until their index has a successor.
    pub fn held(&self) -> impl Iterator<Item = &DelayedDeletion> {
        self.held.values()
    }

    /// Failures to record that are held until their index has a successor, by ascending index.
    pub fn held_to_record(&self) -> impl Iterator<Item = &Pod> {
        let entries = self.held.values().filter_map(|held| self.pods.of(&held.uid));
        let is_failure =
            |entry: &&Entry| entry.tags.as_ref().is_some_and(|tags| tags.tracking == Tracking::RecordFailure);
        entries.filter(is_failure).map(|entry| &entry.pod)
    }

    /// Tracked pods that have not ended, in no particular order.
    pub fn unfinished(&self) -> impl Iterator<Item = &Pod> {
        self.queues.unfinished.iter().filter_map(|slot| self.pod_in(slot))
    }

    /// Pods whose finalizer may be removed.
    pub fn to_release(&self) -> impl Iterator<Item = &Pod> {
        self.queues.to_release.iter().filter_map(|(_, slot)| self.pod_in(*slot))
    }

    /// All active pods, in removal order.
    pub fn active_in_removal_order(&self) -> impl Iterator<Item = &Pod> {
        self.queues.active.iter().filter_map(|(_, slot)| self.pod_in(*slot))
    }

    /// The active pods to remove. An Indexed Job removes the misplaced ones, whatever the surplus: those
    /// without an index in range, and all but the last in removal order of each index. Others follow in
    /// removal order, until there are `surplus` pods.
    pub fn to_remove(&self, surplus: usize) -> Box<dyn Iterator<Item = &Pod> + '_> {
        let Queues { active, misplaced, occupants, .. } = &self.queues;
        let in_crowds = occupants.crowded().flat_map(|place| {
            let kept = self.last_occupant(place);
            occupants.at(place).filter(move |slot| Some(*slot) != kept)
        });
        let first = misplaced.iter().map(|(_, slot)| *slot).chain(in_crowds);
        let Some(missing) = surplus.checked_sub(misplaced.len() + occupants.surplus()) else {
            return Box::new(first.filter_map(|slot| self.pod_in(slot)));
        };
        let first: Vec<Slot> = first.collect();
        let already: BTreeSet<Slot> = first.iter().copied().collect();
        let others = active.iter().map(|(_, slot)| *slot).filter(move |slot| !already.contains(slot));
        Box::new(first.into_iter().chain(others.take(missing)).filter_map(|slot| self.pod_in(slot)))
    }

    /// The active pod at a place that is last in removal order. All owners of a Job must keep the same one.
    fn last_occupant(&self, place: u32) -> Option<Slot> {
        let turn = |slot: &Slot| {
            let entry = self.pods.get(*slot)?;
            Some((entry.tags.as_ref()?.rank()?, &entry.pod.uid))
        };
        self.queues.occupants.at(place).max_by_key(turn)
    }

    /// Number of pods with the tracking finalizer.
    pub fn tracked(&self) -> usize {
        self.queues.tracked
    }

    /// Whether a complete list of `version` lacks pods that, as far as is known, still have the tracking
    /// finalizer: such a pod cannot end.
    pub fn lacks_tracked(&self, listed: &UidSet, version: u64) -> bool {
        let stays = |entry: &Entry| {
            entry.pod.tracked
                && !entry.gone
                && entry.flight == PendingRequest::None
                && entry.pod.version <= version
        };
        self.pods.iter().any(|(_, entry)| stays(entry) && !listed.contains(&entry.pod.uid))
    }

    /// Number of ended pods with the tracking finalizer.
    pub fn terminated(&self) -> usize {
        self.queues.terminated
    }

    /// Number of ended pods with the tracking finalizer, without those that are held until their index has a
    /// successor.
    pub fn unreleased(&self) -> usize {
        self.queues.terminated.saturating_sub(self.held.len())
    }

    /// Ends of pods that the back-off has not taken in.
    pub fn newly_ended(&self) -> &[Ended] {
        &self.newly_ended
    }

    /// Takes in that the back-off has taken in [`newly_ended`](Self::newly_ended).
    pub fn clear_newly_ended(&mut self) {
        self.newly_ended.clear();
    }

    /// Failures before we watched, as shown by pods. Taken once, when all pods have been observed.
    pub fn take_history(&mut self) -> History {
        self.history.take().unwrap_or_default()
    }

    /// Whether this is a counted pod whose deletion has been sent and not answered.
    pub fn is_counted_leaving(&self, uid: &Uid) -> bool {
        self.counted.is_leaving(uid)
    }

    /// The counted pods that the Job wants deleted, or may.
    pub fn counted_uids(&self) -> impl Iterator<Item = Uid> {
        self.counted.uids().cloned()
    }

    /// Number of counted pods whose deletion has been sent and not answered.
    pub fn counted_leaving(&self) -> usize {
        self.counted.leaving()
    }

    /// Counted failed pods, oldest first, without the newest `limit`. Empty unless the Job limits them.
    pub fn surplus_failed(&self, limit: usize) -> impl Iterator<Item = &CountedPod> {
        self.counted.surplus_failed(limit, &self.ledger).filter(|pod| self.may_go(pod))
    }

    /// Counted pods, oldest first, without the newest `limit`. Empty unless the Job limits them.
    pub fn surplus_finished(&self, limit: usize) -> impl Iterator<Item = &CountedPod> {
        self.counted.surplus(limit, &self.ledger).filter(|pod| self.may_go(pod))
    }

    /// Counted succeeded pods at complete indexes, oldest first. Empty unless the Job wants such pods deleted.
    pub fn counted_successes(&self) -> impl Iterator<Item = &CountedPod> {
        self.counted.succeeded(&self.ledger).filter(|pod| self.may_go(pod))
    }

    /// Whether no creation is unanswered that would create the pod again.
    fn may_go(&self, pod: &CountedPod) -> bool {
        pod.place.is_none_or(|place| !self.seen_unanswered.contains(&place))
    }

    /// The unanswered request about a pod.
    pub fn flight(&self, uid: &Uid) -> PendingRequest {
        self.pods.of(uid).map_or(PendingRequest::None, |Entry { flight, .. }| *flight)
    }
}

fn merge(left: &Queue<u32>, right: &Queue<u32>) -> impl Iterator<Item = Slot> {
    let (mut left, mut right) = (left.iter().peekable(), right.iter().peekable());
    std::iter::from_fn(move || {
        let take_left = match (left.peek(), right.peek()) {
            (Some(l), Some(r)) => l <= r,
            (l, _) => l.is_some(),
        };
        if take_left { left.next() } else { right.next() }.map(|(_, slot)| *slot)
    })
}
