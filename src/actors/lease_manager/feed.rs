//! Detects deleted Leases, across restarts of the watch.

use std::collections::{BTreeMap, HashSet};

use k8s_openapi::api::coordination::v1::Lease;

use crate::actors::relist::Relist;
use crate::cluster::watch::Change;
use crate::sharding::lease::LeaseRecord;

/// The Leases known to exist.
#[derive(Debug, Default)]
pub(super) struct Feed {
    known: BTreeMap<String, LeaseRecord>,
    relist: Relist<HashSet<String>>,
}

impl Feed {
    /// The version in which a Lease was last shown; 0 if it was not.
    pub(super) fn version(&self, lease: &Lease) -> u64 {
        let known = lease.metadata.name.as_deref().and_then(|name| self.known.get(name));
        known.map_or(0, LeaseRecord::version)
    }

    /// Takes in a change. Returns the Leases that it shows to be gone, in the versions last seen.
    pub(super) fn gone(&mut self, change: &Change<Lease>) -> Vec<LeaseRecord> {
        match change {
            Change::Restarted => self.relist.begin(),
            Change::Listed(lease) | Change::Applied(lease) => {
                let name = lease.metadata.name.clone().unwrap_or_default();
                self.relist.mark(&name);
                if let Some(record) = LeaseRecord::read(lease) {
                    self.known.insert(name, record);
                }
            }
            Change::Unreadable(lease) => self.relist.mark(&lease.name.to_string()),
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
