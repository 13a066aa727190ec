//! Which shards change places so that work is spread evenly.
//!
//! Jobs fall on shards by hash, so equal numbers of shards are unequal amounts of work, and the replica that has most
//! of it decides when all is done. A heavy shard of it goes to another replica, and a lighter one comes back: shares by
//! count stay as they are. What is swapped follows from the loads alone.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::hash::ShardId;

/// How far above the mean the most loaded replica has to be before anything is swapped, in thousandths of the mean.
const TOLERANCE: u64 = 25;
/// How far at least, in pods: whoever has so little too much is soon done with it.
const LEAST: u64 = 200;
/// Under a limited rate that takes longer, and so many seconds of it are enough.
const LEAST_SECONDS: u64 = 1;
/// Requests that a pod takes: its creation, and the removal of its finalizer.
const REQUESTS_PER_POD: u64 = 2;
/// Swapping ends once the most loaded replica is no further above the mean, in thousandths of it.
const EVEN: u64 = 10;
/// Every swap brings the replica with most, and the one that it swaps with, below that by at least this part of what is
/// too much: for less two hand-overs are not worth it.
const WORTH: u64 = 8;
/// The part of its shards that a replica gives at once. It goes on with the others meanwhile.
const AT_ONCE: usize = 4;

/// A replica's shards and their loads.
pub(super) type Share = Vec<(ShardId, u32)>;

/// Where shards are to go, as positions in `shares`. Shards that stay are not in it. `qps`: requests a second that each replica
/// is held to; 0 is no limit.
///
/// As many come to a replica as leave it, and no swap leaves a replica with as much work as the one that had most.
pub(super) fn swaps(shares: &[Share], qps: u32) -> BTreeMap<ShardId, usize> {
    let mut sides: Vec<Side> = shares.iter().map(Side::of).collect();
    let mut moves = BTreeMap::new();
    let Some(mean) = sides.iter().map(|side| side.load).sum::<u64>().checked_div(sides.len() as u64) else {
        return moves;
    };
    let most = sides.iter().map(|side| side.load).max().unwrap_or_default();
    let excess = most.saturating_sub(mean);
    if excess < least(qps) || excess * 1000 <= mean * TOLERANCE {
        return moves;
    }
    while let Some((from, to, swap)) = best(&sides, mean) {
        moves.extend([(swap.heavy.1, to), (swap.light.1, from)]);
        sides[from].give(swap.heavy, swap.light);
        sides[to].give(swap.light, swap.heavy);
    }
    moves
}

fn least(qps: u32) -> u64 {
    match u64::from(qps) * LEAST_SECONDS / REQUESTS_PER_POD {
        _ if qps == 0 => LEAST,
        pods => pods.min(LEAST),
    }
}

/// A shard with its load.
type Loaded = (u32, ShardId);

/// A replica, while swaps are chosen.
struct Side {
    load: u64,
    /// The shards that it has had from the beginning, by load.
    own: Vec<Loaded>,
    /// How many of them it may still give.
    gives: usize,
}

/// Two shards that change places.
struct Swap {
    heavy: Loaded,
    light: Loaded,
    /// How far both replicas are then below what the more loaded one had.
    relief: u64,
    /// Half of what the squares of their work lose: most where the two become alike.
    gain: u128,
}

impl Swap {
    /// A swap between replicas that are so far apart; `None` if it leaves one of them above both.
    fn over(gap: u64, heavy: Loaded, light: Loaded) -> Option<Self> {
        let takes = u64::from(heavy.0.checked_sub(light.0)?);
        let rest = gap.checked_sub(takes)?;
        Some(Self { heavy, light, relief: takes.min(rest), gain: u128::from(takes) * u128::from(rest) })
    }
}

impl Side {
    fn of(share: &Share) -> Self {
        let mut own: Vec<Loaded> = share.iter().map(|(shard, load)| (*load, *shard)).collect();
        own.sort_unstable();
        Self {
            load: own.iter().map(|(load, _)| u64::from(*load)).sum(),
            gives: (own.len() / AT_ONCE).max(1),
            own,
        }
    }

