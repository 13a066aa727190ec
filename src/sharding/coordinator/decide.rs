//! The decisions of one moment: from the known state to actions.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Action, Coordinator, PendingHeartbeat};
use crate::mutants::{Mutant, is};
use crate::sharding::Moment;
use crate::sharding::assignment::assign;
use crate::sharding::hash::ShardId;
use crate::sharding::lease::{Heartbeat, Holder};
use crate::sharding::lease_validity::LeaseValidity;
use crate::sharding::lifecycle::ShardState;
use crate::sharding::members::Liveness;
use crate::sharding::pauses::Pauses;
use crate::sharding::shard::Shard;

/// Longest pause between two attempts to delete heartbeats of dead replicas.
const LONGEST_TIDY: Moment = Moment::from_secs(60);

/// The actions so far, and when to decide again.
#[derive(Default)]
struct Todo {
    actions: Vec<Action>,
    wake_at: Option<Moment>,
}

impl Todo {
    fn wake(&mut self, at: Moment) {
        self.wake_at = Some(self.wake_at.map_or(at, |earlier| earlier.min(at)));
    }
}

impl Coordinator {
    /// The actions that are due now, and when to call this again at the latest.
    /// `load`: the work that is left for a shard of ours, in pods.
    pub fn decide(&mut self, now: Moment, load: impl Fn(ShardId) -> u32) -> (Vec<Action>, Option<Moment>) {
        let mut todo = Todo::default();
        if !self.left && self.listed {
            if self.lease_validity.is_lost(now) {
                self.lose_all();
            }
            self.beat(&mut todo, now, load);
            if self.lease_validity.acts(now) {
                self.assign_shards(&mut todo, now);
                self.distribute(&mut todo, now);
                self.tidy(&mut todo, now);
                todo.actions.extend(self.balance(now));
            }
        }
        for (id, shard) in &mut self.shards {
            todo.actions.extend(shard.actions(*id, now));
        }
        self.finish(&mut todo);
        (todo.actions, todo.wake_at)
    }

    /// Writes the heartbeat when it is due.
    fn beat(&mut self, todo: &mut Todo, now: Moment, load: impl Fn(ShardId) -> u32) {
        if let LeaseValidity::Until { lost, .. } = self.lease_validity {
            todo.wake(lost);
        }
        if self.pending_heartbeat.is_some() {
            return;
        }
        if now < self.beat_at {
            return todo.wake(self.beat_at);
        }
        if let Some(member) = self.members.get(&self.me.identity) {
            let owner = member.beat.holder.clone();
            let version = member.beat.version;
            if !self.is_this_process(&owner) {
                // Another process has our name. It may be our predecessor, which has died.
                match self.members.liveness(&owner, version, self.times.lease_duration, now) {
                    Liveness::Alive(end) => return todo.wake(end),
                    Liveness::Silent => return self.read(todo, owner.identity, now),
                    Liveness::Dead => {}
                }
            }
        }
        self.pending_heartbeat = Some(PendingHeartbeat { sent: now, session: self.session });
        self.beat_at = now + self.times.retry_period;
        todo.actions.push(Action::WriteHeartbeat(Heartbeat {
            holder: self.holder.clone(),
            version: self.version,
            lease_duration: self.times.lease_duration,
            leaving: self.leaving,
            loads: Some(self.loads(load)),
        }));
    }

    fn read(&mut self, todo: &mut Todo, identity: Arc<str>, now: Moment) {
        if self.reading {
            return;
        }
        if now < self.read_at {
            return todo.wake(self.read_at);
        }
        self.reading = true;
        self.members.asked(&identity, self.times.lease_duration, now);
        todo.actions.push(Action::ReadHeartbeat(identity));
    }

