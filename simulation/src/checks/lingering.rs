//! Pods that a Job no longer wants are deleted soon, where no request about pods is refused or lost.

use std::collections::BTreeMap;
use std::time::Duration;

use super::finals::{held_up_until, is_ours};
use super::owners::Owners;
use crate::ledger::{JobFacts, Ledger};
use crate::plan::Plan;
use crate::time::Time;

/// How long it may take when nothing is wrong with any replica.
const LONG: Duration = Duration::from_secs(5);

/// Jobs with more active pods than they want.
#[derive(Debug, Default)]
pub(super) struct Lingering {
    /// By UID: since when, as far as nothing was wrong.
    since: BTreeMap<String, Time>,
}

impl Lingering {
    /// Checks that no Job has had too many active pods for too long.
    pub(super) fn look(
        &mut self,
        now: Time,
        plan: &Plan,
        ledger: &Ledger,
        owners: &Owners,
    ) -> Option<String> {
        if !owners.all_undisturbed(now) || plan.refuses(now) {
            self.since.clear();
            return None;
        }
        let is_held_up = |job: &JobFacts| now <= held_up_until(now, plan, job);
        // If one of several owners sees the end of a Job late, it creates pods that no owner removes.
        let hears_late = plan.settings.all_own_all && plan.settings.lag() > Duration::ZERO;
        let is_left = |job: &JobFacts| hears_late && job.finished.is_some();
        let surplus =
            |job: &JobFacts, uid: &str| is_ours(plan, job) && !is_left(job) && has_surplus(ledger, uid, job);
        for (uid, job) in &ledger.jobs {
            match surplus(job, uid) && !is_held_up(job) {
                true => _ = self.since.entry(uid.clone()).or_insert(now),
                false => _ = self.since.remove(uid),
            }
        }
        let long = LONG + plan.settings.lag() + plan.removals_wait();
        let (uid, since) = self.since.iter().find(|(_, since)| now.since(**since) > long)?;
        let name = ledger.jobs.get(uid)?.name().1;
        Some(format!("{name} has had more active pods than it wants since {since}"))
    }
}

fn has_surplus(ledger: &Ledger, uid: &str, job: &JobFacts) -> bool {
    // Without completions, a Job that has a success keeps the pods that it has, whatever its parallelism.
    let keeps = job.object["spec"]["completions"].is_null()
        && ledger.pods_of(uid).any(|pod| pod.end.is_some_and(|end| end.succeeded));
    let active = || ledger.pods_of(uid).filter(|pod| pod.is_active() && !pod.meddled).count() as u64;
    job.exists && !job.deleting() && !keeps && active() > job.wanted()
}
