//! The API server's rules for an update of a Job's status.

use crate::job::index_set::IndexSet;
use crate::job::spec::{Completion, Job};
use crate::job::status::{ConditionKind, JobStatus, Uncounted};
use std::collections::HashSet;

/// The rules that a status update of this Job breaks, by the field that the API server names.
pub(super) fn broken(job: &Job, new: &JobStatus) -> Vec<&'static str> {
    let old = &job.status;
    let mut broken = Vec::new();
    let mut refuse = |bad: bool, what| broken.extend(bad.then_some(what));
    let is = |status: &JobStatus, kind| status.holding(kind).is_some();
    use ConditionKind::{Complete, Failed, FailureTarget, SuccessCriteriaMet, Suspended};

    for kind in [Complete, Failed, FailureTarget, SuccessCriteriaMet] {
        refuse(is(old, kind) && !is(new, kind), "status.conditions: an end is taken back");
    }
    for (one, other) in [
        (SuccessCriteriaMet, Failed),
        (SuccessCriteriaMet, FailureTarget),
        (Complete, Failed),
        (Complete, FailureTarget),
    ] {
        refuse(is(new, one) && is(new, other), "status.conditions: success and failure");
    }
    refuse(is(new, Failed) && !is(new, FailureTarget), "status.conditions: Failed without FailureTarget");
    refuse(is(new, Complete) && !is(new, SuccessCriteriaMet), "status.conditions: Complete unannounced");

    refuse(new.failed < old.failed, "status.failed decreases");
    let elastic = job.spec.completion == Completion::Indexed(job.spec.parallelism);
    refuse(new.succeeded < old.succeeded && !elastic, "status.succeeded decreases");
    refuse(new.ready.unwrap_or(0) > new.active, "status.ready > status.active");

    let uncounted = new.uncounted.clone().unwrap_or_default();
    refuse(repeats(&uncounted), "status.uncountedTerminatedPods: a UID twice");
    indexes(job, new, &mut refuse);

    let finished = new.finished().is_some();
    refuse(finished && new.active > 0, "status.active when finished");
    refuse(finished && new.terminating.unwrap_or(0) > 0, "status.terminating when finished");
    refuse(finished && !uncounted.is_empty(), "status.uncountedTerminatedPods when finished");
    let never_started = job.spec.suspend && job.spec.completion.wanted() == Some(0);
    refuse(finished && new.start_time.is_none() && !never_started, "status.startTime required");

    refuse(is(new, Complete) != new.completion_time.is_some(), "status.completionTime goes with Complete");
    refuse(
        old.completion_time.is_some() && new.completion_time != old.completion_time,
        "status.completionTime changes",
    );
    let ends_before_start = new.completion_time.zip(new.start_time).is_some_and(|(end, start)| end < start);
    refuse(ends_before_start, "status.completionTime before startTime");
    let resumes = is(old, Suspended) && !is(new, Suspended);
    let start_changes = old.start_time.is_some() && new.start_time != old.start_time;
    refuse(start_changes && !job.spec.suspend && !resumes, "status.startTime changes while unsuspended");
    broken
}

fn repeats(Uncounted { succeeded, failed }: &Uncounted) -> bool {
    let mut seen = HashSet::new();
    !succeeded.iter().chain(failed).all(|uid| *uid != "".into() && seen.insert(uid))
}

fn indexes(job: &Job, new: &JobStatus, refuse: &mut impl FnMut(bool, &'static str)) {
    let end = job.spec.completion.indexes().unwrap_or(0);
    let in_range = |indexes: &IndexSet| indexes.iter().all(|index| index < end);
    let old = &job.status;
    if new.completed_indexes != old.completed_indexes {
        refuse(!in_range(&new.completed_indexes), "status.completedIndexes out of range");
    }
    if new.failed_indexes != old.failed_indexes {
        refuse(
            new.failed_indexes.is_some() && job.spec.per_index.is_none(),
            "status.failedIndexes without backoffLimitPerIndex",
        );
        refuse(!new.failed_indexes.as_ref().is_none_or(in_range), "status.failedIndexes out of range");
    }
    let overlap = new.failed_indexes.as_ref().map_or(0, |failed| failed.overlap(&new.completed_indexes));
    refuse(overlap > 0, "status.failedIndexes overlap completedIndexes");
}
