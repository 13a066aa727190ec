//! The messages that a shard actor handles.

use actix::{ActorContext, Handler, ResponseActFuture, WrapFuture};
use futures::future::join_all;
use tracing::Instrument;

use super::jobs::JobEntry;
use super::{
    Describe, Drain, End, ForeignJobVanished, JobSeen, JobVanished, JobsCaughtUp, JobsListed, ShardActor,
    ShardReport,
};
use crate::actors::jobs::job_actor::{DrainJob, Halt};
use crate::actors::messages::protocol::{JobReport, Ping};
use crate::actors::orphans::orphan_pods::JobLookedFor;
use crate::actors::pods::pod_watch::{Kind, Pods};
use crate::cluster::watch::Change;
use crate::mutants::{Mutant, is};
use crate::telemetry::traces::drain_span;

impl Handler<JobsListed> for ShardActor {
    type Result = ();

    fn handle(&mut self, _: JobsListed, ctx: &mut Self::Context) {
        if self.pod_feed.is_new() {
            self.list_pods(ctx);
            self.watch_unlabelled(ctx);
        } else {
            // Jobs may have gone during the gap in the watch.
            self.orphan_pods.look_again();
        }
    }
}

impl Handler<JobsCaughtUp> for ShardActor {
    type Result = ();

    fn handle(&mut self, _: JobsCaughtUp, _: &mut Self::Context) {
        self.caught_up.set();
    }
}

impl Handler<JobSeen> for ShardActor {
    type Result = ();

    fn handle(&mut self, JobSeen { job, arrived }: JobSeen, ctx: &mut Self::Context) {
        self.arrived = arrived;
        let show_again = self.wants_dropped_pods(&job).then(|| job.id());
        self.job_seen(job, ctx);
        show_again.iter().for_each(|job| self.show_again(job, ctx));
    }
}

impl Handler<JobVanished> for ShardActor {
    type Result = ();

    fn handle(&mut self, JobVanished(job): JobVanished, ctx: &mut Self::Context) {
        self.job_vanished(&job, ctx);
        self.orphan_pods.job_vanished(&job);
        self.wait_for_no_pod(&job);
        self.forget_foreign_job(job.uid());
    }
}

impl Handler<ForeignJobVanished> for ShardActor {
    type Result = ();

    fn handle(&mut self, ForeignJobVanished(job): ForeignJobVanished, _: &mut Self::Context) {
        self.orphan_pods.job_vanished(&job);
    }
}

impl Handler<JobLookedFor> for ShardActor {
    type Result = ();

    fn handle(&mut self, look: JobLookedFor, _: &mut Self::Context) {
        self.orphan_pods.looked_for(look);
    }
}

impl Handler<Pods> for ShardActor {
    type Result = ();

    fn handle(&mut self, Pods { from, arrived, changes }: Pods, ctx: &mut Self::Context) {
        #[cfg(feature = "test-hooks")]
        if let Some(hook) = &self.cx.config.test_hooks.before_pods {
            (hook.0)(self.owned.id.0);
        }
        self.arrived = arrived;
        for change in changes {
            // A change may end the subscription: the ones behind it no longer count.
            let Some(kind) = self.kind_of(from) else { break };
            match change {
                Change::Restarted if kind == Kind::Unlabelled => self.unlabelled_listing(),
                Change::Restarted => self.pods_listing(),
                Change::Applied(pod) if self.is_late(&pod) => {}
                Change::Applied(pod) | Change::Deleted(pod) if self.answers.is_overtaken(&pod.pod, kind) => {}
                Change::Listed(pod) if self.answers.is_overtaken(&pod.pod, kind) => {
                    self.still_listed(&pod.pod.uid);
                }
                Change::Listed(pod) | Change::Applied(pod) => self.route_pod(pod, ctx),
                Change::Unreadable(pod) => self.pod_unreadable(&pod, ctx),
                Change::Deleted(_) if is(Mutant::DeletedPodIgnored) => {}
                Change::Deleted(pod) => self.pod_vanished(&pod, ctx),
                Change::Synced { version } if kind == Kind::Unlabelled => {
                    self.unlabelled_listed(version, ctx)
                }
                Change::Synced { version } => self.pods_listed(version, ctx),
            }
        }
        self.show_held();
    }
}

impl Handler<JobReport> for ShardActor {
    type Result = ();

    fn handle(&mut self, report: JobReport, ctx: &mut Self::Context) {
        match report {
            JobReport::Relist(job) => self.relist_requested(&job, ctx),
            JobReport::PodsMissing(job) => self.pods_missing(job, ctx),
            JobReport::Hidden(pod) => self.found_hidden(&pod, ctx),
            JobReport::Declined(pod) => self.pod_declined(pod),
            JobReport::Ended { job, reason } => self.job_ended(job, reason, ctx),
        }
    }
}

impl Handler<Ping> for ShardActor {
    type Result = ();

    /// The check that the actor lives comes every few seconds, which is often enough for tidying.
    fn handle(&mut self, _: Ping, _: &mut Self::Context) {
        self.orphan_pods.tidy();
    }
}

impl Handler<Describe> for ShardActor {
    type Result = actix::MessageResult<Describe>;

    fn handle(&mut self, _: Describe, _: &mut Self::Context) -> Self::Result {
        let (waiting, waits) = self.owned.waits.read();
        actix::MessageResult(ShardReport {
            shard: self.owned.id.0,
            epoch: self.owned.epoch,
            state: self.pod_feed.shard_state().as_str(),
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
        self.pod_feed.drain();
        self.unlabelled_feed.drain();
        let jobs: Vec<_> = self.jobs.values().filter_map(JobEntry::actor).cloned().collect();
        let (in_flight, fence) = (self.owned.in_flight.clone(), self.owned.fence.clone());
        // An actor that is gone has nothing in flight.
        let drained = async move {
            join_all(jobs.iter().map(|job| job.send(DrainJob))).await;
            // Requests that wait in the gate are not in flight: the next owner decides on them.
            fence.hand_over();
            in_flight.close();
            if !is(Mutant::DrainWaitsForNothing) {
                in_flight.wait().await;
            }
            join_all(jobs.iter().map(|job| job.send(Halt))).await;
        };
        let span = drain_span(self.owned.id.0, self.owned.epoch);
        Box::pin(drained.instrument(span).into_actor(self))
    }
}

impl Handler<End> for ShardActor {
    type Result = ();

    fn handle(&mut self, _: End, ctx: &mut Self::Context) {
        ctx.stop();
    }
}
