//! Requests about pods: creations, deletions, and removals of the tracking finalizer.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;

use super::Requests;
use crate::actors::messages::job_input::{JobInput, RequestEvent};
use crate::actors::pods::pod_places::PodPlaces;
use crate::cluster::gate::{Answer, Fence, Order, Priority, Write, WriteError};
use crate::cluster::wire::{ObservedPod, untrack_ended_patch, untrack_patch, untrack_unchanged_patch};
use crate::job::job_id::JobId;
use crate::job::manifest::PodManifest;
use crate::job::plan::PodDeletion;
use crate::job::pod::{Place, PodRef};
use crate::job::state::{Changed, Created};
use crate::job::uid::Uid;
use crate::mutants::{Mutant, is};

impl Requests {
    /// Creates a pod.
    pub fn create(self: &Arc<Self>, pod: PodManifest) {
        self.run(self.creation(pod, self.creations.current()));
    }

    /// The creation of a pod by this right. It takes its place in the gate at once.
    pub(in crate::actors) fn creation(
        self: &Arc<Self>,
        new: PodManifest,
        right: Fence,
    ) -> impl Future<Output = JobInput> + Send + use<> {
        let place = new.place();
        let order = Order { behind: new.behind(), fence: right.clone(), ..self.order(Priority::Create) };
        let write = Write::CreatePod { pod: new.clone() };
        let created = self.cx.gate.submit_traced(order, write, self.trace.calls());
        let this = self.clone();
        async move {
            let created = created.await;
            if created.as_ref().is_err_and(WriteError::may_succeed_in_json) {
                new.avoid_protobuf();
            }
            let (answer, event) = match created {
                Ok(Answer::Pod(pod)) => {
                    let is_ours = this.is_ours(&pod);
                    this.tell_if_hidden(&pod);
                    let pod = pod.of_job(&this.selector);
                    // A pod of an earlier attempt would be replaced at once, and the next one likewise.
                    let is_current = pod.attempt() >= new.attempt();
                    if is_ours && is_current && pod.selected && pod.tracked && pod.index == new.index() {
                        let name = pod.name.clone();
                        (Created::Pod(Box::new(pod)), RequestEvent::Done(name))
                    } else {
                        // The Job would lose such a pod, and further ones.
                        let undone = "a webhook changes the pod's controller, labels, finalizer, completion index or \
                                      attempt";
                        (Created::Refused, RequestEvent::Refused(undone.into()))
                    }
                }
                Ok(_) => (Created::Refused, RequestEvent::Nothing),
                Err(WriteError::AlreadyExists(_)) => {
                    // Boxed, since the future of every pending creation would have room for it.
                    (Box::pin(this.look_up(place, &new.name())).await, RequestEvent::Nothing)
                }
                Err(WriteError::NamespaceTerminating(_)) => {
                    (Created::NamespaceTerminating, RequestEvent::Nothing)
                }
                Err(WriteError::Fenced) if right.is_withdrawn() => {
                    (Created::Withdrawn, RequestEvent::Nothing)
                }
                Err(WriteError::Fenced) => (Created::Refused, RequestEvent::Nothing),
                Err(WriteError::Unknown(_)) if is(Mutant::LostCreationUnderNewName) => {
                    (Created::NameTaken, RequestEvent::Nothing)
                }
                Err(lost @ WriteError::Unknown(_)) => {
                    (Created::Lost, RequestEvent::Refused(lost.to_string().into()))
                }
                Err(refusal) => (Created::Refused, RequestEvent::Refused(refusal.to_string().into())),
            };
            JobInput::Created { place, answer, event }
        }
    }

    /// The name is taken: by the very pod that we wanted to create, as after a lost answer, or by another
    /// object. A pod that is being deleted is found as well: it may have succeeded before.
    async fn look_up(&self, place: Place, name: &str) -> Created {
        match self.cx.reads.get_pod(self.job.namespace(), name).await {
            Ok(Some(found)) if self.is_ours(&found) && found.pod.place == Some(place) => {
                if found.labels.match_selector(&self.selector, true) {
                    self.tell_if_hidden(&found);
                    return Created::Found(Box::new(found.pod));
                }
                // Its labels were taken off, so no watch may show it. The Job lets go of it.
                self.inbox.push(JobInput::Pod(found));
                Created::NameTaken
            }
            Ok(Some(_)) => Created::NameTaken,
            Ok(None) | Err(_) => Created::Refused,
        }
    }

    /// Reports a pod that its label hides from the watch to the shard.
    pub(in crate::actors) fn tell_if_hidden(&self, pod: &ObservedPod) {
        if PodPlaces(self.cx.config.shards).is_hidden_from(pod, self.shard) {
            self.inbox.push(JobInput::Hidden(Box::new(pod.clone())));
        }
    }

    /// Whether the Job is the pod's controller.
    pub(in crate::actors) fn is_ours(&self, pod: &ObservedPod) -> bool {
        pod.job() == Some(&self.job)
    }

