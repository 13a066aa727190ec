//! Work in the simulated world: it is spread as evenly as shards, and all other guarantees still hold.

use std::collections::BTreeMap;
use std::time::Duration;

use rand::Rng as _;

use super::process::Input;
use super::sim::{Broken, Checked, Id, TIMES, World};
use super::{any, becomes_stable, changed, chaos, for_seeds, join, seconds, shards, stable_world};
use crate::sharding::hash::ShardId;

impl World {
    /// Adds equal Jobs, each to a random shard.
    fn add_jobs(&mut self, jobs: u32, pods: u32) {
        for _ in 0..jobs {
            let shard = ShardId(self.random.random_range(0..self.shards.get()));
            *self.loads.entry(shard).or_default() += pods + 1;
        }
    }

    /// How far the most loaded replica is above the mean.
    fn excess(&self) -> u32 {
        let mut work: BTreeMap<Id, u32> = self.live().map(|id| (id, 0)).collect();
        for (shard, load) in &self.loads {
            let owner = self.live().find(|id| self.processes[*id].acts(*shard, self.now));
            *work.entry(owner.unwrap_or_default()).or_default() += load;
        }
        let (most, count) = (work.values().max().copied().unwrap_or_default(), work.len() as u32);
        most - work.values().sum::<u32>() / count.max(1)
    }

    /// Work is spread evenly, or the excess is too small to move shards for.
    fn is_even(&self) -> Checked {
        let mean = self.loads.values().sum::<u32>() / self.live().count().max(1) as u32;
        let (excess, most) = (self.excess(), (mean / 40).max(200));
        if excess <= most { Ok(()) } else { Err(format!("{excess} more than {mean}: {:?}", self.loads)) }
    }
}

/// A stable world of replicas with much work, spread evenly among them.
fn loaded_world(seed: u64, replicas: u64, logging: bool) -> Result<World, Broken> {
    let mut world = stable_world(seed, shards(64), replicas, logging)?;
    world.add_jobs(200, 50);
    world.run_until(world.now + seconds(60))?;
    world.checked(world.is_even())?;
    world.checked(world.is_spread())?;
    Ok(world)
}

#[test]
fn two_hundred_jobs_are_even_after_one_round_and_then_no_shard_moves() {
    for_seeds(0..50, |seed, logging| {
        let mut world = stable_world(seed, shards(64), 4, logging)?;
        world.add_jobs(200, 50);
        let (before, excess) = (world.store.counts(), world.excess());
        world.run_until(world.now + seconds(10))?;
        world.checked(world.is_spread())?;
        let even = world.excess() <= 51 || excess < 200;
        world.checked(if even { Ok(()) } else { Err(format!("{excess} have become {}", world.excess())) })?;
        let after = world.store.counts();
        let (rounds, moved) = (after.balances - before.balances, after.moves - before.moves);
        world.checked(if rounds <= 1 && moved <= 16 {
            Ok(())
        } else {
            Err(format!("{moved} in {rounds}"))
        })?;
        let at_once = world.gaps.iter().all(|gap| *gap < Duration::from_millis(500));
        world.checked(if at_once { Ok(()) } else { Err("a shard had no owner for too long".into()) })?;
        world.run_until(world.now + seconds(120))?;
        let later = world.store.counts();
        let stable = (later.claims, later.balances) == (after.claims, after.balances);
        world.checked(if stable { Ok(()) } else { Err("shards still change places".into()) })
    });
}

#[test]
fn no_two_replicas_act_for_one_shard_under_any_fault_while_shards_change_places() {
    for_seeds(0..100, |seed, logging| {
        let mut world = stable_world(seed, shards(8), 2 + seed % 4, logging)?;
        let rounds = world.store.counts().balances;
        while world.store.counts().balances == rounds {
            // Some random loads cannot be spread any better: draw again until moves are written.
            world.randomize_work(5_000);
            for _ in 0..500 {
                world.run_until(world.now + Duration::from_millis(10))?;
                if world.store.counts().balances > rounds {
                    break;
                }
            }
        }
        let calm = world.now + seconds(40);
        world.schedule_faults(calm, chaos::ANYTHING);
        world.run_until(calm)?;
        becomes_stable(&mut world)
    });
}

#[test]
fn with_work_a_replica_that_leaves_joins_or_dies_still_moves_one_share() {
    for_seeds(0..20, |seed, logging| {
        let replicas = 2 + seed % 7;
        let share = 64_u32.div_ceil(replicas as u32);
        let leave = |world: &mut World| world.deliver(any(world, seed), Input::Leave);
        changed(&mut loaded_world(seed, replicas, logging)?, leave, seconds(2), share + 1)?;
        changed(&mut loaded_world(seed, replicas, logging)?, join, seconds(2), share + 1)?;
        let kill = |world: &mut World| {
            world.kill(any(world, seed));
            Ok(())
        };
        changed(
            &mut loaded_world(seed, replicas, logging)?,
            kill,
            TIMES.lease_duration + seconds(2),
            share + 1,
        )
    });
}

#[test]
fn work_is_spread_evenly_again_whenever_it_changes() {
    for_seeds(0..10, |seed, logging| {
        let mut world = loaded_world(seed, 4, logging)?;
        for _ in 0..5 {
            world.loads.clear();
            world.add_jobs(150, 100);
            world.run_until(world.now + seconds(60))?;
            world.checked(world.is_even())?;
            world.checked(world.is_spread())?;
        }
        Ok(())
    });
}

#[test]
fn reporting_loads_adds_no_heartbeats_to_their_number() {
    for replicas in [2, 8] {
        for count in [64, 512] {
            let mut world = stable_world(1, shards(count), replicas, false).unwrap();
            world.add_jobs(2_000, 50);
            let before = world.store.counts();
            world.run_until(world.now + seconds(60)).unwrap();
            let after = world.store.counts();
            let (written, due) = (after.beats - before.beats, replicas as usize * 30);
            let (rounds, moved) = (after.balances - before.balances, after.moves - before.moves);
            println!(
                "{replicas} replicas, {count} shards: {written} heartbeats, {rounds} rounds, {moved} moves"
            );
            assert!(written.abs_diff(due) <= replicas as usize, "{written} heartbeats, not {due}");
            assert!(rounds <= 3, "{rounds} rounds in a minute");
            assert!(after.claims - before.claims == 2 * moved, "a release and a claim for each move");
        }
    }
}
