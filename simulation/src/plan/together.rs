//! Simultaneous ends: pods that are being deleted end at about the same time. Only plans of seeds from
//! [`FIRST`] on have them; earlier plans stay as they are.

use serde_json::json;

use super::{Act, Plan, Step, UserAct};
use crate::chance::Chance;
use crate::time::Time;

const FIRST: u64 = 6_000_000;

/// Whether a plan has no tenant: from [`FIRST`] on, that of every odd seed.
pub(super) fn has_no_tenant(seed: u64) -> bool {
    seed >= FIRST && seed % 2 == 1
}

/// Adds what comes together to plans without a tenant. These steps come after all others.
pub(super) fn add(plan: &mut Plan) {
    if plan.seed < FIRST || plan.has_tenant() {
        return;
    }
    let mut chance = Chance::new(plan.seed, "together");
    // Some promises hold only where nothing breaks.
    if chance.percent(60) {
        let breaks = |step: &&mut Step| matches!(step.act, Act::Fault(_) | Act::Rare(_));
        plan.steps.iter_mut().filter(breaks).for_each(|step| step.at = Time::NEVER);
    }
    for job in 0..plan.jobs.len() {
        if chance.percent(50) {
            ends(&mut chance, plan, job);
        }
    }
}

/// Several pods are deleted at once, in a Job that replaces them only after their end.
fn ends(chance: &mut Chance, plan: &mut Plan, number: usize) {
    let Some(job) = plan.jobs.get_mut(number) else { return };
    job.spec["podReplacementPolicy"] = "Failed".into();
    job.slow_stop = chance.millis(500..=5_000);
    if job.spec["completionMode"] == "Indexed" && job.spec["completions"] != 0 && chance.percent(50) {
        job.spec["successPolicy"] = json!({"rules": [{"succeededCount": 1}]});
        job.spec["backoffLimit"] = 0.into();
    }
    let at = job.created + chance.millis(500..=8_000);
    let pods = chance.number(2..=6) as usize;
    plan.steps.extend((0..pods).map(|nth| user(at, number, UserAct::DeletePod { nth, force: false })));
}

/// A step of a user.
pub(super) fn user(at: Time, job: usize, act: UserAct) -> Step {
    Step { at, act: Act::User { job, act } }
}
