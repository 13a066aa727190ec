//! Which shards change places so that work is spread evenly.
//!
//! The hash of their UIDs spreads Jobs over shards, so equal numbers of shards are unequal amounts of work.
//! The most loaded replica determines when all work is done. So it swaps one of its heavy shards for a
//! lighter one of another replica. The number of shards per replica stays the same. The swaps follow from the
//! loads alone.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::hash::ShardId;

/// How far above the mean the most loaded replica has to be before anything is swapped, in thousandths of the
/// mean.
const TOLERANCE: u64 = 25;
/// The smallest excess over the mean, in pods, that is worth a swap: less is soon worked off.
const MIN_EXCESS: u64 = 200;
/// Under a limited rate, an excess that takes this many seconds of the rate is enough.
const MIN_EXCESS_SECONDS: u64 = 1;
/// Requests that a pod takes: its creation, and the removal of its finalizer.
const REQUESTS_PER_POD: u64 = 2;
/// Swapping ends once the most loaded replica is no further above the mean, in thousandths of the mean.
const EVEN: u64 = 10;
/// A swap must bring both replicas below the higher of the two loads, by at least one part in this many of
/// the excess. A smaller gain is not worth two hand-overs.
const WORTH: u64 = 8;
/// A replica hands over at most one part in this many of its shards at a time. It goes on working for the
/// others.
const AT_ONCE: usize = 4;

/// A replica's shards and their loads.
pub(super) type Share = Vec<(ShardId, u32)>;

/// The new owners of the shards that move, as positions in `shares`. `qps` is the rate limit of each replica
/// in requests per second; 0 is no limit. Shards for which `rests` is true stay where they are.
///
/// Each replica gets as many shards as it hands over. No swap leaves a replica with as much work as the most
/// loaded one had.
pub(super) fn swaps(shares: &[Share], qps: u32, rests: impl Fn(ShardId) -> bool) -> BTreeMap<ShardId, usize> {
    let mut sides: Vec<Side> = shares.iter().map(|share| Side::of(share, &rests)).collect();
    let mut moves = BTreeMap::new();
    let Some(mean) = sides.iter().map(|side| side.load).sum::<u64>().checked_div(sides.len() as u64) else {
        return moves;
    };
    let most = sides.iter().map(|side| side.load).max().unwrap_or_default();
    let excess = most.saturating_sub(mean);
    if excess < min_excess(qps) || excess * 1000 <= mean * TOLERANCE {
        return moves;
    }
    while let Some((from, to, swap)) = best(&sides, mean) {
        moves.extend([(swap.heavy.1, to), (swap.light.1, from)]);
        sides[from].exchange(swap.heavy, swap.light);
        sides[to].exchange(swap.light, swap.heavy);
    }
    moves
}

fn min_excess(qps: u32) -> u64 {
    match u64::from(qps) * MIN_EXCESS_SECONDS / REQUESTS_PER_POD {
        _ if qps == 0 => MIN_EXCESS,
        pods => pods.min(MIN_EXCESS),
    }
}

/// A shard with its load.
type Loaded = (u32, ShardId);

/// A replica while swaps are chosen.
struct Side {
    load: u64,
    /// The shards that it had at the start, still has and may hand over, by load.
    own: Vec<Loaded>,
    /// How many of them it may still hand over.
    remaining: usize,
}

/// Two shards that change places.
struct Swap {
    heavy: Loaded,
    light: Loaded,
    /// How far below the load of the more loaded replica both are after the swap.
    relief: u64,
    /// Half of the decrease in the sum of their squared loads: largest where the two become equal.
    gain: u128,
}

impl Swap {
    /// A swap between replicas whose loads differ by `gap`; `None` if one would end up with more than both
    /// had.
    fn over(gap: u64, heavy: Loaded, light: Loaded) -> Option<Self> {
        let moved = u64::from(heavy.0.checked_sub(light.0)?);
        let remaining = gap.checked_sub(moved)?;
        let gain = u128::from(moved) * u128::from(remaining);
        Some(Self { heavy, light, relief: moved.min(remaining), gain })
    }
}

