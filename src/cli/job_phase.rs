//! The state of a Job in one word.

use k8s_openapi::api::batch::v1::Job;
use serde::Serialize;

/// The state of a Job, as kubectl names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) enum JobPhase {
    Complete,
    Failed,
    Suspended,
    /// It fails: its last pods are being removed.
    FailureTarget,
    /// It succeeds: its last pods are being removed.
    SuccessCriteriaMet,
    Running,
}

impl JobPhase {
    /// The state of this Job.
    pub(super) fn of(job: &Job) -> Self {
        let has = |type_: &str| {
            let conditions = job.status.as_ref().and_then(|status| status.conditions.as_ref());
            conditions
                .into_iter()
                .flatten()
                .any(|condition| condition.type_ == type_ && condition.status == "True")
        };
        let suspend = job.spec.as_ref().and_then(|spec| spec.suspend) == Some(true);
        // In kubectl's order.
        let conditions =
            [Self::Complete, Self::Failed, Self::Suspended, Self::FailureTarget, Self::SuccessCriteriaMet];
        let condition = conditions.into_iter().find(|phase| has(phase.name()));
        condition.unwrap_or(if suspend { Self::Suspended } else { Self::Running })
    }

    /// Its name, which is also that of its condition.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Complete => "Complete",
            Self::Failed => "Failed",
            Self::Suspended => "Suspended",
            Self::FailureTarget => "FailureTarget",
            Self::SuccessCriteriaMet => "SuccessCriteriaMet",
            Self::Running => "Running",
        }
    }

    /// Whether the Job has ended.
    pub(super) fn is_finished(self) -> bool {
        matches!(self, Self::Complete | Self::Failed)
    }
}
