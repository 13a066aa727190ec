//! A simulated world of replicas in virtual time. No two replicas act for the same shard, whatever faults
//! occur. Once faults end, every shard soon has an owner, and no shard moves any longer.
//!
//! `YARDMASTER_SEEDS=FIRST..LAST` runs other seeds than the usual ones.
#![allow(clippy::unwrap_used)]

mod chaos;
mod network;
mod oracle;
mod process;
mod sim;
mod work;

use std::time::Duration;

use chaos::Kind;
use network::Network;
use process::Input;
use sim::{Broken, TIMES, World};

use crate::sharding::hash::ShardCount;

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn shards(count: u32) -> ShardCount {
    ShardCount::new(count).unwrap()
}

/// Runs a simulation for every seed; one that fails is run again with logging, to print its events.
fn for_seeds(usual: std::ops::Range<u64>, course: impl Fn(u64, bool) -> Result<(), Broken>) {
    let asked = std::env::var("YARDMASTER_SEEDS").ok();
    let seeds = asked
        .as_deref()
        .and_then(|seeds| seeds.split_once(".."))
        .map_or(usual, |(first, last)| first.parse().unwrap()..last.parse().unwrap());
    for seed in seeds {
        if course(seed, false).is_err()
            && let Err(broken) = course(seed, true)
        {
            panic!("seed {seed}: {}\n{}\nseed {seed}: {}", broken.what, broken.log.join("\n"), broken.what);
        }
    }
}

/// A world of replicas that share all shards, none of which is moving.
fn stable_world(seed: u64, shards: ShardCount, replicas: u64, logging: bool) -> Result<World, Broken> {
    let mut world = World::new(seed, shards, logging);
    for _ in 0..replicas {
        world.start(&world.fresh_name());
    }
    world.run_until(seconds(30) + Duration::from_millis(seed * 73 % 2_000))?;
    world.checked(world.is_spread())?;
    Ok(world)
}

/// Runs some replicas with faults of these kinds, then without faults.
fn run_with_faults(seed: u64, kinds: &'static [Kind], logging: bool) -> Result<(), Broken> {
    let mut world = World::new(seed, shards(8), logging);
    for _ in 0..2 + seed % 4 {
        world.start(&world.fresh_name());
    }
    world.run_until(seconds(1 + seed % 30))?;
    let calm = world.now + seconds(90);
    world.schedule_faults(calm, kinds);
    world.run_until(calm)?;
    becomes_stable(&mut world)
}

/// Once all delayed messages have arrived, all shards are owned within a lease duration and two seconds, and
/// none moves any longer.
fn becomes_stable(world: &mut World) -> Result<(), Broken> {
    world.run_until(world.now + Network::MAX_DELAY * 2 + TIMES.lease_duration + seconds(2))?;
    world.checked(world.is_spread())?;
    let before = world.store.counts().claims;
    world.run_until(world.now + seconds(10))?;
    let written = world.store.counts().claims - before;
    world.checked(if written == 0 { Ok(()) } else { Err(format!("{written} claims are still written")) })
}

/// Applies `change` to a stable world: all shards are owned again after `within`, and no more than `most`
/// shards have moved.
fn changed(
    world: &mut World,
    change: impl FnOnce(&mut World) -> sim::Checked,
    within: Duration,
    most: u32,
) -> Result<(), Broken> {
    let before = world.store.counts().moves;
    let done = change(world);
    world.checked(done)?;
    world.run_until(world.now + within)?;
    world.checked(world.is_spread())?;
    world.run_until(world.now + seconds(5))?;
    let moved = world.store.counts().moves - before;
    world.checked(if moved <= most as usize { Ok(()) } else { Err(format!("{moved} moves, not {most}")) })
}

fn join(world: &mut World) -> sim::Checked {
    world.start(&world.fresh_name());
    Ok(())
}

/// Picks a live replica.
fn any(world: &World, seed: u64) -> sim::Id {
    let live: Vec<sim::Id> = world.live().collect();
    live[seed as usize % live.len()]
}

#[test]
fn no_two_replicas_act_for_one_shard_under_any_fault() {
    for_seeds(0..200, |seed, logging| run_with_faults(seed, chaos::ANYTHING, logging));
}

