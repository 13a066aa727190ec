//! Pods that no known Job of a shard has. A pod whose Job is gone loses our finalizer and label. A pod whose Job is another
//! shard's gets the label of that shard: other replicas may not see it. A pod whose Job is not known yet waits for it, and so does
//! one without controller that names a Job which may adopt it.

mod adoptable;
mod release;

use std::collections::HashMap;

use actix::{Message, Recipient};
use tokio::time::sleep_until;
use tokio_util::task::AbortOnDropHandle;

use self::adoptable::Adoptable;
use super::labelling::Labelling;
use crate::actors::context::ReplicaContext;
use crate::actors::known_jobs::job_index::JobIndex;
use crate::actors::pacing::pauses::Pauses;
use crate::actors::pods::pod_places::PodPlaces;
use crate::actors::pods::pod_watch::Kind;
use crate::actors::supervision::Unit;
use crate::cluster::gate::Fence;
use crate::cluster::wire::{ControllerRef, ObservedPod};
use crate::job::job_id::{JobId, JobMap};
use crate::job::tidying::{Tidying, give_back};
use crate::job::uid::{Uid, UidMap, UidSet};
use crate::sharding::ShardId;

pub use self::release::{Fate, OrphanRelease, fate_of};

/// Pods without a Job.
pub struct OrphanPods {
    cx: ReplicaContext,
    shard: ShardId,
    places: PodPlaces,
    fence: Fence,
    unit: Unit,
    /// Receives the results of looks for Jobs.
    hears: Recipient<JobLookedFor>,
    /// By the Job that they name as their controller.
    waiting: JobMap<UidMap<Box<ObservedPod>>>,
    /// The Job that each of them waits for.
    awaited: UidMap<JobId>,
    /// Waiting pods that the list in progress has not shown. If it ends without them, they are gone.
    unlisted: UidSet,
    /// The looks for Jobs that pods wait for.
    looks: JobMap<Look>,
    /// The number of the next look.
    next: u64,
    /// Pods without controller that a Job may adopt.
    adoptable: Adoptable,
    /// Pods of other shards' Jobs that are being labelled, or were not long ago.
    labelling: UidMap<AbortOnDropHandle<()>>,
    /// When labellings that have ended are dropped.
    labelling_tidying: Tidying,
    /// Pods that are being released, or were not long ago.
    releasing: UidMap<UnderWay>,
    /// When releases that have ended are dropped: no watch may show the end of their pods.
    tidying: Tidying,
    /// When pods may be released again.
    pauses: Pauses,
}

/// A look for a Job, by a live read.
enum Look {
    InProgress { number: u64, _task: AbortOnDropHandle<()> },
    Over(Fate),
}

/// A look for a Job is over.
#[derive(Message)]
#[rtype(result = "()")]
pub struct JobLookedFor {
    job: JobId,
    number: u64,
    fate: Fate,
}

impl OrphanPods {
    /// No pods yet. They are released while `fence` is open, by tasks of this unit.
    pub fn new(
        cx: ReplicaContext,
        shard: ShardId,
        fence: Fence,
        unit: Unit,
        hears: Recipient<JobLookedFor>,
    ) -> Self {
        Self {
            places: PodPlaces(cx.config.shards),
            cx,
            shard,
            fence,
            unit,
            hears,
            waiting: JobMap::default(),
            awaited: UidMap::default(),
            unlisted: UidSet::default(),
            looks: JobMap::default(),
            next: 0,
            adoptable: Adoptable::default(),
            labelling: UidMap::default(),
            labelling_tidying: Tidying::default(),
            releasing: UidMap::default(),
            tidying: Tidying::default(),
            pauses: Pauses::default(),
        }
    }

    /// Considers a pod that no known Job owns or would adopt. `shows_unlabelled`: the shard watches
    /// unlabelled pods, too.
    pub fn consider(&mut self, pod: Box<ObservedPod>, shows_unlabelled: bool) {
        self.leave_other_jobs(&pod);
        // The watch shows this shard all changes of such a pod, until it is gone. It may not show all
        // changes of other pods.
        let is_kept = self.places.keeper(&pod) == self.shard;
        let is_shown = shows_unlabelled || Kind::of(&pod) == Kind::Labelled;
        match &pod.controller {
            Some(ControllerRef::Job(job)) if is_kept && is_shown && pod.has_marks() => {
                self.wait(job.clone(), pod)
            }
            // Finalizer and labels are another controller's business now.
            Some(ControllerRef::Job(_) | ControllerRef::Other) => self.forget(&pod.pod.uid),
            Some(ControllerRef::NoJob) | None if pod.has_marks() => {
                if is_kept {
                    self.release(&pod);
                }
            }
            None if is_kept => self.adoptable.insert(pod),
            Some(ControllerRef::NoJob) | None => {}
        }
    }

