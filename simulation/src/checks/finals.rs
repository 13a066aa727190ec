//! The end: what must have come to rest, and what must hold then.

use std::time::Duration;

use yardmaster::job::names::{BUILT_IN_CONTROLLER, EXTERNAL_CONTROLLER};

use super::failures::{Consequence, consequence};
use super::owners::Owners;
use super::verdicts::has_clock_steps;
use super::{Promise, counts, order, restarts, results, tenants};
use crate::ledger::{JobFacts, Ledger, PodFacts};
use crate::plan::{Act, Fault, Plan, Refused, Step};
use crate::tenant::is_in_namespace;
use crate::time::Time;
use crate::world::Slot;

/// How long everything must be at rest.
pub(super) const QUIET: Duration = Duration::from_secs(20);

/// Returns the first part of the world that has not come to rest.
pub(super) fn unrest(now: Time, plan: &Plan, ledger: &Ledger, slots: &[Slot]) -> Option<String> {
    if let Some(number) = slots.iter().position(|slot| slot.life.is_none() || slot.frozen) {
        return Some(format!("replica-{number} does not run"));
    }
    let existing = || ledger.jobs.iter().filter(|(_, job)| job.exists && is_ours(plan, job));
    for (uid, job) in existing() {
        let name = job.name().1;
        if job.deleting() {
            return Some(format!("{name} is being deleted"));
        }
        let suspended = job.object["spec"]["suspend"] == true;
        let rests = suspended || job.object["spec"]["parallelism"] == 0;
        if job.finished.is_none() && !rests && !order::waits_for_ever(ledger, job) {
            return Some(format!("{name} does not end"));
        }
        let active = ledger.pods_of(uid).filter(|pod| pod.exists() && pod.end.is_none()).count() as u64;
        let wanted = job.wanted();
        if active > wanted {
            return Some(format!("{name} has come to rest with {active} pods of {wanted}"));
        }
    }
    if let Some(job) = ledger.jobs.values().find(|job| outlives_ttl(plan, now, job)) {
        return Some(format!("{} outlives its TTL", job.name().1));
    }
    for pod in ledger.pods.values().filter(|pod| pod.is_tracked()) {
        let job = pod.job.as_ref().and_then(|job| ledger.jobs.get(job));
        let over = job.is_some_and(|job| is_ours(plan, job) && (!job.exists || job.finished.is_some()));
        if over && pod.end.is_some() && !pod.is_taken() {
            return Some(format!("{} keeps its finalizer", pod.name().1));
        }
    }
    if let Some(pod) = tenants::foreign(ledger).next() {
        return Some(format!("{} keeps its finalizer", pod.name().1));
    }
    None
}

/// A Job that should long be `Suspended`, whatever becomes of single pods.
pub(super) fn held_back(now: Time, plan: &Plan, ledger: &Ledger, owners: &Owners) -> Option<String> {
    const LONG: Duration = Duration::from_secs(15);
    let long = LONG + plan.settings.lag();
    if !owners.all_undisturbed(now) {
        return None;
    }
    let waits = |job: &&JobFacts| {
        let since = job.unsuspended_since.filter(|_| job.exists && is_ours(plan, job));
        since.is_some_and(|since| now > since.max(held_up_until(now, plan, job)) + long)
    };
    ledger.jobs.values().find(waits).map(|job| format!("{} is not Suspended after {long:?}", job.name().1))
}

