//! Which Leases have gone, from a watch that may have to begin anew.

use std::collections::{HashMap, HashSet};

use k8s_openapi::api::coordination::v1::Lease;

use crate::cluster::watch::Change;
use crate::sharding::lease::LeaseRecord;

/// The Leases that were there at last.
#[derive(Debug, Default)]
pub(super) struct Feed {
    known: HashMap<String, LeaseRecord>,
    /// Names in the list under way.
    listing: Option<HashSet<String>>,
}

impl Feed {
    /// Takes in a change, and tells what is gone with it, in the versions last seen.
    pub(super) fn gone(&mut self, change: &Change<Lease>) -> Vec<LeaseRecord> {
        match change {
            Change::Restarted => self.listing = Some(HashSet::new()),
            Change::Listed(lease) | Change::Applied(lease) => {
                let name = lease.metadata.name.clone().unwrap_or_default();
                if let Some(listing) = &mut self.listing {
                    listing.insert(name.clone());
                }
                if let Some(record) = LeaseRecord::read(lease) {
                    self.known.insert(name, record);
                }
            }
            Change::Deleted(lease) => {
                let name = lease.metadata.name.as_deref().unwrap_or_default();
                return self.known.remove(name).into_iter().collect();
            }
            Change::Synced { .. } => {
                let Some(listed) = self.listing.take() else { return Vec::new() };
                return self
                    .known
                    .extract_if(|name, _| !listed.contains(name))
                    .map(|(_, record)| record)
                    .collect();
            }
        }
        Vec::new()
    }
}
