//! The actor of this replica: it starts and ends shard actors on the commands of the lease manager, and
//! delivers every Job to its shard.
//!
//! All Jobs of the cluster are watched, and those of other replicas are cached until their shard is taken
//! over. So a hand-over needs no list of Jobs, and a Job of others takes only its entry in the cache.

mod live_reads;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use actix::{
    Actor, ActorFutureExt, Addr, ArbiterHandle, AsyncContext, Context, Handler, Message, MessageResult,
    Recipient, ResponseFuture, WrapFuture,
};
use futures::future::join_all;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use self::live_reads::LiveJobReads;
use super::shard_actor::{
    Describe, Drain, End, ForeignJobSeen, ForeignJobVanished, JobSeen, JobVanished, JobsCaughtUp, JobsListed,
    Owned, ShardActor, ShardReport,
};
use super::watch_feed::{Jobs, feed_jobs};
use crate::actors::context::ReplicaContext;
use crate::actors::known_jobs::catch_up::CatchUp;
use crate::actors::known_jobs::job_cache::JobCache;
use crate::actors::known_jobs::last_failures::LastFailures;
use crate::actors::known_jobs::waiting_jobs::WaitingJobs;
use crate::actors::messages::protocol::{Ping, ProgressSender, ShardCommand, ShardProgress};
use crate::actors::messages::subscription::{Subscription, SubscriptionId};
use crate::actors::supervision::{PanicNotice, Unit};
#[cfg(feature = "test-hooks")]
use crate::actors::test_hooks::Part;
use crate::actors::threads;
use crate::cluster::events::{Event, EventType};
use crate::cluster::gate::Fence;
use crate::cluster::watch::Change;
use crate::cluster::wire::{ObservedJob, Unserved};
use crate::job::job_id::JobId;
use crate::job::uid::UidSet;
use crate::mutants::{Mutant, is};
use crate::sharding::ShardId;

/// The drain of a shard waits this long for its requests in flight: a multiple of the API server's
/// present answer time, within limits. The fence refuses requests that wait to be sent, and sent requests
/// are idempotent. So a webhook that holds one up does not hold up the Jobs of others.
const DRAIN_ANSWERS: u32 = 10;
const DRAIN_LIMITS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(5));

/// Reports on all shards.
#[derive(Message)]
#[rtype(result = "Vec<ShardReport>")]
pub struct DescribeAll;

/// The actors of all shards.
#[derive(Message)]
#[rtype(result = "Vec<(ShardId, Recipient<Ping>)>")]
pub struct ListShards;

/// The Jobs that this replica sees, for the overview.
#[derive(Message)]
#[rtype(result = "SeenJobs")]
pub struct ReadJobs;

/// The Jobs of this controller that a replica sees: those of all shards.
#[derive(actix::MessageResponse, Debug, Default)]
pub struct SeenJobs {
    /// The Jobs and their shards, in no order.
    pub jobs: Vec<(ShardId, Arc<ObservedJob>)>,
    /// Why Jobs of owned shards wait.
    pub waits: Vec<WaitingJobs>,
    /// The last failures of Jobs of owned shards.
    pub failures: LastFailures,
}

/// The watch of all Jobs.
struct JobFeed {
    subscription: Subscription,
    /// Its first list is complete.
    is_listed: bool,
}

/// A shard that is ours.
///
/// ```text
///          Drain            drained
///  Active ───────> Draining ────────> (removed)
///     └──────────────────────────────────^
///                     Drop
/// ```
struct OwnedShard {
    actor: Addr<ShardActor>,
    phase: ShardPhase,
    waits: WaitingJobs,
    /// Its Jobs of other controllers, and those that are not served: each is counted or reported once.
    skipped: UidSet,
    /// Its Jobs that are not served and are being deleted: the pods of each are looked for once.
    leaving: UidSet,
    fence: Fence,
    in_flight: TaskTracker,
}

enum ShardPhase {
    /// Jobs are delivered to it.
    Active,
    /// The shard finishes the requests in flight, and gets no more Jobs.
    Draining,
}

/// The actor of this replica.
pub struct ReplicaActor {
    cx: ReplicaContext,
    unit: Unit,
    _notice: PanicNotice,
    progress: ProgressSender,
    arbiters: Vec<ArbiterHandle>,
    shards: BTreeMap<ShardId, OwnedShard>,
    /// The watch begins when the actor starts.
    job_feed: Option<JobFeed>,
    job_cache: JobCache,
    catch_up: CatchUp,
    live_reads: LiveJobReads,
    _waking: AbortOnDropHandle<()>,
}

