//! The guarantees that must hold in the simulated world.

use std::collections::BTreeMap;
use std::time::Duration;

use super::sim::{Checked, Id, TIMES, World};
use crate::sharding::hash::ShardId;

impl World {
    /// No two replicas act for one shard, none acts longer than its last acknowledged renewal allows, and
    /// epochs rise.
    pub(super) fn check(&self, id: Id) -> Checked {
        let process = &self.processes[id];
        let lease_validity = process.renewed.map_or(Duration::ZERO, |sent| sent + TIMES.renew_deadline);
        if process.acts_until() > lease_validity {
            return Err(format!(
                "process {id} acts until {:?}, not {lease_validity:?}",
                process.acts_until()
            ));
        }
        if let Some(claim) = self.store.stale_epoch() {
            return Err(format!("the epoch does not rise: {claim:?}"));
        }
        for shard in process.started.iter().filter(|shard| process.acts(**shard, self.now)) {
            if let Some(other) = self.live().find(|other| *other != id && self.acts(*other, *shard)) {
                return Err(format!("processes {other} and {id} both act for shard {shard}"));
            }
        }
        Ok(())
    }

    fn acts(&self, id: Id, shard: ShardId) -> bool {
        self.processes[id].acts(shard, self.now)
    }

    /// Every shard is owned and worked for by exactly one live replica, and shares are even.
    pub(super) fn is_spread(&self) -> Checked {
        let live: Vec<Id> = self.live().filter(|id| !self.processes[*id].leaving).collect();
        let mut shares: BTreeMap<Id, u32> = live.iter().map(|id| (*id, 0)).collect();
        for shard in self.shards.shards() {
            let owner = self.store.claim(shard).and_then(|claim| claim.holder.as_ref());
            let id = live
                .iter()
                .find(|id| owner == Some(&self.processes[**id].coordinator.holder()))
                .ok_or_else(|| format!("shard {shard} is held by {owner:?}"))?;
            if !self.acts(*id, shard) {
                return Err(format!("process {id} holds shard {shard} and does nothing for it"));
            }
            *shares.entry(*id).or_default() += 1;
        }
        let (least, most) = (shares.values().min(), shares.values().max());
        match (least, most) {
            (Some(least), Some(most)) if most - least <= 1 => Ok(()),
            _ => Err(format!("shares are uneven: {shares:?}")),
        }
    }
}