    /// Computes which shards this replica should own.
    fn assign_shards(&mut self, todo: &mut Todo, now: Moment) {
        let (living, next) = self.members.living(self.times.lease_duration, now);
        let mut replicas: Vec<Arc<str>> =
            living.into_iter().filter(|identity| ***identity != *self.me.identity).cloned().collect();
        if !self.leaving {
            replicas.push(self.me.identity.clone());
        }
        replicas.sort();
        next.into_iter().for_each(|next| todo.wake(next));
        if replicas == self.replicas && !self.outdated {
            return;
        }
        let names: Vec<&str> = replicas.iter().map(|identity| &**identity).collect();
        let position = |identity: &str| names.binary_search(&identity).ok();
        let owner = |shard: &Shard| position(&shard.owner()?.identity);
        let holder = |id: ShardId| {
            let shard = self.shards.get(&id)?;
            let target = self.balancing.target(id, shard.claim.as_ref()?.epoch);
            target.and_then(position).or_else(|| owner(shard))
        };
        let owners = assign(self.me.shards, &names, holder);
        let us = position(&self.me.identity);
        let stable = self.shards.values().zip(&owners).all(|(shard, to)| to.is_some() && owner(shard) == *to);
        let ours = self.me.shards.shards().zip(owners).filter(|(_, owner)| us.is_some() && *owner == us);
        self.wanted = ours.map(|(id, _)| id).collect();
        self.balancing.assignment_changed(stable, now + self.times.lease_duration);
        self.replicas = replicas;
        self.outdated = false;
    }

    /// Claims wanted shards that are free or whose owner is dead, and hands over shards that others should
    /// own. A shard without claim is left to a replica that reports work of it: it may not know yet that the claim is gone.
    fn distribute(&mut self, todo: &mut Todo, now: Moment) {
        let mut silent = None;
        for (id, shard) in &mut self.shards {
            if !self.wanted.contains(id) {
                shard.hand_over(&self.holder);
                continue;
            }
            if shard.state != ShardState::Free {
                continue;
            }
            if let Some(end) = shard.withheld_until(now) {
                todo.wake(end);
                continue;
            }
            let version = shard.claim.as_ref().map_or(0, |claim| claim.version);
            let owners = match shard.claim {
                Some(_) => shard.owner().cloned().into_iter().collect(),
                None => self.members.reporting(*id),
            };
            let others = owners.into_iter().filter(|owner| *owner != self.holder);
            let mut judged = others.map(|owner| {
                (self.members.liveness(&owner, version, self.times.lease_duration, now), owner.identity)
            });
            match judged.find(|(liveness, _)| *liveness != Liveness::Dead) {
                Some((Liveness::Alive(end), _)) if !is(Mutant::ClaimedFromTheLiving) => todo.wake(end),
                Some((Liveness::Silent, identity)) => silent = Some(identity),
                Some(_) | None => shard.claim_for(&self.holder),
            }
        }
        if let Some(identity) = silent {
            self.read(todo, identity, now);
        }
        let due = |shard: &Shard| shard.retry_at.filter(|at| *at > now);
        self.shards.values().filter_map(due).for_each(|at| todo.wake(at));
    }

    /// Deletes heartbeats of dead replicas that no claim names any longer: a replica that joins would regard
    /// them as alive. Only the first replica does it.
    fn tidy(&mut self, todo: &mut Todo, now: Moment) {
        if self.replicas.first() != Some(&self.me.identity) {
            self.tidying = Pauses::default();
            return;
        }
        if now < self.tidy_at {
            return;
        }
        let mut silent = self.members.silent(self.times.lease_duration, now);
        let owners: BTreeSet<Holder> = self.shards.values().filter_map(Shard::owner).cloned().collect();
        if !silent.is_empty() || self.members.has_absent() {
            self.tidy_at = now + self.times.retry_period;
            self.members.tidy(|holder| owners.contains(holder));
        }
        silent.retain(|(identity, _)| owners.iter().all(|owner| owner.identity != *identity));
        if silent.is_empty() {
            self.tidying = Pauses::default();
            return;
        }
        self.tidy_at = now + self.tidying.next(self.times.retry_period, LONGEST_TIDY);
        let delete = |(identity, version)| Action::DeleteHeartbeat(identity, version);
        todo.actions.extend(silent.into_iter().map(delete));
    }

    /// Ends once all shards are handed over.
    fn finish(&mut self, todo: &mut Todo) {
        let busy = |shard: &Shard| {
            shard.is_busy()
                || (self.lease_validity != LeaseValidity::None && shard.owner() == Some(&self.holder))
        };
        if !self.leaving || self.left || self.pending_heartbeat.is_some() || self.shards.values().any(busy) {
            return;
        }
        self.left = true;
        if self.lease_validity != LeaseValidity::None && self.version > 0 {
            todo.actions.push(Action::DeleteHeartbeat(self.me.identity.clone(), self.version));
        }
        todo.actions.push(Action::Left);
        todo.wake_at = None;
    }
}
