//! The true history of the world: every Job and pod that ever existed, and the fate of each.

mod facts;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;
use yardmaster::job::names::SHARD_LABEL;

use crate::tenant::is_in_namespace;
use crate::time::Time;

pub(crate) use self::facts::{End, JobFacts, PodFacts, conditions, controller, is_its, name, tracked};
use self::facts::{owner, parallelism};

/// Everything that is, and was.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    /// By UID.
    pub(crate) jobs: BTreeMap<String, JobFacts>,
    /// By UID.
    pub(crate) pods: BTreeMap<String, PodFacts>,
    /// By name.
    pub(crate) leases: BTreeMap<String, Value>,
}

/// The kind of an object that the world watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Job,
    Pod,
    Lease,
}

/// A change of an object.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) kind: Kind,
    pub(crate) uid: String,
    pub(crate) name: String,
    pub(crate) created: bool,
    pub(crate) deleted: bool,
    /// The object is in the tenant's namespace.
    pub(crate) of_tenant: bool,
}

impl Ledger {
    /// Applies a watch event and returns its meaning. `author`: the replica that caused it, or `None` for
    /// another client.
    pub(crate) fn take_in(&mut self, now: Time, event: Value, author: Option<usize>) -> Option<Change> {
        let deleted = event["type"] == "DELETED";
        let created = event["type"] == "ADDED";
        let object = event["object"].clone();
        let kind = match object["kind"].as_str()? {
            "Job" => Kind::Job,
            "Pod" => Kind::Pod,
            "Lease" => Kind::Lease,
            _ => return None,
        };
        let uid = object["metadata"]["uid"].as_str()?.to_owned();
        let name = object["metadata"]["name"].as_str()?.to_owned();
        let of_tenant = is_in_namespace(&object);
        match kind {
            Kind::Job => self.job(now, &uid, object, deleted),
            Kind::Pod => self.pod(now, &uid, object, deleted, author.is_some()),
            Kind::Lease => {
                if deleted {
                    self.leases.remove(&name);
                } else {
                    self.leases.insert(name.clone(), object);
                }
            }
        }
        if let Some(replica) = author {
            self.acts(replica, kind, &uid);
        }
        Some(Change { kind, uid, name, created, deleted, of_tenant })
    }

    /// A replica has written this object.
    fn acts(&mut self, replica: usize, kind: Kind, uid: &str) {
        let job = match kind {
            Kind::Job => Some(uid),
            Kind::Pod => self.pods.get(uid).and_then(|pod| pod.job.as_deref()),
            Kind::Lease => None,
        };
        let job = job.and_then(|job| self.jobs.get_mut(job));
        job.into_iter().for_each(|job| _ = job.replicas.insert(replica));
    }

    fn job(&mut self, now: Time, uid: &str, object: Value, deleted: bool) {
        let has = |kinds: &[&str]| {
            conditions(&object).any(|c| c["status"] == "True" && kinds.iter().any(|kind| c["type"] == *kind))
        };
        let (finished, announced) = (
            has(&["Complete", "Failed"]),
            has(&["Complete", "Failed", "SuccessCriteriaMet", "FailureTarget"]),
        );
        let facts = self.jobs.entry(uid.to_owned()).or_insert_with(|| JobFacts {
            object: Value::Null,
            exists: true,
            unsuspended_since: None,
            suspended_since: None,
            touched: None,
            finished: None,
            announced: None,
            deleted: None,
            sizes: Vec::new(),
            // The tenant writes the statuses of its Jobs.
            meddled: is_in_namespace(&object),
            ttl_set: None,
            replicas: BTreeSet::new(),
        });
        let is_new = facts.object.is_null();
        let size = object["spec"]["completions"].as_u64().unwrap_or(u64::MAX);
        if facts.sizes.last().is_none_or(|(_, last)| *last != size) {
            facts.sizes.push((now, size));
        }
        facts.finished = facts.finished.or(finished.then_some(now));
        facts.announced = facts.announced.or(announced.then_some(now));
        facts.exists = !deleted;
        let suspended = object["spec"]["suspend"] == true;
        facts.suspended_since = suspended.then(|| facts.suspended_since.unwrap_or(now));
        // If a Job ends or is being deleted, this condition stays as it is, as in Kubernetes.
        let deleting = !object["metadata"]["deletionTimestamp"].is_null();
        facts.deleted = facts.deleted.or((deleted || deleting).then_some(now));
        let waits = suspended && !announced && !deleting && !has(&["Suspended"]);
        facts.unsuspended_since = waits.then(|| facts.unsuspended_since.unwrap_or(now));
        facts.object = object;
        if is_new {
            self.disown_strangers(uid);
        }
    }

