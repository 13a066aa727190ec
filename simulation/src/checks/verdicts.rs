//! Verdicts: how a Job ends, that it is suspended, and that it is deleted follow from what happened.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::finals;
use crate::checks::Author;
use crate::checks::failures::{Consequence, consequence};
use crate::checks::policies;
use crate::kubelet::restarts;
use crate::ledger::{Change, JobFacts, Ledger, PodFacts, conditions};
use crate::plan::{Act, Fault, Plan};
use crate::time::{EPOCH, Time};

/// The verdicts on Jobs so far.
#[derive(Debug, Default)]
pub(super) struct Verdicts {
    /// By UID.
    seen: BTreeMap<String, Seen>,
}

/// The last seen state of a Job.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    finished: bool,
    suspended: bool,
    deleted: bool,
    succeeds: bool,
}

impl Verdicts {
    /// etcd was restored.
    pub(super) fn forget(&mut self) {
        self.seen.clear();
    }

    /// Checks a change of a Job, if a replica has made it. `refuses`: requests about pods may have been
    /// refused.
    pub(super) fn changed(
        &mut self,
        plan: &Plan,
        ledger: &Ledger,
        change: &Change,
        author: Option<Author>,
        refuses: bool,
    ) -> Option<String> {
        let job = ledger.jobs.get(&change.uid)?;
        let now = Seen {
            finished: job.finished.is_some(),
            suspended: says(&job.object, "Suspended").is_some(),
            deleted: job.deleting() || change.deleted,
            succeeds: says(&job.object, "SuccessCriteriaMet").is_some(),
        };
        let before = self.seen.insert(change.uid.clone(), now).unwrap_or_default();
        let author = author.filter(|_| !job.meddled)?;
        let what = if now.deleted && !before.deleted {
            deleted(plan, job, author)
        } else if !now.deleted && !finals::is_ours(plan, job) {
            Some("it is another controller's Job".to_owned())
        } else if now.finished && !before.finished {
            ended(plan, ledger, &change.uid, job, author)
        } else if now.suspended && !before.suspended && !refuses {
            // Each of several owners sees the pods of the others late.
            let lag = if plan.settings.all_own_all { plan.settings.lag() } else { Duration::ZERO };
            suspended(ledger, &change.uid, job, lag)
        } else if now.succeeds && !before.succeeds && !refuses && !plan.settings.all_own_all {
            announced(plan, ledger, &change.uid, job, author)
        } else {
            None
        };
        what.map(|what| format!("replica-{}: {}: {what}", author.replica, job.name().1))
    }
}

/// The condition of a Job of this type, if it holds.
fn says<'a>(job: &'a Value, kind: &str) -> Option<&'a Value> {
    conditions(job).find(|condition| condition["status"] == "True" && condition["type"] == kind)
}

/// Checks the end of a Job.
fn ended(plan: &Plan, ledger: &Ledger, uid: &str, job: &JobFacts, author: Author) -> Option<String> {
    let spec = &job.object["spec"];
    let (succeeded, failed) = (job.count("succeeded"), job.count("failed"));
    let has_policy = !spec["successPolicy"].is_null();
    if let Some(complete) = says(&job.object, "Complete") {
        let by_policy = complete["reason"] == "SuccessPolicy";
        if by_policy {
            let announced = job.announced?;
            // An elastic Job that shrinks once its end is announced forgets indexes that the policy names.
            if job.least_size(announced) < job.size_at(announced) {
                return None;
            }
            let (policy, indexes) = (&spec["successPolicy"], &job.object["status"]["completedIndexes"]);
            return (!policies::is_met(policy, indexes))
                .then(|| format!("complete with {indexes} by {policy}"));
        }
        // An elastic Job may change its size once its end is announced, which stays.
        let wanted = match spec["completions"].as_u64() {
            Some(size) => job.announced.map_or(size, |announced| job.least_size(announced)),
            None => 1,
        };
        // A pod may succeed after it was recorded as failed, or be released after its labels were removed.
        let have = ledger.pods_of(uid).filter(|pod| pod.end.is_some_and(|end| end.succeeded)).count() as u64;
        if succeeded < wanted && have < wanted {
            return Some(format!("complete with {succeeded} of {wanted}"));
        }
        return (has_policy != by_policy)
            .then(|| format!("complete for the reason {}, and its policy comes first", complete["reason"]));
    }
    let reason = says(&job.object, "Failed")?["reason"].as_str()?;
    let lets = |wanted: Consequence| {
        let failed = ledger.pods_of(uid).filter(|pod| pod.end.is_some_and(|end| !end.succeeded));
        failed.filter(|pod| consequence(job, pod) == wanted).count()
    };
    match reason {
        "BackoffLimitExceeded" => {
            let failed = failed.max(uncounted_failures(ledger, uid, job));
            let limit = spec["backoffLimit"].as_u64().filter(|limit| failed <= *limit)?;
            let restarts = restarts_of(ledger, uid, job);
            (restarts < limit.max(1))
                .then(|| format!("failed after {failed} failures and {restarts} restarts of {limit}"))
        }
        "PodFailurePolicy" => (lets(Consequence::FailJob) == 0)
            .then(|| "failed by a rule of its policy, which no pod has met".to_owned()),
        "MaxFailedIndexesExceeded" | "FailedIndexes" => {
            let indexes = failed_indexes(ledger, uid, job);
            let least = if reason == "FailedIndexes" { 0 } else { spec["maxFailedIndexes"].as_u64()? };
            (indexes <= least).then(|| format!("failed for {reason} with {indexes} failed indexes"))
        }
        "DeadlineExceeded" => too_early(plan, job, author),
        _ => None,
    }
}

