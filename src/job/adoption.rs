//! Adoption: which pods belong to a Job. The selector decides, not the controller reference alone and not the
//! name.

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

/// The decision about a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdoptionDecision {
    /// It belongs to the Job.
    Keep,
    /// Adopt it: add the owner reference and the tracking finalizer.
    Adopt,
    /// Release it: remove the owner reference and the tracking finalizer.
    Release,
    /// It does not belong to the Job: do nothing.
    Leave,
}

/// Decides about a pod. A Job that is being deleted neither adopts nor releases. A pod that is being deleted
/// is not adopted.
pub fn claim(
    controller: ControllerRefMatch,
    selected: bool,
    pod_deleting: bool,
    job_deleting: bool,
) -> AdoptionDecision {
    match (controller, selected) {
        (ControllerRefMatch::This, true) => AdoptionDecision::Keep,
        (ControllerRefMatch::This, false) if job_deleting => AdoptionDecision::Leave,
        (ControllerRefMatch::This, false) => AdoptionDecision::Release,
        (ControllerRefMatch::None, true) if !pod_deleting && !job_deleting => AdoptionDecision::Adopt,
        (ControllerRefMatch::None, _) | (ControllerRefMatch::Other, _) => AdoptionDecision::Leave,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;

    #[test]
    fn the_decision_follows_from_owner_selector_and_deletions() {
        use AdoptionDecision::*;
        for (controller, selected, pod_deleting, job_deleting, expected) in [
            (ControllerRefMatch::This, true, false, false, Keep),
            (ControllerRefMatch::This, true, true, true, Keep),
            (ControllerRefMatch::This, false, false, false, Release),
            (ControllerRefMatch::This, false, false, true, Leave),
            (ControllerRefMatch::None, true, false, false, Adopt),
            (ControllerRefMatch::None, true, true, false, Leave),
            (ControllerRefMatch::None, true, false, true, Leave),
            (ControllerRefMatch::None, false, false, false, Leave),
            (ControllerRefMatch::Other, true, false, false, Leave),
        ] {
            assert_eq!(claim(controller, selected, pod_deleting, job_deleting), expected);
        }
    }
}
