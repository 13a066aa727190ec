//! What the rules ask of the pods of a Job.

use std::collections::BTreeSet;

use super::step::{Queue, at_place};
use super::{CountedPod, Entry, Flight, Held, PodSet};
use crate::job::backoff::{Ended, History};
use crate::job::index_set::IndexSet;
use crate::job::pod::Pod;
use crate::job::spec::Completion;
use crate::job::uid::Uid;

impl PodSet {
    /// Pods that are pending or running and were not asked to go.
    pub fn active(&self) -> usize {
        self.active.len()
    }

    /// Active pods whose Ready condition is True.
    pub fn ready(&self) -> usize {
        self.ready
    }

    /// Pods that were asked to go and have not ended.
    pub fn terminating(&self) -> usize {
        self.terminating.len()
    }

    /// Pods whose place is not free yet although they are not active: those that have not ended, where only failed pods
    /// are replaced; else those whose removal is asked for and not answered.
    pub fn leaving(&self) -> usize {
        if self.spec.replace_only_failed { self.terminating.len() } else { self.removals }
    }

    /// Creations that have been sent and not answered.
    pub fn pending_creates(&self) -> usize {
        self.pending.len()
    }

    /// Container restarts of running and pending pods.
    pub fn restarts(&self) -> u64 {
        self.restarts
    }

    /// Successes that the status does not record yet (for Indexed Jobs the indexes are what counts).
    pub fn fresh_successes(&self) -> usize {
        self.to_record_success.len()
    }

    /// Failures that count and that the status does not record yet.
    pub fn fresh_failures(&self) -> usize {
        self.fresh_failures
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
    pub fn condemns_job(&self) -> Option<&Pod> {
        self.job_condemned.first().and_then(|(_, uid)| self.get(uid))
    }

    /// A pod of the set.
    pub fn get(&self, uid: &Uid) -> Option<&Pod> {
        self.pods.get(uid).map(|e| &e.pod)
    }

    /// Number of pods held.
    pub fn len(&self) -> usize {
        self.pods.len()
    }

    /// Whether no pod is held.
    pub fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }

    /// Whether nothing is known of any pod that is, or that is still to be deleted.
    pub fn holds_nothing(&self) -> bool {
        self.is_empty() && self.counted.is_empty()
    }

    /// Whether the pod may still carry our finalizer: what is recorded of it may not be counted yet.
    pub fn is_tracked(&self, uid: &Uid) -> bool {
        self.pods.get(uid).is_some_and(|e| e.pod.tracked && !e.gone)
    }

    /// How many pods that the status lists as uncounted may still carry our finalizer.
    pub fn listed_and_tracked(&self) -> usize {
        self.listed_and_tracked
    }

    /// Whether some request about pods is not answered: their number is about to change.
    pub fn has_flights(&self) -> bool {
        !self.pending.is_empty() || self.flights > 0
    }

    /// Requests about pods that there are, sent and not answered.
    pub fn flights(&self) -> usize {
        self.flights
    }

    /// Ended pods in the order in which they are recorded: successes and failures, indexes ascending; held ones left out.
    pub fn to_record(&self) -> impl Iterator<Item = &Pod> {
        merge(&self.to_record_success, &self.to_record_failure).filter_map(|uid| self.get(uid))
    }

    /// How many pods [`Self::to_record`] has.
    pub fn unrecorded(&self) -> usize {
        self.to_record_success.len() + self.to_record_failure.len()
    }

    /// Failed pods that are held back for their index.
    pub fn held(&self) -> impl Iterator<Item = &Held> {
        self.held.values()
    }

    /// Tracked pods that have not ended.
    pub fn unfinished(&self) -> impl Iterator<Item = &Pod> {
        self.unfinished.iter().filter_map(|(_, uid)| self.get(uid))
    }

    /// Pods whose finalizer may go.
    pub fn to_release(&self) -> impl Iterator<Item = &Pod> {
        self.to_release.iter().filter_map(|(_, uid)| self.get(uid))
    }

    /// All active pods, in removal order.
    pub fn active_in_removal_order(&self) -> impl Iterator<Item = &Pod> {
        self.active.iter().filter_map(|(_, uid)| self.get(uid))
    }

    /// The active pods to remove, at least `surplus` if there are so many: for Indexed Jobs first those without an index
    /// in range and all but the last in removal order of each index, whatever the surplus; then in removal order.
    pub fn to_remove(&self, surplus: usize) -> Vec<&Pod> {
        let mut chosen: Vec<&Uid> = Vec::new();
        if let Completion::Indexed(_) = self.spec.completion {
            chosen.extend(self.misplaced.iter().map(|(_, uid)| uid));
            for place in &self.crowded {
                let mut here = self.occupants_of(*place);
                here.pop();
                chosen.extend(here);
            }
        }
        if chosen.len() < surplus {
            let already: BTreeSet<&Uid> = chosen.iter().copied().collect();
            let rest = self.active.iter().map(|(_, uid)| uid).filter(|uid| !already.contains(uid));
            let missing = surplus - chosen.len();
            chosen.extend(rest.take(missing));
        }
        chosen.into_iter().filter_map(|uid| self.get(uid)).collect()
    }

    /// The active pods at a place, in removal order.
    fn occupants_of(&self, place: u32) -> Vec<&Uid> {
        let rank = |uid: &Uid| self.pods.get(uid)?.tags?.rank();
        let mut here: Vec<&Uid> = at_place(&self.occupants, place).collect();
        here.sort_by_key(|uid| (rank(uid), *uid));
        here
    }

    /// Pods with the tracking finalizer on.
    pub fn tracked(&self) -> usize {
        self.tracked
    }

    /// Pods that have ended and that back-off does not know of.
    pub fn newly_ended(&self) -> &[Ended] {
        &self.newly_ended
    }

    /// Back-off has taken in what [`newly_ended`](Self::newly_ended) told.
    pub fn clear_newly_ended(&mut self) {
        self.newly_ended.clear();
    }

    /// What pods tell of failures before we watched; told once, when all have been observed.
    pub fn take_history(&mut self) -> History {
        self.history.take().unwrap_or_default()
    }

    /// Whether this is a counted pod whose deletion has been sent and not been answered.
    pub fn is_counted_leaving(&self, uid: &Uid) -> bool {
        self.counted.is_leaving(uid)
    }

    /// Counted pods whose deletion has been sent and not been answered.
    pub fn counted_leaving(&self) -> usize {
        self.counted.leaving()
    }

    /// Counted failed pods, oldest first, without the newest `limit`. Empty unless the Job limits them.
    pub fn surplus_failed(&self, limit: usize) -> impl Iterator<Item = &CountedPod> {
        self.counted.surplus_failed(limit, &self.ledger)
    }

    /// Counted succeeded pods of an Indexed Job that wants them deleted.
    pub fn counted_successes(&self) -> impl Iterator<Item = &CountedPod> {
        self.counted.succeeded(&self.ledger)
    }

    /// The request about a pod that is not answered.
    pub fn flight(&self, uid: &Uid) -> Flight {
        self.pods.get(uid).map_or(Flight::None, |Entry { flight, .. }| *flight)
    }
}

fn merge<'a>(left: &'a Queue<u32>, right: &'a Queue<u32>) -> impl Iterator<Item = &'a Uid> {
    let (mut left, mut right) = (left.iter().peekable(), right.iter().peekable());
    std::iter::from_fn(move || {
        let take_left = match (left.peek(), right.peek()) {
            (Some(l), Some(r)) => l <= r,
            (l, _) => l.is_some(),
        };
        if take_left { left.next() } else { right.next() }.map(|(_, uid)| uid)
    })
}
