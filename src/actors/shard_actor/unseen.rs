//! Pods that exist and that the watch of their shard does not show: they have not got its label yet, or cannot be
//! read. No Job is planned for while there is a pod of it that it has never known (invariant 9: known before
//! planned).

use actix::{AsyncContext, Context, Handler, Message};
use tokio_util::task::AbortOnDropHandle;

use super::{RELIST_DELAY, ShardActor};
use crate::actors::census::CensusTaken;
use crate::actors::job_index::Owner;
use crate::actors::job_input::JobInput;
use crate::actors::labelling::Labelling;
use crate::actors::watch_feed::list_selected;
use crate::cluster::events::{Event, EventType, ObjectRef};
use crate::cluster::reads::PodList;
use crate::cluster::wire::{ObservedPod, Unreadable};
use crate::job::names::{CONTROLLER_UID_LABEL, SHARD_LABEL};
use crate::job::plan::Wait;
use crate::job::uid::{Uid, UidMap, UidSet};

/// Most Jobs whose pods are looked for in one list: their UIDs are part of a URL.
const MAX_SOUGHT: usize = 50;
/// Pause before pods are listed again after a list that did not show all of them.
const DOUBT_PAUSE: std::time::Duration = std::time::Duration::from_secs(1);

/// Pods that exist and that the shard's watch does not show.
#[derive(Debug, Default)]
pub(super) struct UnseenPods {
    pods: UidMap<Unseen>,
    /// How many pods of a Job it has never known; only Jobs that have some.
    unknown: UidMap<usize>,
    /// Pods that cannot be read, each reported once.
    reported: UidSet,
}

#[derive(Debug)]
struct Unseen {
    job: Uid,
    /// The Job has known it before.
    known: bool,
    /// Labels it, or reads it again, until it is shown.
    _task: AbortOnDropHandle<()>,
}

impl UnseenPods {
    pub(super) fn contains(&self, pod: &Uid) -> bool {
        self.pods.contains_key(pod)
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
    fn remove(&mut self, pod: &Uid) -> Option<(Uid, bool)> {
        self.reported.remove(pod);
        let Unseen { job, known, .. } = self.pods.remove(pod)?;
        if let Some(unknown) = self.unknown.get_mut(&job).filter(|_| !known) {
            *unknown -= 1;
            if *unknown == 0 {
                self.unknown.remove(&job);
            }
        }
        Some((job, known))
    }

    /// Whether a Job has pods that it has never known.
    pub(super) fn hold_back(&self, job: &Uid) -> bool {
        self.unknown.contains_key(job)
    }

    /// The pods that their Jobs know, as (pod, Job).
    pub(super) fn known(&self) -> impl Iterator<Item = (&Uid, &Uid)> {
        self.pods.iter().filter(|(_, unseen)| unseen.known).map(|(pod, unseen)| (pod, &unseen.job))
    }
}

/// The lists of pods that Jobs have asked for in doubt of the shard's own.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    /// Jobs that wait for the next list.
    jobs: UidSet,
    /// A list is scheduled or in progress.
    busy: bool,
    /// Lists that wait until all pods in them are shown.
    proven: UidMap<(UidSet, u64)>,
}

/// A pod that was not seen, as it is now: it has the label of the shard, or can be read. `None`: it does not exist
/// any more.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct Shown {
    pod: Uid,
    found: Option<Box<ObservedPod>>,
}

/// All pods of some Jobs, whatever label they have.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct Sought {
    jobs: Vec<Uid>,
    list: PodList,
}

impl ShardActor {
    /// Whether the pod has the label of this shard.
    pub(super) fn is_labelled(&self, pod: &ObservedPod) -> bool {
        pod.labels.get(SHARD_LABEL).is_some_and(|label| *label == *self.owned.id.to_string())
    }

    /// Takes in a pod of a Job of ours that has no label of this shard: it gets one.
    pub(super) fn label(&mut self, pod: &ObservedPod, job: &Uid, ctx: &Context<Self>) {
        let uid = pod.pod.uid.clone();
        if self.unseen.contains(&uid) || self.pod_feed.is_draining() {
            return;
        }
        let labelling = Labelling::new(&self.cx, &self.owned.fence, pod, job);
        let (shard, labelled) = (ctx.address(), uid.clone());
        let task = self.owned.unit.spawn("a labelling", async move {
            if let Ok(found) = labelling.hold().await {
                shard.do_send(Shown { pod: labelled, found });
            }
        });
        self.hide(uid, job, AbortOnDropHandle::new(task));
    }

    /// Takes in a pod that the watch does not show, or not in a form that can be read.
    fn hide(&mut self, pod: Uid, job: &Uid, task: AbortOnDropHandle<()>) {
        let known = self.pod_owners.job_of(&pod) == Some(job);
        self.unseen.insert(pod, Unseen { job: job.clone(), known, _task: task });
        if !known {
            self.show_wait(job, Some(&Wait::PodsUnknown));
        }
    }

