//! Spreading work as evenly as shards are: who says so, when, and what is told for it.
//!
//! Heartbeats tell how much work is left for the shards. One replica looks at that while nothing moves, and says which
//! shards are to change places; all of them take that for the owners of these shards. What is said wrongly or too late
//! costs moves, and nothing else: a shard changes hands as it always does.

use std::collections::BTreeMap;

use super::{Action, Coordinator, Written};
use crate::sharding::Moment;
use crate::sharding::balance::{Share, swaps};
use crate::sharding::hash::ShardId;
use crate::sharding::lease::{Balance, Heartbeat, Move};
use crate::sharding::lifecycle::ShardState;
use crate::sharding::loads::Loads;
use crate::sharding::shard::Shard;

/// What is known of shards that are to change places.
#[derive(Debug, Default)]
pub(super) struct Balancing {
    /// What is said, as last seen or written.
    said: Balance,
    /// Every shard is owned by the replica that is to own it.
    at_rest: bool,
    /// Loads are not looked at before.
    look_at: Moment,
    /// All the work that was left by the last look.
    work: u64,
}

impl Balancing {
    /// The replica that a shard with a claim of this epoch is to go to.
    pub(super) fn target(&self, shard: ShardId, epoch: u64) -> Option<&str> {
        self.said.target(shard, epoch)
    }

    /// Replicas, claims, or what is said have changed: nothing is said anew before `look_at`.
    pub(super) fn unsettled(&mut self, at_rest: bool, look_at: Moment) {
        self.at_rest = at_rest;
        self.look_at = look_at;
    }

    /// Takes in how much work is left. Whether much of it has just come: more may be coming, and fall elsewhere.
    fn grows(&mut self, work: u64) -> bool {
        let before = std::mem::replace(&mut self.work, work);
        work > before + before / 10
    }
}

impl Coordinator {
    /// Which shards are to change places, as it stands.
    pub fn balance_seen(&mut self, balance: Balance) {
        if self.balancing.said.version < balance.version {
            self.outdated |= self.balancing.said.moves != balance.moves;
            self.balancing.said = balance;
        }
    }

    /// Nothing is said of shards that are to change places; what was said was last seen in this version.
    pub fn balance_gone(&mut self, version: u64) {
        if self.balancing.said.version <= version {
            self.balancing.said = Balance::default();
            self.outdated = true;
        }
    }

    /// The answer to [`Action::WriteBalance`]. One that was not written is followed by another, if there is still cause.
    pub fn balance_written(&mut self, balance: Balance, written: Written) {
        if let Written::As(version) = written {
            self.balance_seen(Balance { version, ..balance });
        }
    }

    /// The work that is left for our shards, once it is known of all of them. Nobody asks who is alone.
    pub(super) fn loads(&self, load: impl Fn(ShardId) -> u32) -> Option<Loads> {
        let known = |shard: &Shard| matches!(shard.state, ShardState::Free | ShardState::Active);
        if self.replicas.len() < 2 || !self.shards.values().all(known) {
            return None;
        }
        let ours = self.shards.iter().filter(|(_, shard)| shard.state == ShardState::Active);
        Some(ours.map(|(id, _)| (*id, load(*id))).collect())
    }

    /// Lets shards change places where work is spread unevenly. One replica is enough for that.
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
        let moves: BTreeMap<_, _> = swaps(&shares, self.me.qps).into_iter().filter_map(to).collect();
        if moves.is_empty() {
            return None;
        }
        self.balancing.look_at = now + self.times.lease_duration;
        Some(Action::WriteBalance(Balance { version: self.balancing.said.version, moves }))
    }

    /// Who has which shards with how much work; `None` unless nothing moves, and all replicas have said so lately and
    /// after they got what they have.
    fn shares(&self, now: Moment) -> Option<Vec<Share>> {
        let lately = now.saturating_sub(self.times.retry_period * 2);
        let beats = self.replicas.iter().map(|identity| self.members.renewed_since(identity, lately));
        let beats = beats.collect::<Option<Vec<_>>>().filter(|_| self.balancing.at_rest)?;
        let mut shares = vec![Share::new(); beats.len()];
        for (id, shard) in &self.shards {
            let claim = shard.claim.as_ref()?;
            let holder = claim.holder.as_ref()?;
            let position = self.replicas.binary_search(&holder.identity).ok()?;
            let told = |beat: &&&Heartbeat| beat.holder == *holder && beat.version > claim.version;
            let loads = beats.get(position).filter(told)?.loads.as_ref()?;
            shares.get_mut(position)?.push((*id, loads.of(*id)));
        }
        Some(shares)
    }
}
