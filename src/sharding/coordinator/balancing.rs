//! Spreads work as evenly as shards: which replica proposes moves, when, and from which data.
//!
//! Heartbeats report how much work is left for each shard. While no shard moves, the first replica looks at
//! these loads and writes which shards should change places. All replicas then assign these shards
//! accordingly. A wrong or late proposal costs only moves: the shards are handed over like any other.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Action, Coordinator, Written};
use crate::sharding::Moment;
use crate::sharding::balance::{Share, swaps};
use crate::sharding::hash::ShardId;
use crate::sharding::lease::{Balance, Heartbeat, Move};
use crate::sharding::loads::Loads;

/// How long a shard that has changed places stays where it is. Its Jobs wait for each hand-over, and tenants
/// that fill and empty shards with their Jobs could cause one after the other.
const REST: Duration = Duration::from_secs(300);

/// The state of balancing.
#[derive(Debug, Default)]
pub(super) struct Balancing {
    /// The shards that change places, as last seen or written.
    published: Balance,
    /// Every shard is owned by the replica that should own it.
    stable: bool,
    /// Loads are not looked at before this moment.
    look_at: Moment,
    /// The total of work left when loads were last looked at.
    work: u64,
    /// Until when shards that have changed places stay where they are.
    rests: BTreeMap<ShardId, Moment>,
}

impl Balancing {
    /// The replica that a shard with a claim of this epoch should move to.
    pub(super) fn target(&self, shard: ShardId, epoch: u64) -> Option<&str> {
        self.published.target(shard, epoch)
    }

    /// Replicas, claims or moves have changed: no further moves are proposed before `look_at`.
    pub(super) fn assignment_changed(&mut self, stable: bool, look_at: Moment) {
        self.stable = stable;
        self.look_at = look_at;
    }

    /// Records how much work is left. Returns whether it has grown by more than a tenth since the last look:
    /// more may be coming, and fall on other shards.
    fn grows(&mut self, work: u64) -> bool {
        let before = std::mem::replace(&mut self.work, work);
        work > before + before / 10
    }
}

impl Coordinator {
    /// The shards that change places, as observed.
    pub fn balance_seen(&mut self, balance: Balance, now: Moment) {
        if self.balancing.published.version < balance.version {
            self.outdated |= self.balancing.published.moves != balance.moves;
            self.balancing.rests.extend(balance.moves.keys().map(|shard| (*shard, now + REST)));
            self.balancing.published = balance;
        }
    }

    /// The Lease with the shards that change places is gone; it was last seen in this version.
    pub fn balance_gone(&mut self, version: u64) {
        if self.balancing.published.version <= version {
            self.balancing.published = Balance::default();
            self.outdated = true;
        }
    }

    /// The answer to [`Action::WriteBalance`]. A failed write is not repeated: a later look proposes moves
    /// again if they are still worth it.
    pub fn balance_written(&mut self, balance: Balance, written: Written, now: Moment) {
        if let Written::As(version) = written {
            self.balance_seen(Balance { version, ..balance }, now);
        }
    }

    /// The work that is left for our shards. A shard of ours without work counts as 1, since a missing shard
    /// is read as not owned.
    pub(super) fn loads(&self, load: impl Fn(ShardId) -> u32) -> Loads {
        let ours = self.shards.iter().filter(|(_, shard)| shard.state.is_owned());
        ours.map(|(id, _)| (*id, load(*id).max(1))).collect()
    }

    /// Proposes which shards change places where work is spread unevenly. Only the first replica does it.
    pub(super) fn balance(&mut self, now: Moment) -> Option<Action> {
        if now < self.balancing.look_at || self.replicas.first() != Some(&self.me.identity) {
            return None;
        }
        self.balancing.look_at = now + self.times.retry_period;
        let shares = self.shares(now)?;
        let work = shares.iter().flatten().map(|(_, load)| u64::from(*load)).sum();
        if self.balancing.grows(work) {
            return None;
        }
        let to = |(id, to): (ShardId, usize)| {
            let epoch = self.shards.get(&id)?.claim.as_ref()?.epoch;
            Some((id, Move { to: self.replicas.get(to)?.clone(), epoch }))
        };
        self.balancing.rests.retain(|_, until| now < *until);
        let rests = |shard| self.balancing.rests.contains_key(&shard);
        let moves: BTreeMap<_, _> = swaps(&shares, self.me.qps, rests).into_iter().filter_map(to).collect();
        if moves.is_empty() {
            return None;
        }
        self.balancing.look_at = now + self.times.lease_duration;
        Some(Action::WriteBalance(Balance { version: self.balancing.published.version, moves }))
    }

    /// The shards of each replica with their loads. Returns `None` while a shard moves, or until every
    /// replica has reported its loads within two retry periods and after its last claim.
    fn shares(&self, now: Moment) -> Option<Vec<Share>> {
        let recently = now.saturating_sub(self.times.retry_period * 2);
        let beats = self.replicas.iter().map(|identity| self.members.renewed_since(identity, recently));
        let beats = beats.collect::<Option<Vec<_>>>().filter(|_| self.balancing.stable)?;
        let mut shares = vec![Share::new(); beats.len()];
        for (id, shard) in &self.shards {
            let claim = shard.claim.as_ref()?;
            let holder = claim.holder.as_ref()?;
            let position = self.replicas.binary_search(&holder.identity).ok()?;
            let is_current = |beat: &&&Heartbeat| beat.holder == *holder && beat.version > claim.version;
            let loads = beats.get(position).filter(is_current)?.loads.as_ref()?;
            shares.get_mut(position)?.push((*id, loads.of(*id)));
        }
        Some(shares)
    }
}