impl Side {
    fn of(share: &Share, rests: impl Fn(ShardId) -> bool) -> Self {
        let movable = share.iter().filter(|(shard, _)| !rests(*shard));
        let mut own: Vec<Loaded> = movable.map(|(shard, load)| (*load, *shard)).collect();
        own.sort_unstable();
        Self {
            load: share.iter().map(|(_, load)| u64::from(*load)).sum(),
            remaining: (share.len() / AT_ONCE).max(1),
            own,
        }
    }

    /// Applies one side of a swap.
    fn exchange(&mut self, lost: Loaded, gained: Loaded) {
        self.own.retain(|shard| *shard != lost);
        self.remaining = self.remaining.saturating_sub(1);
        self.load = self.load + u64::from(gained.0) - u64::from(lost.0);
    }

    /// The two shards whose loads are closest to `load`, one below it and one not.
    fn near(&self, load: u64) -> impl Iterator<Item = Loaded> {
        let above = self.own.partition_point(|(own, _)| u64::from(*own) < load);
        self.own[above.saturating_sub(1)..].iter().copied().take(2)
    }

    /// For each shard, the swaps with a less loaded replica that bring the two loads closest together.
    fn swaps_with(&self, other: &Self) -> impl Iterator<Item = Swap> {
        let gap = self.load.saturating_sub(other.load);
        self.own.iter().flat_map(move |heavy| {
            let light = u64::from(heavy.0).saturating_sub(gap / 2);
            other.near(light).filter_map(move |light| Swap::over(gap, *heavy, light))
        })
    }
}

