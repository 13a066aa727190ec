//! The Jobs of a shard: which of them have an actor, and when actors start and end.
//!
//! A Job that has finished and needs nothing is passivated: it has no actor, and the shard keeps only the Job
//! as last seen. Changes of the Job and its pods are checked first ([`crate::job::passivation`]). A change
//! that may give the Job something to do activates it: its actor starts as it does when the Job is first
//! seen.

mod entry;
mod left_alone;

use std::sync::Arc;
use std::time::{Duration, Instant};

use actix::{Actor, Addr, AsyncContext, Context};

pub(super) use self::entry::JobEntry;
use self::entry::{Active, Stage};
use super::ShardActor;
use crate::actors::clock;
use crate::actors::jobs::job_actor::JobActor;
use crate::actors::jobs::requests::{CreationRight, Requests};
use crate::actors::known_jobs::catch_up::CaughtUp;
use crate::actors::messages::inbox::Inbox;
use crate::actors::messages::job_input::{JobInput, ListOrigin};
use crate::actors::messages::protocol::ExitReason;
use crate::cluster::wire::{ObservedJob, ObservedPod};
use crate::job::job_id::JobId;
use crate::job::passivation::{NextLook, next_look};
use crate::job::retry::Retry;
use crate::job::spec::Job;
use crate::job::status::JobStatus;
use crate::mutants::{Mutant, is};
use crate::sharding::ShardState;
use crate::telemetry::traces::JobName;

impl ShardActor {
    /// Applies a Job as it is now.
    pub(super) fn job_seen(&mut self, seen: Arc<ObservedJob>, ctx: &mut Context<Self>) {
        let left_alone = seen.job.is_err();
        let Some(seen) = left_alone::with_job(seen) else { return };
        let id = seen.id();
        let Some(entry) = self.jobs.get_mut(&id) else { return self.add_job(seen, left_alone, ctx) };
        if seen.version.order() < entry.seen.version.order() {
            return;
        }
        // Once it is being deleted, its pods are released uncounted, so it is never served again.
        let was_left_alone = entry.left_alone;
        entry.left_alone = left_alone || was_left_alone && entry.seen.deleting;
        entry.seen = seen.clone();
        if entry.left_alone {
            self.leave_alone(&id, ctx);
        } else if was_left_alone {
            self.rebuild(&id, ctx);
        } else {
            entry.send_reading(seen, self.arrived);
            if entry.is_passivated() && !self.remains_passivated(&id, ctx) {
                self.activate(&id, [], ctx);
            }
        }
    }

    /// Adds a Job that the shard does not know yet.
    fn add_job(&mut self, seen: Arc<ObservedJob>, left_alone: bool, ctx: &mut Context<Self>) {
        let id = seen.id();
        let stage = Stage::Passivated { timer: None };
        self.jobs.insert(
            id.clone(),
            JobEntry { seen, left_alone, stage, rebuilds: Retry::default(), releases: Retry::default() },
        );
        self.show_held();
        self.watch_unlabelled_for(&id, ctx);
        if left_alone {
            self.leave_alone(&id, ctx);
        } else if !self.remains_passivated(&id, ctx) {
            self.start(&id, ctx);
        }
        let waiting = self.orphan_pods.waiting_for(&id, &self.cx.job_index);
        waiting.into_iter().for_each(|pod| self.route_pod(pod, ctx));
        self.job_known(&id, ctx);
        if self.is_newer_than_pods(&id) {
            self.show_again(&id, ctx);
        } else {
            self.deliver_listed(&id, Some(self.arrived));
        }
    }

    /// Builds a Job from the cluster alone, if it waits for that and may have an actor, once its pause is over.
    fn rebuild(&mut self, id: &JobId, ctx: &mut Context<Self>) {
        let may_have_actor = |entry: &JobEntry| match entry.stage {
            Stage::Broken { leaving } => leaving || !entry.left_alone,
            Stage::Active(_) | Stage::Passivated { .. } => false,
        };
        let Some(entry) = self.jobs.get(id).filter(|entry| may_have_actor(entry)) else { return };
        let (now, leaving) = (self.cx.clock.now(), entry.is_gone());
        if let Some(at) = entry.rebuilds.waits(now) {
            let id = id.clone();
            self.timers.set(clock::until(at, now), ctx, move |shard, ctx| shard.rebuild(&id, ctx));
            return;
        }
        self.start(id, ctx);
        self.knows_no_pod(id);
        self.show_again(id, ctx);
        if leaving {
            self.wait_for_no_pod(id);
        }
    }

    /// Whether another owner has managed a Job that was unknown here, and has written its status since the
    /// pods were listed. The watch of pods may show those that it counts as they were before.
    fn is_newer_than_pods(&self, job: &JobId) -> bool {
        let is_busy = |entry: &&JobEntry| !entry.is_passivated() && !entry.is_finished() && !entry.left_alone;
        let Some(entry) = self.jobs.get(job).filter(is_busy) else { return false };
        let written = entry.seen.job.as_ref().is_ok_and(|job| job.status != JobStatus::default());
        let listed = self.pod_feed.version();
        written
            && listed.is_none_or(|listed| listed < entry.seen.version.order())
            && !is(Mutant::PodsNeverDoubted)
    }

