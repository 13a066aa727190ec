//! Pods that exist, but that the watch of their shard does not show in a readable form: they are read live.
//! No Job is planned for while there is a pod of it that it has never known (invariant 9: known before
//! planned).

use std::sync::Arc;

use actix::{AsyncContext, Context, Handler, Message};
use tokio_util::task::AbortOnDropHandle;

use super::ShardActor;
use super::jobs::JobEntry;
use crate::actors::job_input::{JobInput, ListOrigin};
use crate::actors::release_with_job::ReleaseWithJob;
use crate::cluster::events::{Event, EventType, ObjectRef};
use crate::cluster::reads::ReadError;
use crate::cluster::wire::{ObservedPod, Unreadable};
use crate::job::job_id::{JobId, JobMap};
use crate::job::plan::Wait;
use crate::job::pod::Phase;
use crate::job::tidying::give_back;
use crate::job::uid::{Uid, UidMap, UidSet};

/// Pods that exist and that the shard's watch does not show.
#[derive(Debug, Default)]
pub(super) struct UnseenPods {
    pods: UidMap<Unseen>,
    /// How many pods of a Job it has never known; only Jobs that have some.
    unknown: JobMap<usize>,
    /// Pods that cannot be read, each reported once.
    reported: UidSet,
    /// Pods with the label of this shard that cannot be read and name no Job: no Job waits for them. They are read again.
    nameless: UidMap<AbortOnDropHandle<()>>,
}

#[derive(Debug)]
struct Unseen {
    job: JobId,
    /// The version at which it was found. Older readings say nothing new of its Job.
    version: u64,
    /// The Job has known it before, or is gone.
    known: bool,
    /// The metadata of an unreadable pod.
    unreadable: Option<Unreadable>,
    /// Reads it again and again, until the watch shows it.
    _task: AbortOnDropHandle<()>,
}

impl UnseenPods {
    pub(super) fn contains(&self, pod: &Uid) -> bool {
        self.pods.contains_key(pod)
    }

    /// The Job of a pod that is not seen.
    fn job_of(&self, pod: &Uid) -> Option<&JobId> {
        self.pods.get(pod).map(|unseen| &unseen.job)
    }

    /// Whether a pod is held for this Job, or for another one as a later reading has shown it.
    pub(super) fn holds(&self, pod: &Uid, job: &JobId, version: u64) -> bool {
        self.pods.get(pod).is_some_and(|unseen| unseen.job == *job || unseen.version >= version)
    }

    /// Whether a pod is known as one that cannot be read; one that is being labelled may turn out to be such a one.
    fn is_unreadable(&self, pod: &Uid) -> bool {
        self.pods.get(pod).is_some_and(|unseen| unseen.unreadable.is_some())
    }

