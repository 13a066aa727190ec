//! Jobs that are left alone, since their status is too long ([`crate::actors::known_jobs::memory_shares`]). The
//! actor of the Job ends, and its pods keep their finalizers, so that all of them are counted once the
//! Job is served again. Then it is rebuilt, as after a panic.
//!
//! If such a Job is being deleted, an actor releases its pods uncounted. From then on the Job is never
//! served again.

use std::sync::Arc;

use actix::Context;

use super::{Active, JobEntry, Stage};
use crate::actors::clock;
use crate::actors::jobs::job_actor::Halt;
use crate::actors::messages::job_input::JobInput;
use crate::actors::shards::shard_actor::ShardActor;
use crate::cluster::wire::ObservedJob;
use crate::job::job_id::JobId;

/// The Job as an actor may start from it, if it may have pods of ours.
pub(super) fn with_job(seen: Arc<ObservedJob>) -> Option<Arc<ObservedJob>> {
    if seen.job.is_ok() {
        return Some(seen);
    }
    let job = seen.may_have_pods()?.clone();
    Some(Arc::new(ObservedJob { job: Ok(job), ..(*seen).clone() }))
}

impl JobEntry {
    /// Whether its actor was sent [`Halt`].
    pub(super) fn is_halted(&self) -> bool {
        matches!(self.stage, Stage::Active(Active { halted: true, .. }))
    }

    /// Whether its pods must lose their finalizers, which would hold up its deletion, and no actor sees to that.
    pub(super) fn must_release(&self) -> bool {
        self.left_alone && self.seen.deleting && matches!(self.stage, Stage::Broken { leaving: false })
    }
}

impl ShardActor {
    /// Leaves a Job alone: its actor ends, unless that only releases pods.
    pub(super) fn leave_alone(&mut self, id: &JobId, ctx: &mut Context<Self>) {
        let Some(entry) = self.jobs.get_mut(id) else { return };
        match &mut entry.stage {
            Stage::Active(Active { leaving: true, .. }) | Stage::Broken { .. } => {}
            Stage::Active(Active { halted, actor, .. }) => {
                *halted = true;
                actor.do_send(Halt);
                entry.rebuilds.refused(self.cx.config.limits().api_backoff, self.cx.clock.now());
            }
            Stage::Passivated { .. } => entry.enter(Stage::Broken { leaving: false }, &mut self.timers),
        }
        self.release_for_deletion(id, ctx);
    }

    /// Starts an actor that releases the pods of a Job, if they must be released and no pause goes on.
    pub(super) fn release_for_deletion(&mut self, id: &JobId, ctx: &mut Context<Self>) {
        let now = self.cx.clock.now();
        let is_due = |entry: &&mut JobEntry| entry.must_release() && entry.releases.waits(now).is_none();
        if let Some(entry) = self.jobs.get_mut(id).filter(is_due) {
            entry.send(JobInput::JobGone);
            self.rebuild(id, ctx);
        }
    }

    /// The actor of a Job that is left alone has ended. Meanwhile the Job may be served again, or gone.
    pub(super) fn job_halted(&mut self, id: &JobId, ctx: &mut Context<Self>) {
        let Some(entry) = self.jobs.get_mut(id) else { return };
        let leaving = entry.is_gone();
        entry.enter(Stage::Broken { leaving }, &mut self.timers);
        self.rebuild(id, ctx);
        self.release_for_deletion(id, ctx);
    }

    /// All known pods of a Job that is left alone are released. Others may yet be shown, and are released after a pause that
    /// grows.
    pub(super) fn pods_released(&mut self, id: &JobId, ctx: &mut Context<Self>) {
        let now = self.cx.clock.now();
        let Some(entry) = self.jobs.get_mut(id) else { return };
        entry.enter(Stage::Broken { leaving: false }, &mut self.timers);
        entry.releases.refused(self.cx.config.limits().api_backoff, now);
        self.release_late_pods(id.clone(), ctx);
    }

    /// Releases the known pods once the pause is over. A timer may be early by the clock that the pause
    /// ends by.
    fn release_late_pods(&mut self, id: JobId, ctx: &mut Context<Self>) {
        let now = self.cx.clock.now();
        let Some(entry) = self.jobs.get(&id) else { return };
        if let Some(again) = entry.releases.waits(now) {
            let release = move |shard: &mut Self, ctx: &mut Context<Self>| shard.release_late_pods(id, ctx);
            self.timers.set(clock::until(again, now), ctx, release);
        } else if self.pod_owners.has_pods(&id) {
            self.release_for_deletion(&id, ctx);
        }
    }
}