/// How many pods may have failed of a Job that need not count all of them. If the Job is being deleted, it
/// releases unrecorded pods. If its completions decrease, it forgets the indexes beyond.
fn uncounted_failures(ledger: &Ledger, uid: &str, job: &JobFacts) -> u64 {
    let is_smaller =
        job.announced.is_some_and(|announced| job.least_size(announced) < job.size_at(announced));
    if !job.deleting() && !is_smaller {
        return 0;
    }
    let may_have_failed = |pod: &&PodFacts| pod.end.is_none_or(|end| !end.succeeded || !end.clean);
    ledger.pods_of(uid).filter(may_have_failed).count() as u64
}

/// How often containers were started again, if the Job counts that.
fn restarts_of(ledger: &Ledger, uid: &str, job: &JobFacts) -> u64 {
    if job.object["spec"]["template"]["spec"]["restartPolicy"] != "OnFailure" {
        return 0;
    }
    ledger.pods_of(uid).map(|pod| restarts(&pod.object)).sum()
}

/// How many indexes may have exceeded `backoffLimitPerIndex`.
fn failed_indexes(ledger: &Ledger, uid: &str, job: &JobFacts) -> u64 {
    let limit = job.object["spec"]["backoffLimitPerIndex"].as_u64().unwrap_or(u64::MAX);
    let mut failures: BTreeMap<u32, u64> = BTreeMap::new();
    for pod in ledger.pods_of(uid).filter(|pod| pod.end.is_none_or(|end| !end.succeeded || !end.clean)) {
        let (Some(index), true) = (pod.index, pod.end.is_some() || !pod.exists()) else { continue };
        let weight = match consequence(job, pod) {
            Consequence::Ignore => 0,
            Consequence::FailIndex => limit.saturating_add(1),
            _ => 1,
        };
        let sum = failures.entry(index).or_default();
        *sum = sum.saturating_add(weight);
    }
    failures.values().filter(|failures| **failures > limit).count() as u64
}

/// Checks a Job that has failed because of its deadline.
fn too_early(plan: &Plan, job: &JobFacts, author: Author) -> Option<String> {
    let deadline = job.object["spec"]["activeDeadlineSeconds"].as_i64();
    let Some(deadline) = deadline else { return Some("failed for a deadline that it does not have".into()) };
    if has_clock_steps(plan) {
        return None;
    }
    let started: Timestamp = job.object["status"]["startTime"].as_str()?.parse().ok()?;
    let age = (EPOCH + author.sent_at.since(Time::ZERO)).duration_since(started);
    (age < SignedDuration::from_secs(deadline))
        .then(|| format!("failed after {age:#}, with a deadline of {deadline}s"))
}

/// Whether the wall clock of a replica, which decides on deadlines, may have been set.
pub(super) fn has_clock_steps(plan: &Plan) -> bool {
    plan.steps.iter().any(|step| matches!(step.act, Act::Fault(Fault::ClockStep { .. })))
}

