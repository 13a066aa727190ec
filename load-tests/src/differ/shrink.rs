//! Makes the plan of a difference smaller, as long as the same kind of difference remains.

use std::future::Future;

use futures::future::join_all;
use serde_json::{Map, Value, json};

use super::plan::{Act, Change, End, Plan, Step, What};

/// Options of a Job that may be left out.
const OPTIONS: [&str; 9] = [
    "podFailurePolicy",
    "successPolicy",
    "podReplacementPolicy",
    "maxFailedIndexes",
    "backoffLimitPerIndex",
    "activeDeadlineSeconds",
    "suspend",
    "backoffLimit",
    "completionMode",
];
/// Options of its pods that may be left out.
const POD_OPTIONS: [&str; 2] = ["initContainers", "nodeName"];

/// Smaller plans, the largest cuts first.
pub(super) fn candidates(plan: &Plan) -> Vec<Plan> {
    let mut all = Vec::new();
    all.extend(without_steps(plan));
    all.extend(without_jobs(plan));
    all.extend(with_acts(plan));
    all.extend(with_specs(plan));
    all.retain(|smaller| smaller != plan);
    all
}

/// Tries smaller plans, some at once, until none shows the same, or all runs are used up. `play` returns what it
/// has seen if that is the same. Returns the smallest plan, and what it showed.
pub(super) async fn smallest<T, F: Future<Output = Option<T>>>(
    mut best: Plan,
    mut runs: u32,
    at_once: usize,
    play: impl Fn(Plan) -> F,
) -> (Plan, Option<T>) {
    let mut shown = None;
    let mut from = 0;
    let mut failed = 0;
    loop {
        let all = candidates(&best);
        if all.is_empty() || failed >= all.len() || runs == 0 {
            return (best, shown);
        }
        // Candidates that failed before the last success most likely fail again, so they come last.
        let some = at_once.max(1).min(runs as usize).min(all.len() - failed);
        let tried: Vec<usize> = (0..some).map(|number| (from + number) % all.len()).collect();
        runs -= u32::try_from(some).unwrap_or(runs);
        let played = join_all(tried.iter().map(|number| play(all[*number].clone()))).await;
        match tried.into_iter().zip(played).find_map(|(number, seen)| Some((number, seen?))) {
            Some((number, seen)) => {
                (best, shown, from, failed) = (all[number].clone(), Some(seen), number, 0);
            }
            None => {
                failed += some;
                from = (from + some) % all.len();
            }
        }
    }
}

/// Without the first half of the steps but the creation, and without each of them, the last first.
fn without_steps(plan: &Plan) -> Vec<Plan> {
    let count = plan.steps.len();
    let without = |from: usize, to: usize| {
        let mut steps = plan.steps.clone();
        steps.drain(from..to);
        Plan { steps, ..plan.clone() }
    };
    let mut all = Vec::new();
    if count > 4 {
        all.push(without(1, count / 2));
        all.push(without(count / 2, count - 1));
    }
    all.extend((0..count).rev().map(|number| without(number, number + 1)));
    all
}

/// Without each Job that is not created last, if there are several, and without the acts on it.
fn without_jobs(plan: &Plan) -> Vec<Plan> {
    let without = |number: usize| {
        let of_it = |act: &Act| match &act.what {
            What::Create { job } | What::Patch { job, .. } | What::Delete { job, .. } => *job == number,
            _ => false,
        };
        let kept = |step: &Step| Step(step.0.iter().filter(|act| !of_it(act)).cloned().collect());
        let steps = plan.steps.iter().map(kept).filter(|step| !step.0.is_empty()).collect();
        Plan { steps, ..plan.clone() }
    };
    let is_created = |number: &usize| plan.acts().any(|what| *what == What::Create { job: *number });
    let jobs: Vec<usize> = (0..plan.jobs.len()).filter(is_created).collect();
    if jobs.len() < 2 { Vec::new() } else { jobs.into_iter().map(without).collect() }
}

/// Without each act of steps that have several, and with simpler ones.
fn with_acts(plan: &Plan) -> Vec<Plan> {
    let mut all = Vec::new();
    for (number, step) in plan.steps.iter().enumerate() {
        let with = |acts: Vec<Act>| {
            let mut plan = plan.clone();
            plan.steps[number] = Step(acts);
            plan
        };
        if step.0.len() > 1 {
            for act in 0..step.0.len() {
                let mut acts = step.0.clone();
                acts.remove(act);
                all.push(with(acts));
            }
        }
        let simpler: Vec<Act> = step.0.iter().map(simpler).collect();
        all.push(with(simpler));
        for act in 0..step.0.len() {
            let mut acts = step.0.clone();
            if let What::Pods { count, .. } = &mut acts[act].what {
                *count = (*count / 2).max(1);
            }
            all.push(with(acts));
        }
    }
    all
}

/// The simplest act of the same kind.
fn simpler(act: &Act) -> Act {
    let mut act = Act { after_ms: 0, ..act.clone() };
    if let What::Pods { change, .. } = &mut act.what {
        match change {
            Change::Fail { init, condition, end, .. } => (*init, *condition, *end) = (0, None, End::Past),
            Change::Run { restarts, .. } => *restarts = 0,
            _ => {}
        }
    }
    act
}

