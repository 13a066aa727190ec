//! Counts: they never go back, and in the end they equal what really happened.

use std::collections::BTreeSet;
use std::time::Duration;

use super::Promise;
use super::failures::{Consequence, consequence};
use super::restarts;
use crate::ledger::{JobFacts, Ledger, PodFacts};
use crate::plan::Plan;
use crate::tenant::is_in_namespace;
use crate::time::Time;

/// Compares a Job's counts with those last seen.
pub(super) fn compare(
    ledger: &Ledger,
    uid: &str,
    before: Option<(u64, u64, bool)>,
) -> ((u64, u64, bool), Option<String>) {
    let Some(job) = ledger.jobs.get(uid) else { return (Default::default(), None) };
    let now = (job.count("succeeded"), job.count("failed"), job.finished.is_some());
    // Its author writes it, too.
    if is_in_namespace(&job.object) {
        return (now, None);
    }
    let name = job.name().1;
    let what = match before {
        Some((succeeded, _, _)) if now.0 < succeeded && !is_elastic(job) => {
            Some(format!("{name}: succeeded goes back from {succeeded} to {}", now.0))
        }
        Some((_, failed, _)) if now.1 < failed => {
            Some(format!("{name}: failed goes back from {failed} to {}", now.1))
        }
        _ => None,
    };
    (now, what)
}

/// An elastic Indexed Job forgets indexes that are beyond its completions.
fn is_elastic(job: &JobFacts) -> bool {
    job.object["spec"]["completionMode"] == "Indexed" && job.sizes.len() > 1
}

/// Whether an elastic Job that wants fewer completions still shows all that have succeeded: the API server refuses to let
/// `succeeded` go back.
fn keeps_successes(job: &JobFacts) -> bool {
    let spec = &job.object["spec"];
    is_elastic(job) && spec["completions"] != spec["parallelism"]
}

/// How the counts of a finished Job differ from what really happened, if they do.
pub(super) fn differ(plan: &Plan, ledger: &Ledger, uid: &str, job: &JobFacts) -> Option<(Promise, String)> {
    if job.meddled {
        return None;
    }
    let (succeeded, failed) = (job.count("succeeded"), job.count("failed"));
    let slack = Slack::of(plan, job);
    let pods: Vec<&PodFacts> = ledger.pods_of(uid).collect();
    let good = bounds(&pods, true, slack);
    let bad = bounds(&pods, false, slack);
    let name = job.name().1;
    [("succeeded", succeeded, good), ("failed", failed, bad)].into_iter().find_map(
        |(field, count, (least, most))| {
            let promise = if count < least { Promise::Lost } else { Promise::Doubled };
            let what = || format!("{name}: {field} is {count}, and {least} to {most} pods have");
            (count < least || count > most).then(|| (promise, what()))
        },
    )
}

/// Checks the counts of an unfinished Job: they must not exceed the pods that have ended.
pub(super) fn ahead(plan: &Plan, ledger: &Ledger, uid: &str) -> Option<String> {
    let job = ledger.jobs.get(uid).filter(|job| !job.meddled)?;
    let slack = Slack::of(plan, job);
    let pods: Vec<&PodFacts> = ledger.pods_of(uid).collect();
    // An elastic Job may have succeeded more often than it now wants.
    let fields = [("succeeded", true), ("failed", false)].into_iter();
    fields.filter(|(_, succeeded)| !(*succeeded && is_elastic(job))).find_map(|(field, succeeded)| {
        let (_, most) = bounds(&pods, succeeded, slack);
        let listed = job.object["status"]["uncountedTerminatedPods"][field].as_array().map_or(0, Vec::len);
        let count = job.count(field) + listed as u64;
        (count > most).then(|| format!("{}: {field} is {count}, and at most {most} pods have", job.name().1))
    })
}

/// A Job, and what its replica may not know.
#[derive(Clone, Copy)]
struct Slack<'a> {
    plan: &'a Plan,
    job: &'a JobFacts,
    /// The Job fails, is deleted, or ends by its success policy: it does not wait for pods that are still seen active.
    ends_early: bool,
}

