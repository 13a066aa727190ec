//! The actor of this replica: it starts and ends the actors of shards as the keeper of the Leases says, and brings every Job to
//! its shard.
//!
//! Where the API server serves `shardSelector`, Jobs are watched shard by shard; otherwise all Jobs are watched, and
//! those of other replicas are kept for the moment when their shard is taken over.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use actix::{
    Actor, ActorFutureExt, Addr, ArbiterHandle, AsyncContext, Context, Handler, Message, ResponseFuture,
    WrapFuture,
};
use futures::future::join_all;
use tokio::task::AbortHandle;

use super::job_cache::{JobCache, Source};
use super::job_index::JobIndex;
use super::lease_manager::{LeaseManagerHandle, Report};
use super::requests::ReplicaContext;
use super::shard_actor::{
    Describe, Drain, End, JobSeen, JobVanished, JobsListed, Owned, ShardActor, ShardReport,
};
use super::threads;
use super::watch_feed::{Jobs, feed_jobs};
use crate::cluster::events::{Event, EventType, ObjectRef};
use crate::cluster::gate::Fence;
use crate::cluster::resource::Resource;
use crate::cluster::watch::Change;
use crate::cluster::wire::ObservedJob;
use crate::job::uid::{Uid, UidSet};
use crate::sharding::ShardId;
use crate::telemetry::metrics::labels::ExternalJobLabels;

/// Longest time that requests of a shard that is given away are waited for. What is left then can do no harm.
const DRAIN: Duration = Duration::from_secs(5);
/// Pause after the API server could not be asked what it serves.
const PAUSE: Duration = Duration::from_secs(1);

/// A shard is ours.
#[derive(Message)]
#[rtype(result = "()")]
pub struct StartShard {
    /// The shard.
    pub shard: ShardId,
    /// How often it has been claimed.
    pub epoch: u64,
    /// The right to act for it.
    pub fence: Fence,
}

/// A shard is to be somebody else's: finish what is under way.
#[derive(Message)]
#[rtype(result = "()")]
pub struct DrainShard(pub ShardId);

/// A shard is no longer ours.
#[derive(Message)]
#[rtype(result = "()")]
pub struct DropShard(pub ShardId);

/// What all shards are doing.
#[derive(Message)]
#[rtype(result = "Vec<ShardReport>")]
pub struct DescribeAll;

/// Whether the API server serves `shardSelector`.
#[derive(Message)]
#[rtype(result = "()")]
struct Narrows(bool);

/// How Jobs are watched.
enum Watching {
    /// The API server has not said yet what it serves.
    Unknown,
    /// All in one.
    Whole {
        feed: AbortHandle,
        /// The first list is complete.
        listed: bool,
    },
    /// Shard by shard.
    Narrowed,
}

/// A shard that is ours.
struct Shard {
    actor: Addr<ShardActor>,
    /// The watch of its Jobs, where it has one of its own, with the number of the feed.
    watch: Option<(AbortHandle, u32)>,
    draining: bool,
}

/// The actor of this replica.
pub struct ReplicaActor {
    cx: ReplicaContext,
    lease_manager: LeaseManagerHandle,
    job_index: Arc<JobIndex>,
    arbiters: Vec<ArbiterHandle>,
    shards: HashMap<ShardId, Shard>,
    watching: Watching,
    book: JobCache,
    /// Jobs of others, and Jobs that cannot be understood: told about once.
    left_alone: UidSet,
    feeds: u32,
}

impl ReplicaActor {
    /// An actor that owns nothing yet.
    ///
    /// # Errors
    /// When the operating system gives no threads for the shards.
    ///
    /// # Panics
    /// Outside an actix system.
    pub fn new(cx: ReplicaContext, lease_manager: LeaseManagerHandle) -> io::Result<Self> {
        let arbiters = threads::arbiters(cx.config.arbiter_count())?;
        Ok(Self {
            book: JobCache::new(cx.config.clone(), cx.loads.clone()),
            cx,
            lease_manager,
            job_index: Arc::default(),
            arbiters,
            shards: HashMap::new(),
            watching: Watching::Unknown,
            left_alone: UidSet::default(),
            feeds: 0,
        })
    }

