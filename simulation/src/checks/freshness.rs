//! If nothing is wrong, `active` and `ready` of a status are at most ten seconds old: Kueue and JobSet wait
//! for them. `active` is at least the number of pods that are not deleted: Kueue reassigns the quota of all
//! others.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::finals::{held_up_until, is_ours};
use super::owners::Owners;
use crate::ledger::{JobFacts, Ledger, PodFacts, conditions};
use crate::plan::Plan;
use crate::time::Time;

/// How old they may be.
const OLDEST: Duration = Duration::from_secs(10);
/// How long they may say what has never been true: a replica knows its own creations sooner than what kubelets do.
const MIXED: Duration = Duration::from_secs(3);

/// Active pods, and how many of them are ready.
type Running = (u64, u64);

/// The history of Jobs whose status a replica has written.
#[derive(Debug, Default)]
pub(super) struct Freshness {
    /// By UID: what has been true from a time on, the oldest first. The last still is.
    history: BTreeMap<String, VecDeque<(Time, Running)>>,
    /// By UID: since when a status says what has not been true for too long.
    wrong: BTreeMap<String, Time>,
}

impl Freshness {
    /// A Job has changed, or a pod of it. `written`: a replica has written its status.
    pub(super) fn changed(&mut self, now: Time, ledger: &Ledger, job: &str, written: bool) {
        if written {
            self.history.entry(job.to_owned()).or_default();
        }
        let Some(history) = self.history.get_mut(job) else { return };
        let truth = running(ledger, job);
        if history.back().is_none_or(|(_, last)| *last != truth) {
            history.push_back((now, truth));
        }
    }

    /// Checks a status that a replica has just written.
    pub(super) fn written(
        &self,
        now: Time,
        plan: &Plan,
        ledger: &Ledger,
        owners: &Owners,
        uid: &str,
    ) -> Option<String> {
        if is_excused(now, plan, owners) {
            return None;
        }
        let since = before(now, MIXED, plan);
        let (history, job) = (self.history.get(uid)?, ledger.jobs.get(uid)?);
        let (first, _) = history.front()?;
        let recent = history.iter().zip(history.iter().skip(1).map(|(until, _)| Some(*until)).chain([None]));
        let least = recent
            .filter(|(_, until)| until.is_none_or(|until| until > since))
            .map(|((_, (active, _)), _)| *active)
            .min()?;
        let ((active, _), name) = (said(job), job.name().1);
        (*first <= since && active < least && is_due(plan, ledger, uid, job))
            .then(|| format!("{name}: {active} active, while nobody has deleted {least} pods"))
    }

    /// Checks the age of all statuses.
    pub(super) fn look(
        &mut self,
        now: Time,
        plan: &Plan,
        ledger: &Ledger,
        owners: &Owners,
    ) -> Option<String> {
        if is_excused(now, plan, owners) {
            self.wrong.clear();
            return None;
        }
        let since = before(now, OLDEST, plan);
        for (uid, history) in &mut self.history {
            while history.get(1).is_some_and(|(until, _)| *until < since) {
                history.pop_front();
            }
            let is_known = history.front().is_some_and(|(first, _)| *first <= since);
            let is_wrong = |job: &&JobFacts| history.iter().all(|(_, truth)| *truth != said(job));
            let is_due =
                |job: &&JobFacts| is_due(plan, ledger, uid, job) && now > held_up_until(now, plan, job);
            match ledger.jobs.get(uid).filter(is_due).filter(is_wrong).filter(|_| is_known) {
                Some(_) => _ = self.wrong.entry(uid.clone()).or_insert(now),
                None => _ = self.wrong.remove(uid),
            }
        }
        let (uid, _) = self.wrong.iter().find(|(_, since)| now.since(**since) >= MIXED)?;
        let job = ledger.jobs.get(uid)?;
        let (name, (active, ready)) = (job.name().1, said(job));
        Some(format!("{name}: {active} active and {ready} ready have not been true since {since}"))
    }
}

/// Whether something is wrong that may make any status old.
fn is_excused(now: Time, plan: &Plan, owners: &Owners) -> bool {
    let settings = &plan.settings;
    let hears_late = settings.lag() > Duration::ZERO;
    !owners.all_undisturbed(now) || plan.hinders(now) || settings.all_own_all || hears_late
}

/// This long ago, and so much longer as news takes to be known.
fn before(now: Time, period: Duration, plan: &Plan) -> Time {
    let begin = Time::ms(now.millis().saturating_sub(period.as_millis() as u64));
    // A replica that has just claimed its shard has not written a Job yet.
    let news = plan.news_take(begin, &(0..plan.settings.replicas).collect());
    Time::ms(begin.millis().saturating_sub(news.as_millis() as u64))
}

fn said(job: &JobFacts) -> Running {
    (job.count("active"), job.count("ready"))
}

/// Whether the status of a Job has to be kept up to date. Exempt are Jobs with pods that have lost labels or
/// finalizers.
fn is_due(plan: &Plan, ledger: &Ledger, uid: &str, job: &JobFacts) -> bool {
    let is_clean = !job.meddled && !ledger.pods_of(uid).any(|pod| pod.meddled);
    let goes_on = job.exists && !job.deleting() && job.finished.is_none() && job.announced.is_none();
    is_ours(plan, job) && is_clean && goes_on
}

fn running(ledger: &Ledger, job: &str) -> Running {
    let is_ready = |pod: &&PodFacts| {
        conditions(&pod.object).any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
    };
    let active = || ledger.pods_of(job).filter(|pod| pod.is_active());
    (active().count() as u64, active().filter(is_ready).count() as u64)
}
