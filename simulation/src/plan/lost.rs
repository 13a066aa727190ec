//! Jobs whose nodes go, that keep the results of their indexes or few pods, and that restart together while users act on them.
//! This begins at the seeds from [`FIRST`] on: the plans of all seeds before stay as they are.

use super::options::{plain, set};
use super::together::user;
use super::{JobPlan, Plan, UserAct, extras, order};
use crate::chance::Chance;

/// The first seed whose plan has them.
pub(crate) const FIRST: u64 = 8_700_000;

/// Adds them to a plan.
pub(super) fn add(plan: &mut Plan) {
    if !(FIRST..order::FIRST).contains(&plan.seed) {
        return;
    }
    let mut chance = Chance::new(plan.seed, "lost nodes and results");
    for number in 0..plan.jobs.len() {
        let Some(job) = plan.jobs.get_mut(number).filter(|job| job.past.is_none()) else { continue };
        plain(&mut chance, job);
        job.failing_percent = chance.pick(&[0, 15, 40]);
        if chance.percent(50) {
            keeps_few(&mut chance, job);
        }
        if chance.percent(60) {
            loses_nodes(&mut chance, job);
        }
        if chance.percent(40) {
            set(job, "restart-together", true);
            set(job, "backoff-max", "1s");
            set(job, "max-restarts", chance.number(0..=12));
            job.failing_percent = chance.pick(&[0, 10, 20]);
            users_act(&mut chance, plan, number);
        }
    }
    // Owners that do not know of each other keep the counts, and do not agree on restarts.
    if plan.settings.replicas > 1 && !plan.settings.all_own_all && chance.percent(15) {
        extras::without_leases(&mut chance, plan);
    }
}

/// Pods of nodes that go, for a while or for ever.
fn loses_nodes(chance: &mut Chance, job: &mut JobPlan) {
    set(job, "lost-node-timeout", format!("{}s", chance.number(1..=15)));
    job.lost_percent = chance.pick(&[10, 30]);
    job.spec["podReplacementPolicy"] = chance.pick(&["Failed", "Failed", "TerminatingOrFailed"]).into();
    if chance.percent(30) {
        job.spec["backoffLimitPerIndex"] = 20.into();
    }
}

fn keeps_few(chance: &mut Chance, job: &mut JobPlan) {
    set(job, "index-results", true);
    match chance.below(3) {
        0 => set(job, "max-finished-pods", chance.number(0..=2)),
        1 => {
            set(job, "prune-succeeded", true);
            set(job, "prune-after", format!("{}s", chance.number(0..=10)));
        }
        _ => {}
    }
}

/// A Job that restarts together is suspended and resumed, deleted, or made larger or smaller.
fn users_act(chance: &mut Chance, plan: &mut Plan, number: usize) {
    let Some(job) = plan.jobs.get_mut(number) else { return };
    // Its indexes do not fail one by one.
    job.spec.as_object_mut().into_iter().for_each(|spec| _ = spec.remove("backoffLimitPerIndex"));
    let mut at = job.created + chance.millis(500..=8_000);
    let mut steps = Vec::new();
    match chance.below(4) {
        0 => {
            steps.push(user(at, number, UserAct::Suspend(true)));
            at += chance.millis(100..=10_000);
            steps.push(user(at, number, UserAct::Suspend(false)));
        }
        1 => steps.push(user(
            at,
            number,
            UserAct::Delete(chance.pick(&["Background", "Foreground", "Orphan"])),
        )),
        2 => {
            job.spec["parallelism"] = job.spec["completions"].clone();
            for _ in 0..chance.number(1..=3) {
                steps.push(user(at, number, UserAct::Resize(chance.number(1..=8) as u32)));
                at += chance.millis(100..=5_000);
            }
        }
        _ => {
            let force = chance.percent(30);
            steps.push(user(at, number, UserAct::DeletePod { nth: chance.below(64), force }));
        }
    }
    plan.steps.extend(steps);
}