    /// Takes in that one shard has gone for another.
    fn give(&mut self, gone: Loaded, come: Loaded) {
        self.own.retain(|shard| *shard != gone);
        self.gives = self.gives.saturating_sub(1);
        self.load = self.load + u64::from(come.0) - u64::from(gone.0);
    }

    /// The shards whose loads are next to this one, below and above.
    fn near(&self, load: u64) -> impl Iterator<Item = Loaded> {
        let above = self.own.partition_point(|(own, _)| u64::from(*own) < load);
        self.own[above.saturating_sub(1)..].iter().copied().take(2)
    }

    /// For each shard the swaps with a less loaded replica that make the two most alike.
    fn swaps_with(&self, other: &Self) -> impl Iterator<Item = Swap> {
        let gap = self.load.saturating_sub(other.load);
        self.own.iter().flat_map(move |heavy| {
            let light = u64::from(heavy.0).saturating_sub(gap / 2);
            other.near(light).filter_map(move |light| Swap::over(gap, *heavy, light))
        })
    }
}

/// The swap that helps the most loaded replica most, and with whom; of equally good ones that of the lightest shards.
fn best(sides: &[Side], mean: u64) -> Option<(usize, usize, Swap)> {
    let from = (0..sides.len()).max_by_key(|side| (sides[*side].load, Reverse(*side)))?;
    let giver = sides.get(from).filter(|giver| giver.gives > 0)?;
    let excess = giver.load.saturating_sub(mean);
    if excess * 1000 <= mean * EVEN {
        return None;
    }
    let takers = sides.iter().enumerate().filter(|(to, side)| *to != from && side.gives > 0);
    takers
        .flat_map(|(to, taker)| giver.swaps_with(taker).map(move |swap| (from, to, swap)))
        .filter(|(_, _, swap)| swap.relief * WORTH >= excess)
        .max_by_key(|(_, _, swap)| (swap.gain, Reverse((swap.heavy, swap.light))))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::rngs::SmallRng;
    use rand::{Rng as _, SeedableRng as _};

    use super::*;

    /// Loads of the shards of each replica, and where shards go.
    type Loads = &'static [&'static [u32]];
    type Moves = &'static [(u32, usize)];

    /// Shares of these loads, with shards numbered through.
    fn shares(loads: &[&[u32]]) -> Vec<Share> {
        let mut numbers = (0..).map(ShardId);
        loads.iter().map(|share| numbers.by_ref().zip(share.iter().copied()).collect()).collect()
    }

    fn work(share: &Share) -> u64 {
        share.iter().map(|(_, load)| u64::from(*load)).sum()
    }

    fn most(shares: &[Share]) -> u64 {
        shares.iter().map(work).max().unwrap_or_default()
    }

    fn mean(shares: &[Share]) -> u64 {
        shares.iter().map(work).sum::<u64>() / shares.len().max(1) as u64
    }

    /// The shares after the moves.
    fn moved(before: &[Share], moves: &BTreeMap<ShardId, usize>) -> Vec<Share> {
        let mut after = vec![Share::new(); before.len()];
        for (owner, share) in before.iter().enumerate() {
            for (shard, load) in share {
                after[moves.get(shard).copied().unwrap_or(owner)].push((*shard, *load));
            }
        }
        after
    }

    #[test]
    fn what_is_swapped() {
        let cases: &[(&str, Loads, Moves)] = &[
            ("there is nobody", &[], &[]),
            ("one alone has all", &[&[900, 0]], &[]),
            ("it is even", &[&[500, 500], &[500, 500]], &[]),
            ("it is little", &[&[199, 199], &[0, 0]], &[]),
            ("it is a small part", &[&[10_240, 0], &[10_000, 0]], &[]),
            ("a heavy shard for a light one", &[&[500, 500], &[0, 0]], &[(0, 1), (2, 0)]),
            ("a part of the difference", &[&[900, 700], &[300, 300]], &[(1, 1), (2, 0)]),
            ("one huge Job cannot be parted", &[&[9_000, 0], &[0, 0]], &[]),
            ("what is beside the huge Job goes", &[&[9_000, 4_500], &[0, 0]], &[(1, 1), (2, 0)]),
            ("what is beside it is not worth it", &[&[9_000, 100], &[0, 0]], &[]),
            ("the lighter of two that help alike", &[&[900, 500, 400], &[400, 0, 0]], &[(1, 1), (4, 0)]),
            ("whoever has least gets most", &[&[600, 600], &[300, 300], &[0, 300]], &[(0, 2), (4, 0)]),
        ];
        for (why, loads, expected) in cases {
            let moves = swaps(&shares(loads), 0);
            let expected = expected.iter().map(|(shard, to)| (ShardId(*shard), *to)).collect();
            assert_eq!(moves, expected, "{why}");
        }
    }

    #[test]
    fn under_a_limited_rate_a_second_of_it_is_worth_a_swap() {
        for (excess, qps, swapped) in [
            (199, 0, false),
            (200, 0, true),
            (49, 100, false),
            (50, 100, true),
            (199, 10_000, false),
            (1, 1, true),
        ] {
            let shares = shares(&[&[excess, excess], &[0, 0]]);
            assert_eq!(!swaps(&shares, qps).is_empty(), swapped, "{excess} too many at {qps} a second");
        }
    }

    #[test]
    fn two_hundred_equal_jobs_are_even_within_one_after_a_round() {
        const JOB: u32 = 51;
        for seed in 0..200 {
            let mut random = SmallRng::seed_from_u64(seed);
            let mut before = vec![Share::new(); 4];
            (0..64).for_each(|shard| before[shard as usize % 4].push((ShardId(shard), 0)));
            (0..200).for_each(|_| before[random.random_range(0..4)][random.random_range(0..16)].1 += JOB);
            let moves = swaps(&before, 0);
            let above = most(&moved(&before, &moves)) - mean(&before);
            assert!(above <= JOB.into() || most(&before) - mean(&before) < LEAST, "{above} above the mean");
            assert!(moves.len() <= 16, "{} shards move", moves.len());
        }
    }

    /// Loads as they come: many like each other, some none, a few huge.
    fn load() -> impl Strategy<Value = u32> {
        prop_oneof![4 => Just(0), 4 => 1_u32..8, 8 => 0_u32..2_000, 1 => 0_u32..1_000_000, 1 => Just(u32::MAX)]
    }

    proptest! {
        #[test]
        fn swaps_keep_numbers_and_never_make_it_worse(
            loads in proptest::collection::vec(proptest::collection::vec(load(), 0..40), 1..12),
        ) {
            let loads: Vec<&[u32]> = loads.iter().map(Vec::as_slice).collect();
            let mut before = shares(&loads);
            let mut rounds = 0;
            loop {
                let moves = swaps(&before, 0);
                if moves.is_empty() {
                    break;
                }
                let after = moved(&before, &moves);
                let (was, is) = (most(&before), most(&after));
                prop_assert!(is <= was, "the most is {} after {}", is, was);
                let with_most = |shares: &[Share]| shares.iter().filter(|share| work(share) == was).count();
                prop_assert!(with_most(&after) < with_most(&before), "the most loaded has as much as before");
                for (before, after) in before.iter().zip(&after) {
                    prop_assert_eq!(before.len(), after.len());
                    let given = before.iter().filter(|shard| !after.contains(shard)).count();
                    prop_assert!(given <= (before.len() / AT_ONCE).max(1), "one gives {given} of {}", before.len());
                }
                before = after;
                rounds += 1;
                prop_assert!(rounds <= 20, "it does not settle");
            }
        }
    }
}
