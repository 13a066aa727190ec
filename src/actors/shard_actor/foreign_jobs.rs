//! Jobs of other controllers. Where this one stands in for Kubernetes' TTL controller, the shard deletes them, too,
//! once they have outlived their TTL. It does nothing else to them, and they have no actor.

use std::sync::Arc;

use actix::{AsyncContext, Context, Handler, Message, SpawnHandle};

use super::ShardActor;
use crate::actors::clock;
use crate::actors::ttl_deletion::{Expiry, delete_expired};
use crate::cluster::gate::{Order, Priority, WriteError};
use crate::cluster::wire::ObservedJob;
use crate::job::retry::Retry;
use crate::job::ttl;
use crate::job::uid::{Uid, UidMap};

/// The Jobs of other controllers that have finished and are to be deleted.
#[derive(Default)]
pub(super) struct ForeignJobs(UidMap<ForeignJob>);

struct ForeignJob {
    seen: Arc<ObservedJob>,
    retry: Retry,
    /// The time of its deletion.
    timer: Option<SpawnHandle>,
    /// Its deletion has been sent and not been answered.
    in_flight: bool,
}

/// A Job of another controller was added or changed.
#[derive(Message)]
#[rtype(result = "()")]
pub struct ForeignJobSeen(pub Arc<ObservedJob>);

/// The deletion of a Job of another controller was answered.
#[derive(Message)]
#[rtype(result = "()")]
struct ExpiryAnswered {
    job: Uid,
    answer: Result<Expiry, WriteError>,
}

impl ShardActor {
    fn foreign_job_seen(&mut self, seen: Arc<ObservedJob>, ctx: &mut Context<Self>) {
        let limits = self.cx.config.limits();
        let uid = seen.uid.clone();
        if seen.job.as_ref().ok().and_then(|job| ttl::expires_at(job, limits)).is_none() {
            return self.forget_foreign_job(&uid, ctx);
        }
        let known = self.foreign_jobs.0.entry(uid.clone());
        let known = known.or_insert_with(|| ForeignJob {
            seen: seen.clone(),
            retry: Retry::default(),
            timer: None,
            in_flight: false,
        });
        if known.seen.version.order() <= seen.version.order() {
            known.seen = seen;
            self.schedule_expiry(&uid, ctx);
        }
    }

    fn schedule_expiry(&mut self, uid: &Uid, ctx: &mut Context<Self>) {
        let (now, limits) = (self.cx.clock.now(), self.cx.config.limits());
        let Some(known) = self.foreign_jobs.0.get_mut(uid).filter(|known| !known.in_flight) else { return };
        let expires = known.seen.job.as_ref().ok().and_then(|job| ttl::expires_at(job, limits));
        let Some(at) = expires.max(known.retry.waits(now)) else { return };
        let expired = uid.clone();
        let timer = ctx.run_later(clock::until(at, now), move |shard, ctx| shard.expire(&expired, ctx));
        if let Some(before) = known.timer.replace(timer) {
            ctx.cancel_future(before);
        }
    }

    fn expire(&mut self, uid: &Uid, ctx: &mut Context<Self>) {
        let draining = self.pod_feed.is_draining();
        let Some(known) = self.foreign_jobs.0.get_mut(uid).filter(|_| !draining) else { return };
        (known.timer, known.in_flight) = (None, true);
        let (cx, seen, fence) = (self.cx.clone(), known.seen.clone(), self.owned.fence.clone());
        let (job, shard) = (uid.clone(), ctx.address());
        let deletion = async move {
            let order = Order::new(Priority::Delete, job.clone(), fence);
            let answer = delete_expired(&cx, &seen, |write| cx.gate.submit(order, write)).await;
            shard.do_send(ExpiryAnswered { job, answer });
        };
        let deletion = self.owned.unit.guarded("the deletion of a Job", deletion);
        self.owned.in_flight.spawn_on(deletion, &self.cx.runtime);
    }

    /// Forgets a Job that no longer exists or is not to be deleted.
    pub(super) fn forget_foreign_job(&mut self, uid: &Uid, ctx: &mut Context<Self>) {
        let timer = self.foreign_jobs.0.remove(uid).and_then(|known| known.timer);
        timer.into_iter().for_each(|timer| _ = ctx.cancel_future(timer));
    }
}

impl Handler<ForeignJobSeen> for ShardActor {
    type Result = ();

    fn handle(&mut self, ForeignJobSeen(job): ForeignJobSeen, ctx: &mut Self::Context) {
        self.foreign_job_seen(job, ctx);
    }
}

impl Handler<ExpiryAnswered> for ShardActor {
    type Result = ();

    fn handle(&mut self, ExpiryAnswered { job, answer }: ExpiryAnswered, ctx: &mut Self::Context) {
        self.foreign_jobs.0.get_mut(&job).into_iter().for_each(|known| known.in_flight = false);
        match answer {
            Ok(Expiry::Deleted | Expiry::Gone) => self.forget_foreign_job(&job, ctx),
            Err(WriteError::Fenced) if self.owned.fence.is_closed() => self.forget_foreign_job(&job, ctx),
            Ok(Expiry::NotDue(fresh)) => self.foreign_job_seen(fresh, ctx),
            Err(refusal) => {
                tracing::warn!(k8s.job.uid = %job, %refusal, "a Job that has outlived its TTL was not deleted");
                let (now, delays) = (self.cx.clock.now(), self.cx.config.limits().api_backoff);
                if let Some(known) = self.foreign_jobs.0.get_mut(&job) {
                    known.retry.refused(delays, now);
                    self.schedule_expiry(&job, ctx);
                }
            }
        }
    }
}