    /// Takes in a pod that exists and cannot be read. Its Job keeps what it knew of it, and if it knew nothing, it
    /// decides nothing.
    pub(super) fn pod_unreadable(&mut self, pod: &Unreadable, ctx: &Context<Self>) {
        let Some(owner) = pod.controller.as_ref().filter(|owner| self.jobs.contains_key(&owner.uid)) else {
            return;
        };
        self.pod_feed.mark(&owner.uid, &pod.uid);
        if !self.unseen.contains(&pod.uid) {
            self.hide(pod.uid.clone(), &owner.uid, self.read_again(pod, ctx));
        }
        if self.unseen.reported.insert(pod.uid.clone()) {
            self.cx.recorder.record(Event {
                about: ObjectRef::job(&pod.namespace, &owner.name, &owner.uid),
                kind: EventType::Warning,
                reason: "UnreadablePod".into(),
                message: format!("Pod {} cannot be read: {}", pod.name, pod.error).into(),
                at: self.cx.clock.now(),
                must: false,
            });
        }
    }

    /// Reads a pod, with pauses that grow, until that succeeds: nothing tells when it can be read.
    fn read_again(&self, pod: &Unreadable, ctx: &Context<Self>) -> AbortOnDropHandle<()> {
        let (cx, shard, uid) = (self.cx.clone(), ctx.address(), pod.uid.clone());
        let (namespace, name) = (pod.namespace.clone(), pod.name.clone());
        AbortOnDropHandle::new(self.owned.unit.spawn("a reading of a pod", async move {
            let mut backoff = cx.api_backoff();
            loop {
                backoff.pause().await;
                if let Ok(found) = cx.reads.get_pod(&namespace, &name).await {
                    let found = found.filter(|found| found.pod.uid == uid);
                    return shard.do_send(Shown { pod: uid, found });
                }
            }
        }))
    }

    fn show_wait(&self, job: &Uid, wait: Option<&Wait>) {
        if let Some(Ok(job)) = self.jobs.get(job).map(|entry| &entry.seen().job) {
            self.owned.waits.write(job, wait, None);
        }
    }

    /// Takes in a pod whose label somebody has removed or changed, as it was before. Returns whether it is one:
    /// no pod ends that has our finalizer and is not being deleted.
    pub(super) fn has_lost_label(&mut self, pod: &ObservedPod, ctx: &Context<Self>) -> bool {
        let stays = pod.pod.tracked && !pod.pod.deleting;
        let owner = pod.controller.as_ref().filter(|owner| stays && self.jobs.contains_key(&owner.uid));
        owner.inspect(|owner| self.label(pod, &owner.uid, ctx)).is_some()
    }

    /// The pod is shown, or gone: its Job may have waited for that.
    pub(super) fn no_longer_unseen(&mut self, pod: &Uid) {
        let Some((job, known)) = self.unseen.remove(pod) else { return };
        if known || self.unseen.hold_back(&job) {
            return;
        }
        self.show_wait(&job, None);
        match self.doubts.proven.remove(&job).filter(|_| self.pod_feed.version().is_some()) {
            Some((listed, version)) => {
                self.send(&job, JobInput::PodsListed { listed, version, proven: true });
            }
            None => self.deliver_listed(&job, None),
        }
    }

    /// The Jobs and the pods without label are known: the pods with the label come next.
    pub(super) fn begin_listing(&mut self, ctx: &Context<Self>) {
        for pod in std::mem::take(&mut self.census) {
            match pod.controller.as_ref().filter(|owner| self.jobs.contains_key(&owner.uid)) {
                Some(owner) => self.label(&pod, &owner.uid, ctx),
                None => self.orphan_pods.consider(pod),
            }
        }
        self.list_pods(ctx);
    }

    /// A Job knows of pods that a complete list has not shown. All such Jobs share one live list.
    pub(super) fn pods_missing(&mut self, job: Uid, ctx: &mut Context<Self>) {
        if self.pod_feed.is_draining() {
            return;
        }
        self.doubts.jobs.insert(job);
        if !std::mem::replace(&mut self.doubts.busy, true) {
            ctx.run_later(RELIST_DELAY, Self::seek_pods);
        }
    }

