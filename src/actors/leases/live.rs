//! Live reads and writes of Leases.

use k8s_openapi::api::coordination::v1::Lease;

use super::history::History;
use crate::cluster::leases::{LeaseClient, LeaseError};
use crate::cluster::wire::version_number;
use crate::sharding::Written;
use crate::sharding::lease::{LeaseCodec, LeaseRecord};

/// The result of a live read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A Lease.
    Record(LeaseRecord),
    /// A Lease that cannot be read, as after a change of its labels.
    Unreadable(Unreadable),
    /// There is none of this name.
    Nothing,
}

/// The readable part of any Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unreadable {
    /// `metadata.resourceVersion`.
    pub(super) version: u64,
    /// `spec.leaseTransitions`.
    pub(super) epoch: u64,
}

impl Found {
    fn of(lease: &Lease, codec: &LeaseCodec) -> Self {
        let version = version(lease);
        let epoch = lease.spec.as_ref().and_then(|spec| spec.lease_transitions).unwrap_or_default();
        let unreadable = Unreadable { version, epoch: u64::try_from(epoch).unwrap_or_default() };
        codec.read(lease).map_or(Self::Unreadable(unreadable), Self::Record)
    }

    /// The version of the Lease; `None` if there is none.
    fn version(&self) -> Option<u64> {
        match self {
            Self::Record(record) => Some(record.version()),
            Self::Unreadable(lease) => Some(lease.version),
            Self::Nothing => None,
        }
    }
}

/// `metadata.resourceVersion`; 0 if it is absent, or is not a number.
pub(super) fn version(lease: &Lease) -> u64 {
    version_number(lease.metadata.resource_version.as_deref())
}

/// The stored Leases of one controller.
#[derive(Clone)]
pub(super) struct LiveLeases {
    pub(super) client: LeaseClient,
    pub(super) codec: LeaseCodec,
    pub(super) history: History,
}

impl LiveLeases {
    /// Writes a Lease. After a conflict it is read, since the next attempt depends on the stored Lease.
    pub(super) async fn write(&self, lease: &Lease) -> (Written, Option<Found>) {
        let (replaced, newest) = (version(lease), self.history.newest());
        let name = lease.metadata.name.as_deref().unwrap_or_default();
        match self.client.write(lease).await {
            Ok(lease) => match version(&lease) {
                0 => (Written::Failed, None),
                version => {
                    self.history.written(version, replaced, newest);
                    (Written::As(version), None)
                }
            },
            Err(LeaseError::Conflict(_)) => match self.read(name, replaced).await {
                Some(found) => {
                    // The next attempt waits if it may meet the same. This holds after an unreadable
                    // Lease, and if no other version explains the conflict, as when a webhook answers
                    // with 409.
                    let explained = found.version().unwrap_or_default() != replaced;
                    let readable = !matches!(found, Found::Unreadable(_));
                    (if explained && readable { Written::Conflict } else { Written::Failed }, Some(found))
                }
                None => (Written::Failed, None),
            },
            Err(error) => {
                tracing::warn!(%error, name, "a Lease was not written");
                (Written::Failed, None)
            }
        }
    }

    /// Reads a Lease live that is known in the version `known`; 0 for none. Returns `None` if that
    /// failed.
    pub(super) async fn read(&self, name: &str, known: u64) -> Option<Found> {
        match self.client.get(name).await {
            Ok(found) => {
                let found = found.map_or(Found::Nothing, |lease| Found::of(&lease, &self.codec));
                found.version().into_iter().for_each(|version| self.history.found(version, known));
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
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Arc;
    use std::time::Duration;

    use jiff::Timestamp;
    use serde_json::{Value, json};

    use super::*;
    use crate::actors::supervision::Downfall;
    use crate::actors::test_api::refusal;
    use crate::cluster::test_api::TestApi;
    use crate::sharding::lease::{Claim, Holder, Layout};
    use crate::sharding::{ShardCount, ShardId};
    use crate::telemetry::metrics::Metrics;

    /// The outcome of a write over version `sent` that is answered with 409, where the Lease is `found`.
    async fn after_conflict(sent: Option<&str>, found: Option<Value>) -> Written {
        let api = TestApi::new(move |method, _| match (method, &found) {
            ("GET", Some(lease)) => Some((200, lease.clone())),
            ("GET", None) => refusal(404),
            _ => refusal(409),
        });
        let client = LeaseClient::new(Arc::new(api), "n", Duration::from_secs(10), Arc::new(Metrics::new()));
        let live = LiveLeases {
            client,
            codec: LeaseCodec::new("c", "c"),
            history: History::new(Downfall::default()),
        };
        let mut lease = Lease::default();
        lease.metadata.name = Some("l".to_owned());
        lease.metadata.resource_version = sent.map(str::to_owned);
        live.write(&lease).await.0
    }

    #[tokio::test(start_paused = true)]
    async fn a_conflict_that_no_other_version_explains_is_a_failure() {
        let layout = Layout { version: 0, shards: ShardCount::new(4).unwrap(), resharding_to: None };
        let lease = |version: &str| {
            let lease = LeaseCodec::new("c", "c").layout(&layout);
            let mut lease = serde_json::to_value(lease).unwrap();
            lease["metadata"]["resourceVersion"] = json!(version);
            lease
        };
        for (sent, found, written) in [
            (Some("7"), Some(lease("8")), Written::Conflict),
            (Some("7"), None, Written::Conflict),
            (None, Some(lease("8")), Written::Conflict),
            (Some("7"), Some(lease("7")), Written::Failed),
            (None, None, Written::Failed),
        ] {
            let shown = format!("{sent:?} {found:?}");
            assert_eq!(after_conflict(sent, found).await, written, "{shown}");
        }
    }

    /// The labels of a shard's Lease were changed by hand: lists leave it out, or show it as another
    /// one. The owner has given the shard up when it saw that, so its Lease is not waited for.
    #[test]
    fn a_lease_under_other_labels_or_another_name_is_unreadable() {
        let codec = LeaseCodec::new("c", "c");
        let holder = Some(Holder { identity: "r".into(), session: "s".into() });
        let claim = Claim { shard: ShardId(3), version: 0, holder, epoch: 5 };
        let stored = |label: &str, value: Option<&str>| {
            let mut lease = codec.claim(&claim, Duration::from_secs(15), Timestamp::UNIX_EPOCH);
            lease.metadata.resource_version = Some("7".to_owned());
            if let Some(labels) = &mut lease.metadata.labels {
                labels.remove(label);
                labels.extend(value.map(|value| (label.to_owned(), value.to_owned())));
            }
            Found::of(&lease, &codec)
        };
        let unreadable = Found::Unreadable(Unreadable { version: 7, epoch: 5 });
        let record = Found::Record(LeaseRecord::Claim(Claim { version: 7, ..claim.clone() }));
        assert_eq!(stored("of somebody else", Some("x")), record);
        for (label, value) in [
            ("yardmaster.dev/controller", None),
            ("yardmaster.dev/controller", Some("other")),
            ("yardmaster.dev/lease", None),
            ("yardmaster.dev/lease", Some("balance")),
            ("yardmaster.dev/shard", None),
            ("yardmaster.dev/shard", Some("4")),
        ] {
            assert_eq!(stored(label, value), unreadable, "{label} {value:?}");
        }
    }
}
