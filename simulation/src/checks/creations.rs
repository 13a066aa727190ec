//! Creations of pods: none is surplus, and no index runs again after its success.

use std::time::Duration;

use yardmaster::sharding::ShardCount;

use crate::checks::Author;
use crate::checks::counts::may_be_lost;
use crate::checks::failures::{Consequence, consequence};
use crate::checks::finals;
use crate::checks::memory;
use crate::checks::order;
use crate::checks::restarts;
use crate::checks::selection::selects;
use crate::ledger::{JobFacts, Ledger, PodFacts};
use crate::plan::Plan;
use crate::time::Time;

/// Checks a pod that a replica has just created. `lag`: the longest time until that replica knows of a user's
/// act.
pub(super) fn check(
    plan: &Plan,
    ledger: &Ledger,
    uid: &str,
    author: Author,
    lag: impl Fn(Time) -> Duration,
) -> Option<String> {
    let pod = ledger.pods.get(uid)?;
    let job_uid = pod.job.as_deref()?;
    let job = ledger.jobs.get(job_uid)?;
    if !job.exists || job.meddled {
        return None;
    }
    if !finals::is_ours(plan, job) {
        return Some(format!(
            "replica-{} creates {} of another controller's Job",
            author.replica,
            pod.name().1
        ));
    }
    // Users who change a Job while a creation is on its way get what they ask for a little later.
    let settled = job.touched.is_none_or(|touched| author.sent_at.since(touched) > lag(touched));
    if !settled {
        return None;
    }
    // Other replicas act for the same Job, so a replica sees their acts late, too.
    let others_act = plan.settings.all_own_all;
    // A request may have been in flight for long: no replica can take back a delayed request.
    let knows = |at| author.sent_at >= at && (!others_act || author.sent_at.since(at) > lag(at));
    // If a user gives a pod the label of another shard, the owner of that shard restores the label. Until the
    // watch shows that, a new owner of the Job's shard does not know of the pod.
    let shards = ShardCount::new(plan.settings.shards).unwrap_or_default();
    let own = shards.shard_of(job_uid).to_string();
    let is_away = |other: &PodFacts| other.shard_label().is_some_and(|label| label != own);
    let is_shown =
        |other: &PodFacts| other.moved.is_none_or(|at| author.sent_at.since(at) > lag(at) && !is_away(other));
    let others = ledger.pods_of(job_uid).filter(|other| !std::ptr::eq(*other, pod) && is_shown(other));
    let others: Vec<&PodFacts> = others.collect();
    let overlap = restarts::overlaps(job, pod, &others, knows).filter(|_| !others_act);
    let memory = memory::check(job, pod, &others).filter(|_| !others_act);
    let creation = Creation { plan, job, pod, others, others_act, sent_at: author.sent_at };
    let index = pod.index.and_then(|index| creation.at_index(index, knows));
    let orphan = || creation.is_beside_orphan(ledger);
    let by_options = overlap.or(memory).or_else(|| order::too_early(ledger, job));
    let what = by_options.or(creation.is_beside(knows)).or(index).or_else(orphan).or_else(|| {
        if job.deleted.is_some_and(&knows) {
            return Some("of a Job that is being deleted".into());
        }
        job.finished.is_some_and(&knows).then(|| "of a finished Job".into())
    })?;
    Some(format!("replica-{} creates {} {what}", author.replica, pod.name().1))
}

/// If a creation is in flight for longer, its replica cannot take it back.
const ON_ITS_WAY: Duration = Duration::from_secs(5);

/// A pod that was just created, and the others of its Job.
struct Creation<'a> {
    plan: &'a Plan,
    job: &'a JobFacts,
    pod: &'a PodFacts,
    others: Vec<&'a PodFacts>,
    /// Whether several replicas act for the Job.
    others_act: bool,
    sent_at: Time,
}

