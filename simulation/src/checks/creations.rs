//! Creations of pods: none is surplus, and no index runs again after its success.

use std::time::Duration;

use crate::checks::Author;
use crate::checks::failures::{Consequence, consequence};
use crate::ledger::{Ledger, PodFacts};
use crate::time::Time;

/// What is wrong with a pod that a replica has just created. `lag`: how long what a user has done at a time may take to
/// reach that replica. `others_act`: other replicas act for the same Job, so that it learns of its end late, too.
pub(super) fn check(
    ledger: &Ledger,
    uid: &str,
    author: Author,
    lag: impl Fn(Time) -> Duration,
    others_act: bool,
) -> Option<String> {
    let pod = ledger.pods.get(uid)?;
    let job_uid = pod.job.as_deref()?;
    let job = ledger.jobs.get(job_uid)?;
    let name = pod.name().1;
    let by = author.replica;
    if !job.exists || job.meddled {
        return None;
    }
    // Users who change a Job while a creation is on its way get what they ask for a little later.
    let settled = job.touched.is_none_or(|touched| author.sent_at.since(touched) > lag(touched));
    if !settled {
        return None;
    }
    let others = || ledger.pods.iter().filter(|(other, _)| *other != uid).map(|(_, pod)| pod);
    let mine = || others().filter(|other| other.job.as_deref() == Some(job_uid));
    let parallelism = job.object["spec"]["parallelism"].as_u64().unwrap_or(1);
    let waits_for_end = job.object["spec"]["podReplacementPolicy"] == "Failed";
    let holds_place = |other: &&PodFacts| {
        !other.meddled && (other.is_active() || (waits_for_end && other.exists && other.end.is_none()))
    };
    let active = mine().filter(holds_place).count() as u64;
    if active >= parallelism {
        return Some(format!("replica-{by} creates {name} beside {active} active pods of {parallelism}"));
    }
    if let Some(index) = pod.index {
        let at_index = || mine().filter(|other| other.index == Some(index) && other.exists && !other.meddled);
        if at_index().any(|other| other.end.is_some_and(|end| end.succeeded && end.clean)) {
            return Some(format!("replica-{by} creates {name} at an index that has succeeded"));
        }
        if at_index().any(PodFacts::is_active) {
            return Some(format!("replica-{by} creates {name} at an index that has an active pod"));
        }
        let failed = || at_index().filter(|other| other.end.is_some_and(|end| !end.succeeded && end.clean));
        if failed().any(|other| consequence(job, other) == Consequence::FailIndex) {
            return Some(format!("replica-{by} creates {name} at an index that a rule lets fail"));
        }
        // Each pod carries the failures before it. They are lost with one that somebody has taken from the Job.
        let taken = mine().filter(|other| other.index == Some(index) && other.meddled);
        let taken = taken.map(|other| other.created).max();
        let failures = failed()
            .filter(|other| taken.is_none_or(|taken| other.created > taken))
            .filter(|other| consequence(job, other) != Consequence::Ignore);
        let failures = failures.count() as u64;
        if job.object["spec"]["backoffLimitPerIndex"].as_u64().is_some_and(|limit| failures > limit) {
            return Some(format!("replica-{by} creates {name} at an index that has failed {failures} times"));
        }
    } else if let Some(completions) = job.object["spec"]["completions"].as_u64() {
        let succeeded = mine()
            .filter(|other| !other.meddled && other.end.is_some_and(|end| end.succeeded && end.clean))
            .count() as u64;
        if active + succeeded >= completions {
            return Some(format!(
                "replica-{by} creates {name} beside {active} active and {succeeded} succeeded pods of {completions}"
            ));
        }
    }
    if job.deleting() {
        return Some(format!("replica-{by} creates {name} of a Job that is being deleted"));
    }
    // A request may have been under way for long: what the network delays, nobody takes back.
    let knows = |at| author.sent_at >= at && (!others_act || author.sent_at.since(at) > lag(at));
    if job.finished.is_some_and(knows) {
        return Some(format!("replica-{by} creates {name} of a finished Job"));
    }
    None
}
