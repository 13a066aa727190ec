//! How a changed pod moves between the queues.

use super::PodSet;
use super::classify::{InUncounted, Prospect, Tags, Tracking};
use super::entry::PendingRequest;
use super::ledger::Termination;
use super::slots::Slot;
use super::step::Step;
use crate::job::backoff::Ended;

impl PodSet {
    pub(super) fn relink_all(&mut self) {
        let slots: Vec<Slot> = self.pods.iter().map(|(slot, _)| slot).collect();
        slots.into_iter().for_each(|slot| self.relink(slot));
    }

    /// Classifies the pods again that a new attempt makes outdated. Each is outdated once, however often attempts follow each
    /// other.
    pub(super) fn relink_outdated(&mut self) {
        let slots: Vec<Slot> = self.queues.of_attempt.iter().collect();
        slots.into_iter().for_each(|slot| self.relink(slot));
    }

    pub(super) fn relink(&mut self, slot: Slot) {
        #[cfg(test)]
        {
            self.relinks += 1;
        }
        let Some(entry) = self.pods.get_mut(slot) else { return };
        let tags = Tags::of(entry, &self.spec, &self.ledger, self.current_attempt);
        // A Job that fails counts its pods before they end: one without finalizer has been recorded, by whatever owner.
        let released_before = self.ledger.termination == Termination::Failing && !entry.pod.tracked;
        entry.recorded |=
            released_before || tags.tracking.is_recorded() || entry.flight == PendingRequest::Release;
        entry.ends_with_job |= self.ledger.announces_end() && tags.rank().is_some();
        if let Some(times) = &mut self.times {
            times.follow(slot, entry, tags.rank().is_some());
        }
        if entry.tags.as_ref() == Some(&tags) {
            return;
        }
        let before = entry.tags.replace(tags.clone());
        let step = Step { slot, before: before.as_ref(), after: Some(&tags) };
        self.queues.shift(step, &self.spec);
        self.note_end(slot, &tags);
        self.refresh_places(step);
    }

    /// Passes the end of a pod to the back-off, once: as newly ended, or as history if it was recorded before
    /// we saw it. A Job whose end is announced has no back-off. If all pods restart together, the first failure of an attempt
    /// is enough: a restart lengthens the back-off once.
    fn note_end(&mut self, slot: Slot, tags: &Tags) {
        let has_place = self.spec.completion.indexes().is_none() || tags.place.is_some();
        let ended = matches!(tags.tracking, Tracking::RecordSuccess | Tracking::RecordFailure)
            || tags.tracking.is_recorded();
        let Some(entry) =
            self.pods.get_mut(slot).filter(|e| ended && has_place && e.pod.selected && !e.evaluated)
        else {
            return;
        };
        entry.evaluated = true;
        let ended = Ended { at: entry.pod.finished.into(), failed: tags.failure.is_some() };
        if tags.uncounted != InUncounted::No {
            self.history.iter_mut().for_each(|history| history.counted(&entry.pod.uid, ended));
        } else if self.ledger.is_open && !(ended.failed && tags.prospect == Prospect::Outdated) {
            self.newly_ended.push(ended);
        }
    }
}
