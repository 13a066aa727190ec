//! What comes together: pods that are being deleted end at the same time, and so many pods are to go at once that their deletions
//! wait for one another. Both begin at the seeds from [`FIRST`] on: the plans of all seeds before stay as they are.

use std::time::Duration;

use serde_json::json;

use super::{Act, Plan, Step, UserAct};
use crate::chance::Chance;
use crate::time::Time;

pub(crate) const FIRST: u64 = 6_000_000;

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
    if chance.percent(50) {
        queue(&mut chance, plan);
    }
    for job in 0..plan.jobs.len() {
        if chance.percent(50) {
            ends(&mut chance, plan, job);
        }
    }
}

/// A large Job is suspended while writes are limited, and resumed.
fn queue(chance: &mut Chance, plan: &mut Plan) {
    plan.settings.qps = chance.pick(&[5, 10]);
    plan.settings.longest_run = Duration::from_secs(20);
    let Some(job) = plan.jobs.first_mut() else { return };
    let pods = chance.number(20..=40);
    job.spec["parallelism"] = pods.into();
    if !job.spec["completions"].is_null() {
        job.spec["completions"] = pods.into();
    }
    let suspended = job.created + chance.millis(6_000..=14_000);
    for (at, suspends) in [(suspended, true), (suspended + chance.millis(5_000..=20_000), false)] {
        plan.steps.push(user(at, 0, UserAct::Suspend(suspends)));
    }
}

/// Somebody deletes pods of a Job at once, which waits for their end before it replaces them.
fn ends(chance: &mut Chance, plan: &mut Plan, number: usize) {
    let Some(job) = plan.jobs.get_mut(number) else { return };
    job.spec["podReplacementPolicy"] = "Failed".into();
    job.slow_stop = chance.millis(500..=5_000);
    if job.spec["completionMode"] == "Indexed" && chance.percent(50) {
        job.spec["successPolicy"] = json!({"rules": [{"succeededCount": 1}]});
        job.spec["backoffLimit"] = 0.into();
    }
    let at = job.created + chance.millis(500..=8_000);
    let pods = chance.number(2..=6) as usize;
    plan.steps.extend((0..pods).map(|nth| user(at, number, UserAct::DeletePod { nth, force: false })));
}

fn user(at: Time, job: usize, act: UserAct) -> Step {
    Step { at, act: Act::User { job, act } }
}
