//! A tenant whose Jobs and pods have hostile values, beside a victim whose Jobs must not suffer. The whole
//! controller runs in virtual time, over the embedded API server.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;

use rand::Rng as _;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom as _;
use serde_json::{Value, json};

use crate::compact::expand;
use crate::cost::Limit;
use crate::driver::{Target, fuzz};
use crate::objects::{fix, job, pod};
use crate::world::{Seen, World};
use crate::{mutate, schema};

/// Of all objects of the tenant together, while the victim's Jobs run and until all are gone. Allocations of the API server are part of it.
const WORLD: Limit = Limit {
    cpu: Duration::from_secs(4),
    cpu_per_byte: Duration::from_micros(20),
    bytes: 512 << 20,
    allocated_per_byte: 20_000,
    peak_per_byte: 500,
    kept_per_byte: 0,
};
/// Memory that may remain after the objects of the tenant are gone.
const KEPT: i64 = 512 << 10;
/// Most requests for one object of the tenant in a minute, after the first.
const REQUESTS: usize = 60;
/// Most objects of the tenant.
const OBJECTS: usize = 8;

/// The steps of a tenant: `{"wait": SECONDS, "listed": BOOL, "kind": "Job" | "Pod", "object": COMPACT}`.
struct Tenants;

impl Target for Tenants {
    const NAME: &str = "tenants";
    /// The API server may need a second for a request about a large pod.
    const SLOW: Duration = Duration::from_secs(300);

    fn mutate(&self, input: &[u8], others: &[Vec<u8>], random: &mut SmallRng) -> Vec<u8> {
        let Ok(mut steps) = serde_json::from_slice::<Vec<Value>>(input) else { return input.to_vec() };
        if others.is_empty() {
            let mut whole = Value::from(steps);
            mutate::smaller(&mut whole, random);
            return whole.to_string().into_bytes();
        }
        for _ in 0..random.random_range(1..6) {
            let Some(at) = (!steps.is_empty()).then(|| random.random_range(0..steps.len())) else { break };
            match random.random_range(0..10) {
                0 => drop(steps.remove(at)),
                // The same object, which is changed then.
                1 if steps.len() < OBJECTS => steps.push(steps[at].clone()),
                2 => steps[at]["wait"] = (*[0, 1, 5, 20].choose(random).unwrap()).into(),
                3 => steps[at]["listed"] = random.random::<bool>().into(),
                _ => {
                    let of = if steps[at]["kind"] == "Job" { schema::JOB } else { schema::POD };
                    schema::mutate(&mut steps[at]["object"], of, random);
                }
            }
        }
        Value::from(steps).to_string().into_bytes()
    }

    fn run(&self, input: &[u8]) -> Result<(), String> {
        static USUAL: OnceLock<Seen> = OnceLock::new();
        let Ok(steps) = serde_json::from_slice::<Vec<Value>>(input) else { return Ok(()) };
        let usual = match USUAL.get() {
            Some(usual) => usual,
            None => {
                let seen = World::run(&[])?;
                USUAL.get_or_init(|| seen)
            }
        };
        let steps: Vec<Step> = steps.iter().filter(|step| step.is_object()).map(Step::read).collect();
        let bytes: usize = steps.iter().map(|step| step.bytes).sum();
        let seen = World::run(&steps)?;
        if let Some(problem) = seen.malformed.first() {
            return Err(format!("{problem} and {} more", seen.malformed.len() - 1));
        }
        if seen.victims != usual.victims {
            return Err(format!("the victim has {:?}, usually {:?}", seen.victims, usual.victims));
        }
        let most = REQUESTS * steps.len().max(1);
        if let Some((minute, count)) =
            seen.requests.iter().find(|(minute, count)| **minute > 0 && **count > most)
        {
            return Err(format!("{count} requests in minute {minute}: {:?}", summary(&seen.sent)));
        }
        if seen.cost.kept > KEPT + usual.cost.kept.max(0) {
            return Err(format!("{} bytes remain", seen.cost.kept));
        }
        if std::env::var_os("FUZZ_COSTS").is_some() {
            println!("{bytes} bytes, {:?}, {:?}", seen.cost, seen.requests);
        }
        WORLD.check("the world", bytes, &seen.cost)
    }
}

/// An object that the tenant stores.
pub(crate) struct Step {
    pub(crate) wait: Duration,
    /// The watches of the controller start over, and list the object.
    pub(crate) listed: bool,
    pub(crate) plural: &'static str,
    pub(crate) object: Value,
    bytes: usize,
}

impl Step {
    fn read(step: &Value) -> Self {
        let mut object = step["object"].clone();
        fix(&mut object);
        let mut object = expand(&object);
        object["metadata"]["namespace"] = crate::objects::NAMESPACE.into();
        Self {
            wait: Duration::from_secs(step["wait"].as_u64().unwrap_or(0).min(30)),
            listed: step["listed"] == true,
            plural: if step["kind"] == "Job" { "jobs" } else { "pods" },
            bytes: object.to_string().len(),
            object,
        }
    }
}

/// The requests that were sent most often.
fn summary(sent: &[String]) -> Vec<(usize, &String)> {
    let mut counts = BTreeMap::<&String, usize>::new();
    sent.iter().for_each(|sent| *counts.entry(sent).or_default() += 1);
    let mut counts: Vec<_> = counts.into_iter().map(|(sent, count)| (count, sent)).collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    counts.truncate(5);
    counts
}

fn seeds() -> Vec<Vec<u8>> {
    let step =
        |kind: &str, object: Value| json!({"wait": 1, "listed": false, "kind": kind, "object": object});
    let mut manual = job(1);
    manual["spec"]["manualSelector"] = true.into();
    manual["spec"]["selector"] = json!({"matchLabels": {"app": "own"}});
    manual["spec"]["template"]["metadata"]["labels"] = json!({"app": "own"});
    let mut loose = pod(3, 1);
    loose["metadata"]["labels"] = json!({"app": "own"});
    loose["metadata"].as_object_mut().unwrap().remove("ownerReferences");
    let mut foreign = pod(4, 0);
    foreign["metadata"]["ownerReferences"][0]["name"] = "victim".into();
    foreign["metadata"]["ownerReferences"][0]["uid"] = crate::hostile::VICTIM.into();
    let cases = [
        json!([step("Job", job(0)), step("Pod", pod(0, 0)), step("Pod", pod(1, 0)), step("Pod", pod(2, 0))]),
        json!([step("Pod", pod(0, 0)), step("Pod", pod(2, 0)), step("Job", job(0))]),
        json!([step("Job", manual), step("Pod", loose)]),
        json!([step("Pod", foreign)]),
    ];
    cases.map(|case| case.to_string().into_bytes()).into()
}

#[test]
fn tenants() {
    fuzz(&Tenants, seeds());
}
