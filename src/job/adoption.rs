//! Adoption: which pods belong to a Job. The selector decides, not the controller reference alone and not the
//! name.

use super::spec::Job;

/// The object that a pod's controller reference names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControllerRefMatch {
    /// This Job, by UID.
    This,
    /// Another object.
    Other,
    /// There is no controller reference.
    None,
}

/// The rights of a Job over pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claimant {
    /// Adopt and release them.
    Manages,
    /// Keep those that it has: it is being deleted.
    Leaves,
    /// Only count none of them any more: it has finished.
    Finished,
}

impl Claimant {
    /// The rights of a Job that exists.
    pub fn of(job: &Job) -> Self {
        match job.status.finished() {
            Some(_) => Self::Finished,
            None if job.deleting => Self::Leaves,
            None => Self::Manages,
        }
    }
}

/// The fields of a pod that decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimedPod {
    /// The owner that its controller reference names.
    pub controller: ControllerRefMatch,
    /// The Job's selector selects it.
    pub selected: bool,
    /// It is being deleted.
    pub deleting: bool,
    /// It has the tracking finalizer.
    pub tracked: bool,
}

/// The decision about a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdoptionDecision {
    /// It belongs to the Job.
    Keep,
    /// Adopt it: add the owner reference, and the tracking finalizer unless the Job has recorded it.
    Adopt,
    /// Release it: remove the owner reference and the tracking finalizer.
    Release,
    /// It does not belong to the Job: do nothing.
    Leave,
}

/// Decides about a pod. A Job that is being deleted or has finished neither adopts nor releases. A pod that
/// is being deleted is not adopted. A Job that is finished or being deleted keeps all its pods that still
/// have the finalizer, in order to remove it. A deletion in the foreground waits for them. Pods that it
/// does not select are not counted ([`Pod::selected`](super::pod::Pod::selected)).
pub fn claim(pod: ClaimedPod, job: Claimant) -> AdoptionDecision {
    match (pod.controller, pod.selected, job) {
        (ControllerRefMatch::This, true, _) => AdoptionDecision::Keep,
        (ControllerRefMatch::This, false, Claimant::Manages) => AdoptionDecision::Release,
        (ControllerRefMatch::This, false, Claimant::Finished | Claimant::Leaves) if pod.tracked => {
            AdoptionDecision::Keep
        }
        (ControllerRefMatch::None, true, Claimant::Manages) if !pod.deleting => AdoptionDecision::Adopt,
        _ => AdoptionDecision::Leave,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;
    use crate::job::spec::Completion;

    #[test]
    fn a_job_that_ends_or_is_being_deleted_adopts_nothing_more() {
        use crate::job::tests::fixture::{finished, job};
        for (deleting, ended, expected) in [
            (false, false, Claimant::Manages),
            (true, false, Claimant::Leaves),
            (false, true, Claimant::Finished),
            (true, true, Claimant::Finished),
        ] {
            let job = job(Completion::Count(1), 1);
            let job = if ended { finished(job) } else { job };
            assert_eq!(Claimant::of(&Job { deleting, ..job }), expected, "{deleting} {ended}");
        }
    }

    #[test]
    fn the_decision_follows_from_owner_selector_and_ends() {
        use AdoptionDecision::*;
        use Claimant::*;
        for (controller, selected, deleting, tracked, job, expected) in [
            (ControllerRefMatch::This, true, false, true, Manages, Keep),
            (ControllerRefMatch::This, true, true, true, Leaves, Keep),
            (ControllerRefMatch::This, true, false, false, Finished, Keep),
            (ControllerRefMatch::This, false, false, true, Manages, Release),
            (ControllerRefMatch::This, false, false, true, Leaves, Keep),
            (ControllerRefMatch::This, false, true, false, Leaves, Leave),
            (ControllerRefMatch::This, false, false, true, Finished, Keep),
            (ControllerRefMatch::This, false, false, false, Finished, Leave),
            (ControllerRefMatch::None, true, false, false, Manages, Adopt),
            (ControllerRefMatch::None, true, true, false, Manages, Leave),
            (ControllerRefMatch::None, true, false, false, Leaves, Leave),
            (ControllerRefMatch::None, true, false, false, Finished, Leave),
            (ControllerRefMatch::None, false, false, false, Manages, Leave),
            (ControllerRefMatch::Other, true, false, true, Manages, Leave),
        ] {
            let pod = ClaimedPod { controller, selected, deleting, tracked };
            assert_eq!(claim(pod, job), expected, "{pod:?} {job:?}");
        }
    }
}
