//! The orphan controller handles pods that belong to no shard. Pods that our Jobs own or would adopt get the
//! label of the Job's shard, so that the shard sees them. Pods whose Job is gone are released.
//!
//! One replica is elected leader ([`election`]). All its work is idempotent: two leaders at a time do no
//! harm. Jobs are watched only once a pod is seen that may belong to a Job: where all Jobs are ours from the
//! start, there is no such pod.
//!
//! Pods that have nothing to do with Jobs cost nothing: those are watched that carry the label of a Job, as all do that
//! Job controllers create. Once there may be a Job with a selector of its own, all are. Pods that have lost that label,
//! too, are listed, every 20 s to once an hour.

pub mod election;
mod handle;
mod orphans;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Addr, AsyncContext, Context, Handler, Message, Recipient};
use tokio::time::{Instant, sleep};
use tokio_util::task::AbortOnDropHandle;

use self::orphans::Orphans;
use super::census::of_no_shard;
use super::context::ReplicaContext;
use super::job_index::{JobIndex, Owner};
use super::labelling::Labelling;
use super::orphan_pods::OrphanPods;
use super::pod_watch::Pods;
use super::protocol::{LeadershipChanged, Ping};
use super::relist::Relist;
use super::subscription::Subscription;
use super::supervision::Unit;
#[cfg(feature = "test-hooks")]
use super::test_hooks::Part;
use super::watch_feed::{Outlines, Unlabelled, feed_outlines, feed_unlabelled};
use crate::cluster::gate::Fence;
use crate::cluster::reads::PodList;
use crate::cluster::resource::Resource;
use crate::cluster::watch::{Change, Selection};
use crate::cluster::wire::{ControllerRef, JobOutline, ObservedPod, Unreadable};
use crate::job::job_id::{JobId, JobSet};
use crate::job::names::{CONTROLLER_UID_LABEL, SHARD_LABEL};
use crate::job::tidying::Tidying;
use crate::job::uid::{Uid, UidMap, UidSet};
use crate::sharding::ShardCount;

/// How long a pod that others may look after stays without label before the leader labels it.
const GRACE: Duration = Duration::from_secs(5);
/// Pause between two lists of pods without labels, as a multiple of the time that a list takes, and within what limits: lists
/// take a thousandth of the time, and where there are few other pods, such a pod is found soon.
const STRIPPED_PAUSE: u32 = 1_000;
const STRIPPED_LIMITS: (Duration, Duration) = (Duration::from_secs(20), Duration::from_hours(1));
/// How long it is remembered, at least, that a pod is one of these.
const REMEMBERED: Duration = Duration::from_secs(60);

pub use self::handle::OrphanControllerHandle;

/// There may be a Job that chooses its pods by a selector of its own.
#[derive(Message)]
#[rtype(result = "()")]
struct PodsChosen;

/// Pods that belong to a Job, or have our finalizer, and carry neither the label of a Job nor that of a shard.
#[derive(Message)]
#[rtype(result = "()")]
struct Stripped(PodList);

/// A pod that could not be read can be, or is gone.
#[derive(Message)]
#[rtype(result = "()")]
struct Readable {
    pod: Uid,
    found: Option<Box<ObservedPod>>,
}

/// A task of the leader has panicked.
#[derive(Message)]
#[rtype(result = "()")]
struct LeaderFailed;

/// The actor of the orphan controller.
pub struct OrphanController {
    cx: ReplicaContext,
    leader: Option<LeaderState>,
}

/// The state of the elected leader.
struct LeaderState {
    cx: ReplicaContext,
    /// Open until another is elected.
    fence: Fence,
    unit: Unit,
    job_index: JobIndex,
    known: JobSet,
    relist: Relist<JobSet>,
    orphan_pods: OrphanPods,
    /// Pods that get the label of their Job's shard. Such a pod leaves the watch.
    labelled: UidMap<AbortOnDropHandle<()>>,
    /// Pods that can wait for their label: those in the list that have a controller, since whoever takes a shard
    /// over looks for them, too, and those that had a label before, such as orphans that their Job does not adopt.
    patient: UidMap<Instant>,
    tidying: Tidying,
    orphans: Orphans,
    /// Pods that cannot be read, and may concern us. They are read again until they can be.
    unreadable: UidMap<AbortOnDropHandle<()>>,
    /// Pods of the last list of those without labels, unless the watch has shown them since. It does not show their end.
    stripped: UidSet,
    /// `None` until a pod is seen that may belong to a Job.
    jobs: Option<JobsWatch>,
    pods: Subscription,
    /// The pods that are watched.
    of: Unlabelled,
    /// Lists the pods that the watch does not show, and tells when it must show them. It begins when the list of the
    /// watch is complete: that replaces what was known.
    search: Option<AbortOnDropHandle<()>>,
}

