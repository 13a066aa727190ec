//! Who owns which shard, as the claim Leases tell it to everybody.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::views::Lease;
use crate::watch::{Collection, Event};

/// The state of a claim from some moment on.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Claim {
    holder: Option<String>,
    epoch: i64,
}

#[derive(Debug, Default)]
struct Inner {
    /// The claim of each shard as it stands.
    claims: BTreeMap<u32, Claim>,
    /// The shards that Leases of these names are about.
    names: HashMap<String, u32>,
    /// Changes of holders so far.
    changes: u64,
    /// Holders that took a shard without a new epoch.
    stale_epochs: u64,
    last_change: Option<Instant>,
}

/// The claims, kept up to date by a watch.
#[derive(Clone, Debug, Default)]
pub(super) struct Claims(Arc<Mutex<Inner>>);

/// Owners of shards at one moment.
pub(super) type Owners = BTreeMap<u32, String>;

impl Claims {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing in here is left half done by a panic that would matter.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows the Leases below this path until it is dropped.
    pub(super) async fn follow(self, client: kube::Client, path: String) {
        let mut events = Collection::new(path).follow::<Lease>(client);
        while let Some(event) = events.recv().await {
            match event {
                Event::Listed(all) => all.iter().for_each(|lease| self.take(lease, Instant::now())),
                Event::Applied(lease) => self.take(&lease, Instant::now()),
                Event::Deleted(_) => {}
            }
        }
    }

    fn take(&self, lease: &Lease, now: Instant) {
        let labels = &lease.metadata.labels;
        let shard = labels.shard.as_deref().and_then(|shard| shard.parse().ok());
        let (Some("shard"), Some(shard)) = (labels.lease.as_deref(), shard) else { return };
        let claim = Claim { holder: lease.holder().map(Into::into), epoch: lease.spec.lease_transitions };
        let mut inner = self.lock();
        inner.names.insert(lease.metadata.name.clone(), shard);
        let before = inner.claims.insert(shard, claim.clone());
        if before.as_ref().and_then(|before| before.holder.as_ref()) == claim.holder.as_ref() {
            return;
        }
        inner.changes += 1;
        inner.last_change = Some(now);
        if claim.holder.is_some() && before.is_some_and(|before| claim.epoch <= before.epoch) {
            inner.stale_epochs += 1;
        }
    }

    /// Owners now; shards without one are not in it.
    pub(super) fn owners(&self) -> Owners {
        let inner = self.lock();
        inner.claims.iter().filter_map(|(shard, claim)| Some((*shard, claim.holder.clone()?))).collect()
    }

    /// The shards that Leases are about, by the Leases' names.
    pub(super) fn names(&self) -> HashMap<String, u32> {
        self.lock().names.clone()
    }

    /// Number of shards that were ever claimed.
    pub(super) fn known(&self) -> usize {
        self.lock().claims.len()
    }

    /// Takeovers without a new epoch.
    pub(super) fn stale_epochs(&self) -> u64 {
        self.lock().stale_epochs
    }

    /// When a holder changed last.
    pub(super) fn last_change(&self) -> Option<Instant> {
        self.lock().last_change
    }
}

/// Whether all of so many shards are owned by these replicas.
pub(super) fn all_owned(owners: &Owners, shards: u32, by: &[String]) -> bool {
    owners.len() == shards as usize && owners.values().all(|owner| by.contains(owner))
}

/// Shards that had an owner and have another one now.
pub(super) fn moved(before: &Owners, after: &Owners) -> usize {
    before.iter().filter(|(shard, owner)| after.get(shard).is_some_and(|now| now != *owner)).count()
}

/// Fewest and most shards of a replica.
pub(super) fn balance(owners: &Owners, replicas: &[String]) -> (usize, usize) {
    let counts = replicas.iter().map(|replica| owners.values().filter(|owner| *owner == replica).count());
    (counts.clone().min().unwrap_or_default(), counts.max().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::{Labels, LeaseSpec, Meta};

    fn lease(shard: u32, holder: &str, epoch: i64) -> Lease {
        let labels =
            Labels { shard: Some(shard.to_string()), lease: Some("shard".into()), ..Labels::default() };
        Lease {
            metadata: Meta { labels, ..Meta::default() },
            spec: LeaseSpec { holder_identity: Some(holder.into()), lease_transitions: epoch },
        }
    }

    #[test]
    fn a_shard_changes_hands() {
        let claims = Claims::default();
        let now = Instant::now();
        for (holder, epoch, owners, stale) in
            [("a", 1, 1, 0), ("a", 1, 1, 0), ("", 1, 0, 0), ("b", 2, 1, 0), ("", 2, 0, 0), ("c", 2, 1, 1)]
        {
            claims.take(&lease(3, holder, epoch), now);
            assert_eq!((claims.owners().len(), claims.stale_epochs()), (owners, stale), "{holder} {epoch}");
        }
        let names = ["a", "b", "c"].map(String::from);
        assert!(all_owned(&claims.owners(), 1, &names) && !all_owned(&claims.owners(), 1, &names[..2]));
    }

    #[test]
    fn moves_and_balance() {
        let owners = |text: &str| text.chars().enumerate().map(|(n, c)| (n as u32, c.to_string())).collect();
        let (before, after): (Owners, Owners) = (owners("aaab"), owners("abab"));
        assert_eq!(moved(&before, &after), 1);
        assert_eq!(balance(&after, &["a", "b", "c"].map(String::from)), (0, 2));
    }
}
