//! Pods without a known Job. A pod whose Job is gone loses our finalizer and label; a pod with the label of
//! another shard than its Job's gets that of its Job's; a pod whose Job is not known yet waits for it.
//!
//! A pod waits here only if a watch shows its end, or the next list of such pods. Any other pod is held by a task
//! of its own, which ends with the pod ([`OrphanPods::settle`]).

mod release;

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::OnceCell;
use tokio::time::sleep_until;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::AbortOnDropHandle;

use self::release::{Fate, OrphanRelease};
use super::context::ReplicaContext;
use super::labelling::{Labelling, has_label_of};
use super::pauses::Pauses;
use super::supervision::Unit;
use crate::cluster::gate::Fence;
use crate::cluster::wire::{ControllerRef, ObservedPod};
use crate::job::job_id::{JobId, JobMap};
use crate::job::names::SHARD_LABEL;
use crate::job::tidying::Tidying;
use crate::job::uid::{Uid, UidMap, UidSet};

/// Pods without a Job.
pub struct OrphanPods {
    cx: ReplicaContext,
    fence: Fence,
    unit: Unit,
    /// By the Job that they name as their controller.
    waiting: JobMap<UidMap<Box<ObservedPod>>>,
    /// The Job that each of them waits for.
    awaited: UidMap<JobId>,
    /// Those of them that the list in progress has yet to show. If it does not, they are gone.
    unlisted: UidSet,
    /// What live reads have shown of the Jobs that pods wait for: one read for all pods of a Job.
    fates: JobMap<Arc<OnceCell<Fate>>>,
    /// Pods whose Job is being looked for, and what follows from that.
    checking: UidMap<Check>,
    /// Pods that are being released, or were not long ago.
    releasing: UidMap<UnderWay>,
    /// When releases that have ended are dropped: no watch may show what has become of their pods.
    tidying: Tidying,
    /// When pods may be released again.
    pauses: Pauses,
}

impl OrphanPods {
    /// No pods yet. They are released while `fence` is open, by tasks of this unit.
    pub fn new(cx: ReplicaContext, fence: Fence, unit: Unit) -> Self {
        Self {
            cx,
            fence,
            unit,
            waiting: JobMap::default(),
            awaited: UidMap::default(),
            unlisted: UidSet::default(),
            fates: JobMap::default(),
            checking: UidMap::default(),
            releasing: UidMap::default(),
            tidying: Tidying::default(),
            pauses: Pauses::default(),
        }
    }

    /// Takes in a pod that no known Job owns or would adopt.
    pub fn consider(&mut self, pod: Box<ObservedPod>) {
        self.leave_other_jobs(&pod);
        match &pod.controller {
            Some(ControllerRef::Job(job)) if pod.pod.tracked => self.wait(job.clone(), pod),
            // Finalizer and labels are another controller's business now.
            Some(ControllerRef::Job(_) | ControllerRef::Other) => self.forget(&pod.pod.uid),
            Some(ControllerRef::NoJob) | None => {
                if pod.pod.tracked || pod.labels.get(SHARD_LABEL).is_some() {
                    self.release(&pod);
                }
            }
        }
    }

    /// Takes in such a pod from the watch. One that is counted waits for its Job, too: a Job that becomes known late may be
    /// shown as it was before that. Where it has the label of another shard, its Job's does not see it, which may have to
    /// delete it.
    pub fn consider_shown(&mut self, pod: Box<ObservedPod>) {
        let job = pod.job().filter(|_| pod.pod.is_done()).cloned();
        let Some(job) = job else { return self.consider(pod) };
        if !self.is_labelled(&pod, &job) {
            return self.wait(job, pod);
        }
        self.forget(&pod.pod.uid);
        self.keep(job, pod);
    }

    /// Whether a pod has the label of this Job's shard.
    fn is_labelled(&self, pod: &ObservedPod, job: &JobId) -> bool {
        has_label_of(pod, self.cx.config.shards.shard_of(&job.uid().to_string()))
    }

