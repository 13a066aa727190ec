//! Pods that exist, but that the watch of their shard does not show in a readable form: they are read live.
//! No Job is planned for while there is a pod of it that it has never known (invariant 9: known before
//! planned).

mod pods;

use std::sync::Arc;

use actix::{AsyncContext, Context, Handler, Message};
use tokio_util::task::AbortOnDropHandle;

use self::pods::HiddenPod;
pub(super) use self::pods::HiddenPods;
use super::ShardActor;
use super::jobs::JobEntry;
use crate::actors::messages::job_input::{JobInput, ListOrigin};
use crate::actors::orphans::release_with_job::ReleaseWithJob;
use crate::cluster::events::{Event, EventType};
use crate::cluster::reads::ReadError;
use crate::cluster::wire::{ObservedPod, Unreadable};
use crate::job::job_id::JobId;
use crate::job::plan::Wait;
use crate::job::pod::Phase;
use crate::job::uid::Uid;

/// A pod that was not seen, as it is now. Absent if it no longer exists.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct Shown {
    pod: Uid,
    found: Option<Box<ObservedPod>>,
}

/// A pod of a Job whose changes and end the watch may not show.
pub(super) struct Unwatched {
    job: JobId,
    version: u64,
    /// Namespace, name and UID.
    of: (Arc<str>, Box<str>, Uid),
}

impl ShardActor {
    /// Whether the label of a pod may keep it from the watch of this shard.
    pub(super) fn is_hidden(&self, pod: &ObservedPod) -> bool {
        self.places.is_hidden_from(pod, self.owned.id)
    }

    /// The pod, if it is of a Job of this shard and the watch may not show its later changes.
    pub(super) fn unwatched(&self, pod: &ObservedPod) -> Option<Unwatched> {
        let is_watched = |job: &JobId| !self.is_hidden(pod) && self.shows_end(pod, job);
        let job = self.job_of(pod).filter(|job| !pod.pod.is_done() && !is_watched(job))?;
        let of = (pod.namespace.clone(), pod.pod.name.clone(), pod.pod.uid.clone());
        Some(Unwatched { job, version: pod.pod.version, of })
    }

    /// Records that a Job knows such a pod: it is read again and again.
    pub(super) fn keep_reading(&mut self, Unwatched { job, version, of }: Unwatched, ctx: &Context<Self>) {
        let uid = of.2.clone();
        if self.hidden.job_of(&uid) != Some(&job) {
            self.no_longer_hidden(&uid);
            if !self.pod_feed.is_draining() {
                let task = self.read_until_shown(of, &job, false, ctx);
                self.hide((uid, version), &job, None, task);
            }
        } else if self.hidden.is_known_now(&uid) && !self.hidden.hold_back(&job) {
            self.no_longer_held_back(&job);
        }
    }

    /// Records that a Job has found a pod of its own that its label hides.
    pub(super) fn found_hidden(&mut self, pod: &ObservedPod, ctx: &Context<Self>) {
        if let Some(unwatched) = self.unwatched(pod) {
            self.pod_owners.insert(pod.pod.uid.clone(), &unwatched.job);
            self.keep_reading(unwatched, ctx);
            self.show_held();
        }
    }

    /// Records that a live list has shown a pod of a Job. If its label hides it, it is read for the Job.
    pub(super) fn found_live(&mut self, pod: &ObservedPod, job: &JobId, ctx: &Context<Self>) {
        let uid = &pod.pod.uid;
        let needs_reading = self.is_hidden(pod) && !pod.pod.is_done();
        if needs_reading && !self.hidden.holds(uid, job, pod.pod.version) {
            self.read_live(pod, job, ctx);
        }
    }

    /// Records that a pod of a Job was found that the watch may not show: it is read.
    pub(super) fn read_live(&mut self, pod: &ObservedPod, job: &JobId, ctx: &Context<Self>) {
        let of = (pod.namespace.clone(), pod.pod.name.clone(), pod.pod.uid.clone());
        let task = self.read_until_shown(of, job, true, ctx);
        self.hide((pod.pod.uid.clone(), pod.pod.version), job, None, task);
    }

    /// Reassigns a hidden pod to `job`. The old Job stops waiting for it, and gets PodGone when the watch
    /// shows the pod.
    fn pass_on(&mut self, pod: &Uid, job: &JobId) {
        let Some(HiddenPod { job: before, known, .. }) = self.hidden.pods.get(pod) else { return };
        if before == job {
            return;
        }
        if *known && self.pod_owners.job_of(pod).is_none() && self.jobs.contains_key(before) {
            self.pod_owners.insert(pod.clone(), before);
        }
        self.no_longer_hidden(pod);
    }