impl ReplicaActor {
    /// An actor that owns nothing yet.
    ///
    /// # Errors
    /// When the operating system gives no threads for the shards.
    ///
    /// # Panics
    /// Outside an actix system.
    pub fn new(cx: ReplicaContext, progress: ProgressSender) -> io::Result<Self> {
        let arbiters = threads::arbiters(cx.config.arbiter_count(), &cx.config.answer_time)?;
        let unit = cx.vital("the replica actor");
        let waking = unit.spawn("the wakes of Jobs after others", cx.jobs_by_name.clone().wake_waiting());
        Ok(Self {
            _waking: AbortOnDropHandle::new(waking),
            job_cache: JobCache::new(cx.config.clone(), cx.loads.clone()),
            cx,
            _notice: unit.notice(),
            unit,
            progress,
            arbiters,
            shards: BTreeMap::new(),
            job_feed: None,
            catch_up: CatchUp::default(),
            live_reads: LiveJobReads::default(),
        })
    }

    fn watch_jobs(&mut self, ctx: &Context<Self>) {
        let subscription = feed_jobs(&self.cx, ctx.address().recipient());
        self.job_feed = Some(JobFeed { subscription, is_listed: false });
    }

    fn start_shard(&mut self, id: ShardId, epoch: u64, fence: Fence) {
        let Some(arbiter) = self.arbiters.get(id.0 as usize % self.arbiters.len().max(1)) else { return };
        let (cx, progress) = (self.cx.clone(), self.progress.clone());
        let (waits, in_flight) = (WaitingJobs::new(&self.cx.metrics), TaskTracker::new());
        let reports = self.progress.clone();
        let unit =
            Unit::new(self.cx.runtime.clone(), move || reports.report(ShardProgress::Failed(id, epoch)));
        let owned = Owned {
            id,
            epoch,
            fence: fence.clone(),
            waits: waits.clone(),
            in_flight: in_flight.clone(),
            unit,
        };
        let new = move |ctx: &mut Context<_>| ShardActor::new(owned, cx, progress, &ctx.address());
        let actor = ShardActor::start_in_arbiter(arbiter, new);
        let (phase, skipped, leaving) = (ShardPhase::Active, UidSet::default(), UidSet::default());
        let shard = OwnedShard { actor, phase, waits, skipped, leaving, fence, in_flight };
        self.shards.insert(id, shard);
        let jobs: Vec<_> = self.job_cache.of(id).cloned().collect();
        jobs.into_iter().for_each(|job| self.deliver(id, job, Instant::now()));
        let are_listed = self.job_feed.as_ref().is_some_and(|feed| feed.is_listed);
        if are_listed && let Some(shard) = self.shards.get(&id) {
            shard.actor.do_send(JobsListed);
        }
    }

    /// Removes a shard. Returns its actor, which the caller must end.
    fn remove_shard(&mut self, id: ShardId) -> Option<Addr<ShardActor>> {
        let shard = self.shards.remove(&id)?;
        self.catch_up.left(id);
        for job in self.job_cache.of(id) {
            self.cx.job_index.remove(&job.uid);
        }
        Some(shard.actor)
    }

    /// Whether messages of this subscription still count.
    fn receives(&self, from: SubscriptionId) -> bool {
        self.job_feed.as_ref().is_some_and(|feed| feed.subscription.is(from))
    }

