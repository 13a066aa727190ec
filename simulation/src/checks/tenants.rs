//! A tenant: it holds up no other user, its own pods can be deleted, and its objects cost a bounded number of
//! requests.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use yardmaster::job::job_id::is_subdomain;
use yardmaster::job::names::CONTROLLER_UID_LABEL;

use super::finals::{held_up_until, is_ours};
use super::order;
use super::owners::Owners;
use crate::ledger::{JobFacts, Ledger, PodFacts};
use crate::plan::tenant::TENANT;
use crate::plan::{Act, Fault, Plan, Step};
use crate::tenant::POD;
use crate::time::Time;

/// How long another user's Job may wait for its first status, and its pods for their release after its
/// deletion.
const USUAL: Duration = Duration::from_secs(10);
/// How long a pod whose Job does not exist may keep our finalizer, where nothing is wrong. Reads of a namespace whose
/// answers take long are 16 at once.
const RELEASED: Duration = Duration::from_secs(60);
/// Most requests of one kind about one object of the tenant in a minute, besides those that follow from its changes.
const A_MINUTE: u32 = 60;

/// The requests and changes of a tenant's objects.
#[derive(Debug, Default)]
pub(super) struct Tenants {
    /// Since when nothing is wrong with any replica.
    well_since: Option<Time>,
    minute: u64,
    /// Requests of the current minute, by replica and object.
    requests: BTreeMap<(usize, String), u32>,
    /// Changes of the tenant's objects that no replica has made: in the minute before, and in this one.
    changes: (u32, u32),
}

impl Tenants {
    fn enter(&mut self, now: Time) {
        let minute = now.millis() / 60_000;
        if minute != self.minute {
            self.minute = minute;
            self.requests.clear();
            self.changes = (self.changes.1, 0);
        }
    }

    /// A client other than the replicas has changed an object of the tenant.
    pub(super) fn changed(&mut self, now: Time) {
        self.enter(now);
        self.changes.1 += 1;
    }

    /// Checks a request that a replica sends: it must not harm others, and must keep the pace.
    pub(super) fn sent(
        &mut self,
        now: Time,
        from: usize,
        request: &Request<Bytes>,
        ledger: &Ledger,
    ) -> Option<Wrong> {
        let path = request.uri().path();
        let (namespace, kind, name) = named(path)?;
        let what = || format!("replica-{from} sends {} {}", request.method(), request.uri());
        if !is_subdomain(name) {
            return Some(Wrong::Harm(format!("{}, and nothing can have this name", what())));
        }
        let is_write = *request.method() != Method::GET;
        if is_write && kind == "pods" && name.starts_with(POD) && !was_there(ledger, namespace, name) {
            return Some(Wrong::Harm(format!("{}, and that pod is elsewhere", what())));
        }
        if namespace != TENANT {
            return None;
        }
        self.enter(now);
        let count = self.requests.entry((from, format!("{} {path}", request.method()))).or_insert(0);
        *count += 1;
        let most = A_MINUTE + 2 * (self.changes.0 + self.changes.1);
        (*count > most).then(|| Wrong::Pace(format!("{} {count} times in a minute", what())))
    }