    /// Records a pod that the watch does not show in a readable form.
    fn hide(
        &mut self,
        (pod, version): (Uid, u64),
        job: &JobId,
        unreadable: Option<Unreadable>,
        task: AbortOnDropHandle<()>,
    ) {
        self.pass_on(&pod, job);
        let is_gone = self.jobs.get(job).is_some_and(JobEntry::is_gone);
        let known = is_gone || self.pod_owners.job_of(&pod) == Some(job);
        self.hidden.insert(pod, HiddenPod { job: job.clone(), version, known, unreadable, _task: task });
        if !known {
            self.show_wait(job, Some(&Wait::PodsUnknown));
        }
    }

    /// Records a pod that cannot be read. Until a live read shows that it is gone, its Job keeps its
    /// knowledge of the pod. If it had none, it decides nothing, unless it leaves. The Job itself may become
    /// known later. A watch shows that a pod has left also if it has lost its label only.
    pub(super) fn pod_unreadable(&mut self, pod: &Unreadable, ctx: &Context<Self>) {
        if pod.has_left {
            self.orphan_pods.forget(&pod.uid);
        }
        let Some(job) = &pod.job else { return self.nameless_unreadable(pod, ctx) };
        let is_ours = || self.places.of_job(job) == self.owned.id;
        if pod.has_left && !is_ours() {
            self.no_longer_ours(&pod.uid);
            return self.no_longer_hidden(&pod.uid);
        }
        self.pod_feed.mark(job, &pod.uid);
        let is_held = self.hidden.holds(&pod.uid, job, pod.version);
        let is_its = self.hidden.job_of(&pod.uid) == Some(job);
        if !is_held || (is_its && !self.hidden.is_unreadable(&pod.uid)) {
            let of = (pod.namespace.clone(), (&*pod.name).into(), pod.uid.clone());
            let task = self.read_until_shown(of, job, false, ctx);
            self.hide((pod.uid.clone(), pod.version), job, Some(pod.clone()), task);
        }
        if self.jobs.contains_key(job) && self.hidden.reported.insert(pod.uid.clone()) {
            self.warn(
                job.clone(),
                "UnreadablePod",
                format!("Pod {} cannot be read: {}", pod.name, pod.error),
            );
        }
    }

    /// Records an unreadable pod that names no Job. A Job may have left it behind with our finalizer: it is
    /// released, or adopted, once it can be read.
    fn nameless_unreadable(&mut self, pod: &Unreadable, ctx: &Context<Self>) {
        if self.hidden.nameless.contains_key(&pod.uid) || self.pod_feed.is_draining() {
            return;
        }
        let (cx, shard, pod) = (self.cx.clone(), ctx.address(), pod.clone());
        let uid = pod.uid.clone();
        let task = self.owned.unit.spawn("a reading of a pod", async move {
            let found = cx.until_readable(&pod).await;
            shard.do_send(Shown { pod: pod.uid, found });
        });
        self.hidden.nameless.insert(uid, AbortOnDropHandle::new(task));
    }

    /// A pod is gone, and the watch may not have shown it.
    fn gone_hidden(&mut self, pod: &Uid, ctx: &mut Context<Self>) {
        self.answered_gone(pod, ctx);
        self.live_lists.pod_left(pod);
        self.orphan_pods.forget(pod);
        self.no_longer_ours(pod);
    }

    /// A pod is gone, or another shard's.
    fn no_longer_ours(&mut self, pod: &Uid) {
        if let Some(job) = self.holder_of(pod) {
            self.send(&job, JobInput::PodGone(pod.clone()));
        }
        self.pod_owners.remove(pod);
    }

    /// Notifies the Job that holds a pod if it is not this one. Returns whether it was another's.
    pub(super) fn lost_to(&mut self, pod: &Uid, job: Option<&JobId>) -> bool {
        let before = self.holder_of(pod).filter(|before| Some(before) != job);
        before.inspect(|before| self.send(before, JobInput::PodGone(pod.clone()))).is_some()
    }

    /// The Job that holds a pod. A list that did not show the pod has taken it off the index, and its Job keeps it while it is
    /// not seen.
    pub(super) fn holder_of(&self, pod: &Uid) -> Option<JobId> {
        self.pod_owners.job_of(pod).or_else(|| self.hidden.job_of(pod)).cloned()
    }

    fn warn(&self, about: JobId, reason: &'static str, message: String) {
        self.cx.recorder.record(Event {
            about,
            kind: EventType::Warning,
            reason: reason.into(),
            message: message.into(),
            at: self.cx.clock.now(),
            must: false,
        });
    }

    /// Records that a Job is known: unreadable pods of it were found before.
    pub(super) fn job_known(&mut self, job: &JobId, ctx: &Context<Self>) {
        if self.hidden.hold_back(job) {
            self.show_wait(job, Some(&Wait::PodsUnknown));
            self.hidden.unreadable_of(job).iter().for_each(|pod| self.pod_unreadable(pod, ctx));
        }
    }

