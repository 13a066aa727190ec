//! Live reads and writes of Leases.

use k8s_openapi::api::coordination::v1::Lease;

use super::history::History;
use crate::cluster::leases::{LeaseClient, LeaseError};
use crate::sharding::Written;
use crate::sharding::lease::LeaseRecord;

/// The result of a live read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A Lease.
    Record(LeaseRecord),
    /// A Lease that cannot be read, as after somebody has changed its labels.
    Unreadable(Unreadable),
    /// There is none of this name.
    Nothing,
}

/// What can be read of any Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unreadable {
    /// `metadata.resourceVersion`.
    pub(super) version: u64,
    /// `spec.leaseTransitions`.
    pub(super) epoch: u64,
}

impl From<Lease> for Found {
    fn from(lease: Lease) -> Self {
        let version = version(&lease);
        let epoch = lease.spec.as_ref().and_then(|spec| spec.lease_transitions).unwrap_or_default();
        let unreadable = Unreadable { version, epoch: u64::try_from(epoch).unwrap_or_default() };
        LeaseRecord::read(&lease).map_or(Self::Unreadable(unreadable), Self::Record)
    }
}

impl Found {
    /// The version of the Lease; `None` if there is none.
    fn version(&self) -> Option<u64> {
        match self {
            Self::Record(record) => Some(record.version()),
            Self::Unreadable(lease) => Some(lease.version),
            Self::Nothing => None,
        }
    }
}

/// `metadata.resourceVersion`; 0 if it is absent.
fn version(lease: &Lease) -> u64 {
    lease.metadata.resource_version.as_ref().and_then(|version| version.parse().ok()).unwrap_or_default()
}

/// Writes a Lease. After a conflict it is read, since the next attempt depends on the stored Lease.
pub(super) async fn write(
    leases: &LeaseClient,
    history: &History,
    lease: &Lease,
    name: &str,
) -> (Written, Option<Found>) {
    let (replaced, newest) = (version(lease), history.newest());
    match leases.write(lease).await {
        Ok(stored) => match version(&stored) {
            0 => (Written::Failed, None),
            version => {
                history.written(version, replaced, newest);
                (Written::As(version), None)
            }
        },
        Err(LeaseError::Conflict(_)) => match read(leases, history, name, replaced).await {
            Some(found) => {
                // The next attempt waits: it may meet the same.
                let unreadable = matches!(found, Found::Unreadable(_));
                (if unreadable { Written::Failed } else { Written::Conflict }, Some(found))
            }
            None => (Written::Failed, None),
        },
        Err(error) => {
            tracing::warn!(%error, name, "a Lease was not written");
            (Written::Failed, None)
        }
    }
}

/// Reads a Lease live that is known in the version `known`; 0 for none. `None` if that failed.
pub(super) async fn read(leases: &LeaseClient, history: &History, name: &str, known: u64) -> Option<Found> {
    match leases.get(name).await {
        Ok(found) => {
            let found = found.map_or(Found::Nothing, Found::from);
            found.version().into_iter().for_each(|version| history.found(version, known));
            if matches!(found, Found::Unreadable(_)) {
                tracing::warn!(name, "a Lease exists and cannot be read; it is replaced");
            }
            Some(found)
        }
        Err(error) => {
            tracing::warn!(%error, name, "a Lease was not read");
            None
        }
    }
}
