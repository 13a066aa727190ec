//! Plans in which a replica is served for a while by an API server with caches that are behind. They are those of the seeds
//! from [`FIRST`] on: the plans of all seeds before stay as they are.

use super::{Act, Fault, Plan, Step};
use crate::chance::Chance;
use crate::time::Time;

/// The first seed of such a plan.
const FIRST: u64 = 4_000_000;

/// Adds one to three times in which a replica is served by one. These steps come after all others.
pub(super) fn add(plan: &mut Plan) {
    if plan.seed < FIRST {
        return;
    }
    let mut chance = Chance::new(plan.seed, "older caches");
    for _ in 0..chance.pick(&[1, 1, 2, 3]) {
        let at = Time::ZERO + chance.millis(1_000..=50_000);
        let replica = chance.below(plan.settings.replicas);
        let longest = chance.pick(&[500, 2_900, 10_000, 20_000]);
        let (time, by) = (chance.millis(2_000..=30_000), chance.millis(50..=longest));
        plan.steps.push(Step { at, act: Act::Fault(Fault::CachesBehind { replica, time, by }) });
    }
}