fn with_specs(plan: &Plan) -> Vec<Plan> {
    let mut all = Vec::new();
    for (number, spec) in plan.jobs.iter().enumerate() {
        let with = |spec: Value| {
            let mut plan = plan.clone();
            plan.jobs[number] = spec;
            plan
        };
        let smaller = smaller_specs(spec);
        all.extend(smaller.into_iter().filter(|smaller| smaller != spec).map(with));
    }
    all
}

fn smaller_specs(spec: &Value) -> Vec<Value> {
    let mut all = Vec::new();
    let mut with = |change: &dyn Fn(&mut Map<String, Value>)| {
        let mut smaller = spec.clone();
        smaller.as_object_mut().map(change);
        all.push(smaller);
    };
    for key in OPTIONS {
        with(&|spec| drop(spec.remove(key)));
    }
    for key in POD_OPTIONS {
        with(&|spec| drop(spec["template"]["spec"].as_object_mut().and_then(|pod| pod.remove(key))));
    }
    with(&|spec| spec["template"]["spec"]["restartPolicy"] = json!("Never"));
    for policy in ["podFailurePolicy", "successPolicy"] {
        let rules = spec[policy]["rules"].as_array().map_or(0, Vec::len);
        for rule in (0..rules).filter(|_| rules > 1) {
            with(&|spec| drop(spec[policy]["rules"].as_array_mut().map(|rules| rules.remove(rule))));
        }
    }
    let sizes = ["completions", "parallelism"];
    let halve = |key: &str, spec: &mut Map<String, Value>| {
        if let Some(size) = spec.get(key).and_then(Value::as_u64) {
            spec.insert(key.to_owned(), json!(if size > 4 { size / 2 } else { size.saturating_sub(1) }));
        }
    };
    with(&|spec| sizes.iter().for_each(|key| halve(key, spec)));
    sizes.iter().for_each(|key| with(&|spec| halve(key, spec)));
    all
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::differ::plan::{Pick, Propagation};

    /// A plan that shows its difference as long as Job 0 is deleted after a pod has failed.
    fn shows(plan: &Plan) -> bool {
        let acts: Vec<&What> = plan.acts().collect();
        let failed =
            acts.iter().position(|what| what.changes_pods(|change| matches!(change, Change::Fail { .. })));
        let deleted = acts.iter().rposition(|what| matches!(what, What::Delete { job: 0, .. }));
        let created = acts.iter().any(|what| **what == What::Create { job: 0 });
        created && failed.zip(deleted).is_some_and(|(failed, deleted)| failed < deleted)
    }

    fn with_a_fault() -> Plan {
        let mut plan = (0..).map(Plan::of).find(|plan| plan.jobs.len() == 2 && plan.steps.len() > 6).unwrap();
        let fail = Change::Fail { code: 42, init: 1, condition: Some("Custom".into()), end: End::Now };
        let fail = What::Pods { pick: Pick::Live(0), count: 8, change: fail };
        plan.steps[3].0.push(Act { after_ms: 9, what: fail });
        let delete = What::Delete { job: 0, propagation: Propagation::Background };
        plan.steps.push(Step(vec![Act { after_ms: 0, what: delete }]));
        plan.steps[0] = Step((0..2).map(|job| Act { after_ms: 0, what: What::Create { job } }).collect());
        plan
    }

    #[tokio::test]
    async fn a_plan_is_made_as_small_as_it_gets() {
        let plan = with_a_fault();
        assert!(shows(&plan));
        let play = |plan: Plan| async move { shows(&plan).then_some(()) };
        let (smallest, shown) = smallest(plan, 1_000, 6, play).await;
        assert!(shown.is_some());
        let lines: Vec<String> = smallest.steps.iter().map(ToString::to_string).collect();
        assert_eq!(
            (lines.len(), &*lines[0], &*lines[2]),
            (3, "create j1", "delete j1: Background"),
            "{lines:?}"
        );
        assert!(lines[1].starts_with("1 x [") && lines[1].ends_with("]: fail 42"), "{lines:?}");
        let spec = smallest.jobs[0].as_object().unwrap();
        assert!(OPTIONS.iter().all(|option| !spec.contains_key(*option)), "{spec:?}");
    }

    #[tokio::test]
    async fn shrinking_ends_with_its_runs() {
        let runs = std::sync::atomic::AtomicU32::new(0);
        let play = |_: Plan| {
            runs.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            async { None::<()> }
        };
        let plan = with_a_fault();
        let (same, shown) = smallest(plan.clone(), 10, 4, play).await;
        assert_eq!((same, shown), (plan.clone(), None));
        assert_eq!(runs.into_inner(), 10);
        let never = |_: Plan| async { None::<()> };
        assert_eq!(smallest(plan.clone(), u32::MAX, 4, never).await, (plan, None));
    }

    #[test]
    fn candidates_are_smaller_and_differ() {
        for seed in 0..20 {
            let plan = Plan::of(seed);
            let all = candidates(&plan);
            assert!(all.len() > 5 && all.iter().all(|smaller| *smaller != plan));
        }
    }
}
