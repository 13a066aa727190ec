//! Jobs whose pods are replaced together: attempts do not overlap, each restart has a cause, and each counts once.

use serde_json::Value;

use super::failures::{Consequence, consequence};
use crate::ledger::{JobFacts, Ledger, PodFacts};
use crate::time::Time;

fn option<'a>(job: &'a JobFacts, name: &str) -> Option<&'a str> {
    job.object["metadata"]["annotations"].get(format!("yardmaster.dev/{name}")).and_then(Value::as_str)
}

/// Whether the pods of a Job are replaced together.
pub(super) fn together(job: &JobFacts) -> bool {
    option(job, "restart-together") == Some("true")
}

/// The attempt that a pod belongs to.
fn attempt(pod: &PodFacts) -> Option<u64> {
    pod.object["metadata"]["labels"]["yardmaster.dev/attempt"].as_str()?.parse().ok()
}

/// How often a Job says that it was restarted.
fn restarts(job: &JobFacts) -> u64 {
    option(job, "restarts").and_then(|restarts| restarts.parse().ok()).unwrap_or(0)
}

/// Whether what becomes of a pod may count for nothing: a restart has removed it, or made its success vain.
pub(super) fn may_be_in_vain(job: &JobFacts, pod: &PodFacts) -> bool {
    together(job) && (pod.disowned.is_some() || is_vain(job, pod, restarts(job)))
}

/// Whether the success of a pod is vain in this attempt.
pub(super) fn is_vain(job: &JobFacts, pod: &PodFacts, current: u64) -> bool {
    let keeps = option(job, "restart-keep-succeeded") == Some("true");
    together(job) && !keeps && attempt(pod).is_some_and(|attempt| attempt < current)
}

/// Whether the success of a pod is vain for another one.
pub(super) fn is_vain_for(job: &JobFacts, pod: &PodFacts, new: &PodFacts) -> bool {
    attempt(new).is_some_and(|attempt| is_vain(job, pod, attempt))
}

/// The error in a new pod, if a pod of an earlier attempt has not ended. `knows`: whether its author had to know of
/// events at a time.
pub(super) fn overlaps(
    job: &JobFacts,
    new: &PodFacts,
    others: &[&PodFacts],
    knows: impl Fn(Time) -> bool,
) -> Option<String> {
    let current = attempt(new).filter(|_| together(job))?;
    let is_old = |pod: &PodFacts| attempt(pod).is_some_and(|attempt| attempt < current);
    let runs =
        |pod: &PodFacts| pod.exists() && pod.end.is_none() && !pod.lost && !pod.meddled && !pod.garbled;
    let old = others.iter().find(|pod| is_old(pod) && runs(pod) && knows(pod.created))?;
    Some(format!("of attempt {current} beside {}, which has not ended", old.name().1))
}

/// The error in the restarts of a finished Job, if any.
pub(super) fn differ(ledger: &Ledger, uid: &str, job: &JobFacts) -> Option<String> {
    if !together(job) || job.meddled {
        return None;
    }
    let last = ledger.pods_of(uid).filter_map(attempt).max()?;
    let said = restarts(job);
    // The last restart may have come to nothing: the Job has ended before.
    if said != last && said != last + 1 {
        return Some(format!("says {said} restarts, and its pods show {last}"));
    }
    // The removal of a pod by a replica is no cause, and neither is what it leads to.
    let is_cause = |pod: &PodFacts| {
        let is_removal = pod.by_replica && !pod.given_up;
        let failed = pod.end.is_some_and(|end| !end.succeeded && (end.clean || !is_removal));
        let goes = (pod.deleted.is_some() || pod.gone.is_some()) && !is_removal;
        (failed && consequence(job, pod) != Consequence::Ignore) || goes || pod.meddled || pod.garbled
    };
    let caused = |of: u64| ledger.pods_of(uid).filter(|pod| attempt(pod) == Some(of)).any(&is_cause);
    (0..last)
        .find(|attempt| !caused(*attempt))
        .map(|attempt| format!("no pod of attempt {attempt} has failed"))
}
