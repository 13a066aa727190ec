//! The Leases as an API server keeps them: one revision for all, optimistic locking, and a log for watches.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::sharding::Moment;
use crate::sharding::coordinator::Coordinator;
use crate::sharding::hash::ShardId;
use crate::sharding::lease::{Balance, Claim, Heartbeat};

/// A watch event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Beat(Heartbeat),
    BeatGone(Arc<str>, u64),
    Claim(Claim),
    ClaimGone(ShardId, u64),
    Balance(Balance),
    BalanceGone(u64),
}

/// Numbers of writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) beats: usize,
    pub(super) claims: usize,
    pub(super) deletes: usize,
    pub(super) balances: usize,
    /// Claims by another replica than the previous owner.
    pub(super) moves: usize,
}

#[derive(Debug, Default)]
pub(super) struct Store {
    revision: u64,
    beats: BTreeMap<Arc<str>, Heartbeat>,
    claims: BTreeMap<ShardId, Claim>,
    /// Does not exist while its version is 0.
    balance: Balance,
    log: Vec<Change>,
    counts: Counts,
    last_owner: BTreeMap<ShardId, Arc<str>>,
    /// A claim that was written with an epoch no higher than an earlier one.
    stale_epoch: Option<Claim>,
}

impl Store {
    /// Writes a heartbeat over the version it carries, 0 for none. Returns the new version; `None` for a
    /// conflict.
    pub(super) fn write_beat(&mut self, beat: &Heartbeat) -> Option<u64> {
        let found = self.beats.get(&beat.holder.identity).map_or(0, |beat| beat.version);
        if found != beat.version {
            return None;
        }
        self.revision += 1;
        self.counts.beats += 1;
        let beat = Heartbeat { version: self.revision, ..beat.clone() };
        self.beats.insert(beat.holder.identity.clone(), beat.clone());
        self.log.push(Change::Beat(beat));
        Some(self.revision)
    }

    /// Writes a claim over the version it carries, 0 for none. Returns the new version; `None` for a
    /// conflict.
    pub(super) fn write_claim(&mut self, claim: &Claim) -> Option<u64> {
        let before = self.claims.get(&claim.shard);
        if before.map_or(0, |claim| claim.version) != claim.version {
            return None;
        }
        if let Some(holder) = &claim.holder {
            if before.is_some_and(|before| before.epoch >= claim.epoch) {
                self.stale_epoch = Some(claim.clone());
            }
            let last = self.last_owner.insert(claim.shard, holder.identity.clone());
            self.counts.moves += usize::from(last.is_some_and(|last| last != holder.identity));
        }
        self.revision += 1;
        self.counts.claims += 1;
        let claim = Claim { version: self.revision, ..claim.clone() };
        self.claims.insert(claim.shard, claim.clone());
        self.log.push(Change::Claim(claim));
        Some(self.revision)
    }

    /// Writes a balance over the version it carries, 0 for none. Returns the new version; `None` for a
    /// conflict.
    pub(super) fn write_balance(&mut self, balance: &Balance) -> Option<u64> {
        if self.balance.version != balance.version {
            return None;
        }
        self.revision += 1;
        self.counts.balances += 1;
        self.balance = Balance { version: self.revision, ..balance.clone() };
        self.log.push(Change::Balance(self.balance.clone()));
        Some(self.revision)
    }

    /// Overwrites a claim unconditionally, which only a human would do.
    pub(super) fn write_claim_by_hand(&mut self, claim: &Claim) {
        self.revision += 1;
        let claim = Claim { version: self.revision, ..claim.clone() };
        self.claims.insert(claim.shard, claim.clone());
        self.log.push(Change::Claim(claim));
    }

    /// Deletes the balance, which only a human would do.
    pub(super) fn delete_balance(&mut self) {
        if std::mem::take(&mut self.balance).version > 0 {
            self.revision += 1;
            self.log.push(Change::BalanceGone(self.revision));
        }
    }

    /// Deletes a heartbeat, if it has this version; in any version without one.
    pub(super) fn delete_beat(&mut self, identity: &Arc<str>, version: Option<u64>) {
        let matches = |beat: &Heartbeat| version.is_none_or(|version| version == beat.version);
        if self.beats.get(identity).is_some_and(matches) {
            self.beats.remove(identity);
            self.revision += 1;
            self.counts.deletes += 1;
            self.log.push(Change::BeatGone(identity.clone(), self.revision));
        }
    }

    /// Deletes a claim, which only a human would do.
    pub(super) fn delete_claim(&mut self, shard: ShardId) {
        if self.claims.remove(&shard).is_some() {
            self.revision += 1;
            self.log.push(Change::ClaimGone(shard, self.revision));
        }
    }

    pub(super) fn beat(&self, identity: &str) -> Option<&Heartbeat> {
        self.beats.get(identity)
    }

    pub(super) fn claim(&self, shard: ShardId) -> Option<&Claim> {
        self.claims.get(&shard)
    }

    pub(super) fn claims(&self) -> impl Iterator<Item = &Claim> {
        self.claims.values()
    }

    /// The balance, if it exists.
    pub(super) fn balance(&self) -> Option<&Balance> {
        Some(&self.balance).filter(|balance| balance.version > 0)
    }

    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    pub(super) fn stale_epoch(&self) -> Option<&Claim> {
        self.stale_epoch.as_ref()
    }

    /// All changes so far.
    pub(super) fn log(&self) -> &[Change] {
        &self.log
    }

    /// The events of a relist for a watch that has seen the log up to `cursor`.
    pub(super) fn relist(&self, cursor: usize) -> Vec<Change> {
        let mut changes = Vec::new();
        for change in &self.log[..cursor] {
            match change {
                Change::Beat(beat) if !self.beats.contains_key(&beat.holder.identity) => {
                    changes.push(Change::BeatGone(beat.holder.identity.clone(), beat.version));
                }
                Change::Claim(claim) if !self.claims.contains_key(&claim.shard) => {
                    changes.push(Change::ClaimGone(claim.shard, claim.version));
                }
                Change::Balance(balance) if self.balance().is_none() => {
                    changes.push(Change::BalanceGone(balance.version));
                }
                _ => {}
            }
        }
        changes.extend(self.beats.values().cloned().map(Change::Beat));
        changes.extend(self.claims.values().cloned().map(Change::Claim));
        changes.extend(self.balance().cloned().map(Change::Balance));
        changes
    }
}

/// Passes a change to a coordinator.
pub(super) fn see(coordinator: &mut Coordinator, change: Change, now: Moment) {
    match change {
        Change::Beat(beat) => coordinator.heartbeat_seen(beat, now),
        Change::BeatGone(identity, version) => coordinator.heartbeat_gone(&identity, version, now),
        Change::Claim(claim) => coordinator.claim_seen(claim),
        Change::ClaimGone(shard, version) => coordinator.claim_gone(shard, version, now),
        Change::Balance(balance) => coordinator.balance_seen(balance, now),
        Change::BalanceGone(version) => coordinator.balance_gone(version),
    }
}