impl Creation<'_> {
    fn others(&self) -> impl Iterator<Item = &PodFacts> {
        self.others.iter().copied()
    }

    /// Whether the end of a pod may be lost to the Job.
    fn may_lose(&self, pod: &PodFacts) -> bool {
        let news = |at| self.plan.news_take(at, &self.job.replicas) + self.plan.removals_wait();
        may_be_lost(pod, self.job, self.others_act, news)
    }

    /// Whether a pod has the name of one that is gone. An owner that has never seen that one gives its name again, while
    /// the others go on. The controller built into Kubernetes gives every pod another name.
    fn is_again(&self, pod: &PodFacts) -> bool {
        let was_before =
            |other: &PodFacts| !other.exists() && other.created < pod.created && other.name() == pod.name();
        self.others_act && self.others().any(was_before)
    }

    /// Checks the number of pods. `knows`: whether the replica had to know of events at this time.
    fn is_beside(&self, knows: impl Fn(Time) -> bool) -> Option<String> {
        if self.is_again(self.pod) {
            return None;
        }
        let spec = &self.job.object["spec"];
        let waits_for_end = spec["podReplacementPolicy"] == "Failed";
        let holds_place = |other: &PodFacts| {
            other.is_active() || (waits_for_end && other.exists() && other.end.is_none() && !other.lost)
        };
        // If the other pod was adopted after this creation was sent, or created long after, one of both is
        // removed.
        let is_later = |other: &PodFacts| match other.owned > other.created {
            true => other.owned > self.sent_at,
            false => other.created.since(self.sent_at) > ON_ITS_WAY,
        };
        let holds_place = |other: &&PodFacts| {
            !other.meddled && holds_place(other) && !self.is_again(other) && !is_later(other)
        };
        let active = self.others().filter(holds_place).count() as u64;
        let parallelism = spec["parallelism"].as_u64().unwrap_or(1);
        if active >= parallelism {
            return Some(format!("beside {active} active pods of {parallelism}"));
        }
        let completions = spec["completions"].as_u64().filter(|_| self.pod.index.is_none())?;
        let succeeded = self
            .others()
            .filter(|other| !other.meddled && other.end.is_some_and(|end| end.succeeded && end.clean))
            .filter(|other| !self.may_lose(other))
            // If a pod is gone, only the status shows its success, and each of several owners sees a status
            // late.
            .filter(|other| other.exists() || !self.others_act || other.deleted.is_some_and(&knows))
            .count() as u64;
        (active + succeeded >= completions)
            .then(|| format!("beside {active} active and {succeeded} succeeded pods of {completions}"))
    }

    /// Checks that the Job gets no new pod while it could adopt a pod that is older than the Job.
    fn is_beside_orphan(&self, ledger: &Ledger) -> Option<String> {
        if self.others_act || self.plan.hinders(self.sent_at) || self.plan.refuses_any(self.sent_at) {
            return None;
        }
        let was_there = |pod: &PodFacts| pod.created < self.job.first_seen();
        let is_nobodys = |pod: &&PodFacts| pod.job.is_none() && pod.is_active() && was_there(pod);
        let may_adopt = |job: &JobFacts, pod: &PodFacts| {
            job.exists
                && job.name().0 == pod.name().0
                && selects(&job.object["spec"]["selector"], &pod.object["metadata"]["labels"])
        };
        let is_only_its = |pod: &&PodFacts| {
            may_adopt(self.job, pod) && ledger.jobs.values().filter(|job| may_adopt(job, pod)).count() == 1
        };
        let mut orphans = ledger.pods.values().filter(is_nobodys);
        orphans.find(is_only_its).map(|pod| format!("beside {}, which the Job may adopt", pod.name().1))
    }

    /// Checks a pod at this index. `knows`: whether the replica had to know of events at this time.
    fn at_index(&self, index: u32, knows: impl Fn(Time) -> bool) -> Option<String> {
        // If an elastic Job shrinks below an index, it forgets the pods of that index.
        let is_known = |other: &&PodFacts| !other.meddled && !self.job.forgets(index, other.created);
        let at_index_before = || self.others().filter(|other| other.index == Some(index)).filter(is_known);
        let at_index = || at_index_before().filter(|other| other.exists());
        // Another owner may have removed it as surplus, or since its Job had failed.
        let is_lost =
            |other: &PodFacts| self.may_lose(other) || (self.others_act && other.disowned.is_some());
        let is_lost = |other: &PodFacts| is_lost(other) || restarts::is_vain_for(self.job, other, self.pod);
        let has_succeeded =
            |other: &PodFacts| other.end.is_some_and(|end| end.succeeded && end.clean) && !is_lost(other);
        let is_gone = |other: &&PodFacts| !other.exists() && other.deleted.is_some_and(&knows);
        if at_index().any(has_succeeded)
            || (at_index_before().filter(is_gone).any(has_succeeded) && self.job.is_completed(index))
        {
            return Some("at an index that has succeeded".into());
        }
        if at_index().any(PodFacts::is_active) {
            return Some("at an index that has an active pod".into());
        }
        let failed = || at_index().filter(|other| other.end.is_some_and(|end| !end.succeeded && end.clean));
        if failed().any(|other| consequence(self.job, other) == Consequence::FailIndex) {
            return Some("at an index that a rule lets fail".into());
        }
        self.is_exhausted(index, failed())
    }

    /// Checks a pod at an index with these failed pods against `backoffLimitPerIndex`.
    fn is_exhausted<'a>(&self, index: u32, failed: impl Iterator<Item = &'a PodFacts>) -> Option<String> {
        // Each pod carries the number of failures before it. As in Kubernetes, the number is lost with a pod
        // that was taken from the Job, or that the Job has removed as surplus.
        let is_uncounted = |other: &PodFacts| {
            !other.exists() && other.end.is_some_and(|end| end.succeeded) && !self.job.is_completed(index)
        };
        let is_surplus = |other: &PodFacts| self.job.touched.is_some() || other.superseded;
        let is_removed =
            |other: &PodFacts| is_surplus(other) && (other.disowned.is_some() || is_uncounted(other));
        let is_taken = |other: &&PodFacts| other.meddled || is_removed(other);
        let taken = self.others().filter(|other| other.index == Some(index)).filter(is_taken);
        let taken = taken.map(|other| other.created).max();
        let failures = failed
            .filter(|other| taken.is_none_or(|taken| other.created > taken))
            .filter(|other| consequence(self.job, other) != Consequence::Ignore);
        let failures = failures.count() as u64;
        let limit = self.job.object["spec"]["backoffLimitPerIndex"].as_u64()?;
        (failures > limit).then(|| format!("at an index that has failed {failures} times"))
    }
}
