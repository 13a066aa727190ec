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
    /// `status.uncountedTerminatedPods.succeeded`.
    succeeded: UidSet,
    /// `status.uncountedTerminatedPods.failed`.
    failed: UidSet,
    /// `status.completedIndexes`.
    pub(super) completed_indexes: IndexSet,
    /// `status.failedIndexes`.
    pub(super) failed_indexes: IndexSet,
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
        let listed = |of: fn(&Uncounted) -> &[Uid]| status.uncounted.iter().flat_map(of).cloned().collect();
        let [fails, succeeds] = [ConditionKind::FailureTarget, ConditionKind::SuccessCriteriaMet]
            .map(|kind| status.holding(kind).is_some());
        Self {
            is_open: !fails && !succeeds && status.finished().is_none(),
            succeeded: listed(|uncounted| &uncounted.succeeded),
            failed: listed(|uncounted| &uncounted.failed),
            completed_indexes: clip(&status.completed_indexes),
            failed_indexes: status.failed_indexes.as_ref().map(clip).unwrap_or_default(),
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

    /// Whether the end of the Job is announced, which removes its active pods.
    pub(super) fn announces_end(&self) -> bool {
        matches!(self.termination, Termination::Failing | Termination::Succeeding)
    }

    /// Whether `status.uncountedTerminatedPods` lists the pod.
    pub(super) fn records(&self, uid: &Uid) -> bool {
        (self.succeeded.contains(uid) || self.failed.contains(uid)) && !is(Mutant::RecordedAgain)
    }

    /// Whether it lists the pod as failed.
    pub(super) fn records_as_failed(&self, uid: &Uid) -> bool {
        self.failed.contains(uid)
    }

    /// Whether the status alone shows that a pod is counted: it has succeeded at a completed index, and does not wait to be
    /// counted as failed, too.
    pub(super) fn counts(&self, pod: &Pod) -> bool {
        pod.phase == Phase::Succeeded
            && pod.index.is_some_and(|index| self.completed_indexes.contains(index))
            && !self.failed.contains(&pod.uid)
    }

    /// The pods and the indexes that one ledger has and the other has not. Costs O(pods and intervals), whatever the number of
    /// indexes: anybody with the right to write a status may write 2^31 of them in a dozen bytes.
    pub(super) fn difference(&self, other: &Ledger) -> (Vec<Uid>, IndexSet) {
        let lists = [(&self.succeeded, &other.succeeded), (&self.failed, &other.failed)];
        let uids = lists.into_iter().flat_map(|(a, b)| a.symmetric_difference(b)).cloned().collect();
        let mut indexes = IndexSet::new();
        for (a, b) in [
            (&self.completed_indexes, &other.completed_indexes),
            (&self.failed_indexes, &other.failed_indexes),
        ] {
            if a != b {
                indexes.insert_all(&a.difference(b));
                indexes.insert_all(&b.difference(a));
            }
        }
        (uids, indexes)
    }
}
