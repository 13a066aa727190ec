//! Faults of the network that begin at later seeds: the plans of all seeds before stay as they are.

use super::{Act, Fault, Plan, Step};
use crate::chance::Chance;
use crate::time::Time;

/// Adds what begins at the seed of the plan or before. These steps come after all others.
pub(super) fn add(plan: &mut Plan) {
    add_from(3_000_000, "repeats", plan, |chance, replica| Fault::RepeatEvents {
        replica,
        time: chance.millis(1_000..=20_000),
    });
    add_from(4_000_000, "older caches", plan, |chance, replica| {
        let longest = chance.pick(&[500, 2_900, 10_000, 20_000]);
        let (time, by) = (chance.millis(2_000..=30_000), chance.millis(50..=longest));
        Fault::CachesBehind { replica, time, by }
    });
}

/// Adds one to three faults of one replica each, from the seed `first` on.
fn add_from(first: u64, purpose: &str, plan: &mut Plan, fault: impl Fn(&mut Chance, usize) -> Fault) {
    if plan.seed < first {
        return;
    }
    let mut chance = Chance::new(plan.seed, purpose);
    for _ in 0..chance.pick(&[1, 1, 2, 3]) {
        let at = Time::ZERO + chance.millis(1_000..=50_000);
        let replica = chance.below(plan.settings.replicas);
        plan.steps.push(Step { at, act: Act::Fault(fault(&mut chance, replica)) });
    }
}