    fn seek_pods(&mut self, ctx: &mut Context<Self>) {
        let mut jobs: Vec<Uid> = self.doubts.jobs.iter().cloned().collect();
        jobs.retain(|job| self.jobs.contains_key(job));
        jobs.sort();
        // A selector of its own may select pods without the label that the others are found by.
        let manual = jobs.iter().position(|job| {
            self.jobs
                .get(job)
                .and_then(|entry| entry.seen().job.as_ref().ok())
                .is_some_and(|job| Owner::from(job).chooses_pods())
        });
        let jobs = match manual {
            Some(position) => vec![jobs.swap_remove(position)],
            None => jobs.into_iter().take(MAX_SOUGHT).collect(),
        };
        let selection = manual.and(jobs.first()).and_then(|job| {
            let job = self.jobs.get(job)?.seen().job.as_ref().ok()?;
            Some((job.namespace.clone(), job.spec.clone()))
        });
        match jobs.is_empty() {
            true => {
                self.doubts = Doubts { proven: std::mem::take(&mut self.doubts.proven), ..Doubts::default() }
            }
            false => jobs.iter().for_each(|job| _ = self.doubts.jobs.remove(job)),
        }
        if jobs.is_empty() {
            return;
        }
        let uids: Vec<String> = jobs.iter().map(ToString::to_string).collect();
        let labels = format!("{CONTROLLER_UID_LABEL} in ({})", uids.join(","));
        let (cx, fence, shard) = (self.cx.clone(), self.owned.fence.clone(), ctx.address());
        self.owned.unit.spawn("a search for missing pods", async move {
            let list = match selection {
                Some((namespace, spec)) => list_selected(&cx, &namespace, &spec.selector).await,
                None => {
                    let mut backoff = cx.api_backoff();
                    loop {
                        match cx.reads.list_pod_metadata(&labels, |_| true).await {
                            Ok(list) => break list,
                            Err(_) if fence.is_closed() => return,
                            Err(error) => tracing::warn!(%error, "missing pods were not looked for"),
                        }
                        backoff.pause().await;
                    }
                }
            };
            shard.do_send(Sought { jobs, list });
        });
    }

    /// Answers the Jobs that were in doubt: what the live list does not show does not exist.
    fn pods_sought(&mut self, Sought { jobs, list }: Sought, ctx: &mut Context<Self>) {
        let mut found: UidMap<UidSet> = jobs.into_iter().map(|job| (job, UidSet::default())).collect();
        let mut must_relist = false;
        for pod in &list.pods {
            let Some(owner) = &pod.controller else { continue };
            let Some(uids) = found.get_mut(&owner.uid) else { continue };
            let uid = &pod.pod.uid;
            uids.insert(uid.clone());
            if !self.is_labelled(pod) {
                self.label(pod, &owner.uid, ctx);
            } else if pod.pod.tracked && self.pod_owners.job_of(uid).is_none() && !self.unseen.contains(uid) {
                // The label is right, and the shard's list did not show it.
                must_relist = true;
                found.remove(&owner.uid);
            }
        }
        for pod in &list.unreadable {
            let uids = pod.controller.as_ref().and_then(|owner| found.get_mut(&owner.uid));
            uids.into_iter().for_each(|uids| _ = uids.insert(pod.uid.clone()));
        }
        // A list in progress shows no state that ever existed. When it is complete, Jobs may doubt it again.
        let found = if self.pod_feed.version().is_some() { found } else { UidMap::default() };
        for (job, listed) in found {
            if self.unseen.hold_back(&job) {
                self.doubts.proven.insert(job, (listed, list.version));
            } else {
                self.send(&job, JobInput::PodsListed { listed, version: list.version, proven: true });
            }
        }
        if must_relist {
            tracing::warn!(shard = %self.owned.id, "a list of pods was not complete; listing again");
            ctx.run_later(DOUBT_PAUSE, |shard, ctx| shard.relist_pods(ctx));
        }
        self.seek_pods(ctx);
    }
}

impl Handler<CensusTaken> for ShardActor {
    type Result = ();

    fn handle(&mut self, CensusTaken(pods): CensusTaken, ctx: &mut Self::Context) {
        self.census = pods;
        if self.pod_feed.census_taken() {
            self.begin_listing(ctx);
        }
    }
}

impl Handler<Shown> for ShardActor {
    type Result = ();

    fn handle(&mut self, Shown { pod, found }: Shown, ctx: &mut Self::Context) {
        // The watch may have shown it meanwhile, and even its end.
        if !self.unseen.contains(&pod) || self.pod_feed.is_draining() {
            return;
        }
        match found {
            Some(found) if self.is_labelled(&found) => self.route_pod(found, ctx),
            Some(found) => {
                let job = self.unseen.remove(&pod).map(|(job, _)| job);
                job.into_iter().for_each(|job| self.label(&found, &job, ctx));
            }
            None => {
                if let Some(job) = self.pod_owners.remove(&pod) {
                    self.send(&job, JobInput::PodGone(pod.clone()));
                }
                self.no_longer_unseen(&pod);
            }
        }
    }
}

impl Handler<Sought> for ShardActor {
    type Result = ();

    fn handle(&mut self, sought: Sought, ctx: &mut Self::Context) {
        if !self.pod_feed.is_draining() {
            self.pods_sought(sought, ctx);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_job_is_held_back_by_pods_that_it_has_never_known() {
        let [a, b] = ["job-a", "job-b"].map(Uid::from);
        let mut unseen = UnseenPods::default();
        let unseen_of = |job: &Uid, known| {
            let task = AbortOnDropHandle::new(tokio::spawn(std::future::pending()));
            Unseen { job: job.clone(), known, _task: task }
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
        // Found twice, and once known meanwhile.
        unseen.insert("2".into(), unseen_of(&a, true));
        assert!(!unseen.hold_back(&a));
        assert_eq!(unseen.remove(&"2".into()), Some((a, true)));
    }
}