/// Until when the faults so far may delay the removal of a Job's pods, and its condition `Suspended`. The API
/// server may ask replicas to wait (429). If a Job cannot be decoded, replicas read it again after pauses of
/// up to 10 s. An unanswered creation may still succeed: a replica waits for it as long as a webhook may
/// take.
pub(super) fn held_up_until(now: Time, plan: &Plan, job: &JobFacts) -> Time {
    /// 30 s for the answer, and some until the request that vanishes is sent.
    const UNANSWERED: Duration = Duration::from_secs(35);
    let is_this = |number: usize| plan.jobs.get(number).is_some_and(|planned| planned.name == job.name().1);
    let until = |step: &Step| match step.act {
        Act::Fault(Fault::Refuse {
            time,
            code: 429,
            what: Refused::PodPatches | Refused::PodDeletes,
            ..
        }) => step.at + time,
        Act::Fault(Fault::Undecodable { job, time }) if is_this(job) => step.at + time,
        Act::Fault(Fault::Swallow { heartbeats: false, .. }) => step.at + UNANSWERED,
        _ => Time::ZERO,
    };
    plan.steps.iter().filter(|step| step.at <= now).map(until).max().unwrap_or(Time::ZERO)
}

/// Whether a Job is this controller's, and outside the tenant's namespace.
pub(super) fn is_ours(plan: &Plan, job: &JobFacts) -> bool {
    if is_in_namespace(&job.object) {
        return false;
    }
    let name = job.object["spec"]["managedBy"].as_str();
    match plan.settings.replaces_built_in {
        true => name.is_none_or(|name| name == BUILT_IN_CONTROLLER),
        false => name == Some(EXTERNAL_CONTROLLER),
    }
}

/// A Job of another controller that should long be deleted because of its TTL.
fn outlives_ttl(plan: &Plan, now: Time, job: &JobFacts) -> bool {
    /// Longer TTLs do not expire in any world.
    const LONGEST: u64 = 600;
    let Some(finished) = job.finished.filter(|_| is_anothers(plan, job)) else { return false };
    let ttl = job.object["spec"]["ttlSecondsAfterFinished"].as_u64().filter(|ttl| *ttl <= LONGEST);
    ttl.is_some_and(|ttl| now > finished + Duration::from_secs(ttl)) && !has_clock_steps(plan)
}

fn is_anothers(plan: &Plan, job: &JobFacts) -> bool {
    job.exists && !is_ours(plan, job) && !is_in_namespace(&job.object)
}

/// Checks what must hold when a world has come to rest, at the time `now`. Returns the first promise that is broken, and how. `restored` is
/// when etcd was restored from a backup.
pub(super) fn check(
    now: Time,
    plan: &Plan,
    ledger: &Ledger,
    slots: &[Slot],
    restored: Option<Time>,
) -> Option<(Promise, String)> {
    // Deleted Jobs count, too.
    let is_certain = |job: &JobFacts| restored.is_none_or(|restored| job.first_seen() > restored);
    for (uid, job) in ledger.jobs.iter().filter(|(_, job)| job.finished.is_some()) {
        let differs =
            counts::differ(plan, ledger, uid, job).filter(|_| is_certain(job) && is_ours(plan, job));
        if differs.is_some() {
            return differs;
        }
        let results = results::differ(job).filter(|_| is_certain(job) && is_ours(plan, job));
        if let Some(differs) = results.filter(|_| !plan.settings.all_own_all) {
            return Some(differs);
        }
        let restarts = restarts::differ(ledger, uid, job).filter(|_| is_certain(job) && is_ours(plan, job));
        if let Some(what) = restarts.filter(|_| !plan.settings.all_own_all) {
            return Some((Promise::Doubled, format!("{}: {what}", job.name().1)));
        }
    }
    for (uid, job) in ledger.jobs.iter().filter(|(_, job)| job.exists && job.finished.is_some()) {
        // Each of several owners knows only the failed pods that it has counted.
        let kinds = || [LimitedPods::Failed, LimitedPods::Finished].into_iter();
        let too_many = || kinds().find_map(|which| too_many_kept(plan, ledger, uid, job, which));
        let too_many = || too_many().filter(|_| !plan.settings.all_own_all);
        let broken = is_ours(plan, job).then(|| too_many().or_else(|| spared(plan, ledger, uid, job)));
        if let Some(broken) = broken.flatten() {
            return Some(broken);
        }
    }
    for (number, slot) in slots.iter().enumerate() {
        let held = slot
            .life
            .as_ref()
            .and_then(|life| life.with(|replica| replica.context().metrics.held_pods.get()));
        // A replica sees an end or a deletion a little later.
        let heard = |at: Time| now > at + 2 * plan.settings.lag();
        // A tenant's Job goes on as long as its pods have foreign finalizers. Its pods run again if the
        // tenant writes so.
        let goes_on = |job: &String| {
            let job = ledger.jobs.get(job).filter(|job| job.exists);
            job.is_some_and(|job| !job.finished.is_some_and(heard))
        };
        let is_live = |pod: &&PodFacts| match pod.gone {
            None => pod.is_tracked() || runs_again(pod) || pod.job.as_ref().is_some_and(goes_on),
            // If one of several owners deletes a pod that has lost its labels, no watch of the others shows
            // the deletion.
            Some(gone) => !heard(gone) || plan.settings.all_own_all && pod.meddled,
        };
        let live = ledger.pods.values().filter(is_live).count() as i64;
        if let Some(held) = held.filter(|held| *held > live) {
            return Some((Promise::Memory, format!("replica-{number} holds {held} pods of {live}")));
        }
    }
    None
}