    /// Reads a pod of a Job again and again until it is gone, for the first time `at_once` or after a pause. A pod that its Job
    /// leaves behind counts as one that does not exist.
    fn read_until_shown(
        &self,
        (namespace, name, pod): (Arc<str>, Box<str>, Uid),
        job: &JobId,
        at_once: bool,
        ctx: &Context<Self>,
    ) -> AbortOnDropHandle<()> {
        let (cx, fence, shard) = (self.cx.clone(), self.owned.fence.clone(), ctx.address());
        let release = ReleaseWithJob { cx: cx.for_job(job), fence, namespace, name, pod, job: job.clone() };
        AbortOnDropHandle::new(self.owned.unit.spawn("a reading of a pod", async move {
            let ReleaseWithJob { cx, namespace, name, pod, .. } = &release;
            let read = async || match cx.reads.find_pod(namespace, name, pod).await {
                Err(ReadError::Unreadable(_)) if release.if_job_leaves().await => Ok(None),
                read => read,
            };
            let mut pauses = cx.api_backoff();
            let mut found = if at_once { Box::pin(read()).await.ok() } else { None };
            loop {
                let shown = match found.take() {
                    Some(shown) => shown,
                    None => {
                        Box::pin(cx.read_retries.until_readable(namespace, cx.api_backoff(), &read)).await
                    }
                };
                let is_gone = shown.is_none();
                shard.do_send(Shown { pod: pod.clone(), found: shown });
                if is_gone {
                    return;
                }
                pauses.pause().await;
            }
        }))
    }

    /// Shows on the board why a Job waits for pods, or that it waits for nothing.
    pub(super) fn show_wait(&self, job: &JobId, wait: Option<&Wait>) {
        if let Some(Ok(job)) = self.jobs.get(job).map(|entry| &entry.seen().job) {
            self.owned.waits.write(job, wait, None);
        }
    }

    /// Checks a pod that has left the watch, as it was before. Returns whether it may still exist, and only
    /// its labels have changed. A pod with our finalizer is not gone before it is deleted, and seldom while
    /// it runs. A live read decides.
    pub(super) fn may_exist(&mut self, pod: &ObservedPod, ctx: &Context<Self>) -> bool {
        let stays = pod.pod.tracked && (!pod.pod.deleting || pod.pod.phase == Phase::Running);
        let job = pod.job().filter(|job| stays && self.jobs.contains_key(*job)).cloned();
        let Some(job) = job else { return false };
        if !self.hidden.holds(&pod.pod.uid, &job, pod.pod.version) && !self.pod_feed.is_draining() {
            self.read_live(pod, &job, ctx);
        }
        true
    }

    /// The pod is shown, or gone: its Job may have waited for that.
    pub(super) fn no_longer_hidden(&mut self, pod: &Uid) {
        self.hidden.nameless.remove(pod);
        let Some((job, known)) = self.hidden.remove(pod) else { return };
        if !known && !self.hidden.hold_back(&job) {
            self.no_longer_held_back(&job);
        }
    }

    /// Whether a Job waits for pods that are unknown, or for a list of its own.
    pub(super) fn awaits_more_pods(&self, job: &JobId) -> bool {
        self.hidden.hold_back(job) || self.jobs.get(job).is_some_and(JobEntry::awaits_pods)
    }

    /// A Job has waited for pods that were unknown.
    fn no_longer_held_back(&mut self, job: &JobId) {
        self.show_wait(job, None);
        self.deliver_proven(job);
    }

    /// A Job goes on, unless it waits for more: with the list that was made for it alone, if there is one.
    pub(super) fn deliver_proven(&mut self, job: &JobId) {
        if self.awaits_more_pods(job) {
            return;
        }
        match self.live_lists.take_proven(job).filter(|_| self.pod_feed.version().is_some()) {
            Some((listed, version)) => {
                self.send(job, JobInput::PodsListed { listed, version, origin: ListOrigin::Live });
            }
            None => self.deliver_listed(job, None),
        }
    }

    /// A Job is rebuilt: it waits for all pods that are not seen, unless it is gone.
    pub(super) fn none_seen(&mut self, job: &JobId) {
        if self.jobs.get(job).is_some_and(|entry| !entry.is_gone()) {
            self.hidden.job_rebuilt(job);
        }
        if self.hidden.hold_back(job) {
            self.show_wait(job, Some(&Wait::PodsUnknown));
        }
    }

    /// A Job is gone: it releases its pods, whether it knows all of them or not.
    pub(super) fn wait_for_no_pod(&mut self, job: &JobId) {
        if self.hidden.job_vanished(job) {
            self.no_longer_held_back(job);
        }
    }
}

impl Handler<Shown> for ShardActor {
    type Result = ();

    fn handle(&mut self, Shown { pod, found }: Shown, ctx: &mut Self::Context) {
        // The watch may have shown it meanwhile, and even its end.
        let is_awaited = self.hidden.nameless.remove(&pod).is_some() || self.hidden.contains(&pod);
        if !is_awaited || self.pod_feed.is_draining() {
            return;
        }
        match found {
            Some(found) => {
                self.answered(&found.pod, ctx);
                self.route_pod(found, ctx);
            }
            None => {
                self.gone_hidden(&pod, ctx);
                self.no_longer_hidden(&pod);
            }
        }
        self.show_held();
    }
}
