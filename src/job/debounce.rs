//! Debounce of failures: pods that fail together are evaluated together, since failing the Job or starting a
//! replacement cannot be undone.

use jiff::Timestamp;

use super::end::{self, Tally};
use super::saturating::{after, end_of_wait};
use super::state::JobState;
use super::success_policy;

/// Longest wait of the first of several failures, in debounce periods.
const MAX_PERIODS: u32 = 3;
/// Divisor of the debounce period where only a `FailJob` rule may end the Job.
const POLICY_SHARE: u32 = 10;

/// Until when pods that have just ended wait for others to be evaluated with them.
///
/// Only failures need this, and successes that meet a rule of the success policy, since a failure at the same time
/// would count for more. Other successes decide nothing that a later event would decide otherwise. If no pod is
/// active, or all have to go anyway, there is nothing to wait for. If the end of the Job is near, the wait is a
/// debounce period after the last of the pods. Where only a `FailJob` rule may end the Job, a part of that is
/// enough. Else nothing waits.
pub(super) fn until(state: &JobState, tally: Tally, now: Timestamp) -> Option<Timestamp> {
    let (spec, pods) = (&state.job.spec, &state.pods);
    let unevaluated = state.unevaluated?;
    let leaves = state.job.deleting || spec.suspend;
    let matters = pods.newly_ended().iter().any(|ended| ended.failed)
        || success_policy::first_met(&spec.success_policy, pods.succeeded_indexes()).is_some();
    if leaves || !matters || pods.active() + pods.pending_creates() == 0 {
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
    Some(after(unevaluated.last, quiet).min(at_latest)).filter(|at| *at > now)
}
