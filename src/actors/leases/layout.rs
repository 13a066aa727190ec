//! All replicas must spread Jobs over shards alike, so the number of shards is recorded in a Lease that all
//! of them read.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;

use super::incompatibility::Incompatibility;
use super::live::version;
use crate::cluster::leases::{LeaseClient, LeaseError};
use crate::sharding::ShardCount;
use crate::sharding::lease::{Layout, LeaseCodec, LeaseRecord};

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
    codec: &LeaseCodec,
    ours: ShardCount,
) -> Result<(), Incompatibility> {
    loop {
        match read_or_write(leases, codec, ours).await {
            Ok(record) => return objection(ours, &record).map_or(Ok(()), Err),
            Err(error) => {
                tracing::warn!(%error, "cannot read the number of shards of this cluster");
                tokio::time::sleep(RETRY_PAUSE).await;
            }
        }
    }
}

/// The layout: the one that exists, or the one that is written now. A layout that says nothing, as after a
/// change of its labels, is replaced: it is worth no more than a deleted one.
async fn read_or_write(
    leases: &LeaseClient,
    codec: &LeaseCodec,
    ours: ShardCount,
) -> Result<LeaseRecord, LeaseError> {
    let found = leases.get(&codec.layout_name()).await?;
    if let Some(record) = found.as_ref().and_then(|found| codec.read(found)) {
        return Ok(record);
    }
    let version = found.as_ref().map_or(0, version);
    let layout = Layout { version, shards: ours, resharding_to: None };
    match leases.write(&codec.layout(&layout)).await {
        Ok(stored) => record(&stored, codec),
        // Another replica has just written one.
        Err(LeaseError::Conflict(why)) => read(leases, codec).await?.ok_or(LeaseError::Conflict(why)),
        Err(error) => Err(error),
    }
}

/// The layout; `None` if there is none.
async fn read(leases: &LeaseClient, codec: &LeaseCodec) -> Result<Option<LeaseRecord>, LeaseError> {
    leases.get(&codec.layout_name()).await?.map(|lease| record(&lease, codec)).transpose()
}

fn record(lease: &Lease, codec: &LeaseCodec) -> Result<LeaseRecord, LeaseError> {
    let unreadable = || LeaseError::Unknown(format!("{} says nothing", codec.layout_name()));
    codec.read(lease).ok_or_else(unreadable)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Arc;

    use super::*;
    use crate::actors::test_api::refusal;
    use crate::cluster::test_api::TestApi;
    use crate::telemetry::metrics::Metrics;

    #[tokio::test(start_paused = true)]
    async fn a_layout_that_is_neither_there_nor_can_be_written_is_tried_again_after_a_pause() {
        let shards = ShardCount::new(4).unwrap();
        let codec = LeaseCodec::new("c", "c");
        let mut lease =
            serde_json::to_value(codec.layout(&Layout { version: 0, shards, resharding_to: None })).unwrap();
        lease["metadata"]["resourceVersion"] = "7".into();
        let mut refused = 0;
        let api = TestApi::new(move |method, _| match method {
            "GET" if refused < 10 => refusal(404),
            "GET" => Some((200, lease.clone())),
            _ => {
                refused += 1;
                refusal(409)
            }
        });
        let client =
            LeaseClient::new(Arc::new(api.clone()), "n", Duration::from_secs(10), Arc::new(Metrics::new()));
        let begun = tokio::time::Instant::now();
        assert!(agree(&client, &codec, shards).await.is_ok());
        assert_eq!((begun.elapsed(), api.count(&["POST"])), (9 * RETRY_PAUSE, 10));
    }

    #[tokio::test(start_paused = true)]
    async fn a_layout_that_says_nothing_is_replaced() {
        let shards = ShardCount::new(4).unwrap();
        let codec = LeaseCodec::new("c", "c");
        for nothing in ["labels", "annotations"] {
            let mut lease =
                serde_json::to_value(codec.layout(&Layout { version: 7, shards, resharding_to: None }))
                    .unwrap();
            let written = lease.clone();
            lease["metadata"][nothing] = serde_json::Value::Null;
            let api = TestApi::new(move |method, _| match method {
                "GET" => Some((200, lease.clone())),
                "PUT" => Some((200, written.clone())),
                _ => refusal(409),
            });
            let client = LeaseClient::new(
                Arc::new(api.clone()),
                "n",
                Duration::from_secs(10),
                Arc::new(Metrics::new()),
            );
            assert!(agree(&client, &codec, shards).await.is_ok());
            assert_eq!(api.count(&["PUT"]), 1, "{nothing}");
        }
    }
}
