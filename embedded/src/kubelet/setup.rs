//! Reasons why a container cannot be started (yet).

/// Why the preparations of a container failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SetupError {
    /// Something is missing that may still appear: the container waits and the kubelet retries.
    #[error("{0}")]
    Missing(String),
    /// The container can never start here: the pod fails.
    #[error("{message}")]
    Refused {
        /// Machine-readable reason, such as `CreateContainerConfigError`.
        reason: &'static str,
        /// Human-readable message.
        message: String,
    },
}

impl SetupError {
    /// An error for something that is missing.
    pub(super) fn missing(message: impl Into<String>) -> Self {
        Self::Missing(message.into())
    }

    /// An error for something that the local kubelet does not support.
    pub(super) fn refused(reason: &'static str, message: impl Into<String>) -> Self {
        Self::Refused { reason, message: message.into() }
    }
}
