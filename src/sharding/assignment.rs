//! Which replica should own which shard: rendezvous hashing with bounded load and as few moves as possible.
//!
//! Every replica computes this from the same Leases and gets the same result, so no leader has to decide. A
//! replica keeps the shards that it owns up to its share. Shards above the share, or without an owner, go to
//! the replica with room that rendezvous hashing ranks highest. A replica that joins or leaves moves at most
//! one replica's share.

use super::hash::{ShardCount, ShardId};

/// The wanted owner of every shard, as a position in `replicas`; all `None` without replicas. `holder`
/// returns the position of the replica that owns a shard now, if that is one of `replicas`.
///
/// No share differs from another by more than one.
pub(super) fn assign(
    shards: ShardCount,
    replicas: &[&str],
    holder: impl Fn(ShardId) -> Option<usize>,
) -> Vec<Option<usize>> {
    let mut wanted = vec![None; shards.get() as usize];
    let mut held: Vec<Vec<ShardId>> = vec![Vec::new(); replicas.len()];
    for shard in shards.shards() {
        if let Some(shards) = holder(shard).and_then(|replica| held.get_mut(replica)) {
            shards.push(shard);
        }
    }
    let mut room = shares(shards, &held);
    for ((replica, room), held) in replicas.iter().zip(&mut room).zip(&mut held) {
        if held.len() > *room {
            held.sort_by_cached_key(|shard| std::cmp::Reverse(rank(replica, *shard)));
            held.truncate(*room);
        }
        *room -= held.len();
    }
    for (replica, held) in held.iter().enumerate() {
        for shard in held {
            wanted[shard.0 as usize] = Some(replica);
        }
    }
    for shard in shards.shards().filter(|shard| wanted[shard.0 as usize].is_none()).collect::<Vec<_>>() {
        let best = (0..replicas.len())
            .filter(|replica| room[*replica] > 0)
            .max_by_key(|replica| rank(replicas[*replica], shard));
        if let Some(best) = best {
            room[best] -= 1;
            wanted[shard.0 as usize] = Some(best);
        }
    }
    wanted
}

/// How many shards each replica may own. If they do not divide evenly, the replicas that own the most keep
/// one more.
fn shares(shards: ShardCount, held: &[Vec<ShardId>]) -> Vec<usize> {
    let (total, replicas) = (shards.get() as usize, held.len());
    let mut by_load: Vec<usize> = (0..replicas).collect();
    by_load.sort_by_key(|replica| std::cmp::Reverse(held[*replica].len()));
    let mut shares = vec![0; replicas];
    for (position, replica) in by_load.into_iter().enumerate() {
        shares[replica] = total / replicas + usize::from(position < total % replicas);
    }
    shares
}

/// The weight of a replica for a shard. All versions of Yardmaster must compute the same: during an update
/// they run side by side.
fn rank(replica: &str, shard: ShardId) -> u64 {
    use std::hash::Hasher as _;
    let mut hasher = fnv::FnvHasher::default();
    hasher.write(replica.as_bytes());
    hasher.write(&shard.0.to_le_bytes());
    mix(hasher.finish())
}

/// The finalizer of SplitMix64: FNV's high bits hardly depend on the last bytes hashed.
fn mix(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|n| format!("yardmaster-7d9c5b8f4-{n:05}")).collect()
    }

    fn assigned(
        shards: ShardCount,
        replicas: &[String],
        before: &[(Vec<Option<usize>>, Vec<String>)],
    ) -> Vec<Option<usize>> {
        let borrowed: Vec<&str> = replicas.iter().map(String::as_str).collect();
        assign(shards, &borrowed, |shard| {
            let (owners, names) = before.last()?;
            let owner = names.get(owners[shard.0 as usize]?)?;
            replicas.iter().position(|replica| replica == owner)
        })
    }

    fn moves(before: &(Vec<Option<usize>>, Vec<String>), after: &(Vec<Option<usize>>, Vec<String>)) -> usize {
        let owner = |side: &(Vec<Option<usize>>, Vec<String>), shard: usize| {
            side.0[shard].map(|owner| side.1[owner].clone())
        };
        (0..before.0.len()).filter(|shard| owner(before, *shard) != owner(after, *shard)).count()
    }

    #[test]
    fn without_replicas_no_shard_has_an_owner() {
        assert!(assign(ShardCount::default(), &[], |_| None).iter().all(Option::is_none));
    }

    #[test]
    fn ranks_never_change() {
        // Replicas of different versions must agree on these values.
        assert_eq!(rank("a", ShardId(0)), 0x3025_e00c_34f8_8fc7);
        assert_eq!(rank("yardmaster-0", ShardId(63)), 0x858c_6d51_b9af_019f);
    }

    proptest! {
        /// Replicas join and leave: shares stay even, and each change moves no more than a share.
        #[test]
        fn shares_are_even_and_moves_are_few(
            bits in 0_u32..10,
            steps in proptest::collection::vec((any::<bool>(), any::<proptest::sample::Index>()), 1..20),
        ) {
            let shards = ShardCount::new(1 << bits).unwrap();
            let total = shards.get() as usize;
            let mut pool = names(40).into_iter();
            let mut replicas = vec![pool.next().unwrap()];
            let mut history = vec![(assigned(shards, &replicas, &[]), replicas.clone())];
            for (joins, which) in steps {
                let larger = if joins || replicas.len() == 1 {
                    replicas.insert(which.index(replicas.len() + 1), pool.next().unwrap());
                    replicas.len()
                } else {
                    replicas.remove(which.index(replicas.len()));
                    replicas.len() + 1
                };
                let next = (assigned(shards, &replicas, &history), replicas.clone());
                for replica in 0..replicas.len() {
                    let share = next.0.iter().filter(|owner| **owner == Some(replica)).count();
                    prop_assert!(share == total / replicas.len() || share == total.div_ceil(replicas.len()));
                }
                let moved = moves(history.last().unwrap(), &next);
                let share = total.div_ceil(larger.min(replicas.len()));
                prop_assert!(moved <= share + 1, "{moved} moves with a share of {share}");
                prop_assert_eq!(&assigned(shards, &replicas, std::slice::from_ref(&next)), &next.0, "it is stable");
                history.push(next);
            }
        }
    }
}
