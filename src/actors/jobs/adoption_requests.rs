//! Adoption of pods, and the release of pods that their Job no longer selects. A refusal never ends the
//! matter: the pod is read again, and tried again while that has a purpose. Nor does a success, as long as
//! the pod does not show it: webhooks admit our writes and undo them.

use std::sync::Arc;
use std::time::Duration;

use super::releases_in_flight::ReleaseInFlight;
use super::requests::Requests;
use crate::actors::messages::job_input::{AdoptionAttempt, JobInput, Orphan, Refusal};
use crate::actors::pacing::api_backoff::ApiBackoff;
use crate::cluster::gate::{Answer, Order, Priority, Write, WriteError};
use crate::cluster::reads::ReadError;
use crate::cluster::wire::{Adoption, ObservedJob, ObservedPod, adopt_patch, release_patch};
use crate::job::adoption::Claimant;
use crate::job::pod::{Pod, PodRef};
use crate::job::retry::CONFLICTS_AT_ONCE;

impl Requests {
    /// Adopts a pod, once a live read shows that the Job exists, has not finished and is not being deleted.
    pub fn adopt(self: &Arc<Self>, orphan: Orphan) {
        let this = self.clone();
        self.run(async move {
            let (turns, job) = (&this.cx.pod_writes, &this.job);
            let is_refused = |attempt: &AdoptionAttempt| matches!(attempt, AdoptionAttempt::Refused(_));
            let adoption = || this.adoption(&orphan);
            let attempt = turns.attempt(&this.fence, job.namespace(), Some(job), is_refused, adoption).await;
            let attempt = attempt.unwrap_or(AdoptionAttempt::PodGone);
            JobInput::Adopted { orphan, attempt }
        });
    }

    async fn adoption(&self, orphan: &Orphan) -> AdoptionAttempt {
        let pod = &orphan.pod;
        match self.attempt_adoption(orphan).await {
            Ok(attempt) => attempt,
            Err(WriteError::Fenced) if self.fence.is_closed() => AdoptionAttempt::PodGone,
            // The fence may be extended, and no other Job adopts the pod until then.
            Err(WriteError::Fenced) => AdoptionAttempt::Refused(Refusal::Unknown),
            Err(refusal) => {
                log_job!(warn, self.name(), k8s.pod.uid = %pod.uid, %refusal, "a pod was not adopted");
                self.after_refusal(pod, &refusal).await
            }
        }
    }

    /// Adopts a pod after a pause, unless the shard is drained by then.
    pub fn adopt_after(self: &Arc<Self>, pause: Duration, orphan: Orphan) {
        let this = self.clone();
        self.run_after(async move {
            tokio::time::sleep(pause).await;
            if this.may_go_on() {
                this.adopt(orphan);
            }
        });
    }

    async fn attempt_adoption(&self, orphan: &Orphan) -> Result<AdoptionAttempt, WriteError> {
        let pod = &orphan.pod;
        let unread = |e: ReadError| WriteError::Unknown(e.to_string().into());
        let job = self.cx.reads.get_job(self.job.namespace(), self.job.name()).await.map_err(unread)?;
        match self.claimant(job.as_deref())? {
            Claimant::Manages => {}
            // Only this task looks at the pod while the Job may adopt it.
            other => {
                let left = self
                    .cx
                    .reads
                    .find_pod(self.job.namespace(), &pod.name, &pod.uid)
                    .await
                    .map_err(unread)?;
                return Ok(match other {
                    Claimant::Leaves => AdoptionAttempt::JobLeaves(left),
                    _ => AdoptionAttempt::NotOurs(left),
                });
            }
        }
        let mut adoption = Adoption {
            job_name: self.job.name(),
            job_uid: self.job.uid(),
            // With its finalizer again, it would be counted again.
            finalizer: (!orphan.recorded).then(|| self.cx.config.finalizer()),
            shard: Some(self.shard.0),
        };
        let (mut version, mut conflicts, mut backoff) = (orphan.version, 0, self.cx.api_backoff());
        loop {
            let body = adopt_patch(&pod.uid, version, &adoption);
            let write = Write::PatchAndReadPod {
                namespace: self.job.namespace().clone(),
                name: pod.name.clone(),
                body,
            };
            let conflict = match self.submit(Priority::Finalizer, write).await {
                Ok(Answer::Pod(pod)) if self.is_ours(&pod) => return Ok(AdoptionAttempt::Adopted(pod)),
                Ok(Answer::Pod(_)) => return Err(WriteError::Forbidden("a webhook undoes it".into())),
                Ok(_) => return Ok(AdoptionAttempt::PodGone),
                Err(conflict @ WriteError::Conflict(_)) => conflict,
                Err(refusal) => return Err(refusal),
            };
            conflicts += 1;
            if conflicts >= CONFLICTS_AT_ONCE {
                backoff.pause().await;
            }
            // Its status may have changed only.
            match self.cx.reads.find_pod(self.job.namespace(), &pod.name, &pod.uid).await {
                Ok(Some(found)) if is_orphan(&found) && found.pod.version > version => {
                    version = found.pod.version;
                    if orphan.held && found.pod.is_done() {
                        // The pod has been counted meanwhile.
                        adoption.finalizer = None;
                    }
                }
                Ok(_) => return Err(conflict),
                Err(error) => return Err(unread(error)),
            }
        }
    }

