//! The actor of one shard: it owns the shard's Jobs and brings every pod event to the right one.
//!
//! It keeps no pods, only whose they are; the Jobs keep what they need. A Job that has panicked is rebuilt from the
//! cluster alone: the shard lists its pods anew, as it does when it takes over.

mod jobs;

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, ActorContext, AsyncContext, Context, Handler, Message, ResponseActFuture, WrapFuture};
use futures::future::join_all;
use tokio::task::AbortHandle;
use tokio_util::task::TaskTracker;

use self::jobs::JobEntry;
use super::job_actor::{DrainJob, Ended, Halt};
use super::job_index::JobIndex;
use super::job_input::JobInput;
use super::lease_manager::{LeaseManagerHandle, Report};
use super::orphan_pods::OrphanPods;
use super::pod_owners::PodOwnerIndex;
use super::requests::ReplicaContext;
use super::waits::{WaitingJob, Waits};
use super::watch_feed::{Pods, feed_shard};
use crate::cluster::gate::Fence;
use crate::cluster::watch::Change;
use crate::cluster::wire::{ObservedJob, ObservedPod};
use crate::job::uid::{Uid, UidMap, UidSet};
use crate::sharding::{ShardId, ShardState};

/// Pause before pods are listed anew because of a Job.
const RELIST: Duration = Duration::from_millis(10);

/// The Jobs of the replica have been listed: the shard may look at its pods.
#[derive(Message)]
#[rtype(result = "()")]
pub struct JobsListed;

/// A Job of the shard was added or changed.
#[derive(Message)]
#[rtype(result = "()")]
pub struct JobSeen(pub Arc<ObservedJob>);

/// A Job of the shard no longer exists.
#[derive(Message)]
#[rtype(result = "()")]
pub struct JobVanished(pub Uid);

/// The pods that a Job selects which chooses its pods itself: what it may adopt is among them.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Candidates {
    /// The Job.
    pub job: Uid,
    /// All pods that it selects.
    #[expect(clippy::vec_box, reason = "they go on one by one, as they are")]
    pub pods: Vec<Box<ObservedPod>>,
}

/// A pod without controller that the Job did not adopt after all, since it is on its way out.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Declined(pub Box<ObservedPod>);

/// Somebody else has written the status of a Job: what is known of its pods may be older than that status. List them anew.
/// Acknowledged to the Job by [`JobInput::PodsAsked`].
#[derive(Message)]
#[rtype(result = "()")]
pub struct Relist {
    /// The Job.
    pub job: Uid,
}

/// End at once, and all Jobs of the shard with it.
#[derive(Message)]
#[rtype(result = "()")]
pub struct End;

/// What the shard is doing, for `/debug/shards`.
#[derive(Message)]
#[rtype(result = "ShardReport")]
pub struct Describe;

/// Decide nothing more for the shard; answered when everything that was decided is done and told.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Drain;

/// What a shard is doing.
#[derive(Clone, Debug, serde::Serialize)]
pub struct ShardReport {
    /// Number of the shard.
    pub shard: u32,
    /// How often the shard has been claimed.
    pub epoch: u64,
    /// `syncing`, `active` or `draining`.
    pub state: &'static str,
    /// Jobs held.
    pub jobs: usize,
    /// Those of them that have finished and need nothing, so that they have no actor.
    pub passivated: usize,
    /// Pods held.
    pub pods: usize,
    /// The work that is left, in pods: one for each that has yet to be created, half of one for each that has its finalizer,
    /// and one for each unfinished Job.
    pub load: u32,
    /// Jobs of which no pod is created although they are not done.
    pub waiting: usize,
    /// The first 100 of them by name.
    pub waits: Vec<WaitingJob>,
}

/// A shard that is ours.
pub struct Owned {
    /// The shard.
    pub id: ShardId,
    /// How often it has been claimed.
    pub epoch: u64,
    /// The right to act for it.
    pub fence: Fence,
}

/// The actor of one shard.
pub struct ShardActor {
    owned: Owned,
    cx: ReplicaContext,
    job_index: Arc<JobIndex>,
    lease_manager: LeaseManagerHandle,
    /// Requests of the shard's Jobs.
    under_way: TaskTracker,
    orphan_pods: OrphanPods,
    waits: Waits,
    jobs: UidMap<JobEntry>,
    pod_owners: PodOwnerIndex,
    /// Pods in the list under way, by Job.
    listing: Option<UidMap<UidSet>>,
    /// Version of the last complete list of pods.
    listed: Option<u64>,
    watch: Option<AbortHandle>,
    /// Number of the feed that the watch is.
    feed: u32,
    /// Nothing more is decided.
    draining: bool,
    /// The pods are to be listed anew.
    relisting: bool,
    /// Jobs and pods that the gauges show.
    shown: (i64, i64),
}

