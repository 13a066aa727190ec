//! Deletions that wait for one another: a large Job is suspended while writes are limited. This begins at the seeds from [`FIRST`]
//! on: the plans of all seeds before stay as they are.

use std::time::Duration;

use super::together::user;
use super::{Plan, UserAct};
use crate::chance::Chance;

/// The first seed whose plan may have them.
pub(crate) const FIRST: u64 = 7_000_000;

/// Adds them to plans without a tenant. These steps come after all others.
pub(super) fn add(plan: &mut Plan) {
    if plan.seed < FIRST || plan.has_tenant() {
        return;
    }
    let mut chance = Chance::new(plan.seed, "queued");
    plan.settings.qps = chance.pick(&[10, 20]);
    plan.settings.longest_run = Duration::from_secs(30);
    let Some(job) = plan.jobs.first_mut() else { return };
    let pods = chance.number(30..=60);
    job.spec["parallelism"] = pods.into();
    if !job.spec["completions"].is_null() {
        job.spec["completions"] = pods.into();
    }
    let suspended = job.created + chance.millis(8_000..=14_000);
    for (at, suspends) in [(suspended, true), (suspended + chance.millis(10_000..=20_000), false)] {
        plan.steps.push(user(at, 0, UserAct::Suspend(suspends)));
    }
}
