//! The facts about one Job or pod.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use yardmaster::job::index_set::IndexSet;
use yardmaster::job::names::{BUILT_IN_FINALIZER, EXTERNAL_FINALIZER, SHARD_LABEL};

use crate::time::Time;

/// A Job as it was and is.
#[derive(Clone, Debug)]
pub(crate) struct JobFacts {
    /// As it was last seen.
    pub(crate) object: Value,
    /// Whether it still exists.
    pub(crate) exists: bool,
    /// Since when a user wants it suspended and its conditions do not say so.
    pub(crate) unsuspended_since: Option<Time>,
    /// Since when a user wants it suspended.
    pub(crate) suspended_since: Option<Time>,
    /// When a user last changed its spec, deleted it, or touched its pods.
    pub(crate) touched: Option<Time>,
    /// When it got its last condition, `Complete` or `Failed`.
    pub(crate) finished: Option<Time>,
    /// When its end was announced: `SuccessCriteriaMet` or `FailureTarget`.
    pub(crate) announced: Option<Time>,
    /// When its deletion began.
    pub(crate) deleted: Option<Time>,
    /// Its completions, each since when.
    pub(crate) sizes: Vec<(Time, u64)>,
    /// Whether its counts can no longer be predicted: a user or an administrator took the records away.
    pub(crate) meddled: bool,
    /// When a user last set its TTL, or took it away.
    pub(crate) ttl_set: Option<Time>,
    /// The replicas that have written it or one of its pods.
    pub(crate) replicas: BTreeSet<usize>,
}

/// A pod as it was and is.
#[derive(Clone, Debug)]
pub(crate) struct PodFacts {
    /// As it was last seen.
    pub(crate) object: Value,
    /// When it went.
    pub(crate) gone: Option<Time>,
    /// The UID of the Job that controls it, or did.
    pub(crate) job: Option<String>,
    /// Since when.
    pub(crate) owned: Time,
    /// Its completion index.
    pub(crate) index: Option<u32>,
    /// How it ended, if it has.
    pub(crate) end: Option<End>,
    /// When it was created.
    pub(crate) created: Time,
    /// When its deletion began.
    pub(crate) deleted: Option<Time>,
    /// Whether a replica deleted it.
    pub(crate) by_replica: bool,
    /// Whether a replica deleted it without intending to count it.
    pub(crate) removed: bool,
    /// Whether a replica deleted it because it did not start, or is lost with its node. The pod counts.
    pub(crate) given_up: bool,
    /// Whether it is lost for its Job: it was deleted by force, and has not ended.
    pub(crate) lost: bool,
    /// When a replica removed the finalizer without recording the pod. This precedes a deletion by the
    /// replica, or follows the deletion by another client, as when the Job is scaled down.
    pub(crate) disowned: Option<Time>,
    /// Whether its Job had enough other pods when it was disowned.
    pub(crate) surplus: bool,
    /// Whether its Job had one pod too many when it was disowned, since a replaced pod had succeeded after
    /// all. This pod is the replacement, or was removed because the replacement could not be deleted.
    pub(crate) superseded: bool,
    /// Whether another client removed our finalizer or labels from it.
    pub(crate) meddled: bool,
    /// When it got the label of another shard than before.
    pub(crate) moved: Option<Time>,
    /// Whether it could not be read for a while.
    pub(crate) garbled: bool,
    /// Whether its Job selects it again after another client removed its labels. If a pod was counted,
    /// released and adopted again, it counts again, as with the built-in controller.
    pub(crate) returns: bool,
}

/// How a pod has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub(crate) at: Time,
    pub(crate) succeeded: bool,
    /// It ended by itself, before its deletion.
    pub(crate) clean: bool,
    /// It had lost the label of its shard by then: its Job sees the end once the label is restored.
    pub(crate) hidden: bool,
}

impl JobFacts {
    /// Whether the status records a pod that has ended.
    pub(super) fn records(&self, uid: &str, pod: &PodFacts) -> bool {
        let Some(end) = pod.end else { return false };
        let status = &self.object["status"];
        let uncounted = &status["uncountedTerminatedPods"];
        let list = &uncounted[if end.succeeded { "succeeded" } else { "failed" }];
        let is_listed = list.as_array().is_some_and(|uids| uids.iter().any(|listed| listed == uid));
        // An Indexed Job records completed indexes in place of UIDs.
        is_listed || (end.succeeded && pod.index.is_some_and(|index| self.is_completed(index)))
    }
}

impl PodFacts {
    /// Whether it still exists.
    pub(crate) fn exists(&self) -> bool {
        self.gone.is_none()
    }

    /// Whether it exists, has not ended, and is not being deleted.
    pub(crate) fn is_active(&self) -> bool {
        self.exists() && self.end.is_none() && self.deleted.is_none()
    }

    /// Whether it has the tracking finalizer.
    pub(crate) fn is_tracked(&self) -> bool {
        self.exists() && tracked(&self.object)
    }