/// Checks the suspension of a Job: no earlier pod may still run. Exceptions: hidden pods, pods of Jobs that
/// may adopt, and pods that were created less than `lag` before.
fn suspended(ledger: &Ledger, uid: &str, job: &JobFacts, lag: Duration) -> Option<String> {
    let since = job.suspended_since.filter(|_| job.object["spec"]["manualSelector"] != true)?;
    let runs = ledger.pods_of(uid).find(|pod| {
        let shown = pod.shard_label().is_some();
        pod.is_active() && shown && !pod.meddled && pod.created + lag < since
    })?;
    Some(format!("Suspended, and {} runs", runs.name().1))
}

/// How long a success that ends a Job waits for others at least, and how long all of them wait at most.
const TOGETHER: (Duration, Duration) = (Duration::from_millis(700), Duration::from_millis(2_500));
/// How long news of an end are on their way at most, where nothing delays them.
const ON_ITS_WAY: Duration = Duration::from_millis(50);

/// Checks the announcement that a success policy is met: it must wait a moment for other pods. The failure of
/// another pod, terminating or not, would count for more.
fn announced(plan: &Plan, ledger: &Ledger, uid: &str, job: &JobFacts, author: Author) -> Option<String> {
    let by_policy = says(&job.object, "SuccessCriteriaMet")?["reason"] == "SuccessPolicy";
    let leaves = job.deleting()
        || job.object["spec"]["suspend"] == true
        || job.touched.is_some_and(|at| author.sent_at.since(at) < TOGETHER.1);
    // The replica waits from the time at which it sees an end.
    let lag = plan.settings.lags.get(author.replica).map(|lag| lag.pods).unwrap_or_default();
    let age = |at: Time| author.sent_at.since(at + lag);
    // The end of a pod that a replica removes does not count.
    let heard = ledger.pods_of(uid).filter(|pod| !pod.meddled && pod.disowned.is_none());
    let ends = heard.filter_map(|pod| pod.end);
    let ends = ends.filter(|end| end.at + lag + ON_ITS_WAY <= author.sent_at);
    let recent: Vec<_> = ends.filter(|end| age(end.at) < 2 * TOGETHER.1).collect();
    let waits = recent.iter().all(|end| age(end.at) < TOGETHER.1);
    let last = recent.iter().filter(|end| end.succeeded).map(|end| end.at).max()?;
    let is_told = plan.news_take(last, &[author.replica].into()) < 2 * plan.settings.lag() + TOGETHER.0;
    let open = ledger.pods_of(uid).find(|pod| {
        pod.exists()
            && pod.end.is_none()
            && pod.is_tracked()
            && !pod.meddled
            && !pod.removed
            && age(pod.created) > TOGETHER.1
    })?;
    (by_policy && !leaves && waits && is_told && age(last) < TOGETHER.0).then(|| {
        format!(
            "SuccessCriteriaMet {} ms after a success, and {} may fail",
            age(last).as_millis(),
            open.name().1
        )
    })
}

/// How long before its deletion a Job was read.
const JUST_READ: Duration = Duration::from_secs(2);

/// Checks the deletion of a Job by a replica.
fn deleted(plan: &Plan, job: &JobFacts, author: Author) -> Option<String> {
    // A replica reads the Job just before it deletes it. A user may set another TTL after that read.
    if job.ttl_set.is_some_and(|at| author.sent_at.since(at) < JUST_READ) {
        return None;
    }
    let end = says(&job.object, "Complete").or_else(|| says(&job.object, "Failed"));
    let Some(end) = end else { return Some("deleted before its end".into()) };
    let Some(ttl) = job.object["spec"]["ttlSecondsAfterFinished"].as_i64() else {
        return Some("deleted without a TTL".into());
    };
    if has_clock_steps(plan) {
        return None;
    }
    let ended: Timestamp = end["lastTransitionTime"].as_str()?.parse().ok()?;
    let age = (EPOCH + author.sent_at.since(Time::ZERO)).duration_since(ended);
    (age + SignedDuration::from_secs(1) < SignedDuration::from_secs(ttl))
        .then(|| format!("deleted after {age:#}, with a TTL of {ttl}s"))
}
