//! Jobs of other controllers. If this controller stands in for Kubernetes' TTL controller,
//! the shard deletes them, too, once they have outlived their TTL. It does not touch them
//! otherwise, and they have no actor.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use actix::{AsyncContext, Context, Handler, Message};
use jiff::Timestamp;

use super::ShardActor;
use super::timers::Timer;
use crate::actors::clock;
use crate::actors::context::ReplicaContext;
use crate::actors::jobs::ttl_deletion::{Expiry, delete_expired};
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
    deletion: Deletion,
}

/// The deletion of a Job whose TTL ends.
enum Deletion {
    /// Nothing yet.
    Undecided,
    /// The Job is deleted when this timer rings.
    Awaited(Timer),
    /// Its deletion has been sent and not been answered.
    InFlight,
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
    fn foreign_job_seen(&mut self, mut seen: Arc<ObservedJob>, ctx: &mut Context<Self>) {
        // A live read brings policies and the template, which are not needed here.
        seen.lighten();
        let uid = seen.uid.clone();
        match self.foreign_jobs.0.entry(uid.clone()) {
            Entry::Occupied(known) if known.get().seen.version.order() > seen.version.order() => {}
            Entry::Occupied(mut known) => known.get_mut().seen = seen,
            Entry::Vacant(_) if expires_at(&seen, &self.cx).is_none() => return,
            Entry::Vacant(unknown) => {
                let (retry, deletion) = (Retry::default(), Deletion::Undecided);
                unknown.insert(ForeignJob { seen, retry, deletion });
            }
        }
        self.schedule_expiry(&uid, ctx);
    }

    /// Sets the time of a Job's deletion, unless that is in flight: its answer sets it then.
    fn schedule_expiry(&mut self, uid: &Uid, ctx: &mut Context<Self>) {
        let now = self.cx.clock.now();
        let Some(known) = self.foreign_jobs.0.get_mut(uid) else { return };
        if matches!(known.deletion, Deletion::InFlight) {
            return;
        }
        let Some(expires) = expires_at(&known.seen, &self.cx) else {
            return self.forget_foreign_job(uid);
        };
        let at = known.retry.waits(now).map_or(expires, |retry| expires.max(retry));
        let expired = uid.clone();
        let expire = move |shard: &mut Self, ctx: &mut Context<Self>| shard.expire(&expired, ctx);
        let awaited = Deletion::Awaited(self.timers.set(clock::until(at, now), ctx, expire));
        if let Deletion::Awaited(before) = std::mem::replace(&mut known.deletion, awaited) {
            self.timers.cancel(before);
        }
    }

    fn expire(&mut self, uid: &Uid, ctx: &mut Context<Self>) {
        let draining = self.pod_feed.is_draining();
        let Some(known) = self.foreign_jobs.0.get_mut(uid).filter(|_| !draining) else { return };
        known.deletion = Deletion::InFlight;
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
    pub(super) fn forget_foreign_job(&mut self, uid: &Uid) {
        if let Some(Deletion::Awaited(timer)) = self.foreign_jobs.0.remove(uid).map(|known| known.deletion) {
            self.timers.cancel(timer);
        }
    }
}

/// When a Job's TTL ends, if it has one and has finished.
fn expires_at(seen: &ObservedJob, cx: &ReplicaContext) -> Option<Timestamp> {
    seen.job.as_ref().ok().and_then(|job| ttl::expires_at(job, cx.config.limits()))
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
        let (now, delays) = (self.cx.clock.now(), self.cx.config.limits().api_backoff);
        let Some(known) = self.foreign_jobs.0.get_mut(&job) else { return };
        if matches!(known.deletion, Deletion::InFlight) {
            known.deletion = Deletion::Undecided;
        }
        known.retry.refused(delays, now);
        match answer {
            Ok(Expiry::Deleted | Expiry::Gone) => self.forget_foreign_job(&job),
            Err(WriteError::Fenced) if self.owned.fence.is_closed() => self.forget_foreign_job(&job),
            Ok(Expiry::NotDue(fresh)) => self.foreign_job_seen(fresh, ctx),
            Err(refusal) => {
                tracing::warn!(k8s.job.uid = %job, %refusal, "a Job that has outlived its TTL was not deleted");
                self.schedule_expiry(&job, ctx);
            }
        }
    }
}