    /// The number of pods that are not seen.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.pods.len()
    }

    fn insert(&mut self, pod: Uid, unseen: Unseen) {
        let (job, known) = (unseen.job.clone(), unseen.known);
        self.remove(&pod);
        self.pods.insert(pod, unseen);
        if !known {
            *self.unknown.entry(job).or_default() += 1;
        }
    }

    /// The pod is shown, or gone. Returns its Job, and whether the Job has known it before.
    fn remove(&mut self, pod: &Uid) -> Option<(JobId, bool)> {
        self.reported.remove(pod);
        let Unseen { job, known, .. } = self.pods.remove(pod)?;
        give_back(&mut self.pods);
        if !known {
            self.one_less_unknown(&job);
        }
        Some((job, known))
    }

    fn one_less_unknown(&mut self, job: &JobId) {
        if let Some(unknown) = self.unknown.get_mut(job) {
            *unknown -= 1;
            if *unknown == 0 {
                self.unknown.remove(job);
            }
        }
    }

    /// The Job that a pod is held for knows it now. Returns whether that is new.
    fn is_known_now(&mut self, pod: &Uid) -> bool {
        let Some(unseen) = self.pods.get_mut(pod) else { return false };
        let (is_new, job) = (!std::mem::replace(&mut unseen.known, true), unseen.job.clone());
        unseen.unreadable = None;
        if is_new {
            self.one_less_unknown(&job);
        }
        is_new
    }

    /// Whether a Job has pods that it has never known.
    pub(super) fn hold_back(&self, job: &JobId) -> bool {
        self.unknown.contains_key(job)
    }

    /// The Job is gone, and must know no pod before it lets its others go. Returns whether it was held back.
    pub(super) fn job_vanished(&mut self, job: &JobId) -> bool {
        let held = self.unknown.remove(job).is_some();
        if held {
            self.pods.values_mut().filter(|unseen| unseen.job == *job).for_each(|unseen| unseen.known = true);
        }
        held
    }

    /// The Job is rebuilt, and knows none of its pods.
    fn job_rebuilt(&mut self, job: &JobId) {
        let of_job = self.pods.values_mut().filter(|unseen| unseen.job == *job && unseen.known);
        let forgotten = of_job.map(|unseen| unseen.known = false).count();
        if forgotten > 0 {
            *self.unknown.entry(job.clone()).or_default() += forgotten;
        }
    }

    /// The pods of a Job that cannot be read.
    fn unreadable_of(&self, job: &JobId) -> Vec<Unreadable> {
        let of_job = self.pods.values().filter(|unseen| unseen.job == *job);
        of_job.filter_map(|unseen| unseen.unreadable.clone()).collect()
    }

    /// The pods that their Jobs know, as (pod, Job).
    pub(super) fn known(&self) -> impl Iterator<Item = (&Uid, &JobId)> {
        self.pods.iter().filter(|(_, unseen)| unseen.known).map(|(pod, unseen)| (pod, &unseen.job))
    }
}

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
        if self.unseen.job_of(&uid) != Some(&job) {
            self.no_longer_unseen(&uid);
            if !self.pod_feed.is_draining() {
                let task = self.read_until_shown(of, &job, false, ctx);
                self.hide((uid, version), &job, None, task);
            }
        } else if self.unseen.is_known_now(&uid) && !self.unseen.hold_back(&job) {
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
        if needs_reading && !self.unseen.holds(uid, job, pod.pod.version) {
            self.read_live(pod, job, ctx);
        }
    }

    /// Records that a pod of a Job was found that the watch may not show: it is read.
    pub(super) fn read_live(&mut self, pod: &ObservedPod, job: &JobId, ctx: &Context<Self>) {
        let of = (pod.namespace.clone(), pod.pod.name.clone(), pod.pod.uid.clone());
        let task = self.read_until_shown(of, job, true, ctx);
        self.hide((pod.pod.uid.clone(), pod.pod.version), job, None, task);
    }

    /// Reassigns an unseen pod to `job`. The old Job stops waiting for it, and gets PodGone when the watch
    /// shows the pod.
    fn pass_on(&mut self, pod: &Uid, job: &JobId) {
        let Some(Unseen { job: before, known, .. }) = self.unseen.pods.get(pod) else { return };
        if before == job {
            return;
        }
        if *known && self.pod_owners.job_of(pod).is_none() && self.jobs.contains_key(before) {
            self.pod_owners.insert(pod.clone(), before);
        }
        self.no_longer_unseen(pod);
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
        self.unseen.insert(pod, Unseen { job: job.clone(), version, known, unreadable, _task: task });
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
            return self.no_longer_unseen(&pod.uid);
        }
        self.pod_feed.mark(job, &pod.uid);
        let is_held = self.unseen.holds(&pod.uid, job, pod.version);
        let is_its = self.unseen.job_of(&pod.uid) == Some(job);
        if !is_held || (is_its && !self.unseen.is_unreadable(&pod.uid)) {
            let of = (pod.namespace.clone(), (&*pod.name).into(), pod.uid.clone());
            let task = self.read_until_shown(of, job, false, ctx);
            self.hide((pod.uid.clone(), pod.version), job, Some(pod.clone()), task);
        }
        if self.jobs.contains_key(job) && self.unseen.reported.insert(pod.uid.clone()) {
            let about = ObjectRef::job(job.namespace(), job.name(), job.uid());
            self.warn(about, "UnreadablePod", format!("Pod {} cannot be read: {}", pod.name, pod.error));
        }
    }

    /// Records an unreadable pod that names no Job. A Job may have left it behind with our finalizer: it is
    /// released, or adopted, once it can be read.
    fn nameless_unreadable(&mut self, pod: &Unreadable, ctx: &Context<Self>) {
        if self.unseen.nameless.contains_key(&pod.uid) || self.pod_feed.is_draining() {
            return;
        }
        let (cx, shard, pod) = (self.cx.clone(), ctx.address(), pod.clone());
        let uid = pod.uid.clone();
        let task = self.owned.unit.spawn("a reading of a pod", async move {
            let found = cx.until_readable(&pod).await;
            shard.do_send(Shown { pod: pod.uid, found });
        });
        self.unseen.nameless.insert(uid, AbortOnDropHandle::new(task));
    }

    /// A pod is gone, and the watch may not have shown it.
    fn gone_unseen(&mut self, pod: &Uid, ctx: &mut Context<Self>) {
        self.answered_gone(pod, ctx);
        self.doubts.pod_left(pod);
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
        self.pod_owners.job_of(pod).or_else(|| self.unseen.job_of(pod)).cloned()
    }

    fn warn(&self, about: ObjectRef, reason: &'static str, message: String) {
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
        if self.unseen.hold_back(job) {
            self.show_wait(job, Some(&Wait::PodsUnknown));
            self.unseen.unreadable_of(job).iter().for_each(|pod| self.pod_unreadable(pod, ctx));
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
                    None => Box::pin(cx.rereads.until_readable(namespace, cx.api_backoff(), &read)).await,
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
        if !self.unseen.holds(&pod.pod.uid, &job, pod.pod.version) && !self.pod_feed.is_draining() {
            self.read_live(pod, &job, ctx);
        }
        true
    }

    /// The pod is shown, or gone: its Job may have waited for that.
    pub(super) fn no_longer_unseen(&mut self, pod: &Uid) {
        self.unseen.nameless.remove(pod);
        let Some((job, known)) = self.unseen.remove(pod) else { return };
        if !known && !self.unseen.hold_back(&job) {
            self.no_longer_held_back(&job);
        }
    }

    /// Whether a Job waits for pods that are unknown, or for a list of its own.
    pub(super) fn awaits_more_pods(&self, job: &JobId) -> bool {
        self.unseen.hold_back(job) || self.jobs.get(job).is_some_and(JobEntry::awaits_pods)
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
        match self.doubts.take_proven(job).filter(|_| self.pod_feed.version().is_some()) {
            Some((listed, version)) => {
                self.send(job, JobInput::PodsListed { listed, version, origin: ListOrigin::Live });
            }
            None => self.deliver_listed(job, None),
        }
    }

    /// A Job is rebuilt: it waits for all pods that are not seen, unless it is gone.
    pub(super) fn none_seen(&mut self, job: &JobId) {
        if self.jobs.get(job).is_some_and(|entry| !entry.is_gone()) {
            self.unseen.job_rebuilt(job);
        }
        if self.unseen.hold_back(job) {
            self.show_wait(job, Some(&Wait::PodsUnknown));
        }
    }

    /// A Job is gone: it releases its pods, whether it knows all of them or not.
    pub(super) fn wait_for_no_pod(&mut self, job: &JobId) {
        if self.unseen.job_vanished(job) {
            self.no_longer_held_back(job);
        }
    }
}

