//! `yardmaster.dev/after` and `after-any`: a Job that has not begun waits for the ends of other Jobs of its namespace.
//!
//! A predecessor that has ended as wanted may be gone when the last one ends. So while the Job waits, an annotation names the
//! predecessors that have ended. It is written with the status, so every owner of the Job decides alike. A Job that has begun waits no more,
//! whatever becomes of its predecessors: its status and its pods show the beginning.
//!
//! As with `afterok` of Slurm, a Job whose predecessor has failed stays, and says so. Its users may run the predecessor again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::plan::{JobEvent, Plan, Wait};
use super::predecessors::{CycleSearches, Hindered, Hindrance, Obstacle, OrderLook, names_met};
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

    /// The predecessors that have ended as wanted: the status names them, or an earlier look has found them.
    pub fn names_met(&self) -> BTreeSet<&str> {
        let written = names_met(self.job.status.after_met.as_deref());
        written.chain(names_met(self.predecessors_met().map(|met| &**met))).collect()
    }

    /// Whether the next look at the predecessors is to search for a cycle. The search then counts as made.
    pub fn begins_cycle_search(&mut self, now: Timestamp) -> bool {
        match &mut self.order.searches {
            Some(searches) if searches.next(now) > now => return false,
            Some(searches) => searches.last = now,
            none => *none = Some(CycleSearches { first: now, last: now }),
        }
        true
    }

    /// The predecessor that waits for this Job, as the last look has found.
    pub fn known_cycle(&self) -> Option<&str> {
        let obstacle = self.order.look.as_ref()?.obstacle.as_ref()?;
        (obstacle.cause == Hindrance::Cycle).then_some(&*obstacle.job)
    }

    /// The Job may have other predecessors than before.
    pub fn order_changed(&mut self) {
        self.order.searches = None;
    }

    /// Applies a look at the predecessors.
    pub fn order_seen(&mut self, look: OrderLook) {
        self.order.look = Some(look);
    }

    /// Whether nothing is done for the Job until others have ended. Before the first look nothing is known.
    pub(super) fn is_held_by_order(&self) -> bool {
        self.order.look.as_ref().is_none_or(|look| look.obstacle.is_some()) && self.awaits_order()
    }

    /// The predecessors that have ended as wanted, as a status is to name them.
    pub(super) fn predecessors_met(&self) -> Option<&Arc<str>> {
        self.order.look.as_ref()?.met.as_ref()
    }

    /// Whether the Job goes on to wait, and the status does not name all predecessors that have ended as wanted.
    pub(super) fn has_met_more(&self) -> bool {
        let met = self.predecessors_met();
        met.is_some() && met != self.job.status.after_met.as_ref() && self.is_held_by_order()
    }

    /// Records the obstacle that a plan has found.
    pub(super) fn note_obstacle(&mut self, plan: &Plan, now: Timestamp) {
        let Some(Wait::After(by)) = &plan.waiting else {
            self.order.hindered = None;
            return;
        };
        let known = self.order.hindered.take().filter(|known| known.by == *by);
        let Hindered { since, told, .. } =
            known.unwrap_or(Hindered { by: by.clone(), since: now, told: false });
        let told = told || plan.events.iter().any(|event| *event.reason == *by.cause.reason());
        self.order.hindered = Some(Hindered { by: by.clone(), since, told });
    }
}

/// Adds the wait for the predecessors to the plan, and the Event about an obstacle that lasts.
pub(super) fn wait(state: &JobState, now: Timestamp, plan: &mut Plan) {
    let first = || {
        let name = state.job.options.after.iter().flat_map(|after| after.iter()).next();
        name.map(|(name, _)| Obstacle { cause: Hindrance::Unfinished, job: name.into() })
    };
    let seen = state.order.look.as_ref().and_then(|look| look.obstacle.clone());
    let Some(obstacle) = seen.or_else(first) else { return };
    let known = state.order.hindered.as_ref().filter(|known| known.by == obstacle);
    if obstacle.cause > Hindrance::Unfinished && !known.is_some_and(|known| known.told) {
        let at = end_of_wait(known.map_or(now, |known| known.since), LASTS, now);
        if at > now {
            plan.wake(at);
        } else {
            plan.events.push(JobEvent::warning(obstacle.cause.reason(), obstacle.to_string()));
        }
    }
    if let Some(searches) = state.order.searches {
        plan.wake(searches.next(now));
    }
    plan.waiting = Some(Wait::After(obstacle));
}