impl<'a> Slack<'a> {
    fn of(plan: &'a Plan, job: &'a JobFacts) -> Self {
        let is_deleted =
            job.deleted.zip(job.announced).is_some_and(|(deleted, announced)| deleted < announced);
        let ends_early = job.has_failed() || job.meets_policy() || is_deleted;
        Self { plan, job, ends_early }
    }

    /// How long an event at this time may take to reach the replicas that act for the Job.
    fn news(self, at: Time) -> Duration {
        self.plan.news_take(at, &self.job.replicas)
    }

    /// How much later a replica may have learned of an end at this time, if it counts.
    fn later(self, end: Time) -> Duration {
        match self.ends_early {
            true => self.news(end),
            false => {
                let lag = self.plan.settings.lag_of(&self.job.replicas);
                lag + self.plan.pause_asked(end + lag)
            }
        }
    }

    /// Whether other replicas act for the same Job.
    fn others_act(self) -> bool {
        self.plan.settings.all_own_all
    }
}

/// The fewest and most pods (or indexes) that may be counted.
fn bounds(pods: &[&PodFacts], succeeded: bool, slack: Slack<'_>) -> (u64, u64) {
    let job = slack.job;
    let indexed = job.object["spec"]["completionMode"] == "Indexed";
    let mut certain = BTreeSet::new();
    let mut possible = BTreeSet::new();
    let mut again = 0;
    for (number, pod) in pods.iter().enumerate() {
        let Some(matches) = counts(pod, succeeded, slack) else { continue };
        // A pod without index, made by hand, is none of an Indexed Job's.
        if indexed && pod.index.is_none() {
            if !succeeded {
                possible.insert(number);
            }
            continue;
        }
        // If an elastic Job has fewer completions, the indexes beyond do not count, and their pods are
        // forgotten.
        let forgotten = |index| indexed && pod.end.is_some_and(|end| job.forgets(index, end.at));
        let is_beyond = |index: u32| {
            succeeded
                && !keeps_successes(job)
                && job.finished.is_some_and(|at| u64::from(index) >= job.size_at(at))
        };
        if indexed && pod.index.is_some_and(is_beyond) {
            continue;
        }
        let matches = matches && !pod.index.is_some_and(forgotten);
        // Only one success of an index counts.
        let index = pod.index.filter(|_| indexed && succeeded);
        let key = index.map_or(number, |index| index as usize);
        possible.insert(key);
        // If an owner has counted a pod, another one may record it again. It has not seen yet that the pod is
        // no longer selected, or could not read that it was released.
        let returns = pod.returns || (slack.others_act() && (pod.meddled || pod.garbled));
        again += u64::from(returns && index.is_none());
        if matches {
            certain.insert(key);
        }
    }
    (certain.len() as u64, possible.len() as u64 + again)
}

/// Whether a scale-down removed a pod that had ended, before the replica could see its end.
fn is_unheard(pod: &PodFacts, job: &JobFacts, news: impl Fn(Time) -> Duration) -> bool {
    pod.by_replica && job.touched.is_some() && pod.end.is_some() && is_deleted_early(pod, news)
}

/// Whether the end of a pod was still unseen when its deletion was decided, if it has ended at all.
fn is_deleted_early(pod: &PodFacts, news: impl Fn(Time) -> Duration) -> bool {
    let is_early = |end: Time, deleted: Time| deleted <= end || deleted.since(end) < news(end);
    pod.end.zip(pod.deleted).is_none_or(|(end, deleted)| is_early(end.at, deleted))
}

