//! `yardmaster.dev/restart-together`: when a pod fails or is lost, all pods of the Job are replaced together.
//!
//! Every pod belongs to an attempt, which it carries in its [`Lineage`](super::lineage::Lineage). The
//! current attempt is the highest that the status of the Job or a pod shows. A failed pod shows the attempt
//! after its own. Pods of earlier attempts are removed uncounted, and the next ones are created once all of
//! them have ended.
//!
//! Invariant: a restart counts once. The status that records a failed pod also says that its attempt is over, and the pod keeps
//! its finalizer until that is written. So the next owner of the Job finds the pod, or the status, and the same attempt.

use jiff::Timestamp;

use super::plan::{Plan, PodDeletion, Wait};
use super::state::JobState;
use super::verdict::End;
use crate::mutants::{Mutant, is};

/// Adds the removal of pods of earlier attempts. True while there are any: no pod is created meanwhile.
pub(super) fn clears_old_attempt(state: &JobState, now: Timestamp, plan: &mut Plan) -> bool {
    if state.pods.outdated() == 0 || is(Mutant::RestartLeavesOthers) {
        return false;
    }
    plan.withdraw = state.pods.pending_creates() > 0;
    let old = state.ready(state.pods.outdated_active(), now, plan);
    plan.deletes.extend(old.into_iter().map(PodDeletion::uncounted));
    plan.waiting = Some(Wait::Restarting);
    true
}

/// How often the Job may be restarted, if it restarts together.
fn most(state: &JobState) -> Option<u32> {
    let options = &state.job.options;
    options.restart_together.then(|| options.max_restarts.unwrap_or(state.job.spec.backoff_limit))
}

/// The failure of a Job that would have to be restarted too often.
pub(super) fn too_many(state: &JobState) -> Option<End> {
    let most = most(state)?;
    let message = match most {
        1 => "Job has been restarted once, which is as often as it may".to_owned(),
        most => format!("Job has been restarted {most} times, which is as often as it may"),
    };
    (state.pods.restarts_together() > most).then(|| End::failure("MaxRestartsExceeded", message))
}

/// Whether one more failed pod would fail the Job, if it restarts together.
pub(super) fn is_last_attempt(state: &JobState) -> Option<bool> {
    Some(state.pods.restarts_together() >= most(state)?)
}

impl JobState {
    /// Whether the successes of pods wait to be recorded. If the Job is restarted, they have been in vain, and a status cannot
    /// take them back. A Job that is being deleted restarts no more, and its pods have to be released.
    pub(super) fn holds_successes(&self) -> bool {
        let options = &self.job.options;
        options.restart_together && !options.restart_keep_succeeded && !self.job.deleting
    }

    /// Whether the status does not say yet how often the Job was restarted. A restart too many fails the Job, and a Job that is
    /// being deleted restarts no more.
    pub(super) fn has_restarted(&self) -> bool {
        let restarts = self.pods.restarts_together();
        let restarts_again = !self.job.deleting && most(self).is_some_and(|most| restarts <= most);
        restarts_again && restarts > self.job.status.restarts && !is(Mutant::RestartNotWritten)
    }
}