    /// A list begins of all pods that may wait here. It shows those again that exist.
    pub fn list_begins(&mut self) {
        self.unlisted = self.awaited.keys().cloned().collect();
    }

    /// The list is complete: what it has not shown is gone, or has another label.
    pub fn list_complete(&mut self) {
        std::mem::take(&mut self.unlisted).iter().for_each(|pod| self.forget(pod));
    }

    /// Removes our finalizer and label from a pod, unless that is in progress.
    fn release(&mut self, pod: &ObservedPod) {
        let uid = &pod.pod.uid;
        if self.tidying.is_due(self.releasing.len()) {
            self.releasing.retain(|_, release| !release.task.is_finished());
            self.tidying.done(self.releasing.len());
        }
        // One that was adopted meanwhile may be an orphan again. As long as a release pauses, the newest reading counts.
        let may_begin = self.releasing.get(uid).is_none_or(|release| release.task.is_finished());
        if may_begin || self.pauses.is_pausing(uid) {
            let release = OrphanRelease::of(self, pod);
            let (begins, right) = (release.begins(), release.right().clone());
            let task = self.unit.spawn("the release of an orphan", async move {
                sleep_until(begins).await;
                release.release().await;
            });
            self.releasing.insert(uid.clone(), UnderWay { task: AbortOnDropHandle::new(task), right });
        }
    }

    /// Looks for the Job of a pod that no watch shows. Returns whether the Job exists and is ours. If it is gone, the pod is
    /// released first.
    pub fn settle(&self, pod: &ObservedPod, job: &JobId) -> impl Future<Output = bool> + Send + use<> {
        let (release, job) = (OrphanRelease::of(self, pod), job.clone());
        async move {
            let fate = release.fate_of(&job).await;
            if fate == Fate::Gone {
                sleep_until(release.begins()).await;
                release.release().await;
            }
            fate == Fate::Ours
        }
    }

    /// Keeps a pod for its Job, and finds out whether the Job exists.
    fn wait(&mut self, job: JobId, pod: Box<ObservedPod>) {
        let uid = pod.pod.uid.clone();
        self.unlisted.remove(&uid);
        let fate = self.fates.entry(job.clone()).or_default().clone();
        // Nothing follows from another controller's Job before it is gone.
        if fate.get() != Some(&Fate::Others) && !self.checking.contains_key(&uid) {
            let release = OrphanRelease::of(self, &pod);
            let right = release.right().clone();
            let is_labelled = self.is_labelled(&pod, &job);
            let labelling = (!is_labelled).then(|| Labelling::new(&self.cx, &right, &pod, &job));
            let (wanted, of) = (CancellationToken::new(), job.clone());
            // There may be as many as a tenant has pods, so each step has no more memory than it needs.
            let look = Box::pin(wanted.clone().run_until_cancelled_owned(async move {
                let fate = *fate.get_or_init(|| Box::pin(release.fate_of(&of))).await;
                if fate == Fate::Gone {
                    sleep_until(release.begins()).await;
                }
                (fate, release)
            }));
            let task = self.unit.spawn("a look at an orphan", async move {
                match (look.await, labelling) {
                    (Some((Fate::Gone, release)), _) => Box::pin(release.release()).await,
                    // Once it is written, its shard sees the pod. If the shard is lost, the next owner looks.
                    (Some((Fate::Ours, _)), Some(labelling)) => _ = Box::pin(labelling.hold(|_| {})).await,
                    (Some((Fate::Ours | Fate::Others, _)) | None, _) => {}
                }
            });
            let then = UnderWay { task: AbortOnDropHandle::new(task), right };
            let check = Check { then, wanted: wanted.drop_guard() };
            self.checking.insert(uid.clone(), check);
        }
        self.keep(job, pod);
    }

    fn keep(&mut self, job: JobId, pod: Box<ObservedPod>) {
        let uid = pod.pod.uid.clone();
        self.awaited.insert(uid.clone(), job.clone());
        self.waiting.entry(job).or_default().insert(uid, pod);
    }