    /// Records that a Job no longer exists.
    pub(super) fn job_vanished(&mut self, id: &JobId, ctx: &mut Context<Self>) {
        match self.jobs.get_mut(id) {
            // A passivated Job holds no pods that would have to be released.
            Some(entry) if entry.is_passivated() => self.remove_job(id, ctx),
            Some(entry) => {
                let was_left_alone = std::mem::take(&mut entry.left_alone);
                entry.send(JobInput::JobGone);
                // A gone Job adopts no pod, and a search that is always refused would keep the Job forever.
                if self.chooses_pods(id) {
                    self.search_given_up(id);
                }
                if was_left_alone {
                    self.rebuild(id, ctx);
                }
            }
            None => {}
        }
    }

    /// Sends an input to a Job, if it has an actor.
    pub(super) fn send(&mut self, job: &JobId, input: JobInput) {
        if let Some(entry) = self.jobs.get_mut(job) {
            entry.send(input);
        }
    }

    /// Delivers a pod to the Job that holds it or may adopt it.
    pub(super) fn deliver_pod(&mut self, job: &JobId, pod: Box<ObservedPod>, ctx: &mut Context<Self>) {
        match self.jobs.get_mut(job) {
            Some(entry) if entry.must_release() && pod.pod.tracked => self.release_for_deletion(job, ctx),
            Some(entry) if !entry.is_passivated() => entry.send_event(JobInput::Pod(pod), self.arrived),
            Some(entry) if entry.concerns_job(&pod) => self.activate(job, [JobInput::Pod(pod)], ctx),
            Some(_) | None => {}
        }
    }

    /// Gives its list of pods to a Job that was unknown when the shard's pods were listed. The pods
    /// themselves have come by watch, or are about to. `arrived`: when a watch event arrived that is the
    /// cause.
    pub(super) fn deliver_listed(&mut self, job: &JobId, arrived: Option<Instant>) {
        let Some(version) = self.pod_feed.version().filter(|_| !self.hidden.hold_back(job)) else { return };
        if let Some(entry) = self.jobs.get_mut(job).filter(|entry| !entry.awaits_pods()) {
            let listed = self.pod_owners.pods_of(job);
            let input = JobInput::PodsListed { listed, version, origin: ListOrigin::Memory };
            match arrived {
                Some(arrived) => entry.send_event(input, arrived),
                None => entry.send(input),
            }
        }
    }

    /// Whether the Job's options now ask for the deletion of pods that were dropped before, since nothing was
    /// to be done for them.
    pub(super) fn wants_dropped_pods(&self, seen: &ObservedJob) -> bool {
        let options = |seen: &ObservedJob| seen.job.as_ref().ok().map(|job| job.options.clone());
        let known = self.jobs.get(&seen.id()).and_then(|entry| options(&entry.seen));
        known.zip(options(seen)).is_some_and(|(before, now)| now.needs().exceeds(before.needs()))
    }

    /// Whether a Job without an actor needs none for now. A timer activates it if it needs one later.
    fn remains_passivated(&mut self, id: &JobId, ctx: &mut Context<Self>) -> bool {
        let Some(entry) = self.jobs.get_mut(id) else { return true };
        let Ok(job) = &entry.seen.job else { return true };
        let now = self.cx.clock.now();
        let timer = match next_look(job, self.cx.config.limits(), now) {
            NextLook::Now => return false,
            NextLook::At(at) => {
                let id = id.clone();
                let look = move |shard: &mut Self, ctx: &mut Context<Self>| shard.activate(&id, [], ctx);
                Some(self.timers.set(clock::until(at, now), ctx, look))
            }
            NextLook::Never => None,
        };
        entry.enter(Stage::Passivated { timer }, &mut self.timers);
        true
    }

    /// Starts the actor of a passivated Job, and sends it the inputs.
    fn activate(&mut self, id: &JobId, inputs: impl IntoIterator<Item = JobInput>, ctx: &mut Context<Self>) {
        self.start(id, ctx);
        let Some(entry) = self.jobs.get_mut(id) else { return };
        inputs.into_iter().for_each(|input| entry.send(input));
        if entry.is_finished() {
            self.deliver_listed(id, None);
        } else {
            // Another writer has removed its terminal condition. Its counted pods were ignored while it was
            // passivated.
            self.show_again(id, ctx);
        }
    }