    /// Whether a controller that is no Job has it. The finalizer is that one's business.
    pub(crate) fn is_taken(&self) -> bool {
        let mut owners = self.object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        owners.any(|owner| owner["controller"] == true && owner["kind"] != "Job")
    }

    /// The shard whose label it has.
    pub(crate) fn shard_label(&self) -> Option<&str> {
        shard_label(&self.object)
    }

    /// Its namespace and name.
    pub(crate) fn name(&self) -> (&str, &str) {
        name(&self.object)
    }
}

pub(super) fn shard_label(pod: &Value) -> Option<&str> {
    pod["metadata"]["labels"][SHARD_LABEL].as_str()
}

impl JobFacts {
    /// Its namespace and name.
    pub(crate) fn name(&self) -> (&str, &str) {
        name(&self.object)
    }

    /// How many pods it wants at most: none, once it is suspended or has ended.
    pub(crate) fn wanted(&self) -> u64 {
        if self.finished.is_some() { 0 } else { parallelism(&self.object) }
    }

    /// A number of its status; 0 if it is absent.
    pub(crate) fn count(&self, field: &str) -> u64 {
        self.object["status"][field].as_u64().unwrap_or(0)
    }

    /// Whether its end is, or will be, `Failed`.
    pub(crate) fn has_failed(&self) -> bool {
        conditions(&self.object)
            .any(|c| c["status"] == "True" && (c["type"] == "Failed" || c["type"] == "FailureTarget"))
    }

    /// Whether its end is announced because its success policy is met.
    pub(crate) fn meets_policy(&self) -> bool {
        conditions(&self.object).any(|c| c["reason"] == "SuccessPolicy" && c["status"] == "True")
    }

    /// Whether the status says that this index has succeeded.
    pub(crate) fn is_completed(&self, index: u32) -> bool {
        let indexes = self.object["status"]["completedIndexes"].as_str().and_then(IndexSet::parse_strict);
        indexes.is_some_and(|indexes| indexes.contains(index))
    }

    /// Since when it is known.
    pub(crate) fn first_seen(&self) -> Time {
        self.sizes.first().map_or(Time::ZERO, |(since, _)| *since)
    }

    /// Its completions at a time.
    pub(crate) fn size_at(&self, time: Time) -> u64 {
        let last = self.sizes.iter().rev().find(|(since, _)| *since <= time);
        last.map_or(u64::MAX, |(_, size)| *size)
    }

    /// Whether it has had so few completions since that time that it forgets what it knew of this index.
    pub(crate) fn forgets(&self, index: u32, since: Time) -> bool {
        self.least_size(since) <= index.into()
    }

    /// The fewest completions that it has had since that time.
    pub(crate) fn least_size(&self, since: Time) -> u64 {
        let later = self.sizes.iter().filter(|(at, _)| *at >= since).map(|(_, size)| *size);
        later.fold(self.size_at(since), u64::min)
    }

    /// Whether it is being deleted.
    pub(crate) fn deleting(&self) -> bool {
        !self.object["metadata"]["deletionTimestamp"].is_null()
    }
}

/// The namespace and name of an object.
pub(crate) fn name(object: &Value) -> (&str, &str) {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    (text("namespace"), text("name"))
}

/// How many pods a Job wants at most while it has not ended.
pub(super) fn parallelism(job: &Value) -> u64 {
    match job["spec"]["suspend"] == true {
        true => 0,
        false => job["spec"]["parallelism"].as_u64().unwrap_or(1),
    }
}

/// The conditions of an object.
pub(crate) fn conditions(object: &Value) -> impl Iterator<Item = &Value> {
    object["status"]["conditions"].as_array().into_iter().flatten()
}

/// Whether an object has one of the tracking finalizers.
pub(crate) fn tracked(object: &Value) -> bool {
    let finalizers = object["metadata"]["finalizers"].as_array();
    finalizers.into_iter().flatten().any(|f| f == BUILT_IN_FINALIZER || f == EXTERNAL_FINALIZER)
}

/// The UID of an object's controller.
pub(crate) fn controller(object: &Value) -> Option<&str> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    owners.iter().find(|owner| owner["controller"] == true)?["uid"].as_str()
}

/// The UID of the Job that controls an object. A reference to a known Job of another namespace or name is none to that Job.
pub(super) fn owner<'a>(jobs: &BTreeMap<String, JobFacts>, object: &'a Value) -> Option<&'a str> {
    let uid = controller(object)?;
    jobs.get(uid).is_none_or(|job| is_its(object, &job.object)).then_some(uid)
}

/// Whether an object is in the namespace of a Job, and names it as its controller.
pub(crate) fn is_its(object: &Value, job: &Value) -> bool {
    let owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    let controller = owners.into_iter().find(|owner| owner["controller"] == true);
    let names = |owner: &Value| {
        let is_named = owner["name"].as_str().is_none_or(|named| named == name(job).1);
        owner["kind"] == "Job" && is_named && owner["uid"] == job["metadata"]["uid"]
    };
    name(object).0 == name(job).0 && controller.is_some_and(names)
}
