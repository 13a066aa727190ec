//! Further features of Jobs and settings in the plans of seeds from [`FROM`] on. Plans of earlier seeds stay
//! as they were: the worlds that once failed and the mutants rely on them.

use serde_json::{Value, json};

use super::{JobPlan, Plan, wider_steps};
use crate::chance::Chance;
use crate::users::{RULED_OUT, TIER};

/// The first seed whose plan has more in it.
pub(crate) const FROM: u64 = 2_000_000;

/// Adds to the plan of a later seed.
pub(super) fn add(plan: &mut Plan) {
    if plan.seed < FROM {
        return;
    }
    let mut shapes = Chance::new(plan.seed, "shapes of Jobs");
    let mut options = Chance::new(plan.seed, "more options");
    for job in &mut plan.jobs {
        if job.past.is_none() {
            shape(&mut shapes, job);
        }
        more_options(&mut options, job);
    }
    let mut settings = Chance::new(plan.seed, "more settings");
    if settings.percent(20) {
        plan.settings.max_uncounted = Some(settings.number(3..=5) as usize);
    }
    wider_steps::add(plan);
}

/// Makes a Job one of a kind that other plans do not have.
fn shape(chance: &mut Chance, job: &mut JobPlan) {
    let is_indexed = job.spec["completionMode"] == "Indexed";
    let has_policy = !job.spec["podFailurePolicy"].is_null();
    let is_per_index = !job.spec["backoffLimitPerIndex"].is_null();
    match chance.below(100) {
        0..10 => large(chance, job),
        10..16 if !job.spec["completions"].is_null() => without_completions(chance, job),
        16..30 if is_indexed => success_policy(chance, job),
        30..46 if is_indexed => elastic(chance, job),
        46..60 if !has_policy && !is_per_index => {
            job.restarts = true;
            job.failing_percent = chance.pick(&[20, 60]);
        }
        60..76 => fails_by_condition(chance, job),
        76..86 => job.adopts = true,
        _ => {}
    }
    if job.adopts && chance.percent(70) {
        job.expressions = expressions(chance);
    }
}

/// Enough pods for some of them to be created in protobuf.
fn large(chance: &mut Chance, job: &mut JobPlan) {
    let completions = chance.number(40..=60);
    job.spec["completions"] = completions.into();
    job.spec["parallelism"] = chance.number(8..=completions).into();
    job.spec["backoffLimit"] = 20.into();
    job.failing_percent = chance.pick(&[0, 0, 5]);
    remove(job, &["successPolicy", "maxFailedIndexes"]);
}

fn without_completions(chance: &mut Chance, job: &mut JobPlan) {
    job.spec["completions"] = 0.into();
    remove(job, &["successPolicy", "maxFailedIndexes"]);
    if chance.percent(40) {
        job.spec["suspend"] = true.into();
    }
}

/// Rules that name indexes, with a count or without.
fn success_policy(chance: &mut Chance, job: &mut JobPlan) {
    let completions = job.spec["completions"].as_u64().unwrap_or(1);
    let rules = (0..chance.number(1..=2)).map(|_| {
        let first = chance.number(0..=completions - 1);
        let last = chance.number(first..=completions - 1);
        let indexes = if first == last { first.to_string() } else { format!("{first}-{last}") };
        match chance.percent(50) {
            true => json!({"succeededIndexes": indexes}),
            false => {
                json!({"succeededIndexes": indexes, "succeededCount": chance.number(1..=last - first + 1)})
            }
        }
    });
    job.spec["successPolicy"] = json!({"rules": rules.collect::<Vec<_>>()});
}

/// A Job whose completions may be changed together with its parallelism.
fn elastic(chance: &mut Chance, job: &mut JobPlan) {
    let completions = chance.number(2..=12);
    (job.spec["completions"], job.spec["parallelism"]) = (completions.into(), completions.into());
    remove(job, &["successPolicy", "maxFailedIndexes"]);
}

/// A pod that its node evicts lets the Job fail.
fn fails_by_condition(chance: &mut Chance, job: &mut JobPlan) {
    let pattern = json!({"type": "DisruptionTarget", "status": "True"});
    let rule = json!({"action": "FailJob", "onPodConditions": [pattern]});
    let rules = job.spec["podFailurePolicy"]["rules"].as_array().cloned().unwrap_or_default();
    // The first rule that matches decides.
    let rules: Vec<Value> = match chance.percent(70) {
        true => [rule].into_iter().chain(rules).collect(),
        false => rules.into_iter().chain([rule]).collect(),
    };
    job.spec["podFailurePolicy"] = json!({"rules": rules});
    // A policy allows no other value.
    job.spec["podReplacementPolicy"] = "Failed".into();
    job.evicted_percent = chance.pick(&[5, 20]);
}

/// `matchExpressions` that select the Job's own pods, which have no label of that name, and some of the pods
/// that a user creates.
fn expressions(chance: &mut Chance) -> Vec<Value> {
    let not_in = json!({"key": TIER, "operator": "NotIn", "values": [RULED_OUT, "back"]});
    let mut expressions = vec![match chance.percent(60) {
        true => not_in,
        false => json!({"key": TIER, "operator": "DoesNotExist"}),
    }];
    if chance.percent(50) {
        expressions.push(json!({"key": "app", "operator": "Exists"}));
    }
    expressions
}

/// More options of ours, with values that are wrong now and then.
fn more_options(chance: &mut Chance, job: &mut JobPlan) {
    let mut set = |name: &str, value: &str| job.annotations.insert(name.to_owned(), value.to_owned());
    if chance.percent(12) {
        set("yardmaster.dev/backoff-max", chance.pick(&["100ms", "3s", "10s", "soon", ""]));
    }
    if chance.percent(12) {
        set("yardmaster.dev/propagate-trace", chance.pick(&["true", "true", "false", "yes"]));
        job.has_env = chance.percent(60);
    }
    if chance.percent(8) {
        set("tracing.k8s.io/traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    }
    if chance.percent(8) {
        let name = chance.pick(&["failed-pods-limit", "prune-succeeded", "backoff-initial"]);
        set(&format!("yardmaster.dev/{name}"), chance.pick(&["-1", "all", ""]));
    }
}

fn remove(job: &mut JobPlan, fields: &[&str]) {
    if let Some(spec) = job.spec.as_object_mut() {
        spec.retain(|name, _| !fields.contains(&name.as_str()));
    }
}