    /// Checks the Jobs of other users, and the release of the tenant's pods.
    pub(super) fn look(&mut self, now: Time, plan: &Plan, ledger: &Ledger, owners: &Owners) -> Option<Wrong> {
        let is_well = owners.all_undisturbed(now)
            && !plan.hinders(now)
            && !plan.refuses_any(now)
            && !plan.settings.all_own_all
            && !lacks_leader(plan, now);
        if !is_well {
            self.well_since = None;
            return None;
        }
        let well_since = *self.well_since.get_or_insert(now);
        let lag = plan.settings.lag() * 2;
        let waits = |since: Time, most: Duration| now > since.max(well_since) + most + lag;
        let others = || ledger.jobs.iter().filter(|(_, job)| is_ours(plan, job));
        for (uid, job) in others() {
            let name = job.name().1;
            let since = held_up_until(now, plan, job);
            if starts_late(job)
                && !order::waits_for_others(job)
                && waits(since.max(job.touched.unwrap_or(job.first_seen())), USUAL)
            {
                return Some(Wrong::Harm(format!(
                    "{name} has no status, and is there since {}",
                    job.first_seen()
                )));
            }
            let Some(deleted) = job.deleted else { continue };
            let keeps =
                |pod: &&PodFacts| pod.is_tracked() && !pod.is_taken() && !pod.meddled && is_shown(pod);
            if let Some(pod) = ledger.pods_of(uid).find(keeps)
                && waits(since.max(deleted).max(pod.created), USUAL)
            {
                let pod = pod.name().1;
                return Some(Wrong::Harm(format!(
                    "{name} was deleted at {deleted}, and {pod} is not released"
                )));
            }
        }
        let slow_until = plan.tenant_slow_until(now);
        // Where writes are limited, each of these pods takes its turn, and others have turns in between.
        let claimed = ledger.pods.values().filter(|pod| pod.name().1.starts_with(POD)).count() as u32;
        let turn = Duration::from_secs(2).checked_div(plan.settings.qps).unwrap_or_default();
        let bound = |pod: &&PodFacts| waits(pod.created.max(slow_until), RELEASED + claimed * turn);
        let pod = foreign(ledger).find(bound)?;
        Some(Wrong::Held(format!("{} keeps its finalizer, and its Job does not exist", pod.name().1)))
    }
}

/// A promise that is broken, and how.
pub(super) enum Wrong {
    /// Others are held up, or touched.
    Harm(String),
    /// Too many requests.
    Pace(String),
    /// A pod cannot be deleted.
    Held(String),
}

/// The pods that have our finalizer, and name a Job that does not exist where they are.
pub(super) fn foreign(ledger: &Ledger) -> impl Iterator<Item = &PodFacts> {
    let is_foreign = |pod: &&PodFacts| {
        let is_claimed = pod.name().1.starts_with(POD);
        is_claimed && pod.is_tracked() && pod.job.as_ref().is_none_or(|job| !ledger.jobs.contains_key(job))
    };
    ledger.pods.values().filter(is_foreign).filter(|pod| is_shown(pod))
}

/// Whether there has ever been a pod of this name.
fn was_there(ledger: &Ledger, namespace: &str, name: &str) -> bool {
    ledger.pods.values().any(|pod| pod.name() == (namespace, name))
}

/// Whether the watches of shards show a pod. Others are looked for, where lists take long only once an hour.
fn is_shown(pod: &PodFacts) -> bool {
    pod.object["metadata"]["labels"][CONTROLLER_UID_LABEL].is_string()
}

/// Whether a Job waits for its first status.
fn starts_late(job: &JobFacts) -> bool {
    let is_suspended = job.object["spec"]["suspend"] == true;
    job.exists
        && !job.deleting()
        && job.finished.is_none()
        && !is_suspended
        && job.object["status"]["startTime"].is_null()
}

/// Whether the orphan controllers may lack a leader now, or shortly before.
fn lacks_leader(plan: &Plan, now: Time) -> bool {
    /// The next election.
    const ELECTED: Duration = Duration::from_secs(20);
    let lacks = |step: &Step| match step.act {
        Act::Fault(Fault::Leadership { time, .. }) => step.at <= now && now <= step.at + time + ELECTED,
        _ => false,
    };
    plan.steps.iter().any(lacks)
}

/// The namespace, kind and name of the Job or pod of a path.
fn named(path: &str) -> Option<(&str, &str, &str)> {
    let (_, rest) = path.split_once("/namespaces/")?;
    let (namespace, rest) = rest.split_once('/')?;
    let (kind, rest) = rest.split_once('/')?;
    let name = rest.split_once('/').map_or(rest, |(name, _)| name);
    matches!(kind, "jobs" | "pods").then_some((namespace, kind, name))
}
