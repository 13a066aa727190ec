//! How a Job ends, and the conditions that say so. The rules that decide it are in [`end`](super::end).

use std::sync::Arc;

use jiff::Timestamp;

use super::status::{Condition, ConditionKind, ConditionStatus, JobStatus};

/// How a Job ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// Failed rather than succeeded.
    pub failure: bool,
    /// `reason` of its conditions.
    pub reason: Arc<str>,
    /// `message` of its conditions.
    pub message: Arc<str>,
}

impl End {
    pub(super) fn failure(reason: &str, message: impl Into<Arc<str>>) -> Self {
        Self { failure: true, reason: reason.into(), message: message.into() }
    }

    pub(super) fn success(reason: &str, message: impl Into<Arc<str>>) -> Self {
        Self { failure: false, reason: reason.into(), message: message.into() }
    }

    /// The condition that announces the end: FailureTarget or SuccessCriteriaMet.
    pub fn announcement(&self, now: Timestamp) -> Condition {
        let kind =
            if self.failure { ConditionKind::FailureTarget } else { ConditionKind::SuccessCriteriaMet };
        condition(kind, ConditionStatus::True, self.reason.clone(), self.message.clone(), now)
    }

    /// The condition that the Job ends with: Failed or Complete.
    pub fn conclusion(&self, now: Timestamp) -> Condition {
        let kind = if self.failure { ConditionKind::Failed } else { ConditionKind::Complete };
        condition(kind, ConditionStatus::True, self.reason.clone(), self.message.clone(), now)
    }
}

/// A condition that begins now.
pub fn condition(
    kind: ConditionKind,
    status: ConditionStatus,
    reason: impl Into<Arc<str>>,
    message: impl Into<Arc<str>>,
    now: Timestamp,
) -> Condition {
    let (reason, message) = (reason.into(), message.into());
    Condition { kind, status, reason, message, last_probe_time: Some(now), last_transition_time: Some(now) }
}

/// The end that the conditions announce. An announced success stands even if pods fail later.
pub fn announced(status: &JobStatus) -> Option<End> {
    let of = |kind, failure| {
        let Condition { reason, message, .. } = status.holding(kind)?.clone();
        Some(End { failure, reason, message })
    };
    of(ConditionKind::SuccessCriteriaMet, false).or_else(|| of(ConditionKind::FailureTarget, true))
}
