//! The owners of shards, from the claim Leases.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::views::Lease;
use crate::watch::{Collection, Event};

/// The state of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Claim {
    holder: Option<String>,
    epoch: i64,
}

#[derive(Debug, Default)]
struct Inner {
    /// The current claim of each shard.
    claims: BTreeMap<u32, Claim>,
    /// Shards by the name of their claim Lease.
    names: HashMap<String, u32>,
    /// Number of changes of holders so far.
    changes: u64,
    /// Number of takeovers without a new epoch.
    stale_epochs: u64,
    last_change: Option<Instant>,
}

/// The claims, kept up to date by a watch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Claims(Arc<Mutex<Inner>>);

/// Owners of shards at one moment.
pub(crate) type Owners = BTreeMap<u32, String>;

impl Claims {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic leaves no harmful partial update, so a poisoned lock is usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches the Leases under this path until dropped.
    pub(crate) async fn follow(self, client: kube::Client, path: String) {
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

    /// The current owners. Shards without owner are absent.
    pub(crate) fn owners(&self) -> Owners {
        let inner = self.lock();
        inner.claims.iter().filter_map(|(shard, claim)| Some((*shard, claim.holder.clone()?))).collect()
    }

    /// Shards by the name of their claim Lease.
    pub(crate) fn names(&self) -> HashMap<String, u32> {
        self.lock().names.clone()
    }

    /// Number of shards that were ever claimed.
    pub(crate) fn known(&self) -> usize {
        self.lock().claims.len()
    }

    /// Takeovers without a new epoch.
    pub(crate) fn stale_epochs(&self) -> u64 {
        self.lock().stale_epochs
    }

    /// Time of the last change of a holder.
    pub(crate) fn last_change(&self) -> Option<Instant> {
        self.lock().last_change
    }
}

/// Whether all `shards` shards are owned by these replicas.
pub(crate) fn all_owned(owners: &Owners, shards: u32, by: &[String]) -> bool {
    owners.len() == shards as usize && owners.values().all(|owner| by.contains(owner))
}

/// Number of shards that had an owner and now have another one.
pub(crate) fn moved(before: &Owners, after: &Owners) -> usize {
    before.iter().filter(|(shard, owner)| after.get(shard).is_some_and(|now| now != *owner)).count()
}

/// Smallest and largest number of shards of a replica.
pub(crate) fn balance(owners: &Owners, replicas: &[String]) -> (usize, usize) {
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
    fn a_takeover_without_a_new_epoch_is_stale() {
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
    fn moved_shards_and_shares_are_counted() {
        let owners = |text: &str| text.chars().enumerate().map(|(n, c)| (n as u32, c.to_string())).collect();
        let (before, after): (Owners, Owners) = (owners("aaab"), owners("abab"));
        assert_eq!(moved(&before, &after), 1);
        assert_eq!(balance(&after, &["a", "b", "c"].map(String::from)), (0, 2));
    }
}