    /// Takes the pods that have waited for a Job, which is known now, but for those that the list in progress has yet to
    /// show.
    #[expect(clippy::vec_box, reason = "they go on one by one, as they are")]
    pub fn waiting_for(&mut self, job: &JobId) -> Vec<Box<ObservedPod>> {
        let mut pods: Vec<Box<ObservedPod>> =
            self.waiting.remove(job).into_iter().flat_map(HashMap::into_values).collect();
        for pod in &pods {
            self.checking.remove(&pod.pod.uid);
            self.awaited.remove(&pod.pod.uid);
        }
        self.fates.remove(job);
        pods.retain(|pod| !self.unlisted.remove(&pod.pod.uid));
        pods
    }

    /// A Job is gone: what a live read has shown of it is no longer true.
    pub fn job_vanished(&mut self, job: &JobId) {
        self.waiting_for(job).into_iter().for_each(|pod| self.consider(pod));
    }

    /// Looks for the Jobs of all pods again that were there before.
    pub fn look_again(&mut self) {
        let was_there = |job: &&JobId| {
            self.fates.get(*job).and_then(|fate| fate.get()).is_some_and(|fate| *fate != Fate::Gone)
        };
        let jobs: Vec<JobId> = self.waiting.keys().filter(was_there).cloned().collect();
        jobs.iter().for_each(|job| self.job_vanished(job));
    }

    /// Forgets all pods: a new list begins.
    pub fn forget_all(&mut self) {
        self.waiting.clear();
        self.awaited.clear();
        self.unlisted.clear();
        self.fates.clear();
        self.checking.clear();
        self.releasing.clear();
    }

    /// Forgets a pod that is gone or needs nothing more. Its Job is no longer looked for. A release of it ends when it finds
    /// that out, and counts if the watch has shown it before its own answer came.
    pub fn forget(&mut self, pod: &Uid) {
        self.checking.remove(pod).into_iter().for_each(Check::forget);
        let under_way = self.releasing.remove(pod).filter(|_| !self.pauses.is_pausing(pod));
        under_way.into_iter().for_each(UnderWay::forget);
        self.no_longer_waits(pod);
        self.give_memory_back();
    }

    /// A table keeps the size that it once had. One that is empty needs none.
    fn give_memory_back(&mut self) {
        if self.awaited.is_empty() {
            self.awaited.shrink_to_fit();
            self.unlisted.shrink_to_fit();
        }
        if self.checking.is_empty() {
            self.checking.shrink_to_fit();
        }
        if self.releasing.is_empty() {
            self.releasing.shrink_to_fit();
        }
    }

    /// A pod waits for the Job that it names, and for no other: it must not be given to one that it named before, once
    /// that becomes known.
    pub fn leave_other_jobs(&mut self, pod: &ObservedPod) {
        let uid = &pod.pod.uid;
        let Some(awaited) = self.awaited.get(uid) else { return };
        if pod.job() == Some(awaited) {
            return;
        }
        self.checking.remove(uid).into_iter().for_each(Check::forget);
        self.no_longer_waits(uid);
    }

    /// The numbers of pods that wait, and that are being released or were.
    #[cfg(test)]
    pub fn held(&self) -> [usize; 2] {
        [self.awaited.len().max(self.checking.len()), self.releasing.len()]
    }