/// Whether the pod has ended, and a later write says that it runs.
fn runs_again(pod: &PodFacts) -> bool {
    let phase = &pod.object["status"]["phase"];
    pod.end.is_some() && phase != "Succeeded" && phase != "Failed"
}

/// The pods whose number a Job limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LimitedPods {
    Failed,
    Finished,
}

/// Checks that a Job keeps no more of these pods than its limit. Pods without a valid shard label do not count:
/// replicas look for them only when they claim a shard.
fn too_many_kept(
    plan: &Plan,
    ledger: &Ledger,
    uid: &str,
    job: &JobFacts,
    which: LimitedPods,
) -> Option<(Promise, String)> {
    let option = match which {
        LimitedPods::Failed => "yardmaster.dev/failed-pods-limit",
        LimitedPods::Finished => "yardmaster.dev/max-finished-pods",
    };
    let limit = job.object["metadata"]["annotations"].get(option)?.as_str()?;
    let limit: usize = limit.parse().ok()?;
    // A pod that loses its finalizer while it runs counts only if the failure of its Job was announced before.
    let failing = job.announced.filter(|_| job.has_failed());
    let counts =
        |pod: &PodFacts| pod.disowned.is_none_or(|at| failing.is_some_and(|announced| announced <= at));
    let is_kept = |pod: &&PodFacts| {
        let is_one =
            pod.end.is_some_and(|end| end.clean && (which == LimitedPods::Finished || !end.succeeded));
        let shown = pod
            .shard_label()
            .and_then(|label| label.parse().ok())
            .is_some_and(|shard: u32| shard < plan.settings.shards);
        is_one
            && pod.exists()
            && pod.deleted.is_none()
            && !pod.is_tracked()
            && !pod.meddled
            && shown
            && counts(pod)
    };
    let kept = ledger.pods_of(uid).filter(is_kept).count();
    (kept > limit)
        .then(|| (Promise::Kept, format!("{} keeps {kept} pods of {limit}: {which:?}", job.name().1)))
}

/// A Job that is complete although one of its pods had to let it fail, well before.
fn spared(plan: &Plan, ledger: &Ledger, uid: &str, job: &JobFacts) -> Option<(Promise, String)> {
    const DECIDED: Duration = Duration::from_secs(60);
    let announced = job.announced.filter(|_| !job.has_failed() && !job.meddled)?;
    let is_heard = |end: Time| end + plan.news_take(end, &job.replicas) + DECIDED < announced;
    let fatal = ledger.pods_of(uid).find(|pod| {
        let in_time = pod.end.is_some_and(|end| !end.succeeded && end.clean && is_heard(end.at));
        in_time && !pod.meddled && consequence(job, pod) == Consequence::FailJob
    })?;
    Some((Promise::Verdict, format!("{} is complete, and {} lets it fail", job.name().1, fatal.name().1)))
}