    /// A Job is known: pods that name its UID and are another's are not its own.
    fn disown_strangers(&mut self, uid: &str) {
        let Some(job) = self.jobs.get(uid) else { return };
        let claims = self.pods.values_mut().filter(|pod| pod.job.as_deref() == Some(uid));
        claims.filter(|pod| !is_its(&pod.object, &job.object)).for_each(|pod| pod.job = None);
    }

    fn pod(&mut self, now: Time, uid: &str, object: Value, deleted: bool, by_replica: bool) {
        // A pod that goes with its finalizer is shown as it was before.
        let loses_finalizer =
            self.pods.get(uid).is_some_and(|pod| tracked(&pod.object)) && (deleted || !tracked(&object));
        let is_surplus = (deleted || loses_finalizer) && self.is_surplus(uid);
        let is_superseded = self.is_superseded(now, uid);
        let facts = self.pods.entry(uid.to_owned()).or_insert_with(|| PodFacts {
            object: Value::Null,
            gone: None,
            job: None,
            owned: now,
            index: None,
            end: None,
            created: now,
            deleted: None,
            by_replica: false,
            removed: false,
            given_up: false,
            lost: false,
            disowned: None,
            surplus: false,
            superseded: false,
            meddled: false,
            moved: None,
            garbled: false,
            returns: false,
        });
        facts.gone = deleted.then(|| facts.gone.unwrap_or(now));
        // The first Job stays: it may have counted the pod before another controller took it.
        if facts.job.is_none() {
            facts.job = owner(&self.jobs, &object).map(str::to_owned);
            facts.owned = now;
            // More pods than were wanted: as if a user wanted fewer.
            let adopter =
                facts.job.as_ref().filter(|_| facts.created < now).and_then(|job| self.jobs.get_mut(job));
            adopter.into_iter().for_each(|job| job.touched = Some(now));
        }
        facts.index = facts.index.or_else(|| {
            object["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"]
                .as_str()?
                .parse()
                .ok()
        });
        let deleting = deleted || !object["metadata"]["deletionTimestamp"].is_null();
        let of = facts.job.as_ref().and_then(|job| self.jobs.get(job));
        let has_option = |name: &str| {
            of.is_some_and(|job| {
                !job.object["metadata"]["annotations"]
                    .get(format!("yardmaster.dev/{name}"))
                    .is_none_or(Value::is_null)
            })
        };
        let has_start_deadline = has_option("start-deadline");
        let is_forced = deleting
            && object["metadata"]["deletionGracePeriodSeconds"] == 0
            && has_option("lost-node-timeout");
        let phase = object["status"]["phase"].as_str();
        let shard = |object: &Value| object["metadata"]["labels"][SHARD_LABEL].as_str().map(str::to_owned);
        if facts.end.is_none()
            && let Some(phase @ ("Succeeded" | "Failed")) = phase
        {
            let clean = facts.deleted.is_none() && !deleting;
            let hidden = shard(&object).is_none() || facts.moved.is_some();
            facts.end = Some(End { at: now, succeeded: phase == "Succeeded", clean, hidden });
        }
        let moves = shard(&facts.object).zip(shard(&object)).is_some_and(|(before, now)| before != now);
        if moves {
            facts.moved = Some(now);
        }
        let job = facts.job.as_ref().and_then(|job| self.jobs.get(job));
        let is_recorded = job.is_some_and(|job| job.records(uid, facts));
        // If another client was deleting the pod, this ends it. A replica whose watch does not show the
        // deletion yet scales down by it, or releases it with its Job.
        let is_of_leaving = job.is_some_and(|job| job.deleted.is_some());
        let goes_already = facts.deleted.is_some() && !facts.by_replica;
        let may_disown = !deleting || (goes_already && (is_surplus || is_of_leaving));
        let disowns = by_replica && may_disown && loses_finalizer && !is_recorded;
        facts.surplus |= disowns && facts.disowned.is_none() && is_surplus;
        facts.superseded |= disowns && facts.disowned.is_none() && is_superseded;
        facts.disowned = facts.disowned.or(disowns.then_some(now));
        if deleting && facts.deleted.is_none() {
            facts.deleted = Some(now);
            facts.by_replica = by_replica;
            // A pod that has ended and is counted is cleared away.
            facts.removed = by_replica && (facts.end.is_none() || tracked(&facts.object));
            let is_pending = facts.object["status"]["phase"].as_str().is_none_or(|phase| phase == "Pending");
            let is_late = is_pending && has_start_deadline;
            facts.given_up = by_replica && tracked(&facts.object) && (is_late || is_forced);
        }
        facts.lost = is_forced && facts.end.is_none();
        facts.object = object;
    }

