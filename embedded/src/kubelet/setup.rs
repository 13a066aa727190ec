//! The things that the containers of a pod share, and why a container cannot be started (yet).

use std::net::SocketAddr;

use super::engine::{Network, Sandbox};
use super::images::ImageVolumes;
use super::volumes::Volumes;

/// The things that the containers of a pod share.
#[derive(Debug, Default)]
pub(super) struct PodSetup {
    /// The paths of its volumes.
    pub(super) volumes: Volumes,
    /// Where they reach the API server, if they do.
    pub(super) api: Option<SocketAddr>,
    /// Its volumes that are images, as far as containers have asked for them.
    pub(super) images: ImageVolumes,
    /// The place of the pod in a network, unless it has the usual one.
    pub(super) network: Option<Network>,
    /// The container that holds its namespaces, if there is one.
    pub(super) sandbox: Option<Sandbox>,
}

/// Why the preparations of a container failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SetupError {
    /// Something is missing that may still appear: the container waits and the kubelet retries.
    #[error("{message}")]
    Missing {
        /// Machine-readable reason; `None` for that of anything that is missing.
        reason: Option<&'static str>,
        /// Human-readable message.
        message: String,
    },
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
        Self::Missing { reason: None, message: message.into() }
    }

    /// An error that may pass, with a reason of its own.
    pub(super) fn waiting(reason: &'static str, message: impl Into<String>) -> Self {
        Self::Missing { reason: Some(reason), message: message.into() }
    }

    /// An error for something that the local kubelet does not support.
    pub(super) fn refused(reason: &'static str, message: impl Into<String>) -> Self {
        Self::Refused { reason, message: message.into() }
    }
}