    /// Asks the API server whether it serves `shardSelector`, until it answers.
    fn ask_what_is_served(&self, ctx: &Context<Self>) {
        let (cx, this) = (self.cx.clone(), ctx.address());
        let selector = self.cx.config.shards.selector(ShardId(0));
        self.cx.runtime.spawn(async move {
            loop {
                match cx.reads.narrows(Resource::JOBS, &selector).await {
                    Ok(narrows) => return this.do_send(Narrows(narrows)),
                    Err(error) => tracing::warn!(%error, "cannot list Jobs"),
                }
                tokio::time::sleep(PAUSE).await;
            }
        });
    }

    fn watch_jobs(&mut self, of: Source, ctx: &Context<Self>) -> (AbortHandle, u32) {
        self.feeds += 1;
        (feed_jobs(&self.cx, of, self.feeds, ctx.address().recipient()), self.feeds)
    }

    fn start_shard(&mut self, id: ShardId, epoch: u64, fence: Fence, ctx: &Context<Self>) {
        let Some(arbiter) = self.arbiters.get(id.0 as usize % self.arbiters.len().max(1)) else { return };
        let (cx, job_index, lease_manager) =
            (self.cx.clone(), self.job_index.clone(), self.lease_manager.clone());
        let actor = ShardActor::start_in_arbiter(arbiter, move |_| {
            ShardActor::new(Owned { id, epoch, fence }, cx, job_index, lease_manager)
        });
        self.shards.insert(id, Shard { actor, watch: None, draining: false });
        match self.watching {
            Watching::Unknown => {}
            Watching::Narrowed => self.watch_shard(id, ctx),
            Watching::Whole { listed, .. } => {
                let jobs: Vec<_> = self.book.of(id).cloned().collect();
                jobs.into_iter().for_each(|job| self.deliver(id, job));
                if listed && let Some(shard) = self.shards.get(&id) {
                    shard.actor.do_send(JobsListed);
                }
            }
        }
    }

    fn watch_shard(&mut self, id: ShardId, ctx: &Context<Self>) {
        let watch = self.watch_jobs(Some(id), ctx);
        if let Some(shard) = self.shards.get_mut(&id) {
            shard.watch = Some(watch);
        }
    }

    /// Takes a shard off the books, and its actors' address.
    fn remove_shard(&mut self, id: ShardId) -> Option<Addr<ShardActor>> {
        let shard = self.shards.remove(&id)?;
        for job in self.book.of(id) {
            self.job_index.remove(&job.uid);
        }
        if let Some((watch, _)) = shard.watch {
            watch.abort();
            self.book.forget(id);
        }
        Some(shard.actor)
    }

    /// Whether what a feed tells still matters.
    fn is_current(&self, of: Source, feed: u32) -> bool {
        match of {
            None => matches!(self.watching, Watching::Whole { .. }),
            Some(id) => self
                .shards
                .get(&id)
                .and_then(|shard| shard.watch.as_ref())
                .is_some_and(|(_, own)| *own == feed),
        }
    }

    fn job_seen(&mut self, source: Source, job: Arc<ObservedJob>) {
        if let Some((shard, job)) = self.book.insert(source, job) {
            self.deliver(shard, job);
        }
    }

    /// Brings a Job to its shard, if that is ours.
    fn deliver(&mut self, id: ShardId, job: Arc<ObservedJob>) {
        let Some(shard) = self.shards.get(&id).filter(|shard| !shard.draining) else { return };
        if !self.cx.config.manages(job.managed_by.as_deref()) {
            return self.leave_to_others(&job);
        }
        let Ok(read) = &job.job else { return self.refuse_to_guess(&job) };
        self.job_index.insert(read);
        shard.actor.do_send(JobSeen(job));
    }

    fn leave_to_others(&mut self, job: &ObservedJob) {
        if let Some(name) = &job.managed_by
            && self.left_alone.insert(job.uid.clone())
        {
            let labels = ExternalJobLabels { controller_name: name.to_string().into() };
            self.cx.metrics.jobs_by_external_controller.get_or_create(&labels).inc();
        }
    }

