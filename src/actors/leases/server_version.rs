//! Whether the API server is new enough.

use std::time::Duration;

use super::incompatibility::Incompatibility;
use crate::actors::config::ControllerConfig;
use crate::cluster::transport::Transport;
use crate::cluster::version::{MANAGED_BY, ServerVersion, VersionError};

/// Pause after a failure to read the version.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// How long to wait for an answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Checks that the API server keeps `spec.managedBy`, by which the built-in controller knows that a Job is
/// not its own. Replacement mode does not use the field. Waits while the API server does not answer. A
/// version that may not be read, or is not understood, is no objection.
pub(super) async fn check(
    transport: &dyn Transport,
    config: &ControllerConfig,
) -> Result<(), Incompatibility> {
    if config.replaces_built_in() {
        return Ok(());
    }
    loop {
        let read = tokio::time::timeout(TIMEOUT, ServerVersion::read(transport)).await;
        match read.unwrap_or_else(|_| Err(VersionError::no_answer(TIMEOUT))) {
            Ok(found) if found < MANAGED_BY => return Err(Incompatibility::NoManagedBy { found }),
            Ok(_) => return Ok(()),
            Err(error) if error.is_temporary() => {
                tracing::warn!(%error, "cannot read the version of the API server");
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            Err(error) => {
                tracing::warn!(%error, "the version of the API server is unknown");
                return Ok(());
            }
        }
    }
}