    /// Starts the actor of a Job that has none, from the Job as it was last seen.
    fn start(&mut self, id: &JobId, ctx: &mut Context<Self>) {
        let Some(entry) = self.jobs.get(id).filter(|_| !self.pod_feed.is_draining()) else { return };
        let Ok(job) = &entry.seen.job else { return };
        let (leaving, caught_up) = match entry.stage {
            Stage::Active(_) => return,
            // The watch may be behind the last status of the actor that has panicked.
            Stage::Broken { leaving } => (leaving, CaughtUp::default()),
            Stage::Passivated { .. } => (false, self.caught_up.clone()),
        };
        let inbox = Inbox::queued(self.cx.metrics.workqueue.clone());
        let actor =
            self.start_actor(id, job.clone(), entry.seen.clone(), inbox.clone(), caught_up, &ctx.address());
        if let Some(entry) = self.jobs.get_mut(id) {
            entry.enter(
                Stage::Active(Active { inbox, actor, leaving: false, halted: false, awaits_list: false }),
                &mut self.timers,
            );
            if leaving {
                entry.send(JobInput::JobGone);
            }
        }
        if !leaving && self.chooses_pods(id) {
            self.seek_own_pods(id, ctx);
        }
    }

    fn start_actor(
        &self,
        id: &JobId,
        job: Job,
        seen: Arc<ObservedJob>,
        inbox: Inbox<JobInput>,
        caught_up: CaughtUp,
        shard: &Addr<Self>,
    ) -> Addr<JobActor> {
        let requests = Requests {
            cx: self.cx.for_job(id),
            shard: self.owned.id,
            epoch: self.owned.epoch,
            fence: self.owned.fence.part(),
            creations: CreationRight::of(&self.owned.fence),
            in_flight: self.owned.in_flight.clone(),
            inbox,
            job: id.clone(),
            selector: job.spec.selector.clone(),
            waits: self.owned.waits.clone(),
            trace: self.cx.config.traces.job(JobName {
                namespace: &job.namespace,
                name: &job.name,
                uid: &job.uid,
            }),
            releasing: self.releasing.clone(),
            caught_up,
            taken_over: (self.pod_feed.shard_state() == ShardState::Syncing).then_some(self.claimed),
        };
        JobActor::new(job, seen, Arc::new(requests), shard.clone().recipient()).start()
    }

    /// Handles the end of a Job's actor.
    pub(super) fn job_ended(&mut self, job: JobId, reason: ExitReason, ctx: &mut Context<Self>) {
        self.show_wait(&job, None);
        match reason {
            ExitReason::Panic => self.job_broken(job, ctx),
            _ if self.jobs.get(&job).is_some_and(JobEntry::is_halted) => self.job_halted(&job, ctx),
            ExitReason::Over if self.jobs.get(&job).is_some_and(|entry| entry.left_alone) => {
                self.pods_released(&job, ctx);
            }
            ExitReason::Over => self.remove_job(&job, ctx),
            ExitReason::Passivated => self.job_passivated(&job, ctx),
        }
    }

    fn remove_job(&mut self, id: &JobId, ctx: &mut Context<Self>) {
        self.unwatch_unlabelled_after(id, ctx);
        self.show_wait(id, None);
        if let Some(entry) = self.jobs.remove(id) {
            entry.stage.leave(&mut self.timers);
            self.pod_owners.remove_job(id);
            self.live_lists.forget_job(id);
            self.show_held();
        }
    }

    /// Inputs that came after the actor had emptied its inbox for the last time go to a new actor.
    fn job_passivated(&mut self, id: &JobId, ctx: &mut Context<Self>) {
        let Some(entry) = self.jobs.get_mut(id) else { return };
        let Stage::Active(Active { inbox, .. }) = &entry.stage else { return };
        let missed = inbox.close();
        entry.enter(Stage::Passivated { timer: None }, &mut self.timers);
        if !missed.is_empty() || !self.remains_passivated(id, ctx) {
            self.activate(id, missed, ctx);
        }
    }

    /// A Job whose actor has panicked starts again after a back-off that grows with each panic in a row.
    fn job_broken(&mut self, id: JobId, ctx: &mut Context<Self>) {
        let now = self.cx.clock.now();
        let Some(entry) = self.jobs.get_mut(&id) else { return };
        let leaving = matches!(&entry.stage, Stage::Active(active) if active.leaving);
        entry.enter(Stage::Broken { leaving }, &mut self.timers);
        entry.rebuilds.refused(self.cx.config.limits().api_backoff, now);
        let delay = entry.rebuilds.waits(now).and_then(|at| Duration::try_from(at.duration_since(now)).ok());
        let seen = &entry.seen;
        log_job!(
            error,
            JobName { namespace: &seen.namespace, name: &seen.name, uid: &seen.uid },
            "the actor of a Job has panicked; the Job is rebuilt from the cluster"
        );
        if is(Mutant::PanickedJobNotRebuilt) {
            return;
        }
        self.timers.set(delay.unwrap_or_default(), ctx, move |shard, ctx| {
            shard.rebuild(&id, ctx);
            shard.release_for_deletion(&id, ctx);
        });
    }
}