    /// The rights of a Job over pods, as a live read shows it. An unknown completion mode says nothing about
    /// them.
    fn claimant(&self, job: Option<&ObservedJob>) -> Result<Claimant, WriteError> {
        match job.filter(|job| job.uid == *self.job.uid()).map(|job| &job.job) {
            None => Ok(Claimant::Leaves),
            Some(Ok(job)) => Ok(Claimant::of(job)),
            Some(Err(unknown)) => Err(WriteError::Unknown(unknown.to_string().into())),
        }
    }

    /// The outcome that a live read of the pod shows after a refusal. The pod may be ours after all, or no
    /// longer be there to adopt.
    async fn after_refusal(&self, pod: &PodRef, refusal: &WriteError) -> AdoptionAttempt {
        let Ok(found) = self.cx.reads.find_pod(self.job.namespace(), &pod.name, &pod.uid).await else {
            return AdoptionAttempt::Refused(Refusal::Unknown);
        };
        let Some(found) = found else { return AdoptionAttempt::PodGone };
        if self.is_ours(&found) {
            return AdoptionAttempt::Adopted(found);
        }
        if !is_orphan(&found) {
            return AdoptionAttempt::NotOurs(Some(found));
        }
        AdoptionAttempt::Refused(match refusal {
            WriteError::Unknown(_) => Refusal::Unknown,
            refusal if refusal.is_lasting() => Refusal::Lasting,
            _ => Refusal::Failure,
        })
    }

    /// Releases a pod that the Job's selector no longer selects, unless that has begun. Retries until a pause has shown
    /// that it is done, or the pod is selected again.
    pub fn release_unselected(self: &Arc<Self>, pod: &Pod) {
        if let Some(begun) = self.releasing.begin(self.job.uid(), &pod.uid) {
            self.attempt_release(pod.into(), pod.version, self.cx.api_backoff(), begun);
        }
    }

    fn attempt_release(
        self: &Arc<Self>,
        pod: PodRef,
        version: u64,
        mut backoff: ApiBackoff,
        begun: ReleaseInFlight,
    ) {
        let body = release_patch(&pod.uid, version, self.job.uid(), self.cx.config.finalizer());
        let write = Write::PatchPod { namespace: self.job.namespace().clone(), name: pod.name.clone(), body };
        // The release goes on when the actor ends: the next one does not begin the release again.
        let right = self.fence.whole();
        let order = Order { fence: right.clone(), ..self.order(Priority::Finalizer) };
        let this = self.clone();
        self.spawn(async move {
            let (turns, job) = (&this.cx.pod_writes, &this.job);
            let submit = || this.cx.gate.submit_traced(order, write, this.trace.calls());
            let released = turns.attempt(&right, job.namespace(), Some(job), Result::is_err, submit).await;
            match released.unwrap_or(Err(WriteError::Fenced)) {
                Ok(Answer::Gone) => return,
                Ok(_) => {}
                Err(WriteError::Fenced) if right.is_closed() => return,
                // The pod has changed meanwhile. It is read again.
                Err(WriteError::Conflict(_)) => {}
                Err(refusal) => log_job!(
                    warn, this.name(), k8s.pod.uid = %pod.uid, %refusal,
                    "a pod that the selector no longer selects was not released"
                ),
            }
            this.clone().run_after(async move {
                backoff.pause().await;
                let unselected = if this.may_go_on() { this.unselected(&pod, version).await } else { None };
                match unselected {
                    Some(version) => this.attempt_release(pod, version, backoff, begun),
                    None => drop(begun),
                }
            });
        });
    }

    /// The version of the pod, if a live read shows that it is still to be released. If the read fails, it is, at the version
    /// `before`.
    async fn unselected(&self, pod: &PodRef, before: u64) -> Option<u64> {
        let found = self.cx.reads.get_pod(self.job.namespace(), &pod.name).await;
        let to_release = |found: &ObservedPod| {
            let selected = found.labels.match_selector(&self.selector, true);
            // Its owner may have gone with the Job meanwhile. It must not keep our finalizer.
            let is_left_behind = found.controller.is_none() && found.pod.tracked;
            found.pod.uid == pod.uid && (self.is_ours(found) || is_left_behind) && !selected
        };
        let Ok(found) = found else { return Some(before) };
        found.filter(|found| to_release(found)).map(|found| found.pod.version)
    }

    /// Whether requests may still be sent. After a drain, the next owner of the shard starts from the
    /// cluster.
    fn may_go_on(&self) -> bool {
        !self.in_flight.is_closed()
    }
}

/// Whether a pod may be adopted.
fn is_orphan(pod: &ObservedPod) -> bool {
    pod.controller.is_none() && !pod.pod.deleting
}
