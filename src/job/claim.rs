//! Which pods belong to a Job: the selector decides, not the owner alone and not the name.

/// Whom a pod's controller reference names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controller {
    /// This Job, by UID.
    This,
    /// Something else.
    Other,
    /// Nobody.
    None,
}

/// What is to be done about a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// It is the Job's.
    Keep,
    /// Make it the Job's: owner reference and tracking finalizer.
    Adopt,
    /// Give it up: owner reference and tracking finalizer go.
    Release,
    /// It is not the Job's, and stays so.
    Leave,
}

/// Decides about a pod. A Job that is being deleted neither adopts nor releases; a pod that is being deleted is not adopted.
pub fn claim(controller: Controller, selected: bool, pod_deleting: bool, job_deleting: bool) -> Claim {
    match (controller, selected) {
        (Controller::This, true) => Claim::Keep,
        (Controller::This, false) if job_deleting => Claim::Leave,
        (Controller::This, false) => Claim::Release,
        (Controller::None, true) if !pod_deleting && !job_deleting => Claim::Adopt,
        (Controller::None, _) | (Controller::Other, _) => Claim::Leave,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;

    #[test]
    fn table() {
        use Claim::*;
        for (controller, selected, pod_deleting, job_deleting, expected) in [
            (Controller::This, true, false, false, Keep),
            (Controller::This, true, true, true, Keep),
            (Controller::This, false, false, false, Release),
            (Controller::This, false, false, true, Leave),
            (Controller::None, true, false, false, Adopt),
            (Controller::None, true, true, false, Leave),
            (Controller::None, true, false, true, Leave),
            (Controller::None, false, false, false, Leave),
            (Controller::Other, true, false, false, Leave),
        ] {
            assert_eq!(claim(controller, selected, pod_deleting, job_deleting), expected);
        }
    }
}