    /// A list begins of all pods of this kind that may wait here. It shows those again that exist.
    pub fn list_begins(&mut self, kind: Kind) {
        let waiting = self.waiting.values().flat_map(HashMap::values).filter(|pod| Kind::of(pod) == kind);
        self.unlisted.extend(waiting.map(|pod| pod.pod.uid.clone()));
        if kind == Kind::Labelled {
            self.adoptable = Adoptable::default();
        }
    }

    /// The list is complete: a pod that it has not shown is gone, or is another shard's.
    pub fn list_complete(&mut self, kind: Kind) {
        let is_of_kind = |uid: &Uid| {
            let job = self.awaited.get(uid)?;
            Some(Kind::of(self.waiting.get(job)?.get(uid)?) == kind)
        };
        let gone: Vec<Uid> =
            self.unlisted.iter().filter(|uid| is_of_kind(uid) != Some(false)).cloned().collect();
        gone.iter().for_each(|pod| self.forget(pod));
    }

    /// Removes our finalizer and label from a pod, unless that is in progress.
    fn release(&mut self, pod: &ObservedPod) {
        let uid = &pod.pod.uid;
        if self.tidying.is_due(self.releasing.len()) {
            self.releasing.retain(|_, release| !release.task.is_finished());
            self.tidying.done(self.releasing.len());
        }
        // A pod that was adopted meanwhile may be an orphan again. As long as a release pauses, the
        // newest reading counts.
        let may_begin = self.releasing.get(uid).is_none_or(|release| release.task.is_finished());
        if may_begin || self.pauses.is_pausing(uid) {
            let release = OrphanRelease::of(&self.cx, &self.fence, pod);
            let right = release.right().clone();
            let begins = self.pauses.next(uid, || self.cx.api_backoff());
            let task = self.unit.spawn("the release of an orphan", async move {
                sleep_until(begins).await;
                release.release().await;
            });
            self.releasing.insert(uid.clone(), UnderWay { task: AbortOnDropHandle::new(task), right });
        }
    }

    /// Keeps a pod for its Job, and finds out whether the Job exists. A counted pod waits, too: a Job
    /// that becomes known late may be shown as it was before that.
    fn wait(&mut self, job: JobId, pod: Box<ObservedPod>) {
        let uid = pod.pod.uid.clone();
        self.unlisted.remove(&uid);
        match self.looks.get(&job) {
            None if pod.pod.tracked || self.is_stranger(&pod) => self.look_for(&job),
            Some(Look::Over(fate)) => self.follow(*fate, &job, &pod),
            None | Some(Look::InProgress { .. }) => {}
        }
        self.awaited.insert(uid.clone(), job.clone());
        self.waiting.entry(job).or_default().insert(uid, pod);
    }

    /// Whether the Job of a pod is another shard's.
    fn is_stranger(&self, pod: &ObservedPod) -> bool {
        self.places.home(pod).is_some_and(|home| home != self.shard)
    }

    /// Acts on a pod by the state of its Job. Nothing follows from another controller's Job before it is
    /// gone: that controller may be of another number of shards.
    fn follow(&mut self, fate: Fate, job: &JobId, pod: &ObservedPod) {
        match fate {
            Fate::Gone if pod.pod.tracked => self.release(pod),
            Fate::Ours if self.is_stranger(pod) => self.send_home(job, pod),
            Fate::Gone | Fate::Ours | Fate::Others => {}
        }
    }

    /// Gives a pod the label of its Job's shard, unless that is in progress.
    fn send_home(&mut self, job: &JobId, pod: &ObservedPod) {
        if self.labelling_tidying.is_due(self.labelling.len()) {
            self.labelling.retain(|_, task| !task.is_finished());
            self.labelling_tidying.done(self.labelling.len());
        }
        if self.labelling.get(&pod.pod.uid).is_none_or(AbortOnDropHandle::is_finished) {
            let labelling = Labelling::new(&self.cx, &self.fence, pod, job);
            let task = self.unit.spawn("a labelling", async move {
                // If the fence is closed, the next owner looks after the pod.
                let _ = Box::pin(labelling.hold()).await;
            });
            self.labelling.insert(pod.pod.uid.clone(), AbortOnDropHandle::new(task));
        }
    }

    /// Looks for a Job, once for all pods that wait for it.
    fn look_for(&mut self, job: &JobId) {
        let (number, of) = (self.next, job.clone());
        self.next += 1;
        let (cx, fence, hears) = (self.cx.for_job(job), self.fence.clone(), self.hears.clone());
        let task = self.unit.spawn("a look for the Job of orphans", async move {
            if let Ok(fate) = fate_of(&cx, &fence, &of).await {
                hears.do_send(JobLookedFor { job: of, number, fate });
            }
        });
        self.looks.insert(job.clone(), Look::InProgress { number, _task: AbortOnDropHandle::new(task) });
    }

