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
use super::context::ReplicaContext;
use super::job_index::JobIndex;
use super::labelling::Labelling;
use super::pauses::Pauses;
use super::pod_places::PodPlaces;
use super::pod_watch::Kind;
use super::supervision::Unit;
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
    /// Hears what has become of Jobs.
    hears: Recipient<JobLookedFor>,
    /// By the Job that they name as their controller.
    waiting: JobMap<UidMap<Box<ObservedPod>>>,
    /// The Job that each of them waits for.
    awaited: UidMap<JobId>,
    /// Those of them that the list in progress has yet to show. If it does not, they are gone.
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
    /// When releases that have ended are dropped: no watch may show what has become of their pods.
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

    /// Takes in a pod that no known Job owns or would adopt. `shows_unlabelled`: the shard watches unlabelled pods, too.
    pub fn consider(&mut self, pod: Box<ObservedPod>, shows_unlabelled: bool) {
        self.leave_other_jobs(&pod);
        // The watch tells this shard what becomes of such a pod, until it is gone. Of others, it may not.
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

    /// The list is complete: what it has not shown is gone, or is another shard's.
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
        // One that was adopted meanwhile may be an orphan again. As long as a release pauses, the newest reading counts.
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

    /// Keeps a pod for its Job, and finds out whether the Job exists. One that is counted waits, too: a Job that becomes known
    /// late may be shown as it was before that.
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

    /// Does what follows for a pod from what has become of its Job. Nothing follows from another controller's Job before it is
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
                // Closed, the fence is somebody else's who looks after the pod.
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

    /// Takes in what has become of a Job.
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

    /// Takes the pods that have waited for a Job, which is known now, but for those that the list in progress has yet to
    /// show; and those that it would adopt.
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

    /// A Job is gone: what a live read has shown of it is no longer true.
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

    /// A pod waits for the Job that it names, and for no other: it must not be given to one that it named before, once
    /// that becomes known.
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
    /// The write that is under way is answered, and no other follows.
    fn forget(self) {
        self.right.withdraw();
        self.task.detach();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::cell::{RefCell, RefMut};
    use std::rc::Rc;
    use std::time::Duration;

    use actix::{Actor, Context, Handler};
    use serde_json::{Value, json};
    use tokio::time::sleep;

    use super::*;
    use crate::actors::test_api::{TestApi, observed_pod, pod, refusal, replica, replica_with, run};
    use crate::job::names::{BUILT_IN_CONTROLLER, SHARD_LABEL};
    use crate::sharding::ShardCount;

    /// The orphans of the one shard there is, and the actor that hears for them.
    #[derive(Clone, Default)]
    struct Orphans(Rc<RefCell<Option<OrphanPods>>>);

    impl Orphans {
        fn get(&self) -> RefMut<'_, OrphanPods> {
            RefMut::map(self.0.borrow_mut(), |orphans| orphans.as_mut().unwrap())
        }
    }

    impl Actor for Orphans {
        type Context = Context<Self>;
    }

    impl Handler<JobLookedFor> for Orphans {
        type Result = ();

        fn handle(&mut self, look: JobLookedFor, _: &mut Self::Context) {
            self.get().looked_for(look);
        }
    }

    fn orphans(api: &TestApi) -> Orphans {
        of_first_shard(replica(api, BUILT_IN_CONTROLLER))
    }

    fn of_first_shard(cx: ReplicaContext) -> Orphans {
        let unit = Unit::new(cx.runtime.clone(), || {});
        let orphans = Orphans::default();
        let hears = orphans.clone().start().recipient();
        *orphans.0.borrow_mut() = Some(OrphanPods::new(cx, ShardId(0), Fence::unlimited(), unit, hears));
        orphans
    }

    fn no_jobs() -> JobIndex {
        JobIndex::default()
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
                let orphans = orphans(&api);
                for _ in 0..40 {
                    orphans.get().list_begins(Kind::Labelled);
                    orphans.get().consider(observed_pod(&orphan(has_job)), true);
                    orphans.get().list_complete(Kind::Labelled);
                    sleep(Duration::from_millis(100)).await;
                    orphans.get().look_again();
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
                let orphans = orphans(&api(true, 200));
                let waiting = observed_pod(&orphan(true));
                let job = waiting.job().unwrap().clone();
                orphans.get().consider(waiting.clone(), true);
                assert_eq!(orphans.get().waiting_for(&job, &no_jobs()).len(), 1);
                orphans.get().consider(waiting, true);
                let without_owner = observed_pod(&orphan(false));
                match is_gone {
                    false => orphans.get().consider(without_owner, true),
                    true => orphans.get().forget(&without_owner.pod.uid),
                }
                assert!(orphans.get().waiting_for(&job, &no_jobs()).is_empty());
            });
        }
    }

    /// The watch tells this shard nothing more of it.
    #[test]
    fn a_pod_that_another_shard_keeps_is_not_kept() {
        run(async {
            let api = api(false, 200);
            let shards = ShardCount::new(2).unwrap();
            let cx = replica_with(&api, BUILT_IN_CONTROLLER, |config| config.shards = shards);
            let orphans = of_first_shard(cx);
            let of =
                |shard| (0..).map(|n| format!("u{n}")).find(|uid| shards.shard_of(uid) == ShardId(shard));
            for (named, label, held) in [(0, None, 1), (1, None, 0), (0, Some("1"), 0)] {
                let mut without_owner = orphan(false);
                without_owner["metadata"]["finalizers"] = json!([]);
                let labels = &mut without_owner["metadata"]["labels"];
                *labels = json!({"batch.kubernetes.io/controller-uid": of(named)});
                label.into_iter().for_each(|label: &str| labels[SHARD_LABEL] = label.into());
                orphans.get().consider(observed_pod(&without_owner), true);
                assert_eq!(orphans.get().held(), [held, 0], "{named} {label:?}");
            }
            let mut hidden = pod("p", &of(0).unwrap());
            hidden["metadata"]["labels"][SHARD_LABEL] = "1".into();
            orphans.get().consider(observed_pod(&hidden), true);
            assert_eq!(orphans.get().held(), [0, 0]);
        });
    }

    #[test]
    fn a_pod_that_another_job_owns_waits_for_no_former_one() {
        run(async {
            let orphans = orphans(&api(true, 200));
            orphans.get().consider(observed_pod(&orphan(true)), true);
            let of_other = observed_pod(&pod("p", "other"));
            orphans.get().leave_other_jobs(&of_other);
            assert!(orphans.get().waiting_for(&"j".into(), &no_jobs()).is_empty());
            orphans.get().consider(observed_pod(&orphan(true)), true);
            orphans.get().consider(of_other, true);
            assert!(orphans.get().waiting_for(&"j".into(), &no_jobs()).is_empty());
            assert_eq!(orphans.get().waiting_for(&"other".into(), &no_jobs()).len(), 1);
        });
    }

    #[test]
    fn a_pod_that_a_list_shows_as_counted_still_waits_for_its_job() {
        run(async {
            let orphans = orphans(&api(true, 200));
            let mut shown = pod("p", "j");
            shown["metadata"]["labels"][SHARD_LABEL] = "0".into();
            orphans.get().consider(observed_pod(&shown), true);
            orphans.get().list_begins(Kind::Labelled);
            shown["metadata"]["finalizers"] = json!([]);
            shown["status"]["phase"] = "Succeeded".into();
            orphans.get().consider(observed_pod(&shown), true);
            orphans.get().list_complete(Kind::Labelled);
            assert_eq!(orphans.get().waiting_for(&"j".into(), &no_jobs()).len(), 1);
        });
    }

    #[test]
    fn a_conflict_that_nothing_explains_is_followed_by_a_pause() {
        run(async {
            let api = api(false, 409);
            let orphans = orphans(&api);
            orphans.get().consider(observed_pod(&orphan(false)), true);
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
            let orphans = orphans(&api);
            orphans.get().consider(observed_pod(&orphan(false)), true);
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
            let orphans = orphans(&api);
            for patches in [1, 2] {
                orphans.get().consider(observed_pod(&orphan(false)), true);
                sleep(Duration::from_secs(1)).await;
                assert_eq!(api.count(&["PATCH"]), patches);
            }
        });
    }
}