impl ShardActor {
    /// An actor for a shard, which acts while its fence is open.
    pub fn new(
        owned: Owned,
        cx: ReplicaContext,
        job_index: Arc<JobIndex>,
        lease_manager: LeaseManagerHandle,
    ) -> Self {
        Self {
            orphan_pods: OrphanPods::new(cx.clone(), owned.fence.clone()),
            owned,
            cx,
            job_index,
            lease_manager,
            under_way: TaskTracker::new(),
            waits: Waits::default(),
            jobs: UidMap::default(),
            pod_owners: PodOwnerIndex::default(),
            listing: None,
            listed: None,
            watch: None,
            feed: 0,
            draining: false,
            relisting: false,
            shown: (0, 0),
        }
    }

    /// Brings the gauges up to date.
    fn show_held(&mut self) {
        let held = (self.jobs.len() as i64, self.pod_owners.len() as i64);
        self.cx.metrics.held_jobs.inc_by(held.0 - self.shown.0);
        self.cx.metrics.held_pods.inc_by(held.1 - self.shown.1);
        self.shown = held;
    }

    fn watch_pods(&mut self, ctx: &Context<Self>) {
        if let Some(watch) = self.watch.take() {
            watch.abort();
        }
        if self.draining {
            return;
        }
        self.feed += 1;
        self.watch = Some(feed_shard(&self.cx, self.owned.id, self.feed, ctx.address().recipient()));
    }

    /// The Job of the shard that a pod belongs to, or may.
    fn job_of(&self, pod: &ObservedPod) -> Option<Uid> {
        match &pod.controller {
            Some(owner) => self.jobs.contains_key(&owner.uid).then(|| owner.uid.clone()),
            None => self.job_index.adopter(pod).filter(|uid| self.jobs.contains_key(uid)),
        }
    }

    /// Brings a pod to its Job, and tells the Job that had it before.
    fn bring(&mut self, pod: Box<ObservedPod>, ctx: &mut Context<Self>) {
        let uid = pod.pod.uid.clone();
        let job = self.job_of(&pod);
        let before = self.pod_owners.job_of(&uid).filter(|before| Some(*before) != job.as_ref()).cloned();
        if let Some(before) = before {
            self.tell(&before, JobInput::PodGone(uid.clone()));
        }
        let Some(job) = job else {
            self.pod_owners.remove(&uid);
            return self.orphan_pods.consider(pod);
        };
        if let Some(listing) = &mut self.listing {
            listing.entry(job.clone()).or_default().insert(uid.clone());
        }
        if pod.pod.phase.is_final() && !pod.pod.tracked {
            self.pod_owners.remove(&uid);
        } else {
            self.pod_owners.insert(uid, &job);
        }
        self.deliver_pod(&job, pod, ctx);
    }

    fn pod_vanished(&mut self, pod: &ObservedPod) {
        let uid = &pod.pod.uid;
        self.orphan_pods.forget(pod);
        let owner =
            self.pod_owners.remove(uid).or_else(|| pod.controller.as_ref().map(|owner| owner.uid.clone()));
        if let Some(job) = owner {
            self.tell(&job, JobInput::PodGone(uid.clone()));
        }
    }

    /// A list shows pods in the order of their names: until it is complete, what a Job knows was never true at any time.
    fn pods_listing(&mut self) {
        self.listing = Some(UidMap::default());
        self.jobs.values_mut().for_each(|entry| entry.tell(JobInput::PodsListing));
    }

    fn pods_listed(&mut self, version: u64) {
        let mut listing = self.listing.take().unwrap_or_default();
        self.pod_owners.retain_listed(&listing);
        for (uid, entry) in self.jobs.iter_mut().filter(|(_, entry)| !entry.awaits_candidates()) {
            let listed = listing.remove(uid).unwrap_or_default();
            entry.tell(JobInput::PodsListed { listed, version });
        }
        if self.listed.replace(version).is_none() {
            self.lease_manager.report(Report::Synced(self.owned.id, self.owned.epoch));
        }
    }
}

impl Actor for ShardActor {
    type Context = Context<Self>;

    fn stopped(&mut self, _: &mut Self::Context) {
        if let Some(watch) = self.watch.take() {
            watch.abort();
        }
        self.jobs.clear();
        self.pod_owners.clear();
        self.show_held();
    }
}

impl Handler<JobsListed> for ShardActor {
    type Result = ();

