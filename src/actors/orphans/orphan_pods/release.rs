//! The release of one pod without a Job.

use std::sync::Arc;

use crate::actors::context::ReplicaContext;
use crate::actors::jobs::job_metrics::OrphanMeter;
use crate::cluster::fair_semaphore::Fenced;
use crate::cluster::gate::{Answer, Fence, Order, Priority, Write, WriteError};
use crate::cluster::wire::{ControllerRef, ObservedPod, orphan_patch};
use crate::job::job_id::JobId;
use crate::job::names::SHARD_LABEL;
use crate::job::retry::CONFLICTS_AT_ONCE;
use crate::job::uid::Uid;
use crate::mutants::{Mutant, is};

/// The state of a pod's Job, as a live read shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The Job exists, and is ours.
    Ours,
    /// The Job exists, and is another controller's.
    Others,
    /// The Job does not exist.
    Gone,
}

/// Reads a Job until there is an answer.
///
/// # Errors
/// When the fence is closed: another replica looks after the pods of the Job.
pub async fn fate_of(cx: &ReplicaContext, fence: &Fence, job: &JobId) -> Result<Fate, Fenced> {
    let mut backoff = cx.api_backoff();
    loop {
        match cx.reads.find_job(job).await {
            Ok(Some(job)) if !is(Mutant::OrphanReleasedUnasked) => {
                return Ok(match cx.config.manages(job.managed_by.as_deref()) {
                    // The Job counts nothing, and goes once its pods have gone.
                    true if job.job.is_err() && job.deleting => Fate::Gone,
                    true => Fate::Ours,
                    false => Fate::Others,
                });
            }
            Ok(_) => return Ok(Fate::Gone),
            Err(_) if fence.is_closed() => return Err(Fenced),
            Err(error) => tracing::warn!(job = %job.uid(), %error, "cannot read the Job of a pod"),
        }
        backoff.pause().await;
    }
}

/// The release of one pod, retried until it succeeds: a pod that keeps the tracking finalizer cannot
/// be deleted.
pub struct OrphanRelease {
    cx: ReplicaContext,
    fence: Fence,
    namespace: Arc<str>,
    name: Box<str>,
    uid: Uid,
    /// The pod's version when it was seen as an orphan.
    version: u64,
    /// The controller that the pod named at that version, if any.
    owner: Option<ControllerRef>,
    /// The pod had ended with the tracking finalizer by then.
    terminated: bool,
}

impl OrphanRelease {
    /// The release of a pod while a part of this fence is open.
    pub fn of(cx: &ReplicaContext, fence: &Fence, pod: &ObservedPod) -> Self {
        Self {
            cx: pod.job().map_or_else(|| cx.clone(), |job| cx.for_job(job)),
            fence: fence.part(),
            namespace: pod.namespace.clone(),
            name: pod.pod.name.clone(),
            uid: pod.pod.uid.clone(),
            version: pod.pod.version,
            owner: pod.controller.clone(),
            terminated: pod.pod.phase.is_final() && pod.pod.tracked,
        }
    }

    /// The right to release the pod. Withdrawn, it ends the attempts.
    pub fn right(&self) -> &Fence {
        &self.fence
    }

    /// Removes our finalizer and label, until the pod shows that they are off.
    pub async fn release(mut self) {
        let mut backoff = self.cx.api_backoff();
        let unreleased = OrphanMeter::new(self.cx.metrics.clone(), self.terminated);
        let mut conflicts = 0;
        let turns = self.cx.pod_writes.clone();
        let is_refused = |attempt: &Result<(Reread, WriteError), Fenced>| match attempt {
            Ok((Reread::Changed, refusal)) => !matches!(refusal, WriteError::Conflict(_)),
            Ok((Reread::Same, _)) => true,
            Ok((Reread::Released | Reread::Adopted, _)) | Err(Fenced) => false,
        };
        let (fence, namespace, job) = (self.fence.clone(), self.namespace.clone(), self.job().cloned());
        loop {
            let attempt =
                turns.attempt(&fence, &namespace, job.as_ref(), is_refused, || self.attempt()).await;
            let Ok(Ok((reread, refusal))) = attempt else { return };
            match reread {
                Reread::Released => return unreleased.released(),
                Reread::Adopted => return,
                Reread::Changed if matches!(refusal, WriteError::Conflict(_)) => {
                    conflicts += 1;
                    if conflicts < CONFLICTS_AT_ONCE {
                        continue;
                    }
                }
                Reread::Changed | Reread::Same => {
                    tracing::warn!(pod = %self.uid, %refusal, "a pod without Job was not released");
                }
            }
            tokio::select! {
                () = backoff.pause() => {}
                () = self.fence.closed() => return,
            }
        }
    }

    /// Removes our finalizer and label, if that succeeds at once.
    pub async fn attempt_once(mut self) {
        let unreleased = OrphanMeter::new(self.cx.metrics.clone(), self.terminated);
        match self.attempt().await {
            Ok((Reread::Released, _)) => unreleased.released(),
            Ok((Reread::Adopted, _)) | Err(Fenced) => {}
            Ok((Reread::Changed | Reread::Same, refusal)) => {
                tracing::warn!(pod = %self.uid, %refusal, "a pod without Job was not released");
            }
        }
    }

    /// Removes our finalizer and label once. Returns the pod's state after that, and the possible
    /// reason.
    async fn attempt(&mut self) -> Result<(Reread, WriteError), Fenced> {
        let undone = || WriteError::Forbidden("a webhook undoes it".into());
        // The pods of a Job that is gone share its turn.
        let flow = self.job().map_or_else(|| self.uid.clone(), |job| job.uid().clone());
        let order = Order::new(Priority::Finalizer, flow, self.fence.clone());
        let write = Write::PatchAndReadPod {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            body: orphan_patch(&self.uid, self.version, self.cx.config.finalizer()),
        };
        match self.cx.gate.submit(order, write).await {
            Ok(Answer::Pod(pod)) => Ok((self.compare(&pod), undone())),
            Ok(_) => Ok((Reread::Released, undone())),
            Err(WriteError::Fenced) if self.fence.is_closed() => Err(Fenced),
            Err(refusal) => Ok((self.read_again().await, refusal)),
        }
    }

    /// The Job that the pod names as its controller.
    fn job(&self) -> Option<&JobId> {
        self.owner.as_ref().and_then(ControllerRef::job)
    }

    /// Reads the pod again after a refusal: it may have been adopted.
    async fn read_again(&mut self) -> Reread {
        let Ok(found) = self.cx.reads.find_pod(&self.namespace, &self.name, &self.uid).await else {
            return Reread::Same;
        };
        found.map_or(Reread::Released, |pod| self.compare(&pod))
    }

    /// Compares the pod as it is now with the pod at the beginning of the release.
    fn compare(&mut self, pod: &ObservedPod) -> Reread {
        if pod.controller.is_none() {
            // Garbage collection takes off the owner that is gone.
            self.owner = None;
        } else if pod.controller != self.owner {
            return Reread::Adopted;
        }
        if !pod.pod.tracked && pod.labels.get(SHARD_LABEL).is_none() {
            return Reread::Released;
        }
        let before = std::mem::replace(&mut self.version, pod.pod.version);
        if before == self.version { Reread::Same } else { Reread::Changed }
    }
}

/// The state of a pod that is to be released, as a live read or an answer shows it.
enum Reread {
    /// The pod is released, or does not exist.
    Released,
    /// The pod has another controller.
    Adopted,
    /// The pod has changed, which explains a conflict.
    Changed,
    /// The pod has not changed, or was not read.
    Same,
}
