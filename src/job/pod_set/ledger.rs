//! The ledger: what the Job's status on the API server records about pods.

use crate::job::index_set::IndexSet;
use crate::job::pod::{Phase, Pod};
use crate::job::spec::Job;
use crate::job::status::{ConditionKind, Uncounted};
use crate::job::uid::{Uid, UidSet};
use crate::mutants::{Mutant, is};

/// Whether the Job is ending. This decides how pods that have not ended count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Termination {
    /// It is not ending.
    #[default]
    No,
    /// It fails: its pods count as failed.
    Failing,
    /// It succeeds: its pods do not count.
    Succeeding,
    /// It is being deleted: its pods do not count, unless they are being deleted, too.
    Deleting,
}

/// The recorded part of exactly-once counting, as the API server has acknowledged it.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    uncounted: UidSet,
    /// `status.completedIndexes`.
    pub(super) completed: IndexSet,
    /// `status.failedIndexes`.
    pub(super) failed: IndexSet,
    /// The termination that the conditions and the deletion of the Job show.
    pub(super) termination: Termination,
    /// No condition announces the end of the Job: a failed pod may still bring it about.
    pub(super) is_open: bool,
}

impl Ledger {
    /// Reads the ledger of a Job.
    pub(super) fn of(job: &Job) -> Self {
        let status = &job.status;
        let end = job.spec.completion.indexes().unwrap_or(0);
        let clip = |indexes: &IndexSet| {
            let mut indexes = indexes.clone();
            indexes.truncate(if is(Mutant::CompletedIndexesForgotten) { 0 } else { end });
            indexes
        };
        let uncounted = status
            .uncounted
            .iter()
            .flat_map(|Uncounted { succeeded, failed }| succeeded.iter().chain(failed));
        let [fails, succeeds] = [ConditionKind::FailureTarget, ConditionKind::SuccessCriteriaMet]
            .map(|kind| status.holding(&kind).is_some());
        Self {
            is_open: !fails && !succeeds && status.finished().is_none(),
            uncounted: uncounted.cloned().collect(),
            completed: clip(&status.completed_indexes),
            failed: status.failed_indexes.as_ref().map(clip).unwrap_or_default(),
            termination: if fails {
                Termination::Failing
            } else if succeeds {
                Termination::Succeeding
            } else if job.deleting {
                Termination::Deleting
            } else {
                Termination::No
            },
        }
    }

    /// Whether `status.uncountedTerminatedPods` lists the pod.
    pub(super) fn records(&self, uid: &Uid) -> bool {
        self.uncounted.contains(uid) && !is(Mutant::RecordedAgain)
    }

    /// Whether the status alone shows that a pod is counted: it has succeeded at a completed index.
    pub(super) fn counts(&self, pod: &Pod) -> bool {
        pod.phase == Phase::Succeeded && pod.index.is_some_and(|index| self.completed.contains(index))
    }

    /// The pods and the indexes that one ledger has and the other has not.
    pub(super) fn difference(&self, other: &Ledger) -> (Vec<Uid>, IndexSet) {
        let uids = self.uncounted.symmetric_difference(&other.uncounted).cloned().collect();
        let mut indexes = IndexSet::new();
        for (a, b) in [(&self.completed, &other.completed), (&self.failed, &other.failed)] {
            if a != b {
                indexes.extend(a.difference(b).iter());
                indexes.extend(b.difference(a).iter());
            }
        }
        (uids, indexes)
    }
}