    /// Records the result of a look for a Job.
    pub fn looked_for(&mut self, JobLookedFor { job, number, fate }: JobLookedFor) {
        let is_meant =
            |look: &&mut Look| matches!(look, Look::InProgress { number: of, .. } if *of == number);
        let Some(look) = self.looks.get_mut(&job).filter(is_meant) else { return };
        *look = Look::Over(fate);
        if let Some(pods) = self.waiting.get_mut(&job).map(std::mem::take) {
            pods.values().for_each(|pod| self.follow(fate, &job, pod));
            self.waiting.insert(job, pods);
        }
    }

    /// Takes the pods that have waited for a Job that is known now, and those that it would adopt. Pods
    /// that the list in progress has not shown stay.
    #[expect(clippy::vec_box, reason = "they go on one by one, as they are")]
    pub fn waiting_for(&mut self, job: &JobId, index: &JobIndex) -> Vec<Box<ObservedPod>> {
        let mut pods = self.no_longer_waiting(job);
        pods.extend(self.adoptable.take_adopted_by(job, index));
        pods
    }

    #[expect(clippy::vec_box, reason = "they go on one by one, as they are")]
    fn no_longer_waiting(&mut self, job: &JobId) -> Vec<Box<ObservedPod>> {
        self.looks.remove(job);
        let waiting = self.waiting.remove(job).into_iter().flat_map(HashMap::into_values);
        let mut pods: Vec<Box<ObservedPod>> = waiting.collect();
        pods.iter().for_each(|pod| _ = self.awaited.remove(&pod.pod.uid));
        pods.retain(|pod| !self.unlisted.remove(&pod.pod.uid));
        pods
    }

    /// A Job is gone: a live read of it is no longer true.
    pub fn job_vanished(&mut self, job: &JobId) {
        let pods = self.no_longer_waiting(job).into_iter();
        pods.filter(|pod| pod.pod.tracked).for_each(|pod| self.consider(pod, true));
    }

    /// Looks for the Jobs of all pods again that were there before.
    pub fn look_again(&mut self) {
        let was_there = |look: &Look| matches!(look, Look::Over(Fate::Ours | Fate::Others));
        let jobs: Vec<JobId> =
            self.looks.iter().filter(|(_, look)| was_there(look)).map(|(job, _)| job.clone()).collect();
        jobs.iter().for_each(|job| self.look_for(job));
    }

    /// Forgets a pod that is gone or needs nothing more. A release of it ends when it finds that out, and counts if the watch
    /// has shown it before its own answer came.
    pub fn forget(&mut self, pod: &Uid) {
        let under_way = self.releasing.remove(pod).filter(|_| !self.pauses.is_pausing(pod));
        under_way.into_iter().for_each(UnderWay::forget);
        self.no_longer_waits(pod);
        self.adoptable.remove(pod);
        self.labelling.remove(pod);
        give_back(&mut self.labelling);
        give_back(&mut self.releasing);
    }

    /// Forgets pauses of writes about pods that have needed none for a while.
    pub fn tidy(&self) {
        self.pauses.tidy();
        self.cx.label_pauses.tidy();
    }

    /// A pod waits only for the Job that it names. A Job that it named before must not get the pod once
    /// that Job becomes known.
    pub fn leave_other_jobs(&mut self, pod: &ObservedPod) {
        let uid = &pod.pod.uid;
        self.adoptable.remove(uid);
        if self.awaited.get(uid).is_some_and(|awaited| pod.job() != Some(awaited)) {
            self.labelling.remove(uid);
            self.no_longer_waits(uid);
        }
    }

    /// The numbers of pods that wait, and that are being released, or labelled, or were.
    #[cfg(test)]
    pub fn held(&self) -> [usize; 2] {
        [self.awaited.len() + self.adoptable.len(), self.releasing.len() + self.labelling.len()]
    }

    fn no_longer_waits(&mut self, pod: &Uid) {
        self.unlisted.remove(pod);
        let Some(job) = self.awaited.remove(pod) else { return };
        give_back(&mut self.awaited);
        if let Some(pods) = self.waiting.get_mut(&job) {
            pods.remove(pod);
            give_back(pods);
            if pods.is_empty() {
                self.waiting.remove(&job);
                self.looks.remove(&job);
                give_back(&mut self.waiting);
                give_back(&mut self.looks);
            }
        }
    }
}

/// Writes about a pod that go on until they have taken effect.
struct UnderWay {
    task: AbortOnDropHandle<()>,
    right: Fence,
}

impl UnderWay {
    /// The write in flight is answered, and no other follows.
    fn forget(self) {
        self.right.withdraw();
        self.task.detach();
    }
}

#[cfg(test)]
mod tests;