/// Whether a replica removed the finalizer of a surplus pod before it could know of the pod's end. A lost
/// answer may delay the deletion that follows until the pod has ended. Or the pod had ended, and the watch
/// showed neither its end nor its deletion yet. The built-in controller uses the same order. A Job has a
/// surplus pod if a user has changed it, or if a pod that it has replaced succeeds after all. With other
/// owners, it also has one if they have created pods that this replica had not seen.
fn is_disowned(pod: &PodFacts, job: &JobFacts, others_act: bool, news: impl Fn(Time) -> Duration) -> bool {
    let unheard = |at: Time| pod.end.is_none_or(|end| at <= end.at || at.since(end.at) < news(end.at));
    let is_too_many = job.touched.is_some() || pod.superseded || (others_act && pod.surplus);
    is_too_many && pod.disowned.is_some_and(unheard)
}

/// Whether the end of a pod may be lost to its Job, since a replica was removing the pod.
pub(super) fn may_be_lost(
    pod: &PodFacts,
    job: &JobFacts,
    others_act: bool,
    news: impl Fn(Time) -> Duration,
) -> bool {
    is_unheard(pod, job, &news) || is_disowned(pod, job, others_act, news)
}

/// Whether a pod must count (`true`), may count (`false`), or must not.
fn counts(pod: &PodFacts, succeeded: bool, slack: Slack<'_>) -> Option<bool> {
    let job = slack.job;
    let news = |at| slack.news(at) + slack.plan.removals_wait();
    // If a replica removes a pod before it announces the end, the pod does not count, however it ends.
    // Exception: another owner that has not seen the suspension counts such a pod of a Job that fails then.
    let heard = |at: Time| if slack.others_act() { at + slack.news(at) } else { at };
    let deleted_in_time =
        job.announced.is_none_or(|announced| pod.deleted.is_some_and(|at| heard(at) < announced));
    let removed = (pod.removed && is_deleted_early(pod, news)) || is_unheard(pod, job, news);
    // The deletion of a pod that is given up counts, whatever a user has changed before.
    let removed = removed && !pod.given_up && deleted_in_time;
    let Some(end) = pod.end else {
        // Gone without an end: a failure if it was deleted while the Job counted it. A Job that fails counts the pods that it
        // removes then.
        let goes = pod.deleted.is_some() || (job.announced.is_some() && job.has_failed());
        return (!succeeded && goes && !removed).then_some(false);
    };
    if removed {
        // It may have ended just before.
        return (end.clean && end.succeeded == succeeded).then_some(false);
    }
    // A pod that ends after the announcement may come too late. So may a pod that was taken from the Job.
    let in_time = job.announced.is_none_or(|announced| end.at + slack.later(end.at) < announced);
    // An adoption that was refused at first holds up no end.
    let adopted_late = job.announced.is_some_and(|announced| pod.owned >= announced);
    let is_hidden = end.hidden && slack.plan.refuses(end.at);
    // A Job that is being deleted does not wait until a pod can be read.
    let is_let_go = pod.garbled && job.deleted.is_some();
    let is_kept_back =
        restarts::may_be_in_vain(job, pod) || adopted_late || is_hidden || is_let_go || pod.meddled;
    let certain = end.clean && in_time && !is_kept_back && !is_disowned(pod, job, slack.others_act(), news);
    if end.succeeded == succeeded {
        let ignored = !succeeded && consequence(job, pod) == Consequence::Ignore;
        return match (ignored, certain) {
            (false, certain) => Some(certain),
            (true, true) => None,
            (true, false) => Some(false),
        };
    }
    // A pod that was deleted first counts as failed, however it ended; and so does one that was seen active when the
    // end was announced.
    (!succeeded && (!end.clean || !in_time)).then_some(false)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use yardmaster::job::names::EXTERNAL_FINALIZER;

    use super::*;

    const NEWS: Duration = Duration::from_secs(5);

    /// Whether a replica need not count a success in a Job of this parallelism with three pods. The first pod
    /// succeeded at 10 s, and a user deleted it at 11 s. A replica removed its finalizer at `released`.
    /// `since`: when the other pods were created.
    fn is_excused(parallelism: u64, released: u64, since: u64, is_recorded: bool) -> bool {
        let at = |secs| Time::ZERO + Duration::from_secs(secs);
        let event = |kind: &str, object: Value| json!({"type": kind, "object": object});
        let mut ledger = Ledger::default();
        let succeeded = if is_recorded { json!(["p"]) } else { json!([]) };
        let job = json!({
            "kind": "Job", "metadata": {"uid": "j", "name": "j"}, "spec": {"parallelism": parallelism},
            "status": {"uncountedTerminatedPods": {"succeeded": succeeded}},
        });
        ledger.take_in(at(0), event("ADDED", job), None);
        ledger.jobs.values_mut().for_each(|job| job.touched = Some(at(9)));
        let pod = |uid: &str| {
            json!({
                "kind": "Pod", "status": {"phase": "Running"},
                "metadata": {
                    "uid": uid, "name": uid, "finalizers": [EXTERNAL_FINALIZER],
                    "ownerReferences": [{"kind": "Job", "uid": "j", "controller": true}],
                },
            })
        };
        let mut ended = pod("p");
        ledger.take_in(at(1), event("ADDED", ended.clone()), Some(0));
        ended["status"]["phase"] = "Succeeded".into();
        ledger.take_in(at(10), event("MODIFIED", ended.clone()), None);
        for other in ["q", "r"] {
            ledger.take_in(at(since), event("ADDED", pod(other)), Some(0));
        }
        ended["metadata"]["deletionTimestamp"] = "1970-01-01T00:00:11Z".into();
        ledger.take_in(at(11), event("MODIFIED", ended.clone()), None);
        ledger.take_in(at(released), event("DELETED", ended), Some(0));
        may_be_lost(&ledger.pods["p"], &ledger.jobs["j"], false, |_| NEWS)
    }

    /// Whether the counts are ahead for a Job of three pods with one success. `succeeded`: its count;
    /// `listed`: its uncounted pods.
    fn is_ahead(succeeded: u64, listed: &[&str], is_elastic: bool) -> bool {
        let event = |kind: &str, object: Value| json!({"type": kind, "object": object});
        let mut ledger = Ledger::default();
        let at = Time::ZERO + Duration::from_secs(1);
        for pod in ["p", "q", "r"] {
            let owner = json!({"kind": "Job", "uid": "j", "controller": true});
            let metadata = json!({"uid": pod, "name": pod, "ownerReferences": [owner]});
            let phase = if pod == "p" { "Succeeded" } else { "Running" };
            let pod = json!({"kind": "Pod", "status": {"phase": phase}, "metadata": metadata});
            ledger.take_in(at, event("ADDED", pod), Some(0));
        }
        for completions in if is_elastic { vec![5, 3] } else { vec![3] } {
            let mode = if is_elastic { "Indexed" } else { "NonIndexed" };
            let job = json!({
                "kind": "Job", "metadata": {"uid": "j", "name": "j"},
                "spec": {"completions": completions, "parallelism": 3, "completionMode": mode},
                "status": {"succeeded": succeeded, "uncountedTerminatedPods": {"succeeded": listed}},
            });
            ledger.take_in(at, event("ADDED", job), None);
        }
        ahead(&crate::plan::generate(0), &ledger, "j").is_some()
    }

    #[test]
    fn a_job_counts_and_lists_no_more_pods_than_have_succeeded() {
        assert!(!is_ahead(0, &[], false));
        assert!(!is_ahead(0, &["p"], false));
        assert!(!is_ahead(1, &[], false));
        assert!(is_ahead(1, &["p"], false), "once counted, and once listed");
        assert!(is_ahead(2, &[], false));
        assert!(!is_ahead(2, &[], true), "it may have wanted more before");
    }

    #[test]
    fn a_pod_by_which_a_job_is_scaled_down_may_have_succeeded_and_be_deleted_unheard() {
        assert!(is_excused(2, 14, 1, false));
        assert!(!is_excused(3, 14, 1, false), "the Job wants all three");
        assert!(!is_excused(2, 15, 1, false), "the replica has heard of the success");
        assert!(!is_excused(2, 14, 10 + 1, false), "the others have come in its place");
        assert!(!is_excused(2, 14, 1, true), "it is recorded");
    }
}
