//! Plans in which watches repeat what they have shown. They are those of the seeds from [`FIRST`] on: the plans of all
//! seeds before stay as they are.

use super::{Act, Fault, Plan, Step};
use crate::chance::Chance;
use crate::time::Time;

/// The first seed whose plan has repeated events.
const FIRST: u64 = 3_000_000;

/// Adds one to three times in which a replica is shown everything twice. These steps come after all others.
pub(super) fn add(plan: &mut Plan) {
    if plan.seed < FIRST {
        return;
    }
    let mut chance = Chance::new(plan.seed, "repeats");
    for _ in 0..chance.pick(&[1, 1, 2, 3]) {
        let at = Time::ZERO + chance.millis(1_000..=50_000);
        let (replica, time) = (chance.below(plan.settings.replicas), chance.millis(1_000..=20_000));
        plan.steps.push(Step { at, act: Act::Fault(Fault::RepeatEvents { replica, time }) });
    }
}
