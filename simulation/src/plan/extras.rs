//! Further features of a plan: rules of Jobs for failed pods, containers that stop slowly, options of ours,
//! and API servers with slow caches. Each purpose has a source of chance of its own, so that a new one
//! changes nothing else.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Act, Fault, JobPlan, Lag, Plan};
use crate::chance::Chance;
use crate::time::Time;

/// Exit codes that have a meaning in the rules of a policy.
const FATAL: i32 = 42;
const FATAL_FOR_INDEX: i32 = 43;
const TRANSIENT: i32 = 44;

/// Adds what there is besides.
pub(super) fn add(plan: &mut Plan) {
    let (mut rules, mut nodes, mut options) = (
        Chance::new(plan.seed, "failure rules"),
        Chance::new(plan.seed, "nodes"),
        Chance::new(plan.seed, "options"),
    );
    for job in &mut plan.jobs {
        failure_rules(&mut rules, job);
        if nodes.percent(25) {
            job.slow_stop = nodes.millis(1_000..=20_000);
        }
        if nodes.percent(10) {
            job.evicted_percent = nodes.pick(&[10, 40]);
        }
        job_options(&mut options, job);
    }
    lags(&mut Chance::new(plan.seed, "lags"), plan);
    all_own_all(&mut Chance::new(plan.seed, "owners"), plan);
}

/// `podFailurePolicy`, `maxFailedIndexes`, and an explicit `podReplacementPolicy`.
fn failure_rules(chance: &mut Chance, job: &mut JobPlan) {
    let per_index = !job.spec["backoffLimitPerIndex"].is_null();
    if per_index && chance.percent(40) {
        let completions = job.spec["completions"].as_u64().unwrap_or(1);
        job.spec["maxFailedIndexes"] = chance.number(0..=completions).into();
    }
    if !chance.percent(30) {
        if job.spec["podReplacementPolicy"].is_null() && chance.percent(10) {
            job.spec["podReplacementPolicy"] = "TerminatingOrFailed".into();
        }
        return;
    }
    let on_exit = |action: &str, operator: &str, values: &[i32]| json!({"action": action, "onExitCodes": {"operator": operator, "values": values}});
    let on_disruption = |action: &str| {
        let pattern = json!({"type": "DisruptionTarget", "status": "True"});
        json!({"action": action, "onPodConditions": [pattern]})
    };
    let mut rules: Vec<Value> = Vec::new();
    if chance.percent(60) {
        rules.push(on_disruption(chance.pick(&["Ignore", "Ignore", "Count"])));
    }
    if chance.percent(60) {
        rules.push(on_exit("Ignore", "In", &[TRANSIENT]));
    }
    if chance.percent(30) {
        rules.push(on_exit("FailJob", "In", &[FATAL]));
    }
    if per_index && chance.percent(60) {
        rules.push(on_exit("FailIndex", "In", &[FATAL_FOR_INDEX]));
    }
    if chance.percent(30) {
        rules.push(on_exit("Count", "NotIn", &[FATAL, FATAL_FOR_INDEX, TRANSIENT]));
    }
    if rules.is_empty() {
        return;
    }
    job.spec["podFailurePolicy"] = json!({"rules": rules});
    job.exit_codes = vec![1, TRANSIENT, FATAL_FOR_INDEX];
    if chance.percent(30) {
        job.exit_codes.push(FATAL);
    }
}

/// Options of ours. Delays are short, so that Jobs end while something happens.
fn job_options(chance: &mut Chance, job: &mut JobPlan) {
    let mut set = |name: &str, value: String| job.annotations.insert(format!("yardmaster.dev/{name}"), value);
    if chance.percent(20) {
        set("failed-pods-limit", chance.number(0..=3).to_string());
    }
    if chance.percent(15) {
        set("prune-succeeded", "true".into());
    }
    if chance.percent(10) {
        set("backoff-initial", format!("{}ms", chance.pick(&[0, 100, 2_000])));
    }
}

/// Watches of some replicas that are late.
fn lags(chance: &mut Chance, plan: &mut Plan) {
    let some = chance.percent(25);
    let mut late = || if some && chance.percent(50) { chance.millis(100..=8_000) } else { Duration::ZERO };
    plan.settings.lags = (0..plan.settings.replicas).map(|_| Lag { jobs: late(), pods: late() }).collect();
}

/// Owners that do not know of each other. Some of them see the acts of the others late.
fn all_own_all(chance: &mut Chance, plan: &mut Plan) {
    if plan.settings.replicas >= 2 && chance.percent(8) {
        without_leases(chance, plan);
    }
}

/// Every replica acts for all shards. Some see the acts of others late.
pub(super) fn without_leases(chance: &mut Chance, plan: &mut Plan) {
    plan.settings.all_own_all = true;
    // After a restore, a world checks neither surplus pods nor the counts of older Jobs. Several owners are
    // there for these checks.
    let restores = plan.steps.iter_mut().filter(|step| matches!(step.act, Act::Fault(Fault::Restore { .. })));
    restores.for_each(|step| step.at = Time::NEVER);
    for lag in &mut plan.settings.lags {
        let mut late = || chance.millis(0..=4_000);
        *lag = match late().as_millis() % 3 {
            0 => Lag { jobs: late(), pods: Duration::ZERO },
            1 => Lag { jobs: Duration::ZERO, pods: late() },
            _ => Lag { jobs: late(), pods: late() },
        };
    }
}
