//! Jobs that wait for the ends of others, beside all other options. This begins at the seeds from [`FIRST`] on: the plans of all
//! seeds before stay as they are.

use super::{JobPlan, Plan};
use crate::chance::Chance;

/// The first seed whose plan has them.
pub(crate) const FIRST: u64 = 9_000_000;

/// The name of a Job that does not exist.
const MISSING: &str = "job-99";

/// Adds them to a plan. All Jobs are in one namespace, and most wait for earlier ones.
pub(super) fn add(plan: &mut Plan) {
    if plan.seed < FIRST {
        return;
    }
    let mut chance = Chance::new(plan.seed, "order");
    let namespace = plan.jobs.first().map(|job| job.namespace.clone()).unwrap_or_default();
    let count = plan.jobs.len();
    for (number, job) in plan.jobs.iter_mut().enumerate() {
        job.namespace.clone_from(&namespace);
        if job.past.is_some() {
            continue;
        }
        if chance.percent(20) {
            job.spec["backoffLimit"] = 0.into();
        }
        // Now and then, a circle.
        let others = if chance.percent(10) { count } else { number };
        for option in ["after", "after-any"] {
            if chance.percent(60) {
                wait_for(&mut chance, job, option, others);
            }
        }
    }
}

fn wait_for(chance: &mut Chance, job: &mut JobPlan, option: &str, others: usize) {
    let mut names: Vec<String> =
        (0..others).filter(|_| chance.percent(60)).map(|job| format!("job-{job}")).collect();
    if chance.percent(5) {
        names.push(MISSING.to_owned());
    }
    if !names.is_empty() {
        job.annotations.insert(format!("yardmaster.dev/{option}"), names.join(", "));
    }
}