    fn no_longer_waits(&mut self, pod: &Uid) {
        self.unlisted.remove(pod);
        let Some(job) = self.awaited.remove(pod) else { return };
        if let Some(pods) = self.waiting.get_mut(&job) {
            pods.remove(pod);
            if pods.is_empty() {
                self.waiting.remove(&job);
                self.fates.remove(&job);
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
    /// The write that is under way is answered, and no other follows.
    fn forget(self) {
        self.right.withdraw();
        self.task.detach();
    }
}

/// A look for the Job of a pod, and what follows from it.
struct Check {
    /// Ends the look, but not what follows from it.
    wanted: DropGuard,
    then: UnderWay,
}

impl Check {
    fn forget(self) {
        drop(self.wanted);
        self.then.forget();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use serde_json::{Value, json};
    use tokio::time::sleep;

    use super::*;
    use crate::actors::test_api::{TestApi, job, observed_pod, pod, refusal, replica, run};
    use crate::job::names::BUILT_IN_CONTROLLER;

    fn orphans(api: &TestApi) -> OrphanPods {
        let cx = replica(api, BUILT_IN_CONTROLLER);
        let unit = Unit::new(cx.runtime.clone(), || {});
        OrphanPods::new(cx, Fence::unlimited(), unit)
    }

    /// The pod `p`, whose Job is gone, or which has none.
    fn orphan(has_job: bool) -> Value {
        let mut orphan = pod("p", "j");
        if !has_job {
            orphan["metadata"]["ownerReferences"] = json!([]);
        }
        orphan
    }

    /// An API server that knows the pod `p`, and no Job. It answers patches with this code, but for the last
    /// of a thousand.
    fn api(has_job: bool, code: u16) -> TestApi {
        let mut patches = 0;
        TestApi::new(move |method, uri| match method {
            "GET" if uri.contains("/pods/p") => Some((200, orphan(has_job))),
            "GET" => refusal(404),
            _ => {
                patches += 1;
                if patches < 1_000 { refusal(code) } else { Some((200, orphan(has_job))) }
            }
        })
    }

    #[test]
    fn a_release_that_is_refused_for_good_is_tried_by_one_task() {
        for has_job in [true, false] {
            run(async move {
                let api = api(has_job, 403);
                let mut orphans = orphans(&api);
                for _ in 0..40 {
                    orphans.forget_all();
                    orphans.consider(observed_pod(&orphan(has_job)));
                    sleep(Duration::from_millis(100)).await;
                    orphans.look_again();
                }
                sleep(Duration::from_secs(600)).await;
                let patches = api.count(&["PATCH"]);
                // A new list is no reason to go on before a pause is over.
                assert!((12..=30).contains(&patches), "{has_job}: {patches} patches");
            });
        }
    }

    #[test]
    fn a_pod_that_loses_its_owner_no_longer_waits_for_it() {
        for is_gone in [false, true] {
            run(async move {
                let mut orphans = orphans(&api(true, 200));
                let waiting = observed_pod(&orphan(true));
                let job = waiting.job().unwrap().clone();
                orphans.consider(waiting.clone());
                assert_eq!(orphans.waiting_for(&job).len(), 1);
                orphans.consider(waiting);
                let without_owner = observed_pod(&orphan(false));
                match is_gone {
                    false => orphans.consider(without_owner),
                    true => orphans.forget(&without_owner.pod.uid),
                }
                assert!(orphans.waiting_for(&job).is_empty());
            });
        }
    }

    #[test]
    fn a_pod_that_another_job_owns_waits_for_no_former_one() {
        run(async {
            let mut orphans = orphans(&api(true, 200));
            orphans.consider(observed_pod(&orphan(true)));
            let of_other = observed_pod(&pod("p", "other"));
            orphans.leave_other_jobs(&of_other);
            assert!(orphans.waiting_for(&"j".into()).is_empty());
            orphans.consider(observed_pod(&orphan(true)));
            orphans.consider(of_other);
            assert!(orphans.waiting_for(&"j".into()).is_empty());
            assert_eq!(orphans.waiting_for(&"other".into()).len(), 1);
        });
    }

    #[test]
    fn a_pod_that_a_list_shows_as_counted_still_waits_for_its_job() {
        run(async {
            let mut orphans = orphans(&api(true, 200));
            let mut shown = pod("p", "j");
            shown["metadata"]["labels"][SHARD_LABEL] = "0".into();
            orphans.consider_shown(observed_pod(&shown));
            orphans.list_begins();
            shown["metadata"]["finalizers"] = json!([]);
            shown["status"]["phase"] = "Succeeded".into();
            orphans.consider_shown(observed_pod(&shown));
            orphans.list_complete();
            assert_eq!(orphans.waiting_for(&"j".into()).len(), 1);
        });
    }

    #[test]
    fn a_conflict_that_nothing_explains_is_followed_by_a_pause() {
        run(async {
            let api = api(false, 409);
            let mut orphans = orphans(&api);
            orphans.consider(observed_pod(&orphan(false)));
            sleep(Duration::from_secs(60)).await;
            let patches = api.count(&["PATCH"]);
            assert!((3..=7).contains(&patches), "{patches} patches");
        });
    }

    /// Somebody changes the pod before each patch.
    #[test]
    fn many_conflicts_in_a_row_are_followed_by_pauses_though_the_pod_has_changed() {
        run(async {
            let mut version = 1_000;
            let api = TestApi::new(move |method, _| match method {
                "GET" => {
                    version += 1;
                    let mut changed = orphan(false);
                    changed["metadata"]["resourceVersion"] = version.to_string().into();
                    Some((200, changed))
                }
                _ => refusal(409),
            });
            let mut orphans = orphans(&api);
            orphans.consider(observed_pod(&orphan(false)));
            sleep(Duration::from_secs(60)).await;
            let patches = api.count(&["PATCH"]);
            assert!((4..=10).contains(&patches), "{patches} patches");
        });
    }

    #[test]
    fn a_pod_that_was_adopted_during_its_release_is_released_when_it_is_an_orphan_again() {
        run(async {
            let mut patches = 0;
            let api = TestApi::new(move |method, _| match method {
                "GET" => Some((200, orphan(true))),
                _ => {
                    patches += 1;
                    let mut released = orphan(false);
                    released["metadata"]["finalizers"] = json!([]);
                    if patches == 1 { refusal(409) } else { Some((200, released)) }
                }
            });
            let mut orphans = orphans(&api);
            for patches in [1, 2] {
                orphans.consider(observed_pod(&orphan(false)));
                sleep(Duration::from_secs(1)).await;
                assert_eq!(api.count(&["PATCH"]), patches);
            }
        });
    }

    /// A webhook gives each pod that gets the label of a shard to a Job of another one, whose shard another replica owns.
    #[test]
    fn a_pod_that_comes_back_with_the_label_of_another_shard_is_labelled_with_pauses() {
        run(async {
            let (labelled, mut stray) = (pod("p", "k"), pod("p", "j"));
            stray["metadata"]["labels"][SHARD_LABEL] = "1".into();
            let api = TestApi::new(move |method, uri| match method {
                "GET" if uri.contains("/jobs/j") => Some((200, job("j", json!({})))),
                "PATCH" => Some((200, labelled.clone())),
                _ => None,
            });
            let mut orphans = orphans(&api);
            for _ in 0..300 {
                let before = api.count(&["PATCH"]);
                orphans.consider_shown(observed_pod(&stray));
                sleep(Duration::from_millis(100)).await;
                if api.count(&["PATCH"]) > before {
                    orphans.forget(&"p".into());
                }
            }
            let patches = api.count(&["PATCH"]);
            assert!((3..=9).contains(&patches), "{patches} patches");
        });
    }

    /// A user has changed the shard label of a pod that is counted: its Job's shard would not see it any more, and could not
    /// delete it.
    #[test]
    fn a_counted_pod_with_the_label_of_another_shard_gets_that_of_its_jobs() {
        for (label, patches) in [("0", 0), ("1", 1)] {
            run(async move {
                let counted = |label: &str| {
                    let mut counted = pod("p", "j");
                    counted["metadata"]["labels"][SHARD_LABEL] = label.into();
                    counted["metadata"]["finalizers"] = json!([]);
                    counted["status"]["phase"] = "Failed".into();
                    counted
                };
                let labelled = counted("0");
                let api = TestApi::new(move |method, uri| match method {
                    "GET" if uri.contains("/jobs/j") => Some((200, job("j", json!({})))),
                    "GET" => refusal(404),
                    _ => Some((200, labelled.clone())),
                });
                let mut orphans = orphans(&api);
                orphans.consider_shown(observed_pod(&counted(label)));
                sleep(Duration::from_secs(60)).await;
                assert_eq!(api.count(&["PATCH"]), patches, "{label}");
                assert_eq!(orphans.waiting_for(&"j".into()).len(), 1);
            });
        }
    }
}
