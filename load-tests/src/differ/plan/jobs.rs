//! Random Jobs.

use rand::Rng as _;
use rand::rngs::SmallRng;
use rand::seq::{IndexedRandom as _, index};
use serde_json::{Value, json};

/// Exit codes that rules of policies name, and pods fail with.
pub(super) const CODES: [u8; 4] = [1, 2, 3, 42];
/// Conditions that rules of policies name, and pods get.
pub(super) const CONDITIONS: [&str; 2] = ["DisruptionTarget", "Custom"];
/// Least parallelism of a Job with many pods.
const MANY: u32 = 40;

/// How the completions of a Job are counted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Indexed,
    Counted,
    WorkQueue,
}

/// Picks a value.
pub(super) fn one<T: Clone>(random: &mut SmallRng, of: &[T]) -> T {
    // All lists here have elements.
    of.choose(random).unwrap_or(&of[0]).clone()
}

/// `spec` of a Job.
pub(super) fn job(random: &mut SmallRng, many: bool) -> Value {
    let mode = one(
        random,
        &[Mode::Indexed, Mode::Indexed, Mode::Indexed, Mode::Counted, Mode::Counted, Mode::WorkQueue],
    );
    let mut spec = json!({"template": {"spec": pod(random)}});
    let few = |random: &mut SmallRng, from: u32| random.random_range(from..=5);
    let parallelism = if many { random.random_range(MANY..=100) } else { few(random, 1) };
    let completions = if many { parallelism } else { few(random, u32::from(mode == Mode::Indexed)) };
    spec["parallelism"] = json!(parallelism);
    match mode {
        Mode::Indexed => {
            spec["completionMode"] = json!("Indexed");
            spec["completions"] = json!(completions);
            if random.random_bool(0.6) {
                spec["parallelism"] = json!(completions);
            }
        }
        Mode::Counted => spec["completions"] = json!(completions),
        Mode::WorkQueue => {}
    }
    spec["backoffLimit"] = json!(one(random, &[0, 1, 2, 3, 6]));
    if mode == Mode::Indexed {
        by_index(random, &mut spec, completions);
    }
    policies(random, &mut spec);
    if random.random_bool(0.15) {
        spec["suspend"] = json!(true);
    }
    if random.random_bool(0.05) {
        spec["activeDeadlineSeconds"] = json!(one(random, &[5, 3600]));
    }
    spec
}

fn pod(random: &mut SmallRng) -> Value {
    let mut spec = json!({
        "restartPolicy": "Never", "terminationGracePeriodSeconds": 3600,
        "containers": [{"name": "c", "image": "registry.example/work:1"}],
    });
    if random.random_bool(0.3) {
        spec["initContainers"] = json!([{"name": "i", "image": "registry.example/work:1"}]);
    }
    // A pod without node goes at once when it is deleted.
    if random.random_bool(0.65) {
        spec["nodeName"] = json!("n1");
    }
    spec
}

/// The fields of Indexed Jobs only.
fn by_index(random: &mut SmallRng, spec: &mut Value, completions: u32) {
    if random.random_bool(0.45) {
        spec["backoffLimitPerIndex"] = json!(one(random, &[0, 1, 2]));
        if let Some(spec) = spec.as_object_mut().filter(|_| random.random_bool(0.7)) {
            spec.remove("backoffLimit");
        }
        if random.random_bool(0.5) {
            spec["maxFailedIndexes"] = json!(random.random_range(0..=completions.min(2)));
        }
    }
    if random.random_bool(0.35) {
        let rules: Vec<Value> =
            (0..random.random_range(1..=2)).map(|_| success_rule(random, completions)).collect();
        spec["successPolicy"] = json!({ "rules": rules });
    }
}

fn success_rule(random: &mut SmallRng, completions: u32) -> Value {
    let mut rule = json!({});
    let mut most = completions;
    let by_indexes = random.random_bool(0.6);
    if by_indexes {
        let some = random.random_range(1..=completions);
        let mut indexes = index::sample(random, completions as usize, some as usize).into_vec();
        indexes.sort_unstable();
        most = some;
        rule["succeededIndexes"] = json!(indexes.iter().map(usize::to_string).collect::<Vec<_>>().join(","));
    }
    if !by_indexes || random.random_bool(0.5) {
        rule["succeededCount"] = json!(random.random_range(1..=most));
    }
    rule
}

fn policies(random: &mut SmallRng, spec: &mut Value) {
    if random.random_bool(0.4) {
        let mut actions = vec!["FailJob", "Ignore", "Count"];
        if spec.get("backoffLimitPerIndex").is_some() {
            actions.push("FailIndex");
        }
        let rules: Vec<Value> =
            (0..random.random_range(1..=3)).map(|_| failure_rule(random, &actions)).collect();
        spec["podFailurePolicy"] = json!({ "rules": rules });
        return;
    }
    if random.random_bool(0.3) {
        spec["podReplacementPolicy"] = json!("Failed");
    }
    if random.random_bool(0.2) {
        spec["template"]["spec"]["restartPolicy"] = json!("OnFailure");
    }
}

fn failure_rule(random: &mut SmallRng, actions: &[&str]) -> Value {
    let action = one(random, actions);
    if random.random_bool(0.3) {
        let pattern = json!({"type": one(random, &CONDITIONS), "status": "True"});
        return json!({"action": action, "onPodConditions": [pattern]});
    }
    let some = random.random_range(1..=2);
    let mut codes: Vec<u8> =
        index::sample(random, CODES.len(), some).into_iter().map(|at| CODES[at]).collect();
    codes.sort_unstable();
    let mut on = json!({"operator": one(random, &["In", "NotIn"]), "values": codes});
    if random.random_bool(0.3) {
        on["containerName"] = json!("c");
    }
    json!({"action": action, "onExitCodes": on})
}
