//! `yardmaster.dev/after` and `after-any`: a Job that has not begun waits for the ends of other Jobs of its namespace.
//!
//! A predecessor that has ended as wanted may be gone when the last one ends. So while the Job waits, an annotation names the
//! predecessors that have ended. It is written with the status, so every owner of the Job decides alike. A Job that has begun waits no more,
//! whatever becomes of its predecessors: its status and its pods show the beginning.
//!
//! As with `afterok` of Slurm, a Job whose predecessor has failed stays, and says so. Its users may run the predecessor again.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::plan::{JobEvent, Plan, Wait};
use super::predecessors::{Hindered, Hindrance, Obstacle, OrderLook, is_met};
use super::saturating::end_of_wait;
use super::state::JobState;
use super::verdict;

/// How long an obstacle lasts before an Event reports it: Jobs that are created together come in any order.
const LASTS: Duration = Duration::from_secs(10);

impl JobState {
    /// Whether the Job is after others and has not begun: its predecessors have to be looked at before the next plan.
    pub fn awaits_order(&self) -> bool {
        let (job, status) = (&self.job, &self.job.status);
        job.options.after.is_some()
            && !self.gone
            && job.may_create_pods()
            && verdict::announced(status).is_none()
            && !self.has_begun()
    }

    /// Whether pods were created for the Job, or its start is written.
    fn has_begun(&self) -> bool {
        let status = &self.job.status;
        status.start_time.is_some()
            || status.succeeded > 0
            || status.failed > 0
            || status.names_used > 0
            || status.uncounted.as_ref().is_some_and(|listed| !listed.is_empty())
            || !self.pods.is_empty()
            || self.pods.pending_creates() + self.adoptions_in_flight > 0
    }

    /// Whether a predecessor of this name has ended as wanted: the status names it, or an earlier look has found it.
    pub fn was_met(&self, name: &str) -> bool {
        is_met(self.job.status.after_met.as_deref(), name)
            || is_met(self.predecessors_met().map(|met| &**met), name)
    }

    /// Applies a look at the predecessors.
    pub fn order_seen(&mut self, look: OrderLook) {
        self.order = Some(look);
    }

    /// Whether nothing is done for the Job until others have ended. Before the first look nothing is known.
    pub(super) fn is_held_by_order(&self) -> bool {
        self.order.as_ref().is_none_or(|look| look.obstacle.is_some()) && self.awaits_order()
    }

    /// The predecessors that have ended as wanted, as a status is to name them.
    pub(super) fn predecessors_met(&self) -> Option<&Arc<str>> {
        self.order.as_ref()?.met.as_ref()
    }

    /// Whether the Job goes on to wait, and the status does not name all predecessors that have ended as wanted.
    pub(super) fn has_met_more(&self) -> bool {
        let met = self.predecessors_met();
        met.is_some() && met != self.job.status.after_met.as_ref() && self.is_held_by_order()
    }

    /// Records the obstacle that a plan has found.
    pub(super) fn note_obstacle(&mut self, plan: &Plan, now: Timestamp) {
        let Some(Wait::After(by)) = &plan.waiting else {
            self.hindered = None;
            return;
        };
        let known = self.hindered.take().filter(|known| known.by == *by);
        let Hindered { since, told, .. } =
            known.unwrap_or(Hindered { by: by.clone(), since: now, told: false });
        let told = told || plan.events.iter().any(|event| *event.reason == *by.cause.reason());
        self.hindered = Some(Hindered { by: by.clone(), since, told });
    }
}

/// Adds the wait for the predecessors to the plan, and the Event about an obstacle that lasts.
pub(super) fn wait(state: &JobState, now: Timestamp, plan: &mut Plan) {
    let first = || {
        let name = state.job.options.after.iter().flat_map(|after| after.iter()).next();
        name.map(|(name, _)| Obstacle { cause: Hindrance::Unfinished, job: name.into() })
    };
    let seen = state.order.as_ref().and_then(|look| look.obstacle.clone());
    let Some(obstacle) = seen.or_else(first) else { return };
    let known = state.hindered.as_ref().filter(|known| known.by == obstacle);
    if obstacle.cause > Hindrance::Unfinished && !known.is_some_and(|known| known.told) {
        let at = end_of_wait(known.map_or(now, |known| known.since), LASTS, now);
        if at > now {
            plan.wake(at);
        } else {
            plan.events.push(JobEvent::warning(obstacle.cause.reason(), obstacle.to_string()));
        }
    }
    plan.waiting = Some(Wait::After(obstacle));
}
