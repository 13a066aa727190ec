//! A Job as its shard keeps it, and the stages of its actor.

use std::sync::Arc;
use std::time::Instant;

use actix::Addr;

use crate::actors::jobs::job_actor::{Halt, JobActor};
use crate::actors::messages::inbox::Inbox;
use crate::actors::messages::job_input::{JobInput, ListOrigin};
use crate::actors::shards::shard_actor::timers::{Timer, Timers};
use crate::cluster::wire::{ObservedJob, ObservedPod};
use crate::job::passivation::concerns;
use crate::job::retry::Retry;

/// A Job of the shard.
pub(in super::super) struct JobEntry {
    /// The Job as last seen. Its actor starts from it. If it is left alone, it has no lists.
    pub(super) seen: Arc<ObservedJob>,
    /// The Job is left alone while it exists.
    pub(super) left_alone: bool,
    pub(super) stage: Stage,
    /// The pauses between new actors: after panics, and while its author has it left alone again and again.
    pub(super) rebuilds: Retry,
    /// The pauses between releases of its pods while it is left alone and being deleted: a webhook may undo each.
    pub(super) releases: Retry,
}

pub(super) enum Stage {
    /// The Job has an actor.
    Active(Active),
    /// The Job is rebuilt once it has waited after a panic, or is no longer left alone. `leaving`: the Job no
    /// longer exists.
    Broken { leaving: bool },
    /// The Job has finished and needs nothing until the timer rings.
    Passivated { timer: Option<Timer> },
}

pub(super) struct Active {
    pub(super) inbox: Inbox<JobInput>,
    pub(super) actor: Addr<JobActor>,
    /// The Job no longer exists, or is never served again; its actor releases its pods.
    pub(super) leaving: bool,
    /// The actor was sent [`Halt`].
    pub(super) halted: bool,
    /// Its pods are being listed for it alone.
    pub(super) awaits_list: bool,
}

/// An actor that is alone decides nothing more.
impl Drop for Active {
    fn drop(&mut self) {
        self.actor.do_send(Halt);
    }
}

impl Stage {
    pub(super) fn leave(self, timers: &mut Timers) {
        if let Self::Passivated { timer: Some(timer) } = self {
            timers.cancel(timer);
        }
    }
}

impl JobEntry {
    /// The Job as last seen.
    pub(in super::super) fn seen(&self) -> &ObservedJob {
        &self.seen
    }

    /// Whether the Job has no actor and needs none.
    pub(in super::super) fn is_passivated(&self) -> bool {
        matches!(self.stage, Stage::Passivated { .. })
    }

    pub(super) fn enter(&mut self, stage: Stage, timers: &mut Timers) {
        std::mem::replace(&mut self.stage, stage).leave(timers);
    }

    /// Its actor, if it has one.
    pub(in super::super) fn actor(&self) -> Option<&Addr<JobActor>> {
        match &self.stage {
            Stage::Active(active) => Some(&active.actor),
            Stage::Broken { .. } | Stage::Passivated { .. } => None,
        }
    }

    /// Sends an input from a watch event that arrived at `arrived`.
    pub(super) fn send_event(&mut self, input: JobInput, arrived: Instant) {
        if let Stage::Active(active) = &self.stage {
            active.inbox.push_event(input, arrived);
        }
    }

    /// Sends the Job as a watch event showed it that arrived at `arrived`.
    pub(super) fn send_reading(&mut self, job: Arc<ObservedJob>, arrived: Instant) {
        if let Stage::Active(active) = &self.stage {
            active.inbox.put_latest(JobInput::Job(job), arrived);
        }
    }

    /// Sends an input to the actor. A Job without an actor gets all it needs when its actor starts.
    pub(in super::super) fn send(&mut self, input: JobInput) {
        let gone = matches!(input, JobInput::JobGone);
        match &mut self.stage {
            Stage::Active(active) => {
                active.leaving |= gone;
                match input {
                    JobInput::PodsListed { origin: ListOrigin::Memory, .. } => active.inbox.push_list(input),
                    _ => active.inbox.push(input),
                }
            }
            Stage::Broken { leaving } => *leaving |= gone,
            Stage::Passivated { .. } => {}
        }
    }

    /// Whether its pods are being listed for it alone. Until they are, the shard's own lists are not complete for it.
    pub(in super::super) fn awaits_pods(&self) -> bool {
        matches!(&self.stage, Stage::Active(active) if active.awaits_list)
    }

    /// Its pods are being listed for it alone, or have been.
    pub(in super::super) fn awaits_list(&mut self, awaits: bool) {
        if let Stage::Active(active) = &mut self.stage {
            active.awaits_list = awaits;
        }
    }

    /// Whether the Job no longer exists.
    pub(in super::super) fn is_gone(&self) -> bool {
        match &self.stage {
            Stage::Active(Active { leaving, .. }) | Stage::Broken { leaving } => *leaving,
            Stage::Passivated { .. } => false,
        }
    }

    /// Whether a pod may give the Job something to do, also if it is finished.
    pub(super) fn concerns_job(&self, pod: &ObservedPod) -> bool {
        self.seen.job.as_ref().is_ok_and(|job| concerns(job, &pod.pod, self.selects(pod)))
    }

    /// Whether its selector selects a pod.
    pub(in super::super) fn selects(&self, pod: &ObservedPod) -> bool {
        self.seen.job.as_ref().is_ok_and(|job| pod.labels.match_selector(&job.spec.selector, true))
    }

    pub(in super::super) fn is_finished(&self) -> bool {
        self.seen.job.as_ref().is_ok_and(|job| job.status.finished().is_some())
    }
}