    /// Whether a replica that has not seen the end of a pod considers it surplus: the Job has as many other
    /// pods as it wants. Only pods from before the end count, since later ones may be its replacements.
    fn is_surplus(&self, uid: &str) -> bool {
        let Some(pod) = self.pods.get(uid) else { return false };
        let Some((job, end)) = pod.job.as_ref().zip(pod.end) else { return false };
        let Some(JobFacts { object, .. }) = self.jobs.get(job) else { return false };
        let wanted = parallelism(object);
        let is_before = |other: &&PodFacts| other.is_tracked() && other.created <= end.at;
        let others = self.pods_of(job).filter(|other| !std::ptr::eq(*other, pod));
        others.filter(is_before).count() as u64 >= wanted
    }

    /// Whether a pod has succeeded although it was being deleted when its replacement was created. The
    /// replacement is this pod, or another one that is still active: the Job has one pod too many. If the API
    /// server refuses to delete a removed replacement, it still runs. Another pod of the Job may then be
    /// removed in its place, as by the built-in controller.
    fn is_superseded(&self, now: Time, uid: &str) -> bool {
        /// A deletion follows the removal of the finalizer more quickly, unless it is refused or lost.
        const DELETED: Duration = Duration::from_millis(50);
        let Some(pod) = self.pods.get(uid) else { return false };
        let Some(job) = &pod.job else { return false };
        let has_succeeded = |other: &PodFacts| other.end.is_some_and(|end| end.succeeded && !end.clean);
        // Which of the pods of a Job goes does not depend on which has been replaced.
        let is_replaced = |other: &PodFacts| {
            let is_by = |by: &PodFacts| {
                by.index == other.index && other.deleted.is_some_and(|deleted| deleted <= by.created)
            };
            is_by(pod) || self.pods_of(job).any(|by| by.is_active() && is_by(by))
        };
        let is_still_there = |other: &PodFacts| {
            let long = other.disowned.is_some_and(|disowned| now.since(disowned) > DELETED);
            other.superseded && long && other.is_active()
        };
        self.pods_of(job).any(|other| (has_succeeded(other) && is_replaced(other)) || is_still_there(other))
    }

    /// The pods that a Job controls, or did.
    pub(crate) fn pods_of<'a>(&'a self, job: &'a str) -> impl Iterator<Item = &'a PodFacts> {
        self.pods.values().filter(move |pod| pod.job.as_deref() == Some(job))
    }
}