    fn handle(&mut self, _: JobsListed, ctx: &mut Self::Context) {
        if self.watch.is_none() {
            self.watch_pods(ctx);
        }
    }
}

impl Handler<JobSeen> for ShardActor {
    type Result = ();

    fn handle(&mut self, JobSeen(job): JobSeen, ctx: &mut Self::Context) {
        if self.wants_dropped_pods(&job) {
            self.watch_pods(ctx);
        }
        self.job_seen(job, ctx);
    }
}

impl Handler<JobVanished> for ShardActor {
    type Result = ();

    fn handle(&mut self, JobVanished(uid): JobVanished, ctx: &mut Self::Context) {
        self.job_vanished(&uid, ctx);
    }
}

impl Handler<Pods> for ShardActor {
    type Result = ();

    fn handle(&mut self, Pods { feed, changes }: Pods, ctx: &mut Self::Context) {
        if feed != self.feed {
            return;
        }
        for change in changes {
            match change {
                Change::Restarted => self.pods_listing(),
                Change::Listed(pod) | Change::Applied(pod) => self.bring(pod, ctx),
                Change::Deleted(pod) => self.pod_vanished(&pod),
                Change::Synced { version } => self.pods_listed(version.parse().unwrap_or(u64::MAX)),
            }
        }
        self.show_held();
    }
}

impl Handler<Candidates> for ShardActor {
    type Result = ();

    fn handle(&mut self, Candidates { job, pods }: Candidates, ctx: &mut Self::Context) {
        for pod in pods.into_iter().filter(|pod| pod.controller.is_none()) {
            self.bring(pod, ctx);
        }
        if let Some(entry) = self.jobs.get_mut(&job) {
            entry.has_candidates();
        }
        self.deliver_listed(&job);
    }
}

impl Handler<Declined> for ShardActor {
    type Result = ();

    fn handle(&mut self, Declined(pod): Declined, _: &mut Self::Context) {
        if pod.controller.is_none() {
            self.pod_owners.remove(&pod.pod.uid);
            self.orphan_pods.consider(pod);
        }
    }
}

impl Handler<Relist> for ShardActor {
    type Result = ();

    fn handle(&mut self, Relist { job }: Relist, ctx: &mut Self::Context) {
        // What the feed still holds may be of a list that was begun before.
        self.feed += 1;
        self.tell(&job, JobInput::PodsAsked);
        // Jobs that find the same at the same time share a list.
        if !std::mem::replace(&mut self.relisting, true) {
            ctx.run_later(RELIST, |shard, ctx| {
                shard.relisting = false;
                shard.watch_pods(ctx);
            });
        }
    }
}

impl Handler<Ended> for ShardActor {
    type Result = ();

    fn handle(&mut self, ended: Ended, ctx: &mut Self::Context) {
        self.job_ended(ended, ctx);
    }
}

impl Handler<Describe> for ShardActor {
    type Result = actix::MessageResult<Describe>;

    fn handle(&mut self, _: Describe, _: &mut Self::Context) -> Self::Result {
        let (waiting, waits) = self.waits.read();
        let state = match (self.draining, self.listed) {
            (true, _) => ShardState::Draining,
            (false, Some(_)) => ShardState::Active,
            (false, None) => ShardState::Syncing,
        };
        actix::MessageResult(ShardReport {
            shard: self.owned.id.0,
            epoch: self.owned.epoch,
            state: state.as_str(),
            jobs: self.jobs.len(),
            passivated: self.jobs.values().filter(|entry| entry.is_passivated()).count(),
            pods: self.pod_owners.len(),
            load: self.cx.loads.read(self.owned.id),
            waiting,
            waits,
        })
    }
}

impl Handler<Drain> for ShardActor {
    type Result = ResponseActFuture<Self, ()>;

    fn handle(&mut self, _: Drain, _: &mut Self::Context) -> Self::Result {
        self.draining = true;
        if let Some(watch) = self.watch.take() {
            watch.abort();
        }
        let jobs: Vec<_> = self.jobs.values().filter_map(JobEntry::actor).cloned().collect();
        let under_way = self.under_way.clone();
        // An actor that is gone has nothing to settle.
        let drained = async move {
            join_all(jobs.iter().map(|job| job.send(DrainJob))).await;
            under_way.close();
            under_way.wait().await;
            join_all(jobs.iter().map(|job| job.send(Halt))).await;
        };
        Box::pin(drained.into_actor(self))
    }
}

impl Handler<End> for ShardActor {
    type Result = ();

    fn handle(&mut self, _: End, ctx: &mut Self::Context) {
        for actor in self.jobs.values().filter_map(JobEntry::actor) {
            actor.do_send(Halt);
        }
        ctx.stop();
    }
}
