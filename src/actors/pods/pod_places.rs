//! Which shards a pod concerns. Its controller, its labels and its UID say so, and nothing that is remembered: each
//! replica and each shard comes to the same answer.
//!
//! The label of a shard only spares other replicas the pod. A pod without that label, or with one that names no shard, is
//! shown to all of them.

use crate::actors::known_jobs::job_index::JobIndex;
use crate::cluster::wire::{ControllerRef, ObservedPod};
use crate::job::job_id::JobId;
use crate::job::names::{CONTROLLER_UID_LABEL, SHARD_LABEL};
use crate::job::uid::Uid;
use crate::sharding::{ShardCount, ShardId};

/// A few shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Places([Option<ShardId>; 3]);

impl Places {
    fn of(places: [Option<ShardId>; 3]) -> Self {
        let [first, second, third] = places;
        let second = second.filter(|_| second != first);
        Self([first, second, third.filter(|_| third != first && third != second)])
    }

    /// Whether it is one of them.
    pub fn contains(self, shard: ShardId) -> bool {
        self.0.contains(&Some(shard))
    }

    /// Each of them once.
    pub fn iter(self) -> impl Iterator<Item = ShardId> {
        self.0.into_iter().flatten()
    }
}

/// The places of the pods of a cluster.
#[derive(Clone, Copy, Debug)]
pub struct PodPlaces(pub ShardCount);

impl PodPlaces {
    /// The shard of a Job.
    pub fn of_job(self, job: &JobId) -> ShardId {
        self.of_uid(job.uid())
    }

    fn of_uid(self, uid: &Uid) -> ShardId {
        uid.with_text(|text| self.0.shard_of(text))
    }

    /// The shard of the pod's label, if that names one.
    pub fn of_label(self, pod: &ObservedPod) -> Option<ShardId> {
        self.0.shard_numbered(pod.labels.get(SHARD_LABEL)?)
    }

    /// The shard of the Job that controls the pod.
    pub fn home(self, pod: &ObservedPod) -> Option<ShardId> {
        pod.job().map(|job| self.of_job(job))
    }

    /// The shard of the UID in the label by which a Job selects its pods.
    fn of_selected(self, pod: &ObservedPod) -> Option<ShardId> {
        Some(self.0.shard_of(pod.labels.get(CONTROLLER_UID_LABEL)?))
    }

    /// Whether the label of a pod names another shard, and so keeps the pod from a replica that owns this one only.
    pub fn is_hidden_from(self, pod: &ObservedPod, shard: ShardId) -> bool {
        self.of_label(pod).is_some_and(|label| label != shard)
    }

    /// The one shard that sees to a pod that no known Job has. If the label names a
    /// shard, others may not see the pod.
    pub fn keeper(self, pod: &ObservedPod) -> ShardId {
        let by_owner = || self.home(pod).or_else(|| self.of_selected(pod));
        self.of_label(pod).or_else(by_owner).unwrap_or_else(|| self.of_uid(&pod.pod.uid))
    }

    /// The shards to which a pod's marks lead.
    pub fn leads(self, pod: &ObservedPod, jobs: &JobIndex) -> Leads {
        let job = match &pod.controller {
            Some(controller) => controller.job().map(|job| self.of_job(job)),
            None => jobs.adopter(pod).map(|job| self.of_job(&job)),
        };
        Leads { job, label: self.of_label(pod), selected: self.of_selected(pod) }
    }

    /// The shards that a pod with these marks concerns. These are the shards of its
    /// label, of its Job (or of the Job that would adopt it), and of the Job that
    /// selected it before its owner changed.
    pub fn of(self, pod: &ObservedPod, leads: &Leads) -> Places {
        match [leads.job, leads.label, leads.selected] {
            [None, None, None] => Places::of([pod.pod.tracked.then(|| self.keeper(pod)), None, None]),
            places => Places::of(places),
        }
    }

    /// Whether nothing about a pod concerns us, as with a Job of another controller. A
    /// foreign pod has none of our marks, and belongs to no known Job.
    pub fn is_foreign(self, pod: &ObservedPod, jobs: &JobIndex) -> bool {
        !pod.has_marks()
            && match &pod.controller {
                Some(ControllerRef::Job(job)) => !jobs.contains(job),
                Some(ControllerRef::Other | ControllerRef::NoJob) => true,
                None => self.of_selected(pod).is_none() && jobs.adopter(pod).is_none(),
            }
            && !pod.labels.get(CONTROLLER_UID_LABEL).is_some_and(|uid| jobs.contains_uid(&uid.into()))
    }
}

/// The shards to which the marks of a pod lead.
#[derive(Clone, Copy, Debug)]
pub struct Leads {
    /// Its controller, or the Job that would adopt it.
    job: Option<ShardId>,
    /// The label of a shard.
    label: Option<ShardId>,
    /// The label of a Job's UID.
    selected: Option<ShardId>,
}

impl Leads {
    /// Whether all of them lead to the shard of the pod's Job, which is known. Its
    /// controller and at least one label lead there, so the pod may lose either.
    pub fn are_usual(&self, pod: &ObservedPod, jobs: &JobIndex) -> bool {
        let labels = [self.label, self.selected];
        pod.job().is_some_and(|job| jobs.contains(job))
            && labels.contains(&self.job)
            && labels.iter().all(|place| place.is_none() || *place == self.job)
    }
}