/// The watch of Jobs.
struct JobsWatch {
    feed: Subscription,
    /// Pods that may belong to a Job, until the first list of Jobs is complete.
    waiting: Option<UidMap<Box<ObservedPod>>>,
}

impl OrphanController {
    /// An orphan controller that has not been elected.
    pub fn new(cx: ReplicaContext) -> Self {
        Self { cx, leader: None }
    }
}

/// Lists pods that the narrower watch does not show, until that no longer suffices.
async fn seek_stripped(cx: ReplicaContext, leader: Addr<OrphanController>) {
    let labels = format!("!{CONTROLLER_UID_LABEL},{}", of_no_shard(cx.config.shards));
    let selection = Selection::all(Resource::PODS).labelled(labels);
    let concerns_us =
        |pod: &ObservedPod| pod.pod.tracked || pod.controller.as_ref().is_some_and(ControllerRef::is_job);
    let list = async {
        let mut backoff = cx.api_backoff();
        loop {
            let begun = Instant::now();
            match cx.reads.list_pod_metadata(&selection, concerns_us).await {
                Ok(list) => {
                    leader.do_send(Stripped(list));
                    backoff = cx.api_backoff();
                    sleep((begun.elapsed() * STRIPPED_PAUSE).clamp(STRIPPED_LIMITS.0, STRIPPED_LIMITS.1))
                        .await;
                }
                Err(error) => {
                    tracing::warn!(%error, "pods without labels were not looked for");
                    backoff.pause().await;
                }
            }
        }
    };
    let mut chosen = cx.pods_chosen.subscribe();
    tokio::select! {
        biased;
        // The sender is as old as the context.
        _ = chosen.wait_for(|chosen| *chosen) => leader.do_send(PodsChosen),
        () = list => {}
    }
}

impl Drop for LeaderState {
    fn drop(&mut self) {
        self.fence.close();
    }
}

impl LeaderState {
    fn job_seen(&mut self, job: &JobOutline) {
        let Ok(selector) = &job.selector else { return };
        if !self.cx.config.manages(job.managed_by.as_deref()) {
            return;
        }
        self.relist.mark(&job.id);
        self.job_index.insert(Owner::new(job.id.clone(), selector, job.adopts));
        if self.known.insert(job.id.clone()) {
            self.job_known(&job.id);
        }
    }

    fn job_gone(&mut self, job: &JobId) {
        self.known.remove(job);
        self.job_index.remove(job.uid());
        self.orphan_pods.job_vanished(job);
    }

    fn jobs_listed(&mut self) {
        let gone = self.relist.sweep(&self.known);
        gone.iter().for_each(|job| self.job_gone(job));
        let waiting = self.jobs.as_mut().and_then(|jobs| jobs.waiting.take());
        waiting.into_iter().flat_map(HashMap::into_values).for_each(|pod| self.consider(pod));
    }

    /// Takes in a pod of no shard. If it may belong to a Job, it waits for the first list of Jobs.
    fn pod_seen(&mut self, pod: Box<ObservedPod>, to: Recipient<Outlines>) {
        self.unreadable.remove(&pod.pod.uid);
        self.stripped.remove(&pod.pod.uid);
        if !may_be_of_a_job(&pod) {
            return self.consider(pod);
        }
        let jobs = self.jobs.get_or_insert_with(|| JobsWatch {
            feed: feed_outlines(&self.cx, to),
            waiting: Some(UidMap::default()),
        });
        match &mut jobs.waiting {
            Some(waiting) => _ = waiting.insert(pod.pod.uid.clone(), pod),
            None => self.consider(pod),
        }
    }

    /// The pods that wait for the first list of Jobs, until that is complete.
    fn waiting(&mut self) -> Option<&mut UidMap<Box<ObservedPod>>> {
        self.jobs.as_mut()?.waiting.as_mut()
    }

    /// Takes in a pod that cannot be read. It is read again and again: no watch event comes when it can be read without a
    /// change of its own.
    fn pod_unreadable(&mut self, pod: Unreadable, this: Addr<OrphanController>) {
        let concerns_us = pod.is_held || pod.job.is_some();
        if !concerns_us || self.unreadable.contains_key(&pod.uid) {
            return;
        }
        let (cx, uid) = (self.cx.clone(), pod.uid.clone());
        let task = self.unit.spawn("a reading of a pod", async move {
            let found = cx.until_readable(&pod).await;
            this.do_send(Readable { pod: pod.uid, found });
        });
        self.unreadable.insert(uid, AbortOnDropHandle::new(task));
    }

    fn pod_gone(&mut self, namespace: &Arc<str>, pod: &Uid) {
        self.pod_left(pod);
        self.orphans.remove(namespace, pod);
    }

