//! Sums over many worlds.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::checks::{Promise, Violation};
use crate::ledger::{Ledger, conditions};
use crate::plan::{Act, Plan};
use crate::replay::Replay;
use crate::run::Finished;
use crate::time::Time;
use crate::world::Outcome;

/// Most examples that are kept of a broken promise.
const EXAMPLES: usize = 10;

/// Sums over many worlds.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// The cost of all worlds.
    pub all: Cost,
    /// Acts of users and faults that happened, by kind.
    pub acts: BTreeMap<String, u64>,
    /// Jobs, by what their conditions said, such as `Failed BackoffLimitExceeded`.
    pub reached: BTreeMap<String, u64>,
    /// The cost of worlds by their numbers of replicas and of Jobs, such as `replicas: 2`.
    pub costs: BTreeMap<String, Cost>,
    /// The promises that were broken.
    pub broken: BTreeMap<Promise, Broken>,
    /// Worlds whose second run had another log.
    pub unlike: Vec<Replay>,
}

/// The cost of worlds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// Worlds.
    pub worlds: u64,
    /// Virtual time.
    pub simulated: Duration,
    /// Requests of all replicas.
    pub requests: u64,
    /// Pods that existed.
    pub pods: u64,
}

impl Cost {
    fn add(&mut self, outcome: &Outcome) {
        self.worlds += 1;
        self.simulated += outcome.time.since(Time::ZERO);
        self.requests += outcome.requests;
        self.pods += outcome.pods as u64;
    }
}

/// A promise that was broken.
#[derive(Clone, Debug, Default)]
pub struct Broken {
    /// In how many worlds.
    pub worlds: u64,
    /// The first of them.
    pub examples: Vec<(Replay, Violation)>,
}

impl Tally {
    /// Adds a world.
    pub fn add(&mut self, world: &Finished) {
        let Finished { replay, plan, outcome, repeats } = world;
        self.all.add(outcome);
        for size in [format!("replicas: {}", plan.settings.replicas), format!("Jobs: {}", plan.jobs.len())] {
            self.costs.entry(size).or_default().add(outcome);
        }
        for act in happened(plan, outcome.time) {
            *self.acts.entry(act).or_default() += 1;
        }
        for (what, jobs) in &outcome.reached {
            *self.reached.entry(what.clone()).or_default() += jobs;
        }
        if *repeats == Some(false) {
            self.unlike.push(replay.clone());
        }
        if let Some(violation) = &outcome.violation {
            let broken = self.broken.entry(violation.promise).or_default();
            broken.worlds += 1;
            if broken.examples.len() < EXAMPLES {
                broken.examples.push((replay.clone(), violation.clone()));
            }
        }
    }

    /// Whether nothing was broken, and no log differed.
    pub fn is_good(&self) -> bool {
        self.broken.is_empty() && self.unlike.is_empty()
    }
}

/// How many worlds broke what: one line.
impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |promises: &[Promise]| -> u64 {
            let broken = promises.iter().filter_map(|promise| self.broken.get(promise));
            broken.map(|broken| broken.worlds).sum()
        };
        let (lost, doubled) = (count(&[Promise::Lost]), count(&[Promise::Doubled]));
        let stuck = count(&[Promise::Ends, Promise::Finalizers, Promise::Owned]);
        let all: u64 = self.broken.values().map(|broken| broken.worlds).sum();
        write!(
            f,
            "seeds {}: lost {lost}, doubled {doubled}, stuck {stuck}, otherwise broken {}, not repeatable {}",
            self.all.worlds,
            all - lost - doubled - stuck,
            self.unlike.len()
        )
    }
}

/// The kinds of the acts that have happened up to a time.
fn happened(plan: &Plan, until: Time) -> impl Iterator<Item = String> {
    plan.steps.iter().filter(move |step| step.at <= until).map(|step| match &step.act {
        Act::User { act, .. } => format!("user: {}", variant(act)),
        Act::Fault(fault) => format!("fault: {}", variant(fault)),
        Act::Rare(rare) => format!("rare: {}", variant(rare)),
        Act::Tenant(act) => format!("tenant: {}", variant(act)),
    })
}

/// The name of a value's variant.
fn variant(value: &impl fmt::Debug) -> String {
    let text = format!("{value:?}");
    text.chars().take_while(char::is_ascii_alphanumeric).collect()
}

/// The conditions of all Jobs, with the number of Jobs for each.
pub(crate) fn reached(ledger: &Ledger) -> BTreeMap<String, u64> {
    let mut reached = BTreeMap::new();
    for job in ledger.jobs.values() {
        for condition in conditions(&job.object).filter(|condition| condition["status"] == "True") {
            let word = |field: &str| condition[field].as_str().unwrap_or_default();
            *reached.entry(format!("{} {}", word("type"), word("reason"))).or_default() += 1;
        }
    }
    reached
}
