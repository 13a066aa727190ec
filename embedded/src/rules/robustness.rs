//! Test that no request body makes the rules panic, with generated documents of every kind.

use proptest::prelude::*;
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};

use super::apply::{self, ObjectType, Write};
use super::schema::{Kind, Types};
use super::{
    CoreEventStrategy, CronJobStrategy, DataStrategy, EventStrategy, JobStrategy, LeaseStrategy,
    LimitRangeStrategy, NamespaceStrategy, PodGroupStrategy, PodStrategy, ServiceStrategy, Strategy as Rules,
    Subresource, WorkloadStrategy, decode,
};

const KINDS: [(&str, &str, &dyn Rules); 13] = [
    ("batch/v1", "Job", &JobStrategy),
    ("batch/v1", "CronJob", &CronJobStrategy),
    ("v1", "Pod", &PodStrategy),
    ("v1", "Event", &CoreEventStrategy),
    ("events.k8s.io/v1", "Event", &EventStrategy),
    ("v1", "Namespace", &NamespaceStrategy),
    ("v1", "Secret", &DataStrategy { secret: true }),
    ("v1", "Service", &ServiceStrategy),
    ("v1", "LimitRange", &LimitRangeStrategy),
    ("coordination.k8s.io/v1", "Lease", &LeaseStrategy),
    ("scheduling.k8s.io/v1alpha2", "Workload", &WorkloadStrategy),
    ("scheduling.k8s.io/v1alpha2", "PodGroup", &PodGroupStrategy),
    // A kind without a schema.
    ("example.com/v1", "Thing", &PodStrategy),
];

/// Texts, some of which have a meaning for a rule.
const TEXTS: [&str; 14] = [
    "",
    "a",
    "ä/b.c",
    "Indexed",
    "FailIndex",
    "In",
    "Exists",
    "Always",
    "Never",
    "None",
    "0-1,3",
    "-",
    "1Gi",
    "True",
];

/// A value of a type with a random subset of its fields, and occasionally a value of another type.
fn value_of(kind: &Kind, random: &mut SmallRng, depth: u32) -> Value {
    if random.random_ratio(1, 3000) {
        return [Value::Null, json!(true), json!(7), json!("x"), json!([]), json!({})]
            [random.random_range(0..6)]
        .clone();
    }
    let many = |random: &mut SmallRng| if depth == 0 { 0 } else { random.random_range(0..4) };
    match kind {
        Kind::Text | Kind::Time | Kind::MicroTime | Kind::Quantity => {
            TEXTS[random.random_range(0..TEXTS.len())].into()
        }
        Kind::Bool => random.random::<bool>().into(),
        Kind::Int32 | Kind::Int64 | Kind::IntOrString => random.random_range(-1..5).into(),
        Kind::Raw => json!({"f:spec": {"f:a": {}}}),
        Kind::List(item) => (0..many(random)).map(|_| value_of(item, random, depth - 1)).collect(),
        Kind::Map(item) => (0..many(random))
            .map(|_| {
                (TEXTS[random.random_range(0..TEXTS.len())].to_owned(), value_of(item, random, depth - 1))
            })
            .collect(),
        Kind::Struct(_) if depth == 0 => json!({}),
        Kind::Struct(id) => {
            let mut fields: Vec<_> = Types::get().by_id(*id).fields.iter().collect();
            fields.sort_unstable_by_key(|(name, _)| *name);
            let chosen = fields.into_iter().filter(|_| random.random_ratio(1, 2)).collect::<Vec<_>>();
            chosen
                .into_iter()
                .map(|(name, field)| (name.clone(), value_of(&field.kind, random, depth - 1)))
                .collect()
        }
    }
}

fn create(rules: &dyn Rules, object: &mut Value) {
    rules.default_object(object);
    rules.prepare_create(object);
    rules.validate_create(object);
    rules.warnings(Subresource::Main, None, object);
    rules.default_read_back(object);
}

/// Maximum depth of documents, which reaches the fields of containers in a Job.
const DEPTH: u32 = 8;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_document_makes_the_rules_panic(kind in 0..KINDS.len(), seed in any::<u64>()) {
        let (api_version, kind, rules) = KINDS[kind];
        let ty = ObjectType { api_version, kind };
        let write = Write { manager: "m", subresource: Subresource::Main, now: jiff::Timestamp::UNIX_EPOCH };
        let schema = Types::get().of_kind(api_version, kind).map_or(Kind::Raw, Kind::Struct);
        let random = &mut SmallRng::seed_from_u64(seed);
        let mut document = || value_of(&schema, random, DEPTH);

        let (body, changed) = (document(), document());
        if body.is_object() && changed.is_object() {
            let applied = apply::apply(ty, None, &body, write, false);
            let _ = applied.and_then(|live| apply::apply(ty, Some(&live), &changed, write, true));
        }
        let decoded = decode::from_value(api_version, kind, body);
        let Some(mut old) = decoded.ok().map(|decoded| decoded.object).filter(Value::is_object) else { return Ok(()) };
        create(rules, &mut old);
        for subresource in [Subresource::Main, Subresource::Status] {
            let Ok(decoded) = decode::from_value(api_version, kind, document()) else { continue };
            let mut new = decoded.object;
            if !new.is_object() {
                continue;
            }
            rules.default_object(&mut new);
            apply::track_update(ty, Some(&old), &mut new, Write { subresource, ..write });
            rules.prepare_update(subresource, &old, &mut new);
            rules.validate_update(subresource, &old, &new);
            rules.warnings(subresource, Some(&old), &new);
        }
    }
}