    /// Deletes a pod. A pod that must not be counted loses its finalizer first.
    pub fn delete(self: &Arc<Self>, deletion: PodDeletion) {
        let this = self.clone();
        self.run(async move {
            let PodDeletion { pod, forget, grace } = deletion;
            if forget {
                match this.untrack(&pod.uid, pod.name.clone()).await {
                    Ok(Answer::Done) => {}
                    Ok(_) => {
                        return JobInput::Deleted {
                            pod,
                            answer: Changed::Gone,
                            event: RequestEvent::Nothing,
                        };
                    }
                    Err(refusal) => {
                        log_job!(warn, this.name(), k8s.pod.uid = %pod.uid, %refusal, "a pod to delete was not released");
                        return JobInput::Deleted {
                            pod,
                            answer: Changed::Refused,
                            event: RequestEvent::Nothing,
                        };
                    }
                }
            }
            let write = Write::DeletePod {
                namespace: this.job.namespace().clone(),
                name: pod.name.clone(),
                uid: pod.uid.clone(),
                grace_seconds: grace.map(|grace| grace.as_secs()),
            };
            match this.submit(Priority::Delete, write).await {
                Ok(Answer::Gone) => {
                    JobInput::Deleted { pod, answer: Changed::Gone, event: RequestEvent::Nothing }
                }
                Ok(answer) => {
                    let event = RequestEvent::Done(pod.name.clone());
                    JobInput::Deleted { pod, answer: changed(answer), event }
                }
                Err(refusal) => JobInput::Deleted { pod, answer: Changed::Refused, event: refused(&refusal) },
            }
        });
    }

    /// Removes the tracking finalizer of a pod. If the pod has ended and was not applied at the version
    /// `unapplied`, its `managedFields` are reset as well. If it has changed since, they are kept: a client
    /// that saw it end may have applied it.
    pub fn release(self: &Arc<Self>, pod: PodRef, unapplied: Option<u64>) {
        let this = self.clone();
        let unapplied = unapplied.filter(|_| !self.cx.config.keep_managed_fields);
        let body = match unapplied {
            Some(version) => untrack_ended_patch(&pod.uid, version, self.cx.config.finalizer()),
            None => untrack_patch(&pod.uid, self.cx.config.finalizer()),
        };
        let released = self.patch_finalizers(pod.name.clone(), body);
        self.run(async move {
            let released = match released.await {
                Err(WriteError::Conflict(_)) if unapplied.is_some() => this.untrack(&pod.uid, pod.name).await,
                released => released,
            };
            JobInput::Released { pod: pod.uid, answer: released.map_or(Changed::Refused, changed) }
        });
    }

    /// Removes the tracking finalizer of a pod whose Job no longer exists, if the pod has not changed:
    /// another Job may adopt it. If it has changed, a live read shows how: the watch may have lost sight of it.
    pub fn release_unchanged(&self, pod: PodRef, version: u64) {
        let body = untrack_unchanged_patch(&pod.uid, version, self.cx.config.finalizer());
        let released = self.patch_finalizers(pod.name.clone(), body);
        let (cx, job) = (self.cx.clone(), self.job.clone());
        self.run(async move {
            let answer = match released.await {
                Ok(answer) => changed(answer),
                Err(WriteError::Conflict(_)) => {
                    let found = cx.reads.find_pod(job.namespace(), &pod.name, &pod.uid).await;
                    found.map_or(Changed::Refused, |found| left_behind(found, &job, version))
                }
                Err(_) => Changed::Refused,
            };
            JobInput::Released { pod: pod.uid, answer }
        });
    }

    fn untrack(&self, pod: &Uid, name: Box<str>) -> BoxFuture<'static, Result<Answer, WriteError>> {
        self.patch_finalizers(name, untrack_patch(pod, self.cx.config.finalizer()))
    }

    fn patch_finalizers(&self, pod: Box<str>, body: Bytes) -> BoxFuture<'static, Result<Answer, WriteError>> {
        let write = Write::PatchPod { namespace: self.job.namespace().clone(), name: pod, body };
        self.submit(Priority::Finalizer, write)
    }
}

/// The state of a pod whose Job is gone. Ignores untracked pods and pods of other owners. `version`: as it
/// was last known.
fn left_behind(pod: Option<Box<ObservedPod>>, job: &JobId, version: u64) -> Changed {
    let is_its = |pod: &ObservedPod| pod.pod.tracked && (pod.controller.is_none() || pod.job() == Some(job));
    match pod.filter(|pod| is_its(pod)) {
        // If the re-read version is not newer, a retry would conflict again.
        Some(pod) if pod.pod.version <= version => Changed::Refused,
        Some(pod) => Changed::Pod(Box::new(pod.pod)),
        None => Changed::Gone,
    }
}

fn changed(answer: Answer) -> Changed {
    match answer {
        Answer::Pod(pod) => Changed::Pod(Box::new(pod.pod)),
        Answer::Done => Changed::Released,
        _ => Changed::Gone,
    }
}

fn refused(refusal: &WriteError) -> RequestEvent {
    match refusal {
        WriteError::Fenced => RequestEvent::Nothing,
        refusal => RequestEvent::Refused(refusal.to_string().into()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;
    use crate::actors::test_api::{observed_pod, pod};

    #[test]
    fn a_pod_of_a_job_that_is_gone_is_released_again_only_if_it_has_changed_and_is_nobody_elses() {
        let tracked = || {
            let mut pod = pod("p", "j");
            pod["metadata"]["resourceVersion"] = "7".into();
            pod
        };
        let seen = |pod: &serde_json::Value| Some(observed_pod(pod));
        let job = observed_pod(&tracked()).job().unwrap().clone();
        let outcome = |pod, version| match left_behind(pod, &job, version) {
            Changed::Pod(pod) => format!("changed {}", pod.version),
            other => format!("{other:?}"),
        };
        assert_eq!(outcome(seen(&tracked()), 6), "changed 7");
        assert_eq!(outcome(seen(&tracked()), 7), "Refused", "what is no newer explains no conflict");
        assert_eq!(outcome(None, 6), "Gone");
        let mut released = tracked();
        released["metadata"]["finalizers"] = json!([]);
        assert_eq!(outcome(seen(&released), 6), "Gone");
        let mut adopted = tracked();
        adopted["metadata"]["ownerReferences"][0]["uid"] = "another".into();
        assert_eq!(outcome(seen(&adopted), 6), "Gone");
    }
}
