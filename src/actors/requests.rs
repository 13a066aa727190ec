//! The requests of a plan: each runs on the tokio pool, and its answer comes back as an input.
//!
//! Requests are not retried here, except live reads. A request that was refused, or whose
//! answer was lost, is reported as such. The rules decide when to retry, and names, UIDs and versions in the
//! requests make a retry harmless.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use super::begun::BegunFor;
use super::catch_up::CaughtUp;
use super::context::ReplicaContext;
use super::inbox::Inbox;
use super::job_input::{JobInput, RequestEvent};
use super::job_trace::Ownership;
use super::pod_places::PodPlaces;
use super::supervision::Fatal;
#[cfg(feature = "test-hooks")]
use super::test_hooks::Part;
use super::ttl_deletion::{Expiry, delete_expired};
use super::waits::Waits;
use crate::cluster::gate::{Answer, Fence, Order, Priority, Reservation, Turn, Write, WriteError};
use crate::cluster::supervision::caught;
use crate::cluster::wire::{
    ObservedJob, ObservedPod, status_patch, untrack_ended_patch, untrack_patch, untrack_unchanged_patch,
};
use crate::job::job_id::JobId;
use crate::job::manifest::{Maker, PodManifest};
use crate::job::options::PodFacts;
use crate::job::overlay::Overlay;
use crate::job::plan::{PodDeletion, StatusWrite, Urgency};
use crate::job::pod::{NewPod, Place, PodRef};
use crate::job::selector::Selector;
use crate::job::spec::Job;
use crate::job::state::{Changed, Created};
use crate::job::status::JobStatus;
use crate::job::template::TemplateError;
use crate::job::uid::Uid;
use crate::mutants::{Mutant, is};
use crate::sharding::ShardId;
use crate::telemetry::traces::{JobName, JobTrace};

/// The right to create pods of a Job. Waiting creations can be withdrawn without stopping later ones.
#[derive(Debug)]
pub struct CreationRight {
    whole: Fence,
    part: Mutex<Fence>,
}

impl CreationRight {
    /// The right to write while this fence is open.
    pub fn of(fence: &Fence) -> Self {
        Self { whole: fence.clone(), part: Mutex::new(fence.part()) }
    }

    fn lock(&self) -> MutexGuard<'_, Fence> {
        // Poisoning is ignored: a fence is replaced in one step.
        self.part.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The right of a creation that is wanted now.
    pub fn current(&self) -> Fence {
        self.lock().clone()
    }

    /// Withdraws the creations that still wait.
    pub fn withdraw(&self) {
        std::mem::replace(&mut *self.lock(), self.whole.part()).withdraw();
    }
}

/// Sends the requests of one Job. Shared by the requests in flight.
pub struct Requests {
    /// The services of the replica.
    pub cx: ReplicaContext,
    /// The Job's shard.
    pub shard: ShardId,
    /// How often the shard has been claimed.
    pub epoch: u64,
    /// The actor's part of the right to act for the shard.
    pub fence: Fence,
    /// The right to create pods of the Job, which can be withdrawn by itself.
    pub creations: CreationRight,
    /// The shard's requests in flight.
    pub in_flight: TaskTracker,
    /// Where answers go.
    pub inbox: Inbox<JobInput>,
    /// The Job.
    pub job: JobId,
    /// Its selector. It cannot be changed, so requests that last long need no reading of the Job.
    pub selector: Arc<Selector>,
    /// Where the Job records why it waits.
    pub waits: Waits,
    /// The Job's trace.
    pub trace: JobTrace,
    /// Whether the watch has come as far as the claim on the shard. Then it shows at least all writes of the
    /// Job from before this actor began. Unknown for a Job that is rebuilt.
    pub caught_up: CaughtUp,
    /// When the shard was claimed, if the Job was taken over with it.
    pub taken_over: Option<Timestamp>,
    /// The releases of pods that the selectors of the shard's Jobs no longer select.
    pub releasing: BegunFor,
}

impl Requests {
    /// The Job's owner, in its trace.
    pub fn ownership(&self) -> Ownership {
        Ownership { shard: self.shard.0, epoch: self.epoch, taken_over: self.taken_over }
    }

    /// Withdraws the waiting requests: the actor is no more, and another one may send the same again.
    pub(super) fn withdraw(&self) {
        self.fence.withdraw();
        self.creations.current().withdraw();
    }

