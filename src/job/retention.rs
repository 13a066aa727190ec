//! Deletion of counted pods, for Jobs that request it by annotation.
//!
//! Only pods are deleted that have ended, have no finalizer and are counted in the status. Nothing that
//! happens to them has an effect any more.

use jiff::Timestamp;

use super::plan::{Plan, PodDeletion, Wait};
use super::pod::PodRef;
use super::state::JobState;

/// Adds deletions of the counted pods that the Job does not keep.
pub fn prune(state: &JobState, now: Timestamp, plan: &mut Plan) {
    let options = &state.job.options;
    if !options.deletes_counted_pods() || state.job.deleting {
        return;
    }
    let room = state.pace.at_once.saturating_sub(state.pods.counted_leaving());
    let failed = failed_pods_kept(state, plan).into_iter().flat_map(|kept| state.pods.surplus_failed(kept));
    let succeeded =
        state.job.prunes_counted(false).then(|| state.pods.counted_successes()).into_iter().flatten();
    let ready = state.pod_retries.ready(failed.chain(succeeded), |pod| &pod.uid, room, now, plan);
    plan.deletes.extend(ready.into_iter().map(|pod| PodDeletion {
        pod: PodRef { uid: pod.uid.clone(), name: pod.name.clone() },
        forget: false,
        grace: None,
    }));
}

/// How many failed pods stay. While a replacement is pending, the newest one always stays: a new owner
/// computes the back-off from it. If pods learn from those before them, all stay meanwhile.
fn failed_pods_kept(state: &JobState, plan: &Plan) -> Option<usize> {
    let limit = usize::try_from(state.job.options.failed_pods_limit?).unwrap_or(usize::MAX);
    let awaited = plan.waiting.as_ref().is_some_and(|wait| *wait != Wait::Finishing)
        || !plan.creates.is_empty()
        || state.pods.pending_creates() > 0;
    let awaited = awaited && state.job.status.finished().is_none();
    // The next owner learns from any of them.
    let least = if state.job.options.needs().lineage { usize::MAX } else { 1 };
    Some(if awaited { limit.max(least) } else { limit })
}