    fn pod_left(&mut self, pod: &Uid) {
        self.unreadable.remove(pod);
        self.labelled.remove(pod);
        if let Some(waiting) = self.waiting() {
            waiting.remove(pod);
        }
        self.orphan_pods.forget(pod);
    }

    /// Takes in the pods that the watch does not show. A pod of the list before that is in this one no more is gone, or has
    /// labels again.
    fn stripped_listed(&mut self, list: PodList, to: &Recipient<Outlines>) {
        let mut before = std::mem::take(&mut self.stripped);
        for pod in list.pods {
            let uid = pod.pod.uid.clone();
            before.remove(&uid);
            self.pod_seen(pod, to.clone());
            self.stripped.insert(uid);
        }
        before.iter().for_each(|pod| self.pod_left(pod));
    }

    fn pods_listing(&mut self) {
        if let Some(waiting) = self.waiting() {
            waiting.clear();
        }
        self.labelled.clear();
        self.unreadable.clear();
        self.stripped.clear();
        self.patient.clear();
        self.orphan_pods.forget_all();
        self.orphans.clear();
    }

    fn pods_listed(&mut self, this: Addr<OrphanController>) {
        let search = || {
            let task = seek_stripped(self.cx.clone(), this);
            AbortOnDropHandle::new(self.unit.spawn("the search for pods without labels", task))
        };
        self.search = (self.of == Unlabelled::OfJobs).then(search);
    }

    /// Labels the pods that have waited for a Job.
    fn job_known(&mut self, job: &JobId) {
        for pod in self.orphan_pods.waiting_for(job) {
            self.label(&pod, job);
        }
        for pod in self.orphans.adopted_by(job, &self.job_index) {
            self.forget(&pod);
            self.label(&pod, job);
        }
    }

    fn consider(&mut self, pod: Box<ObservedPod>) {
        let job = match &pod.controller {
            Some(_) => pod.job().filter(|job| self.job_index.contains(job)).cloned(),
            None => self.job_index.adopter(&pod),
        };
        match job {
            Some(job) => {
                self.forget(&pod);
                self.label(&pod, &job);
            }
            None if pod.controller.is_none() && !pod.pod.tracked => {
                if !pod.labels.is_empty() {
                    self.orphans.insert(pod);
                }
            }
            None => self.orphan_pods.consider(pod),
        }
    }

    fn forget(&mut self, pod: &ObservedPod) {
        self.orphan_pods.forget(&pod.pod.uid);
        self.orphans.remove(&pod.namespace, &pod.pod.uid);
    }

    /// Remembers a pod as one that can wait. Returns whether it was one before.
    fn may_wait(&mut self, pod: &Uid) -> bool {
        if self.tidying.is_due(self.patient.len()) {
            self.patient.retain(|_, since| since.elapsed() < REMEMBERED);
            self.tidying.done(self.patient.len());
        }
        self.patient.insert(pod.clone(), Instant::now()).is_some()
    }

    fn label(&mut self, pod: &ObservedPod, job: &JobId) {
        if self.labelled.contains_key(&pod.pod.uid) {
            return;
        }
        let labelling = Labelling::new(&self.cx, &self.fence, pod, job);
        let grace = if self.may_wait(&pod.pod.uid) { GRACE } else { Duration::ZERO };
        let task = self.unit.spawn("a labelling", async move {
            sleep(grace).await;
            // Closed, the fence is somebody else's who looks after the pod.
            let _ = Box::pin(labelling.hold(|_| {})).await;
        });
        self.labelled.insert(pod.pod.uid.clone(), AbortOnDropHandle::new(task));
    }
}

/// Whether a pod has the label of a shard, which looks after it.
fn is_of_a_shard(pod: &ObservedPod, shards: ShardCount) -> bool {
    pod.labels.get(SHARD_LABEL).is_some_and(|label| shards.shard_numbered(label).is_some())
}

/// Whether a Job may be the pod's controller, or adopt it.
fn may_be_of_a_job(pod: &ObservedPod) -> bool {
    match &pod.controller {
        Some(owner) => owner.is_job(),
        None => pod.pod.tracked || !pod.labels.is_empty(),
    }
}

impl Actor for OrphanController {
    type Context = Context<Self>;

    fn stopped(&mut self, _: &mut Self::Context) {
        self.leader = None;
        self.cx.metrics.orphan_controller_leader.set(0);
    }
}

impl Handler<LeadershipChanged> for OrphanController {
    type Result = ();

