//! Debounce of ends: pods that end together are evaluated together, since ending the Job or starting a replacement cannot be
//! undone.

use jiff::Timestamp;

use super::end::{self, Tally};
use super::saturating::{after, end_of_wait};
use super::state::JobState;

/// Longest wait of the first of several failures, in debounce periods.
const MAX_PERIODS: u32 = 3;
/// Divisor of the debounce period where only a `FailJob` rule may end the Job.
const POLICY_SHARE: u32 = 10;

/// Until when pods that have just ended wait for others to be evaluated with them.
///
/// Only failures need this, and successes that end the Job, since a failure at the same time would count for more, and another
/// success would not count any more. Other successes decide nothing that a later event would decide otherwise. If no pod is
/// left that may end, being deleted or not, or if active pods have to go anyway, there is nothing to wait for. If the end of the
/// Job is near, the wait is a debounce period after the last of the pods. Where only a `FailJob` rule may end the Job, a part of
/// that is enough. Too many restarts wait likewise, since the pod may succeed after all. Nothing else waits.
pub(super) fn until(state: &JobState, tally: Tally, now: Timestamp) -> Option<Timestamp> {
    let pods = &state.pods;
    let removes_pods = state.job.spec.suspend && pods.active() > 0;
    if state.job.deleting || removes_pods || pods.undecided() + pods.pending_creates() == 0 {
        return None;
    }
    let restarted = state.restarted_too_often.filter(|_| state.restarts_too_often());
    let restarted = restarted.map(|since| end_of_wait(since, state.limits.debounce_period, now));
    ended_until(state, tally, now).max(restarted).filter(|at| *at > now)
}

/// Until when pods that have just ended wait for others.
fn ended_until(state: &JobState, tally: Tally, now: Timestamp) -> Option<Timestamp> {
    let (spec, pods) = (&state.job.spec, &state.pods);
    let unevaluated = state.unevaluated?;
    let succeeds =
        || end::success_policy_met(state).is_some() || end::completions_reached(state, tally).is_some();
    if !pods.newly_ended().iter().any(|ended| ended.failed) && !succeeds() {
        return None;
    }
    let period = state.limits.debounce_period;
    let quiet = if end::is_near(state, tally) {
        period
    } else if spec.may_fail_by_policy() {
        period / POLICY_SHARE
    } else {
        return None;
    };
    let at_latest = end_of_wait(unevaluated.first, period * MAX_PERIODS, now);
    Some(after(unevaluated.last, quiet).min(at_latest))
}
