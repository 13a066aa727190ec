//! Jobs that wait for the ends of others: none begins too early, and none waits without a cause.

use serde_json::Value;

use crate::ledger::{JobFacts, Ledger};

/// Names of a chain of Jobs that wait for one another. A longer chain is a circle.
const CHAIN: u32 = 8;

/// The Jobs that a Job is after, and whether they have to succeed.
fn predecessors(job: &JobFacts) -> impl Iterator<Item = (&str, bool)> {
    let names = |option: &str, succeeds: bool| {
        let names = job.object["metadata"]["annotations"].get(format!("yardmaster.dev/{option}"));
        let names = names.and_then(Value::as_str).unwrap_or_default().split(',').map(str::trim);
        names.filter(|name| !name.is_empty()).map(move |name| (name, succeeds))
    };
    names("after", true).chain(names("after-any", false))
}

/// Whether a Job may wait for the ends of others before it begins.
pub(super) fn waits_for_others(job: &JobFacts) -> bool {
    predecessors(job).next().is_some()
}

/// The Jobs that have or had this name, in the namespace of `job`.
fn called<'a>(ledger: &'a Ledger, job: &JobFacts, name: &str) -> impl Iterator<Item = &'a JobFacts> {
    let namespace = job.object["metadata"]["namespace"].clone();
    let name = name.to_owned();
    ledger.jobs.values().filter(move |other| {
        other.object["metadata"]["namespace"] == namespace && other.object["metadata"]["name"] == *name
    })
}

/// The error in a new pod of a Job, if a Job that has to end before has never done so.
pub(super) fn too_early(ledger: &Ledger, job: &JobFacts) -> Option<String> {
    let has_ended = |(name, succeeds): &(&str, bool)| {
        called(ledger, job, name).any(|other| other.finished.is_some() && !(*succeeds && other.has_failed()))
    };
    let (name, _) = predecessors(job).find(|predecessor| !has_ended(predecessor))?;
    Some(format!("of a Job that is after {name}, which has not ended so"))
}

/// Whether a Job that has not begun waits for a Job that will never end as wanted.
pub(super) fn waits_for_ever(ledger: &Ledger, job: &JobFacts) -> bool {
    is_stuck(ledger, job, CHAIN)
}

fn is_stuck(ledger: &Ledger, job: &JobFacts, chain: u32) -> bool {
    job.object["status"]["startTime"].is_null()
        && predecessors(job).any(|(name, succeeds)| {
            let met = job.object["metadata"]["annotations"]["yardmaster.dev/after-met"].as_str();
            if met.is_some_and(|met| met.split(',').any(|met| met == name)) {
                return false;
            }
            let Some(other) = called(ledger, job, name).find(|other| other.exists) else { return true };
            let rests = other.object["spec"]["suspend"] == true || other.object["spec"]["parallelism"] == 0;
            match other.finished {
                Some(_) => succeeds && other.has_failed(),
                None => rests || chain == 0 || is_stuck(ledger, other, chain - 1),
            }
        })
}