/// Deleting a claim by hand removes the owner's only proof of ownership. The owner stops as soon as its watch
/// shows the deletion, and replicas that saw the deletion of an owned claim wait for `lease_duration`. This
/// does not protect an owner whose watch is behind by more than that. Nor does it stop replicas that never
/// saw the claim. A replica that starts in between claims the shard, unless the owner's last heartbeat
/// reports work of it. A first claim may also have been on its way at the time of the deletion.
///
/// A deleted heartbeat is written again. Only one that is deleted twice within `lease_duration`, while
/// another replica's watch is behind, makes a live replica look dead.
#[test]
fn no_two_replicas_act_for_one_shard_when_leases_are_deleted_by_hand() {
    for_seeds(0..50, |seed, logging| run_with_faults(seed, chaos::DELETIONS, logging));
}

#[test]
fn a_killed_replica_is_replaced_within_a_lease_duration_and_two_seconds() {
    for_seeds(0..20, |seed, logging| {
        let replicas = 2 + seed % 7;
        let mut world = stable_world(seed, shards(64), replicas, logging)?;
        let kill = |world: &mut World| {
            world.kill(any(world, seed));
            Ok(())
        };
        let share = 64_u32.div_ceil(replicas as u32);
        changed(&mut world, kill, TIMES.lease_duration + seconds(2), share + 1)
    });
}

#[test]
fn several_killed_replicas_are_replaced_within_a_lease_duration_and_two_seconds() {
    for_seeds(0..8, |seed, logging| {
        let mut world = stable_world(seed, shards(64), 8, logging)?;
        let kill = |world: &mut World| {
            (0..5).for_each(|_| world.kill(any(world, seed)));
            Ok(())
        };
        changed(&mut world, kill, TIMES.lease_duration + seconds(2), 64)
    });
}

#[test]
fn a_replica_that_leaves_or_joins_moves_one_share_within_two_seconds() {
    for_seeds(0..20, |seed, logging| {
        let replicas = 2 + seed % 7;
        let mut world = stable_world(seed, shards(64), replicas, logging)?;
        let leave = |world: &mut World| world.deliver(any(world, seed), Input::Leave);
        changed(&mut world, leave, seconds(2), 64_u32.div_ceil(replicas as u32) + 1)?;
        changed(&mut world, join, seconds(2), 64_u32.div_ceil(replicas as u32) + 1)?;
        let longest = world.gaps.iter().max().copied().unwrap_or_default();
        let short = longest < Duration::from_millis(500);
        world.checked(if short { Ok(()) } else { Err(format!("a shard had no owner for {longest:?}")) })
    });
}

#[test]
fn each_step_of_scaling_from_one_replica_to_eight_to_three_moves_one_share() {
    for_seeds(0..4, |seed, logging| {
        let mut world = stable_world(seed, shards(64), 1, logging)?;
        for replicas in 2..=8_u32 {
            changed(&mut world, join, seconds(2), 64_u32.div_ceil(replicas) + 1)?;
        }
        for replicas in (4..=8_u32).rev() {
            let leave = |world: &mut World| world.deliver(any(world, seed + 1), Input::Leave);
            changed(&mut world, leave, seconds(2), 64_u32.div_ceil(replicas) + 1)?;
        }
        Ok(())
    });
}

#[test]
fn the_number_of_heartbeats_grows_with_replicas_and_not_with_shards() {
    for replicas in [2, 8] {
        for count in [64, 512] {
            let mut world = stable_world(1, shards(count), replicas, false).unwrap();
            let before = world.store.counts();
            world.run_until(world.now + seconds(60)).unwrap();
            let after = world.store.counts();
            let written = after.beats - before.beats;
            let due = replicas as usize * 30;
            println!("{replicas} replicas, {count} shards: {written} heartbeats in 60 s");
            assert!(written.abs_diff(due) <= replicas as usize, "{written} heartbeats, not {due}");
            assert_eq!(
                (after.claims, after.deletes),
                (before.claims, before.deletes),
                "nothing else is written"
            );
        }
    }
}
