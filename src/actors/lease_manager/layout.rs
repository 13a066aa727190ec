//! All replicas must spread Jobs over shards alike, so the number of shards is recorded in a Lease that all
//! of them read.

use std::time::Duration;

use super::incompatibility::Incompatibility;
use crate::cluster::leases::{LeaseClient, LeaseError};
use crate::sharding::ShardCount;
use crate::sharding::lease::{Layout, LeaseRecord, LeaseWriter};

/// Pause after a failure to read or write the layout.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Why a replica with this number of shards must not run, according to a record.
pub(super) fn objection(ours: ShardCount, record: &LeaseRecord) -> Option<Incompatibility> {
    match record {
        LeaseRecord::Layout(Layout { resharding_to: Some(to), .. }) => {
            Some(Incompatibility::Resharding { to: *to })
        }
        LeaseRecord::Layout(Layout { shards, .. }) if *shards != ours => {
            Some(Incompatibility::OtherCount { ours, theirs: *shards })
        }
        _ => None,
    }
}

/// Reads the number of shards, or records it where there is none yet. Waits while the API server does not
/// answer.
pub(super) async fn agree(
    leases: &LeaseClient,
    writer: &LeaseWriter,
    ours: ShardCount,
) -> Result<(), Incompatibility> {
    loop {
        match read_or_write(leases, writer, ours).await {
            Ok(Some(record)) => return objection(ours, &record).map_or(Ok(()), Err),
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(%error, "cannot read the number of shards of this cluster");
                tokio::time::sleep(RETRY_PAUSE).await;
            }
        }
    }
}

/// The layout; `None` if another replica has just written one.
async fn read_or_write(
    leases: &LeaseClient,
    writer: &LeaseWriter,
    ours: ShardCount,
) -> Result<Option<LeaseRecord>, LeaseError> {
    if let Some(lease) = leases.get(&writer.layout_name()).await? {
        let unreadable = || LeaseError::Unknown(format!("{} says nothing", writer.layout_name()));
        return LeaseRecord::read(&lease).map(Some).ok_or_else(unreadable);
    }
    let layout = Layout { version: 0, shards: ours, resharding_to: None };
    match leases.write(&writer.layout(&layout)).await {
        Ok(lease) => Ok(LeaseRecord::read(&lease)),
        Err(LeaseError::Conflict(_)) => Ok(None),
        Err(error) => Err(error),
    }
}
