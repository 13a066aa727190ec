//! The end of one run of a container.

use jiff::Timestamp;

/// How a run of a container ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::kubelet) struct Termination {
    /// Exit code; 128 plus the signal if a signal ended the process.
    pub(in crate::kubelet) exit_code: i32,
    /// The signal that ended the process.
    pub(in crate::kubelet) signal: Option<i32>,
    /// `Completed`, `Error`, `StartError`, ...
    pub(in crate::kubelet) reason: String,
    /// The termination message.
    pub(in crate::kubelet) message: Option<String>,
    /// Start of the process; `None` if it never started.
    pub(in crate::kubelet) started_at: Option<Timestamp>,
    /// End of the process.
    pub(in crate::kubelet) finished_at: Timestamp,
}

impl Termination {
    /// Whether the container succeeded.
    pub(in crate::kubelet) fn succeeded(&self) -> bool {
        self.exit_code == 0
    }

    /// A container whose process could not be started.
    pub(in crate::kubelet) fn not_started(reason: &str, message: String, now: Timestamp) -> Self {
        Self {
            // The exit code that Kubernetes reports in this case.
            exit_code: 128,
            signal: None,
            reason: reason.into(),
            message: Some(message),
            started_at: None,
            finished_at: now,
        }
    }

    /// The termination that the kubelet reports for a container whose process was lost.
    pub(super) fn unknown(now: Timestamp) -> Self {
        Self {
            exit_code: 137,
            signal: None,
            reason: "ContainerStatusUnknown".into(),
            message: Some("The container could not be located when the pod was terminated".into()),
            started_at: None,
            finished_at: now,
        }
    }
}
