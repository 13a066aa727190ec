//! Which shards change places so that work is spread evenly.
//!
//! Jobs fall on shards by hash, so equal numbers of shards are unequal amounts of work, and the replica that has most
//! of it decides when all is done. A heavy shard of it goes to another replica, and a lighter one comes back: shares by
//! count stay as they are. What is swapped follows from the loads alone.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::hash::ShardId;

/// Nothing is swapped while the most loaded replica is above the mean by no more than this, in thousandths of the mean,
const TOLERANCE: u64 = 25;
/// or by less than this, in pods: whoever has so little to do is done soon.
const LEAST: u64 = 200;
/// Swapping ends once the most loaded replica is no further above the mean, in thousandths of it.
const EVEN: u64 = 10;
/// Every swap takes at least this part of what is too much: one that takes less is not worth two hand-overs.
const WORTH: u64 = 8;
/// The part of its shards that a replica gives at once. It goes on with the others meanwhile.
const AT_ONCE: usize = 4;

/// A replica's shards and their loads.
pub(super) type Share = Vec<(ShardId, u32)>;

/// Where shards are to go, as positions in `shares`. Shards that stay are not in it.
///
/// As many come to a replica as leave it, and no swap leaves a replica with as much work as the one that had most.
pub(super) fn swaps(shares: &[Share]) -> BTreeMap<ShardId, usize> {
    let mut sides: Vec<Side> = shares.iter().map(Side::of).collect();
    let mut moves = BTreeMap::new();
    let Some(mean) = sides.iter().map(|side| side.load).sum::<u64>().checked_div(sides.len() as u64) else {
        return moves;
    };
    let most = sides.iter().map(|side| side.load).max().unwrap_or_default();
    let excess = most.saturating_sub(mean);
    if excess < LEAST || excess * 1000 <= mean * TOLERANCE {
        return moves;
    }
    while let Some(swap) = best(&sides, mean) {
        moves.extend([(swap.heavy.1, swap.to), (swap.light.1, swap.from)]);
        sides[swap.from].give(swap.heavy, swap.light);
        sides[swap.to].give(swap.light, swap.heavy);
    }
    moves
}

/// A replica, while swaps are chosen.
struct Side {
    load: u64,
    /// Loads of the shards that it has had from the beginning, ascending.
    own: Vec<(u32, ShardId)>,
    /// How many of them it may still give.
    gives: usize,
}

impl Side {
    fn of(share: &Share) -> Self {
        let mut own: Vec<_> = share.iter().map(|(shard, load)| (*load, *shard)).collect();
        own.sort_unstable();
        Self {
            load: own.iter().map(|(load, _)| u64::from(*load)).sum(),
            gives: (own.len() / AT_ONCE).max(1),
            own,
        }
    }

    /// Takes in that one shard has gone for another.
    fn give(&mut self, gone: (u32, ShardId), come: (u32, ShardId)) {
        self.own.retain(|shard| *shard != gone);
        self.gives = self.gives.saturating_sub(1);
        self.load = self.load + u64::from(come.0) - u64::from(gone.0);
    }

    /// The shards whose loads are next to this one, below and above.
    fn near(&self, load: u64) -> impl Iterator<Item = (u32, ShardId)> {
        let above = self.own.partition_point(|(own, _)| u64::from(*own) < load);
        self.own[above.saturating_sub(1)..].iter().copied().take(2)
    }
}

/// Two shards that change places.
struct Swap {
    from: usize,
    to: usize,
    heavy: (u32, ShardId),
    light: (u32, ShardId),
    /// How much nearer to each other the two replicas come.
    gain: u128,
}

/// The swap that helps the most loaded replica most; of equally good ones that of the lightest shards.
fn best(sides: &[Side], mean: u64) -> Option<Swap> {
    let from = (0..sides.len()).max_by_key(|side| (sides[*side].load, Reverse(*side)))?;
    let giver = sides.get(from).filter(|giver| giver.gives > 0)?;
    let excess = giver.load.saturating_sub(mean);
    if excess * 1000 <= mean * EVEN {
        return None;
    }
    let takers = (0..sides.len()).filter(|to| *to != from && sides[*to].gives > 0);
    takers
        .flat_map(|to| {
            let gap = giver.load - sides[to].load;
            // Half of the gap makes the two even.
            let partners = move |heavy: &(u32, ShardId)| {
                let light = u64::from(heavy.0).saturating_sub(gap / 2);
                let heavy = *heavy;
                sides[to].near(light).map(move |light| (heavy, light))
            };
            giver.own.iter().flat_map(partners).filter_map(move |(heavy, light)| {
                let takes = u64::from(heavy.0.checked_sub(light.0)?);
                let helps = takes * WORTH >= excess && takes < gap;
                let gain = u128::from(takes) * u128::from(gap.saturating_sub(takes));
                (takes > 0 && helps).then_some(Swap { from, to, heavy, light, gain })
            })
        })
        .max_by_key(|swap| (swap.gain, Reverse((swap.heavy, swap.light))))
}
