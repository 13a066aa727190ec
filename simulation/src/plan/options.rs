//! Jobs whose options change what becomes of failed pods. This begins at the seeds from [`FIRST`] on: the plans of all seeds
//! before stay as they are.

use serde_json::{Value, json};

use super::{JobPlan, Plan, lost, order};
use crate::chance::Chance;
use crate::kubelet::KILLED_FOR_MEMORY;

/// The first seed whose plan has them.
pub(crate) const FIRST: u64 = 8_000_000;

/// Adds them to a plan.
pub(super) fn add(plan: &mut Plan) {
    if plan.seed < FIRST || (lost::FIRST..order::FIRST).contains(&plan.seed) {
        return;
    }
    let mut chance = Chance::new(plan.seed, "options");
    for job in plan.jobs.iter_mut().filter(|job| job.past.is_none()) {
        let add: fn(&mut Chance, &mut JobPlan) =
            chance.pick(&[restarts_together, gets_memory, starts_in_time]);
        plain(&mut chance, job);
        add(&mut chance, job);
    }
}

/// An Indexed Job without rules of its own that would explain its failures.
pub(super) fn plain(chance: &mut Chance, job: &mut JobPlan) {
    let kept = ["managedBy", "podReplacementPolicy", "ttlSecondsAfterFinished"];
    let kept = kept.map(|field| (field, job.spec[field].clone()));
    let completions = chance.number(2..=8);
    job.spec = json!({
        "completions": completions, "completionMode": "Indexed", "backoffLimit": 60,
        "parallelism": if chance.percent(60) { completions } else { chance.number(1..=completions) },
    });
    for (field, value) in kept.into_iter().filter(|(_, value)| !value.is_null()) {
        job.spec[field] = value;
    }
    (job.adopts, job.restarts, job.evicted_percent) = (false, false, 0);
    (job.expressions, job.exit_codes, job.annotations) = (Vec::new(), vec![1], Default::default());
}

pub(super) fn set(job: &mut JobPlan, name: &str, value: impl ToString) {
    job.annotations.insert(format!("yardmaster.dev/{name}"), value.to_string());
}

fn restarts_together(chance: &mut Chance, job: &mut JobPlan) {
    set(job, "restart-together", true);
    set(job, "backoff-max", "1s");
    job.failing_percent = chance.pick(&[5, 15, 40]);
    if chance.percent(70) {
        set(job, "max-restarts", chance.number(0..=6));
    }
    if chance.percent(30) {
        set(job, "restart-keep-succeeded", true);
    }
    if chance.percent(30) {
        set(job, "failed-pods-limit", 0);
    }
    if chance.percent(30) {
        let rule = json!({"action": "Ignore", "onExitCodes": {"operator": "In", "values": [44]}});
        job.spec["podFailurePolicy"] = json!({"rules": [rule]});
        job.spec["podReplacementPolicy"] = "Failed".into();
        job.exit_codes = vec![1, 44];
    }
}

fn gets_memory(chance: &mut Chance, job: &mut JobPlan) {
    set(job, "oom-memory-factor", 2);
    set(job, "backoff-initial", "0s");
    job.needs_memory = Some(chance.pick(&[100, 200, 500]));
    job.failing_percent = chance.pick(&[0, 20, 40]);
    if chance.percent(50) {
        set(job, "failed-pods-limit", chance.number(0..=1));
    }
    if chance.percent(30) {
        set(job, "oom-exit-codes", KILLED_FOR_MEMORY);
    }
}

fn starts_in_time(chance: &mut Chance, job: &mut JobPlan) {
    set(job, "start-deadline", format!("{}s", chance.number(2..=20)));
    set(job, "backoff-initial", "0s");
    job.stuck_percent = chance.pick(&[20, 50]);
    job.failing_percent = chance.pick(&[0, 10]);
}

/// The first resources of a container that needs more memory.
pub(crate) fn resources() -> Value {
    json!({"limits": {"memory": "64Mi"}, "requests": {"memory": "32Mi"}})
}