/// The best swap for the most loaded replica, with the positions of both replicas. Among equally good swaps,
/// the one with the lightest shards wins.
fn best(sides: &[Side], mean: u64) -> Option<(usize, usize, Swap)> {
    let from = (0..sides.len()).max_by_key(|side| (sides[*side].load, Reverse(*side)))?;
    let source = sides.get(from).filter(|source| source.remaining > 0)?;
    let excess = source.load.saturating_sub(mean);
    if excess * 1000 <= mean * EVEN {
        return None;
    }
    let targets = sides.iter().enumerate().filter(|(to, side)| *to != from && side.remaining > 0);
    targets
        .flat_map(|(to, target)| source.swaps_with(target).map(move |swap| (from, to, swap)))
        .filter(|(_, _, swap)| swap.relief * WORTH >= excess)
        .max_by_key(|(_, _, swap)| (swap.gain, Reverse((swap.heavy, swap.light))))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::rngs::SmallRng;
    use rand::{Rng as _, SeedableRng as _};

    use super::*;

    /// Loads of the shards of each replica.
    type Loads = &'static [&'static [u32]];
    /// Shards that move, with their new owners.
    type Moves = &'static [(u32, usize)];

    /// Shares of these loads, with shards numbered consecutively.
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
    fn a_heavy_shard_is_swapped_for_a_light_one_where_that_helps_enough() {
        let cases: &[(&str, Loads, Moves)] = &[
            ("no replicas", &[], &[]),
            ("a single replica", &[&[900, 0]], &[]),
            ("even already", &[&[500, 500], &[500, 500]], &[]),
            ("a small excess", &[&[199, 199], &[0, 0]], &[]),
            ("an excess that is a small part of the mean", &[&[10_240, 0], &[10_000, 0]], &[]),
            ("an excess of less than 2.5 %", &[&[10_300, 10_000], &[9_850, 9_850]], &[]),
            ("an excess of more than 2.5 %", &[&[10_600, 10_000], &[9_700, 9_700]], &[(1, 1), (2, 0)]),
            (
                "no further swaps once the excess is less than 1 %",
                &[&[3_850, 3_150, 7_000, 7_000, 0, 0, 0, 0], &[3_000, 3_000, 6_500, 6_500, 0, 0, 0, 0]],
                &[(0, 1), (8, 0)],
            ),
            (
                "one shard in four at a time",
                &[&[1_000, 1_000, 1_000, 0], &[0, 0, 0, 0], &[0, 0, 0, 0]],
                &[(0, 1), (4, 0)],
            ),
            ("the light shard that fits best", &[&[900, 500], &[100, 200, 700]], &[(0, 1), (4, 0)]),
            ("a heavy shard for a light one", &[&[500, 500], &[0, 0]], &[(0, 1), (2, 0)]),
            ("a part of the difference", &[&[900, 700], &[300, 300]], &[(1, 1), (2, 0)]),
            ("one huge Job cannot be split", &[&[9_000, 0], &[0, 0]], &[]),
            ("the shard beside a huge Job moves", &[&[9_000, 4_500], &[0, 0]], &[(1, 1), (2, 0)]),
            ("the shard beside a huge Job is too light", &[&[9_000, 100], &[0, 0]], &[]),
            ("the lighter of two equal swaps", &[&[900, 500, 400], &[400, 0, 0]], &[(1, 1), (4, 0)]),
            ("the least loaded replica gets most", &[&[600, 600], &[300, 300], &[0, 300]], &[(0, 2), (4, 0)]),
        ];
        for (why, loads, expected) in cases {
            let moves = swaps(&shares(loads), 0, |_| false);
            let expected = expected.iter().map(|(shard, to)| (ShardId(*shard), *to)).collect();
            assert_eq!(moves, expected, "{why}");
        }
    }

    #[test]
    fn under_a_limited_rate_an_excess_of_one_second_is_worth_a_swap() {
        for (excess, qps, swapped) in [
            (199, 0, false),
            (200, 0, true),
            (49, 100, false),
            (50, 100, true),
            (199, 10_000, false),
            (1, 1, true),
        ] {
            let shares = shares(&[&[excess, excess], &[0, 0]]);
            assert_eq!(
                !swaps(&shares, qps, |_| false).is_empty(),
                swapped,
                "{excess} too many at {qps} a second"
            );
        }
    }

    #[test]
    fn a_shard_that_rests_stays_and_its_load_counts() {
        let shares = shares(&[&[900, 500, 400], &[100, 200, 0]]);
        let moves = |resting: &[u32]| swaps(&shares, 0, |shard| resting.contains(&shard.0));
        let moved = |moves: &[(u32, usize)]| -> BTreeMap<ShardId, usize> {
            moves.iter().map(|(shard, to)| (ShardId(*shard), *to)).collect()
        };
        assert_eq!(moves(&[]), moved(&[(0, 1), (3, 0)]));
        assert_eq!(moves(&[0]), moved(&[(1, 1), (5, 0)]));
        assert_eq!(moves(&[0, 1, 2]), moved(&[]));
        assert_eq!(moves(&[3, 4, 5]), moved(&[]));
    }

    #[test]
    fn two_hundred_equal_jobs_are_within_one_job_of_even_after_one_round() {
        const JOB: u32 = 51;
        for seed in 0..200 {
            let mut random = SmallRng::seed_from_u64(seed);
            let mut before = vec![Share::new(); 4];
            (0..64).for_each(|shard| before[shard as usize % 4].push((ShardId(shard), 0)));
            (0..200).for_each(|_| before[random.random_range(0..4)][random.random_range(0..16)].1 += JOB);
            let moves = swaps(&before, 0, |_| false);
            let above = most(&moved(&before, &moves)) - mean(&before);
            assert!(
                above <= JOB.into() || most(&before) - mean(&before) < MIN_EXCESS,
                "{above} above the mean"
            );
            assert!(moves.len() <= 16, "{} shards move", moves.len());
        }
    }

    /// Realistic loads: many similar ones, some zero, a few huge.
    fn load() -> impl Strategy<Value = u32> {
        prop_oneof![4 => Just(0), 4 => 1_u32..8, 8 => 0_u32..2_000, 1 => 0_u32..1_000_000, 1 => Just(u32::MAX)]
    }

    proptest! {
        #[test]
        fn swaps_keep_shard_counts_and_never_increase_the_highest_load(
            loads in proptest::collection::vec(proptest::collection::vec(load(), 0..40), 1..12),
        ) {
            let loads: Vec<&[u32]> = loads.iter().map(Vec::as_slice).collect();
            let mut before = shares(&loads);
            let mut rounds = 0;
            loop {
                let moves = swaps(&before, 0, |_| false);
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
                    let lost = before.iter().filter(|shard| !after.contains(shard)).count();
                    prop_assert!(lost <= (before.len() / AT_ONCE).max(1), "one loses {lost} of {}", before.len());
                }
                before = after;
                rounds += 1;
                prop_assert!(rounds <= 20, "it does not converge");
            }
        }
    }
}