    fn refuse_to_guess(&mut self, job: &ObservedJob) {
        if self.left_alone.insert(job.uid.clone()) {
            self.cx.recorder.record(Event {
                about: ObjectRef::job(&job.namespace, &job.name, &job.uid),
                kind: EventType::Warning,
                reason: "UnknownCompletionMode".into(),
                message: "Skipped Job sync because completion mode is unknown".into(),
                at: self.cx.clock.now(),
                must: false,
            });
        }
    }

    fn job_gone(&mut self, uid: &Uid) {
        self.left_alone.remove(uid);
        self.job_index.remove(uid);
        let shard = self.book.remove(uid).and_then(|shard| self.shards.get(&shard));
        if let Some(shard) = shard {
            shard.actor.do_send(JobVanished(uid.clone()));
        }
    }

    fn jobs_listed(&mut self, source: Source) {
        for uid in self.book.missing(source) {
            self.job_gone(&uid);
        }
        if let Watching::Whole { listed, .. } = &mut self.watching {
            *listed = true;
        }
        for (_, shard) in self.shards.iter().filter(|(id, _)| source.is_none_or(|source| source == **id)) {
            shard.actor.do_send(JobsListed);
        }
    }
}

impl Actor for ReplicaActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.ask_what_is_served(ctx);
    }

    fn stopped(&mut self, _: &mut Self::Context) {
        if let Watching::Whole { feed, .. } = &self.watching {
            feed.abort();
        }
        self.shards.values().filter_map(|shard| shard.watch.as_ref()).for_each(|(watch, _)| watch.abort());
    }
}

impl Handler<Narrows> for ReplicaActor {
    type Result = ();

    fn handle(&mut self, Narrows(narrows): Narrows, ctx: &mut Self::Context) {
        if narrows {
            self.watching = Watching::Narrowed;
            let ids: Vec<_> = self.shards.keys().copied().collect();
            ids.into_iter().for_each(|id| self.watch_shard(id, ctx));
        } else {
            let (feed, _) = self.watch_jobs(None, ctx);
            self.watching = Watching::Whole { feed, listed: false };
        }
    }
}

impl Handler<Jobs> for ReplicaActor {
    type Result = ();

    fn handle(&mut self, Jobs { of, feed, changes }: Jobs, _: &mut Self::Context) {
        if !self.is_current(of, feed) {
            return;
        }
        for change in changes {
            match change {
                Change::Restarted => self.book.restart(of),
                Change::Listed(job) | Change::Applied(job) => self.job_seen(of, job),
                Change::Deleted(job) => self.job_gone(&job.uid),
                Change::Synced { .. } => self.jobs_listed(of),
            }
        }
    }
}

impl Handler<StartShard> for ReplicaActor {
    type Result = ();

    fn handle(&mut self, StartShard { shard, epoch, fence }: StartShard, ctx: &mut Self::Context) {
        self.start_shard(shard, epoch, fence, ctx);
    }
}

impl Handler<DrainShard> for ReplicaActor {
    type Result = ();

    fn handle(&mut self, DrainShard(id): DrainShard, ctx: &mut Self::Context) {
        let Some(shard) = self.shards.get_mut(&id) else {
            return self.lease_manager.report(Report::Drained(id));
        };
        shard.draining = true;
        let actor = shard.actor.clone();
        let drained = async move {
            if tokio::time::timeout(DRAIN, actor.send(Drain)).await.is_err() {
                tracing::warn!(shard = %id, "requests of a shard that is given away are not answered");
            }
        };
        ctx.spawn(drained.into_actor(self).map(move |(), this, _| {
            // Unless it was lost meanwhile, and perhaps taken over again.
            if this.shards.get(&id).is_some_and(|shard| shard.draining)
                && let Some(actor) = this.remove_shard(id)
            {
                actor.do_send(End);
            }
            this.lease_manager.report(Report::Drained(id));
        }));
    }
}

impl Handler<DropShard> for ReplicaActor {
    type Result = ();

    fn handle(&mut self, DropShard(id): DropShard, _: &mut Self::Context) {
        if let Some(actor) = self.remove_shard(id) {
            actor.do_send(End);
        }
        self.lease_manager.report(Report::Dropped(id));
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