    /// Lets a shard finish its requests in flight, for as long as answers take at present, and ends it.
    fn drain_shard(&mut self, id: ShardId, ctx: &mut Context<Self>) {
        let Some(shard) = self.shards.get_mut(&id) else {
            return self.progress.report(ShardProgress::Drained(id));
        };
        shard.phase = ShardPhase::Draining;
        let actor = shard.actor.clone();
        let (fence, in_flight) = (shard.fence.clone(), shard.in_flight.clone());
        let drained = async move {
            if actor.send(Drain).await.is_err() {
                // The actor has panicked, and its Jobs are ending.
                fence.close();
                in_flight.close();
                in_flight.wait().await;
            }
            if fence.is_overrun() {
                // A request may arrive yet. The claim is better left to expire than released before that.
                std::future::pending::<()>().await;
            }
        };
        let patience = (self.cx.gate.answer_time() * DRAIN_ANSWERS).clamp(DRAIN_LIMITS.0, DRAIN_LIMITS.1);
        let drained = async move {
            if tokio::time::timeout(patience, drained).await.is_err() {
                tracing::warn!(shard = %id, "a shard is handed over with requests unanswered");
            }
        };
        ctx.spawn(drained.into_actor(self).map(move |(), this, _| {
            // The shard may have been lost meanwhile, and even acquired again.
            if matches!(this.shards.get(&id), Some(OwnedShard { phase: ShardPhase::Draining, .. })) {
                this.end_shard(id);
            }
            this.progress.report(ShardProgress::Drained(id));
        }));
    }

    fn end_shard(&mut self, id: ShardId) {
        if let Some(actor) = self.remove_shard(id) {
            actor.do_send(End);
        }
    }

    /// Records that the watch of Jobs has shown everything before `version`.
    fn shown(&mut self, version: u64) {
        for id in self.catch_up.shown(version) {
            if let Some(shard) = self.shards.get(&id) {
                shard.actor.do_send(JobsCaughtUp);
            }
        }
    }

    fn job_seen(&mut self, job: Arc<ObservedJob>, arrived: Instant, ctx: &Context<Self>) {
        self.live_reads.end_reading(&job.uid);
        let (shard, job) = self.job_cache.insert(job);
        self.cx.jobs_by_name.seen(&job, self.cx.config.manages_job(&job));
        self.deliver(shard, job, arrived);
        self.look_at_left_alone(ctx);
    }

    /// Delivers a Job to its shard, if that is ours.
    fn deliver(&mut self, id: ShardId, job: Arc<ObservedJob>, arrived: Instant) {
        let Some(OwnedShard { actor, phase: ShardPhase::Active, skipped, leaving, .. }) =
            self.shards.get_mut(&id)
        else {
            return;
        };
        if !self.cx.config.manages(job.managed_by.as_deref()) {
            if self.cx.config.ttl_controller {
                actor.do_send(ForeignJobSeen(job.clone()));
            }
            if let Some(name) = &job.managed_by
                && skipped.insert(job.uid.clone())
            {
                self.cx.metrics.job_controller.count_external(name);
            }
            return;
        }
        match job.may_have_pods() {
            Some(read) => {
                leaving.remove(&job.uid);
                self.cx.job_index.insert(read);
                actor.do_send(JobSeen { job: job.clone(), arrived });
            }
            // No actor counts its pods. Their finalizer must not hold up its deletion.
            None if job.deleting && leaving.insert(job.uid.clone()) => actor.do_send(JobVanished(job.id())),
            None => {}
        }
        match &job.job {
            Ok(_) => _ = skipped.remove(&job.uid),
            Err(unserved) if skipped.insert(job.uid.clone()) => self.report_unserved(&job, unserved),
            Err(_) => {}
        }
    }

    fn report_unserved(&self, job: &ObservedJob, unserved: &Unserved) {
        let (reason, message) = unserved.event();
        self.cx.recorder.record(Event {
            about: job.id(),
            kind: EventType::Warning,
            reason: reason.into(),
            message: message.into(),
            at: self.cx.clock.now(),
            must: false,
        });
    }

    /// Everything known may be very old. All shards were dropped before.
    fn forget_all(&mut self, ctx: &Context<Self>) {
        self.cx.config.shards.shards().for_each(|shard| self.job_cache.forget(shard));
        self.job_cache = JobCache::new(self.cx.config.clone(), self.cx.loads.clone());
        self.cx.job_index.clear();
        self.cx.jobs_by_name.clear();
        self.live_reads = LiveJobReads::default();
        self.watch_jobs(ctx);
    }