    /// Puts a write into the gate.
    pub(super) fn submit(
        &self,
        priority: Priority,
        write: Write,
    ) -> BoxFuture<'static, Result<Answer, WriteError>> {
        self.cx.gate.submit_traced(self.order(priority), write, self.trace.calls())
    }

    pub(super) fn order(&self, priority: Priority) -> Order {
        Order::new(priority, self.job.uid().clone(), self.fence.clone())
    }

    /// The Job in logs.
    pub(super) fn name(&self) -> JobName<'_, Uid> {
        JobName { namespace: self.job.namespace(), name: self.job.name(), uid: self.job.uid() }
    }

    /// Runs a request on the tokio pool and puts its answer into the inbox.
    pub(super) fn run(&self, request: impl Future<Output = JobInput> + Send + 'static) {
        let answer = self.inbox.promise();
        #[cfg(feature = "test-hooks")]
        let request = {
            let config = self.cx.config.clone();
            request.inspect(move |_| config.test_hooks.pass(Part::Request))
        };
        self.spawn(request.map(|input| answer.keep(input)));
    }

    /// Runs a request on the tokio pool.
    pub(super) fn spawn(&self, request: impl Future<Output = ()> + Send + 'static) {
        self.in_flight.spawn_on(self.guarded(request), &self.cx.runtime);
    }

    /// Runs work that a drain of the shard does not wait for: pauses before another attempt of a request,
    /// and optional reads.
    pub(super) fn run_after(&self, pause: impl Future<Output = ()> + Send + 'static) {
        self.cx.runtime.spawn(self.guarded(pause));
    }

    /// If a request panics, its outcome is unknown: rebuild the Job.
    fn guarded<F: Future<Output = ()> + Send + 'static>(
        &self,
        request: F,
    ) -> impl Future<Output = ()> + Send + use<F> {
        let inbox = self.inbox.clone();
        caught("a request of a Job", request).map(move |done| {
            if done.is_none() {
                inbox.push(JobInput::Failed);
            }
        })
    }

    /// The maker of pods from this reading of the Job.
    ///
    /// # Errors
    /// When no pod can be made from its template.
    pub(super) fn maker(&self, job: &Job, pod_group: Option<Box<str>>) -> Result<Arc<Maker>, TemplateError> {
        Maker::new(job, self.cx.config.finalizer(), self.shard.0, pod_group)
    }

    /// The overlay of a new pod of this reading of the Job.
    pub(super) fn overlay(&self, job: &Job, new: &NewPod) -> Option<Arc<Overlay>> {
        let traceparent = job.options.propagate_trace.then(|| self.trace.traceparent()).flatten();
        job.options.overlay(&PodFacts {
            traceparent: traceparent.as_deref(),
            template: Some(&job.spec.template),
            lineage: new.lineage.as_deref(),
        })
    }

    /// Creates a pod.
    pub fn create(self: &Arc<Self>, pod: PodManifest) {
        self.run(self.creation(pod, self.creations.current()));
    }

    /// The creation of a pod by this right. It takes its place in the gate at once.
    pub(super) fn creation(
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
    pub(super) fn tell_if_hidden(&self, pod: &ObservedPod) {
        if PodPlaces(self.cx.config.shards).is_hidden_from(pod, self.shard) {
            self.inbox.push(JobInput::Hidden(Box::new(pod.clone())));
        }
    }

    /// Whether the Job is the pod's controller.
    pub(super) fn is_ours(&self, pod: &ObservedPod) -> bool {
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

    /// Asks for the turn of a status.
    pub fn reserve_status(&self, urgency: Urgency) -> Reservation {
        self.cx.gate.reserve_status(&self.order(status_priority(urgency)), self.job.namespace().clone())
    }

    /// Puts a turn into the inbox when it comes, unless the handle is dropped before.
    pub fn await_turn(&self, reservation: Reservation) -> AbortOnDropHandle<()> {
        let inbox = self.inbox.clone();
        let waiting = self
            .guarded(async move { inbox.push_urgent(JobInput::StatusTurn(reservation.wait().await.ok())) });
        AbortOnDropHandle::new(self.cx.runtime.spawn(waiting))
    }

    /// Writes the status of the Job in its turn, unless the Job has changed since it was `seen`.
    pub fn write_status(
        self: &Arc<Self>,
        turn: Turn,
        seen: Arc<ObservedJob>,
        old: &JobStatus,
        write: &StatusWrite,
    ) {
        let status = write.status.clone();
        // Its turn has come. If the API server turns it away unread, writes that depend on it must not wait
        // behind others.
        let order = self.order(Priority::Status);
        let body = status_patch(old, &status, &seen.version);
        let write = Write::PatchJobStatus {
            namespace: self.job.namespace().clone(),
            name: self.job.name().clone(),
            body,
        };
        let written = self.cx.gate.submit_in(turn, order, write, self.trace.calls());
        let this = self.clone();
        self.run(async move {
            match written.await {
                // A webhook that undoes the whole change leaves the version as it was.
                Ok(Answer::Version(version)) if version.order() > seen.version.order() => {
                    JobInput::StatusWritten(Some(Arc::new(seen.with_status(version, status))))
                }
                Ok(_) => JobInput::StatusWritten(None),
                Err(WriteError::Conflict(_)) => {
                    let read = this.read_job().await;
                    read.iter().for_each(|read| this.compare(&seen, read));
                    JobInput::StatusConflict { sent: seen.version.order(), read }
                }
                Err(refusal) => {
                    log_job!(warn, this.name(), %refusal, "status not written");
                    JobInput::StatusWritten(None)
                }
            }
        });
    }

    /// Compares the Job, as known before a live read was sent, with the result of that read. The knowledge
    /// of a lost shard says nothing.
    fn compare(&self, known: &ObservedJob, read: &ObservedJob) {
        let is_older = known.uid == read.uid && read.version.order() < known.version.order();
        if is_older && !self.fence.is_closed() {
            log_job!(warn, self.name(), "a live read shows an older version than was known");
            self.cx.downfall.cause(Fatal::VersionsWentBack);
        }
    }

    async fn read_job(&self) -> Option<Arc<ObservedJob>> {
        self.cx.reads.find_job(&self.job).await.ok().flatten()
    }

    /// Reads the Job live. Retries until an answer has its status, or the actor's right has ended.
    pub fn read(self: &Arc<Self>) {
        let this = self.clone();
        self.run(async move {
            let mut backoff = this.cx.api_backoff();
            loop {
                match this.cx.reads.find_job(&this.job).await {
                    Ok(job) if job.as_ref().is_none_or(|job| job.job.is_ok()) => return JobInput::Read(job),
                    _ if this.fence.is_closed() => return JobInput::Unread,
                    // The known Job is in doubt, and this does not settle it.
                    Ok(_) => log_job!(warn, this.name(), "a Job that cannot be served was read"),
                    Err(error) => log_job!(warn, this.name(), %error, "a Job was not read"),
                }
                tokio::select! {
                    () = backoff.pause() => {}
                    () = this.fence.closed() => return JobInput::Unread,
                }
            }
        });
    }

    /// Reads the spec of the Job's pod template in protobuf. It is optional: no task waits for the answer.
    pub fn read_pod_spec(self: &Arc<Self>) {
        let this = self.clone();
        self.run_after(async move {
            let read = this.cx.reads.pod_spec(&this.job).await;
            if let Err(error) = &read {
                log_job!(debug, this.name(), %error, "pods are created in JSON");
            }
            match read {
                Ok(None) => {}
                read => this.inbox.push(JobInput::PodSpec(read.ok().flatten())),
            }
        });
    }

    /// Deletes the Job, last observed as `seen`, with its pods if its TTL has expired.
    pub fn delete_job(self: &Arc<Self>, seen: Arc<ObservedJob>) {
        let (this, answer) = (self.clone(), self.inbox.promise());
        self.spawn(async move {
            match delete_expired(&this.cx, &seen, |write| this.submit(Priority::Delete, write)).await {
                Ok(Expiry::Deleted | Expiry::Gone) => {}
                Ok(Expiry::NotDue(job)) => {
                    this.compare(&seen, &job);
                    answer.keep(JobInput::DeletionNotDue(job));
                }
                Err(refusal) => {
                    log_job!(warn, this.name(), %refusal, "a Job that has outlived its TTL was not deleted");
                    answer.keep(JobInput::DeletionRefused);
                }
            }
        });
    }
}

fn status_priority(urgency: Urgency) -> Priority {
    match urgency {
        Urgency::Progress => Priority::Progress,
        Urgency::Step => Priority::Status,
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
