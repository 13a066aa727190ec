//! Why a container cannot be started (yet).

/// What stands between a container and its start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SetupError {
    /// Something may still appear: the container waits, and the kubelet looks again.
    #[error("{0}")]
    Missing(String),
    /// This will never work here: the pod fails.
    #[error("{message}")]
    Refused {
        /// One word for programs, such as `CreateContainerConfigError`.
        reason: &'static str,
        /// A sentence for people.
        message: String,
    },
}

impl SetupError {
    /// Something that is not there yet.
    pub(super) fn missing(message: impl Into<String>) -> Self {
        Self::Missing(message.into())
    }

    /// Something that the local kubelet cannot do.
    pub(super) fn refused(reason: &'static str, message: impl Into<String>) -> Self {
        Self::Refused { reason, message: message.into() }
    }
}
