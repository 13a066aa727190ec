//! The queues and sums of a set: the state that follows from each pod alone.

use super::classify::{InUncounted, Lateness, PodStage, Prospect, Rank, Tags, Tracking};
use super::occupants::Occupants;
use super::slots::SlotSet;
use super::step::{Queue, Step};
use crate::job::second::Second;
use crate::job::spec::JobSpec;
use crate::job::uid::Uid;

/// The pods of a set in all orders that the rules need, and their numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct Queues {
    pub(super) active: Queue<Rank>,
    pub(super) ready: usize,
    pub(super) restarts: u64,
    /// Pods that have not ended and whose failure would fail their index.
    pub(super) last_chances: usize,
    /// Pods with the tracking finalizer.
    pub(super) tracked: usize,
    /// Ended pods with the tracking finalizer.
    pub(super) terminated: usize,
    /// Pods with the tracking finalizer that the status lists as uncounted.
    pub(super) listed_and_tracked: usize,
    /// Active pods by place (Indexed).
    pub(super) occupants: Occupants,
    /// Active pods of an Indexed Job without an index in range.
    pub(super) misplaced: Queue<Rank>,
    /// Pods of earlier attempts that have not ended.
    pub(super) outdated: usize,
    /// Pods that a new attempt makes outdated.
    pub(super) of_attempt: SlotSet,
    /// Pods that are being deleted or removed and have not ended.
    pub(super) leaving: usize,
    /// Leaving pods that keep their places meanwhile, by place.
    pub(super) keep_place: Queue<u32>,
    /// Leaving pods whose removal is not answered, and the ready ones among these.
    pub(super) going: usize,
    pub(super) going_ready: usize,

    /// Tracked pods that have not ended, and their number.
    pub(super) unfinished: SlotSet,
    pub(super) undecided: usize,
    /// Pods to record and to release, by place (`u32::MAX` without one), so that indexes are handled in
    /// ascending order.
    pub(super) to_record_success: Queue<u32>,
    pub(super) to_record_failure: Queue<u32>,
    pub(super) to_release: Queue<u32>,
    /// Pods to release once their deletion is answered, by place.
    pub(super) to_release_later: Queue<u32>,
    /// Failures to be recorded, held ones included.
    pub(super) fresh_failures: usize,

    /// Pods that have succeeded after they were recorded as failed.
    pub(super) late_successes: usize,

    /// Pods that fail their index, by place.
    pub(super) fails_index: Queue<u32>,
    /// Pods that fail the Job, by creation time and then by UID.
    pub(super) fails_job: Queue<(Second, Uid)>,
    /// Tracked failed pods by place.
    pub(super) failures_at: Queue<(u32, Lateness)>,
}

impl Queues {
    /// Updates queues and sums after a pod's tags have changed.
    pub(super) fn shift(&mut self, step: Step<'_>, spec: &JobSpec) {
        let indexed = spec.completion.indexes().is_some();
        step.shift(&mut self.active, Tags::rank);
        step.shift(&mut self.misplaced, |tags| tags.rank().filter(|_| indexed && tags.place.is_none()));
        if indexed {
            self.shift_occupant(step);
        }
        step.count(&mut self.leaving, Tags::is_leaving);
        step.shift(&mut self.keep_place, |tags| tags.keeps_place().then_some(tags.key()));
        step.keep(&mut self.unfinished, |tags| tags.tracking == Tracking::Unfinished);
        step.count(&mut self.outdated, |tags| {
            tags.prospect == Prospect::Outdated && tags.stage != PodStage::Ended
        });
        step.keep(&mut self.of_attempt, Tags::is_of_attempt);
        step.count(&mut self.undecided, |tags| tags.tracking == Tracking::Unfinished);
        for tracking in Tracking::QUEUED {
            if let Some(queue) = self.of(tracking) {
                step.shift(queue, |tags| (tags.tracking == tracking).then_some(tags.key()));
            }
        }
        step.shift(&mut self.to_release_later, |tags| {
            (tags.tracking == Tracking::ReleaseLater).then_some(tags.key())
        });
        self.shift_failure(step, spec);
        step.count(&mut self.ready, Tags::is_ready);
        step.count(&mut self.going, Tags::is_going);
        step.count(&mut self.going_ready, Tags::is_going_ready);
        step.count(&mut self.last_chances, |tags| tags.prospect == Prospect::LastChance);
        step.count(&mut self.tracked, |tags| tags.tracked);
        step.count(&mut self.terminated, |tags| tags.tracked && tags.stage == PodStage::Ended);
        step.count(&mut self.listed_and_tracked, |tags| tags.tracked && tags.uncounted != InUncounted::No);
        step.count(&mut self.fresh_failures, |tags| tags.tracking == Tracking::RecordFailure);
        step.count(&mut self.late_successes, |tags| tags.uncounted == InUncounted::LateSuccess);
        let [before, after] = step.both(|tags| Some(u64::from(tags.restarts))).map(Option::unwrap_or_default);
        self.restarts = self.restarts + after - before;
    }

    fn shift_occupant(&mut self, step: Step<'_>) {
        let [before, after] = step.both(|tags| tags.rank().and(tags.place));
        if before != after {
            before.into_iter().for_each(|place| self.occupants.remove(place, step.slot));
            after.into_iter().for_each(|place| self.occupants.insert(place, step.slot));
        }
    }

    fn shift_failure(&mut self, step: Step<'_>, spec: &JobSpec) {
        step.shift(&mut self.fails_index, |tags| tags.counted_failure()?.fails_index.then_some(tags.key()));
        step.shift(&mut self.fails_job, |tags| {
            let failure = tags.failure.as_deref().filter(|failure| failure.fails_job)?;
            Some((failure.created, failure.uid.clone()))
        });
        step.shift(&mut self.failures_at, |tags| {
            let failure = tags.counted_failure().filter(|_| spec.per_index.is_some())?;
            Some((tags.place?, failure.lateness()))
        });
    }

    /// The queue for a tracking state in which the pod needs an action.
    pub(super) fn of(&mut self, tracking: Tracking) -> Option<&mut Queue<u32>> {
        match tracking {
            Tracking::None | Tracking::Unfinished | Tracking::ReleaseLater => None,
            Tracking::RecordSuccess => Some(&mut self.to_record_success),
            Tracking::RecordFailure => Some(&mut self.to_record_failure),
            Tracking::Release => Some(&mut self.to_release),
        }
    }
}
