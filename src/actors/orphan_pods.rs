//! Pods without a known Job. A pod whose Job is gone loses our finalizer and label; a pod with the label of
//! another shard than its Job's gets that of its Job's; a pod whose Job is not known yet waits for it.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::OnceCell;

use super::context::ReplicaContext;
use super::job_metrics::OrphanMeter;
use super::labelling::Labelling;
use super::supervision::Unit;
use crate::cluster::gate::{Fence, Order, Priority, Write, WriteError};
use crate::cluster::wire::{ControllerRef, ObservedPod, orphan_patch};
use crate::job::names::SHARD_LABEL;
use crate::job::uid::{Uid, UidMap, UidSet};
use crate::mutants::{Mutant, is};

/// What a live read shows of the Job that a pod names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It exists, and is ours.
    Ours,
    /// It exists, and is another controller's.
    Others,
    /// It does not exist.
    Gone,
}

/// Pods without a Job.
pub struct OrphanPods {
    cx: ReplicaContext,
    fence: Fence,
    unit: Unit,
    /// By the Job that they name as their controller.
    waiting: UidMap<UidMap<Box<ObservedPod>>>,
    /// What live reads have shown of the Jobs that pods wait for: one read for all pods of a Job.
    fates: UidMap<Arc<OnceCell<Fate>>>,
    /// Pods whose Job is being looked for.
    checking: UidSet,
    /// Pods that are being released.
    releasing: UidSet,
}

impl OrphanPods {
    /// No pods yet. They are released while `fence` is open, by tasks of this unit.
    pub fn new(cx: ReplicaContext, fence: Fence, unit: Unit) -> Self {
        Self {
            cx,
            fence,
            unit,
            waiting: UidMap::default(),
            fates: UidMap::default(),
            checking: UidSet::default(),
            releasing: UidSet::default(),
        }
    }

    /// Takes in a pod that no known Job owns or would adopt.
    pub fn consider(&mut self, pod: Box<ObservedPod>) {
        match &pod.controller {
            Some(owner) if owner.is_job() => {
                if pod.pod.tracked {
                    self.wait(owner.clone(), pod);
                } else {
                    self.forget(&pod);
                }
            }
            // The finalizer is another controller's business now.
            Some(_) if pod.pod.tracked => self.forget(&pod),
            _ if pod.pod.tracked || pod.labels.get(SHARD_LABEL).is_some() => {
                self.release(&pod);
            }
            _ => {}
        }
    }

    /// Removes our finalizer and label from a pod, unless that is in progress.
    fn release(&mut self, pod: &ObservedPod) {
        if self.releasing.insert(pod.pod.uid.clone()) {
            self.unit.spawn("the release of an orphan", OrphanRelease::of(self, pod).release());
        }
    }

    /// Keeps a pod for its Job, and finds out whether the Job exists.
    fn wait(&mut self, owner: ControllerRef, pod: Box<ObservedPod>) {
        let uid = pod.pod.uid.clone();
        if self.checking.insert(uid.clone()) {
            let fate = self.fates.entry(owner.uid.clone()).or_default().clone();
            let release = OrphanRelease::of(self, &pod);
            let labelling = Labelling::new(&self.cx, &self.fence, &pod, &owner.uid);
            let shard = self.cx.config.shards.shard_of(&owner.uid.to_string());
            let is_labelled = pod.labels.get(SHARD_LABEL).is_some_and(|label| *label == *shard.to_string());
            let owner = owner.clone();
            self.unit.spawn("a look at an orphan", async move {
                match *fate.get_or_init(|| release.fate_of(&owner)).await {
                    Fate::Gone => release.release().await,
                    // Once it is written, its shard sees the pod. If the shard is lost, the next owner looks.
                    Fate::Ours if !is_labelled => _ = labelling.hold(|_| {}).await,
                    Fate::Ours | Fate::Others => {}
                }
            });
        }
        self.waiting.entry(owner.uid).or_default().insert(uid, pod);
    }

    /// Takes the pods that have waited for a Job, which is known now.
    #[expect(clippy::vec_box, reason = "they go on one by one, as they are")]
    pub fn waiting_for(&mut self, job: &Uid) -> Vec<Box<ObservedPod>> {
        let pods: Vec<Box<ObservedPod>> =
            self.waiting.remove(job).into_iter().flat_map(HashMap::into_values).collect();
        for pod in &pods {
            self.checking.remove(&pod.pod.uid);
        }
        self.fates.remove(job);
        pods
    }

    /// A Job is gone: what a live read has shown of it is no longer true.
    pub fn job_vanished(&mut self, job: &Uid) {
        self.waiting_for(job).into_iter().for_each(|pod| self.consider(pod));
    }