    fn handle(&mut self, LeadershipChanged(elected): LeadershipChanged, ctx: &mut Self::Context) {
        if elected == self.leader.is_some() {
            return;
        }
        self.cx.metrics.orphan_controller_leader.set(elected.into());
        self.leader = elected.then(|| {
            let (fence, this) = (Fence::unlimited(), ctx.address());
            let unit = Unit::new(self.cx.runtime.clone(), move || this.do_send(LeaderFailed));
            let of = if *self.cx.pods_chosen.borrow() { Unlabelled::All } else { Unlabelled::OfJobs };
            LeaderState {
                cx: self.cx.clone(),
                job_index: JobIndex::default(),
                known: JobSet::default(),
                relist: Relist::default(),
                orphan_pods: OrphanPods::new(self.cx.clone(), fence.clone(), unit.clone()),
                unit,
                labelled: UidMap::default(),
                patient: UidMap::default(),
                tidying: Tidying::default(),
                fence,
                orphans: Orphans::default(),
                unreadable: UidMap::default(),
                stripped: UidSet::default(),
                jobs: None,
                pods: feed_unlabelled(&self.cx, of, ctx.address().recipient()),
                of,
                search: None,
            }
        });
    }
}

impl Handler<PodsChosen> for OrphanController {
    type Result = ();

    fn handle(&mut self, _: PodsChosen, ctx: &mut Self::Context) {
        if let Some(leader) = &mut self.leader {
            leader.of = Unlabelled::All;
            leader.pods = feed_unlabelled(&self.cx, leader.of, ctx.address().recipient());
        }
    }
}

impl Handler<Stripped> for OrphanController {
    type Result = ();

    fn handle(&mut self, Stripped(list): Stripped, ctx: &mut Self::Context) {
        if let Some(leader) = &mut self.leader {
            leader.stripped_listed(list, &ctx.address().recipient());
        }
    }
}

impl Handler<Ping> for OrphanController {
    type Result = ();

    fn handle(&mut self, _: Ping, _: &mut Self::Context) {}
}

impl Handler<LeaderFailed> for OrphanController {
    type Result = ();

    /// It knows nothing for certain any more, and begins anew when it is told again that it is the leader.
    fn handle(&mut self, _: LeaderFailed, _: &mut Self::Context) {
        self.leader = None;
    }
}

impl Handler<Outlines> for OrphanController {
    type Result = ();

    fn handle(&mut self, Outlines { from, changes }: Outlines, _: &mut Self::Context) {
        let receives =
            |leader: &&mut LeaderState| leader.jobs.as_ref().is_some_and(|jobs| jobs.feed.is(from));
        let Some(leader) = self.leader.as_mut().filter(receives) else { return };
        for change in changes {
            match change {
                Change::Restarted => leader.relist.begin(),
                Change::Listed(job) | Change::Applied(job) => leader.job_seen(&job),
                Change::Unreadable(job) if job.has_left => leader.job_gone(&job.as_job()),
                Change::Unreadable(job) => leader.relist.mark(&job.as_job()),
                Change::Deleted(job) => leader.job_gone(&job.id),
                Change::Synced { .. } => leader.jobs_listed(),
            }
        }
    }
}

impl Handler<Pods> for OrphanController {
    type Result = ();

    fn handle(&mut self, Pods { from, changes, .. }: Pods, ctx: &mut Self::Context) {
        let Some(leader) = self.leader.as_mut().filter(|leader| leader.pods.is(from)) else { return };
        #[cfg(feature = "test-hooks")]
        self.cx.config.test_hooks.pass(Part::OrphanController);
        for change in changes {
            match change {
                Change::Restarted => leader.pods_listing(),
                Change::Listed(pod) => {
                    if pod.controller.is_some() {
                        leader.may_wait(&pod.pod.uid);
                    }
                    leader.pod_seen(pod, ctx.address().recipient());
                }
                Change::Applied(pod) => leader.pod_seen(pod, ctx.address().recipient()),
                Change::Deleted(pod) => leader.pod_gone(&pod.namespace, &pod.pod.uid),
                Change::Synced { .. } => leader.pods_listed(ctx.address()),
                Change::Unreadable(pod) if pod.has_left => leader.pod_gone(&pod.namespace, &pod.uid),
                Change::Unreadable(pod) => leader.pod_unreadable(pod, ctx.address()),
            }
        }
    }
}

impl Handler<Readable> for OrphanController {
    type Result = ();

    fn handle(&mut self, Readable { pod, found }: Readable, ctx: &mut Self::Context) {
        let Some(leader) = &mut self.leader else { return };
        // The watch may have shown it meanwhile.
        let was_read = leader.unreadable.remove(&pod).is_some();
        let shards = self.cx.config.shards;
        if let Some(found) = found.filter(|found| was_read && !is_of_a_shard(found, shards)) {
            leader.pod_seen(found, ctx.address().recipient());
        }
    }
}

#[cfg(test)]
mod tests;