    fn job_gone(&mut self, job: JobId, ctx: &Context<Self>) {
        let uid = job.uid();
        self.live_reads.end_reading(uid);
        self.cx.job_index.remove(uid);
        let ours = self.job_cache.get(uid).is_some_and(|known| self.cx.config.manages_job(known));
        self.job_cache.remove(uid);
        self.cx.jobs_by_name.gone(&job);
        if !ours {
            // The shard of the Job itself gets its message below.
            let home = self.cx.config.shards.shard_of(&uid.to_string());
            let others = self.shards.iter().filter(|(id, _)| **id != home);
            others.for_each(|(_, shard)| shard.actor.do_send(ForeignJobVanished(job.clone())));
        }
        // Pods may wait for it although it was never read.
        if let Some(shard) = self.shards.get_mut(&self.cx.config.shards.shard_of(&uid.to_string())) {
            shard.skipped.remove(uid);
            shard.leaving.remove(uid);
            shard.actor.do_send(JobVanished(job.clone()));
        }
        self.look_at_left_alone(ctx);
    }

    fn jobs_listed(&mut self, ctx: &mut Context<Self>) {
        for uid in self.job_cache.sweep() {
            if let Some(job) = self.job_cache.get(&uid) {
                self.job_missing(job.id(), ctx);
            }
        }
        if let Some(feed) = &mut self.job_feed {
            feed.is_listed = true;
        }
        self.cx.jobs_by_name.listed();
        self.shards.values().for_each(|shard| shard.actor.do_send(JobsListed));
    }
}

impl Actor for ReplicaActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.watch_jobs(ctx);
    }
}

impl Handler<Jobs> for ReplicaActor {
    type Result = ();

    fn handle(&mut self, Jobs { from, arrived, changes }: Jobs, ctx: &mut Self::Context) {
        if !self.receives(from) {
            return;
        }
        #[cfg(feature = "test-hooks")]
        self.cx.config.test_hooks.pass(Part::Replica);
        for change in changes {
            match change {
                Change::Restarted => {
                    self.job_cache.restart();
                    self.cx.jobs_by_name.listing();
                }
                Change::Listed(job) => self.job_seen(job, arrived, ctx),
                Change::Applied(job) => {
                    self.shown(job.version.order());
                    self.job_seen(job, arrived, ctx);
                }
                Change::Deleted(_) if is(Mutant::DeletedJobIgnored) => {}
                Change::Unreadable(job) => self.job_unreadable(&job, ctx),
                Change::Deleted(job) => self.job_missing(job.id(), ctx),
                Change::Synced { version } => {
                    self.shown(version);
                    self.jobs_listed(ctx);
                }
            }
        }
    }
}

impl Handler<ShardCommand> for ReplicaActor {
    type Result = ();

    fn handle(&mut self, command: ShardCommand, ctx: &mut Self::Context) {
        match command {
            ShardCommand::Start { shard, epoch, fence, version } => {
                self.catch_up.claimed(shard, version);
                self.start_shard(shard, epoch, fence);
            }
            ShardCommand::Drain(shard) => self.drain_shard(shard, ctx),
            ShardCommand::Forget => self.forget_all(ctx),
            ShardCommand::Drop(shard) => {
                self.end_shard(shard);
                self.progress.report(ShardProgress::Dropped(shard));
            }
        }
    }
}

impl Handler<DescribeAll> for ReplicaActor {
    type Result = ResponseFuture<Vec<ShardReport>>;

    fn handle(&mut self, _: DescribeAll, _: &mut Self::Context) -> Self::Result {
        let reports = join_all(self.shards.values().map(|shard| shard.actor.send(Describe)));
        Box::pin(async move {
            let mut reports: Vec<ShardReport> = reports.await.into_iter().flatten().collect();
            reports.sort_by_key(|report| report.shard);
            reports
        })
    }
}

impl Handler<ListShards> for ReplicaActor {
    type Result = MessageResult<ListShards>;

    fn handle(&mut self, _: ListShards, _: &mut Self::Context) -> Self::Result {
        MessageResult(self.shards.iter().map(|(id, shard)| (*id, shard.actor.clone().recipient())).collect())
    }
}

impl Handler<ReadJobs> for ReplicaActor {
    type Result = SeenJobs;

    fn handle(&mut self, _: ReadJobs, _: &mut Self::Context) -> Self::Result {
        let ours = |job: &ObservedJob| self.cx.config.manages(job.managed_by.as_deref());
        SeenJobs {
            jobs: self
                .job_cache
                .all()
                .filter(|(_, job)| ours(job))
                .map(|(id, job)| (id, job.clone()))
                .collect(),
            waits: self.shards.values().map(|shard| shard.waits.clone()).collect(),
            failures: self.cx.last_failures.clone(),
        }
    }
}