    /// Looks for the Jobs of all pods again.
    pub fn look_again(&mut self) {
        let is_known = |job: &&Uid| self.fates.get(*job).is_some_and(|fate| fate.initialized());
        let jobs: Vec<Uid> = self.waiting.keys().filter(is_known).cloned().collect();
        jobs.iter().for_each(|job| self.job_vanished(job));
    }

    /// Forgets all pods: a new list begins.
    pub fn forget_all(&mut self) {
        self.waiting.clear();
        self.fates.clear();
        self.checking.clear();
        self.releasing.clear();
    }

    /// Forgets a pod that is gone or needs nothing more.
    pub fn forget(&mut self, pod: &ObservedPod) {
        self.checking.remove(&pod.pod.uid);
        self.releasing.remove(&pod.pod.uid);
        let owner = pod.controller.as_ref().map(|owner| &owner.uid);
        if let Some(pods) = owner.and_then(|owner| self.waiting.get_mut(owner)) {
            pods.remove(&pod.pod.uid);
        }
        if let Some(owner) = owner.filter(|owner| self.waiting.get(owner).is_none_or(HashMap::is_empty)) {
            self.waiting.remove(owner);
            self.fates.remove(owner);
        }
    }
}

/// The release of one pod, retried until it succeeds: nobody can delete a pod that keeps the tracking
/// finalizer.
struct OrphanRelease {
    cx: ReplicaContext,
    fence: Fence,
    namespace: Arc<str>,
    name: Box<str>,
    uid: Uid,
    /// The pod's version when it was seen as an orphan.
    version: u64,
    /// The Job that the pod named as its controller at that version, if any.
    owner: Option<Uid>,
    /// The pod had ended with the tracking finalizer by then.
    terminated: bool,
}

impl OrphanRelease {
    fn of(orphan_pods: &OrphanPods, pod: &ObservedPod) -> Self {
        Self {
            cx: pod
                .controller
                .as_ref()
                .map_or_else(|| orphan_pods.cx.clone(), |owner| orphan_pods.cx.for_job(&owner.uid)),
            fence: orphan_pods.fence.clone(),
            namespace: pod.namespace.clone(),
            name: pod.pod.name.clone(),
            uid: pod.pod.uid.clone(),
            version: pod.pod.version,
            owner: pod.controller.as_ref().map(|owner| owner.uid.clone()),
            terminated: pod.pod.phase.is_final() && pod.pod.tracked,
        }
    }

    /// Reads the Job of the pod until there is an answer. While the fence is closed, that of a Job that somebody
    /// else looks after.
    async fn fate_of(&self, owner: &ControllerRef) -> Fate {
        let mut backoff = self.cx.api_backoff();
        loop {
            match self.cx.reads.find_job(&self.namespace, &owner.name, &owner.uid).await {
                Ok(Some(job)) if !is(Mutant::OrphanReleasedUnasked) => {
                    let ours = self.cx.config.manages(job.managed_by.as_deref());
                    return if ours { Fate::Ours } else { Fate::Others };
                }
                Ok(_) => return Fate::Gone,
                Err(_) if self.fence.is_closed() => return Fate::Others,
                Err(error) => {
                    tracing::warn!(pod = %self.uid, %error, "cannot read the Job of a pod")
                }
            }
            backoff.pause().await;
        }
    }

    async fn release(mut self) {
        let mut backoff = self.cx.api_backoff();
        let unreleased = OrphanMeter::new(self.cx.metrics.clone(), self.terminated);
        loop {
            let order =
                Order { priority: Priority::Finalizer, flow: self.uid.clone(), fence: self.fence.clone() };
            let write = Write::PatchPod {
                namespace: self.namespace.clone(),
                name: self.name.clone(),
                body: orphan_patch(&self.uid, self.version, self.cx.config.finalizer()),
            };
            match self.cx.gate.submit(order, write).await {
                Ok(_) => return unreleased.released(),
                Err(WriteError::Fenced) if self.fence.is_closed() => return,
                Err(WriteError::Conflict(_)) if !self.is_still_orphan().await => return,
                Err(WriteError::Conflict(_)) => continue,
                Err(refusal) => {
                    tracing::warn!(pod = %self.uid, %refusal, "a pod without Job was not released")
                }
            }
            backoff.pause().await;
        }
    }

    /// Reads the pod again after it has changed: it may have been adopted. If the read fails, the pod counts
    /// as an orphan; the next attempt meets the same conflict.
    async fn is_still_orphan(&mut self) -> bool {
        match self.cx.reads.find_pod(&self.namespace, &self.name, &self.uid).await {
            Ok(Some(pod)) => {
                self.version = pod.pod.version;
                pod.controller.map(|owner| owner.uid) == self.owner
            }
            Ok(None) => false,
            Err(_) => true,
        }
    }
}