impl Handler<Shown> for ShardActor {
    type Result = ();

    fn handle(&mut self, Shown { pod, found }: Shown, ctx: &mut Self::Context) {
        // The watch may have shown it meanwhile, and even its end.
        let is_awaited = self.unseen.nameless.remove(&pod).is_some() || self.unseen.contains(&pod);
        if !is_awaited || self.pod_feed.is_draining() {
            return;
        }
        match found {
            Some(found) => {
                self.answered(&found.pod, ctx);
                self.route_pod(found, ctx);
            }
            None => {
                self.gone_unseen(&pod, ctx);
                self.no_longer_unseen(&pod);
            }
        }
        self.show_held();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_job_is_held_back_by_pods_that_it_has_never_known() {
        let [a, b] = ["job-a", "job-b"].map(JobId::from);
        let mut unseen = UnseenPods::default();
        let unseen_of = |job: &JobId, known| {
            let task = AbortOnDropHandle::new(tokio::spawn(std::future::pending()));
            Unseen { job: job.clone(), version: 1, known, unreadable: None, _task: task }
        };
        for (pod, job, known) in [("1", &a, false), ("2", &a, false), ("3", &a, true), ("4", &b, true)] {
            unseen.insert(pod.into(), unseen_of(job, known));
        }
        assert!(unseen.hold_back(&a) && !unseen.hold_back(&b));
        assert_eq!(unseen.known().count(), 2);
        assert_eq!(unseen.remove(&"1".into()), Some((a.clone(), false)));
        assert_eq!(unseen.remove(&"1".into()), None);
        assert_eq!(unseen.remove(&"3".into()), Some((a.clone(), true)));
        assert!(unseen.hold_back(&a));
        assert!(!unseen.job_vanished(&b));
        // Found twice, and once known meanwhile.
        unseen.insert("2".into(), unseen_of(&a, true));
        assert!(!unseen.hold_back(&a));
        assert_eq!(unseen.remove(&"2".into()), Some((a.clone(), true)));
        // Rebuilt, it knows none.
        unseen.job_rebuilt(&b);
        assert!(unseen.hold_back(&b) && !unseen.hold_back(&a));
        unseen.job_rebuilt(&b);
        assert_eq!(unseen.remove(&"4".into()), Some((b.clone(), false)));
        assert!(!unseen.hold_back(&b));
        // A Job waits for no pod once it is gone.
        unseen.insert("5".into(), unseen_of(&a, false));
        assert!(unseen.job_vanished(&a) && !unseen.hold_back(&a));
        assert_eq!(unseen.remove(&"5".into()), Some((a, true)));
    }
}
