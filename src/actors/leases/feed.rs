//! Detects Leases that are gone, across restarts of the watch. An unreadable Lease counts as gone,
//! too. A replica that starts now finds no owner in it, so the replica that wrote it must not go
//! on as the owner.

use std::collections::{BTreeMap, HashSet};

use k8s_openapi::api::coordination::v1::Lease;

use crate::cluster::relist::Relist;
use crate::cluster::watch::Change;
use crate::sharding::lease::{LeaseCodec, LeaseRecord};

/// The Leases known to exist.
#[derive(Debug)]
pub(super) struct Feed {
    codec: LeaseCodec,
    known: BTreeMap<String, LeaseRecord>,
    relist: Relist<HashSet<String>>,
}

impl Feed {
    /// A feed of the Leases that this codec reads, without known Leases.
    pub(super) fn new(codec: LeaseCodec) -> Self {
        Self { codec, known: BTreeMap::new(), relist: Relist::default() }
    }

    /// Whether the Lease of this name exists.
    pub(super) fn knows(&self, name: &str) -> bool {
        self.known.contains_key(name)
    }

    /// Applies a change. Returns the Leases that it shows to be gone, or not to be readable any
    /// more, in the versions last seen.
    pub(super) fn gone(&mut self, change: &Change<Lease>) -> Vec<LeaseRecord> {
        match change {
            Change::Restarted => self.relist.begin(),
            Change::Listed(lease) | Change::Applied(lease) => {
                let name = lease.metadata.name.clone().unwrap_or_default();
                self.relist.mark(&name);
                match self.codec.read(lease) {
                    Some(record) => self.known.insert(name, record),
                    None => return self.known.remove(&name).into_iter().collect(),
                };
            }
            Change::Unreadable(lease) => {
                let name = lease.name.to_string();
                self.relist.mark(&name);
                return self.known.remove(&name).into_iter().collect();
            }
            Change::Deleted(lease) => {
                let name = lease.metadata.name.as_deref().unwrap_or_default();
                return self.known.remove(name).into_iter().collect();
            }
            Change::Synced { .. } => {
                let gone = self.relist.sweep(self.known.keys());
                return gone.iter().filter_map(|name| self.known.remove(name)).collect();
            }
        }
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use jiff::Timestamp;

    use super::*;
    use crate::sharding::ShardId;
    use crate::sharding::lease::Claim;

    #[test]
    fn a_lease_that_cannot_be_read_any_more_is_gone() {
        let codec = LeaseCodec::new("c", "c");
        let claim = Claim { shard: ShardId(3), version: 7, holder: None, epoch: 5 };
        let lease = codec.claim(&claim, Duration::from_secs(15), Timestamp::UNIX_EPOCH);
        let mut relabelled = lease.clone();
        relabelled.metadata.labels.as_mut().unwrap().insert("yardmaster.dev/shard".into(), "4".into());
        let mut feed = Feed::new(codec);
        assert_eq!(feed.gone(&Change::Applied(lease.clone())), []);
        assert_eq!(feed.gone(&Change::Applied(relabelled.clone())), [LeaseRecord::Claim(claim)]);
        assert_eq!(feed.gone(&Change::Applied(relabelled)), []);
        assert!(!feed.knows(lease.metadata.name.as_deref().unwrap()));
    }
}
