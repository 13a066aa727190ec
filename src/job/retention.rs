//! Deletion of counted pods, for Jobs that request it by annotation.
//!
//! Only pods are deleted that have ended, have no finalizer and are counted in the status. Nothing that
//! happens to them has an effect any more. The same holds without indexes: if a pod has no finalizer, and
//! `uncountedTerminatedPods` does not list it, it has been counted, or never will be.

use std::time::Duration;

use jiff::Timestamp;

use super::plan::{Plan, PodDeletion, Wait};
use super::pod::PodRef;
use super::pod_set::CountedPod;
use super::saturating::after;
use super::state::JobState;
use super::uid::UidSet;

/// Adds deletions of the counted pods that the Job does not keep.
pub fn prune(state: &JobState, now: Timestamp, plan: &mut Plan) {
    let options = &state.job.options;
    if !options.deletes_counted_pods() || state.job.deleting {
        return;
    }
    let room = state.pace.at_once.saturating_sub(state.pods.counted_leaving());
    let least = Least::of(state, plan);
    let most = |limit: Option<u32>| limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let failed =
        most(options.failed_pods_limit).map(|limit| state.pods.surplus_failed(limit.max(least.failed)));
    let finished = most(options.max_finished_pods).map(|limit| {
        let surplus = state.pods.surplus_finished(limit.max(least.finished));
        surplus.filter(move |pod| !(pod.failed && least.failed == usize::MAX))
    });
    let succeeded = succeeded(state, now, plan);
    let all = failed.into_iter().flatten().chain(finished.into_iter().flatten()).chain(succeeded);
    // More than one of the options may want the same pod deleted.
    let mut seen = UidSet::default();
    let all = all.filter(|pod| seen.insert(pod.uid.clone()));
    let ready = state.pod_retries.ready(all, |pod| &pod.uid, room, now, plan);
    plan.deletes.extend(ready.into_iter().map(|pod| PodDeletion {
        pod: PodRef { uid: pod.uid.clone(), name: pod.name.clone() },
        forget: false,
        grace: None,
    }));
}

/// The succeeded pods whose time has come. The plan looks again when that of the next one comes.
fn succeeded<'a>(
    state: &'a JobState,
    now: Timestamp,
    plan: &mut Plan,
) -> impl Iterator<Item = &'a CountedPod> + use<'a> {
    let kept_for = state.job.options.prune_after.unwrap_or(Duration::ZERO);
    let due = move |pod: &CountedPod| after(pod.finished.into(), kept_for);
    let counted =
        || state.job.prunes_succeeded().then(|| state.pods.counted_successes()).into_iter().flatten();
    if !kept_for.is_zero()
        && let Some(next) = counted().map(due).find(|at| *at > now)
    {
        plan.wake(next);
    }
    counted().take_while(move |pod| kept_for.is_zero() || due(pod) <= now)
}

/// How many pods stay at least.
#[derive(Clone, Copy, Debug)]
struct Least {
    failed: usize,
    finished: usize,
}

impl Least {
    /// While a replacement is pending, the newest pod always stays: a new owner computes the back-off from it. If pods learn
    /// from those before them, all failed ones stay meanwhile.
    fn of(state: &JobState, plan: &Plan) -> Self {
        let awaited = plan.waiting.as_ref().is_some_and(|wait| *wait != Wait::Finishing)
            || !plan.creates.is_empty()
            || state.pods.pending_creates() > 0;
        let awaited = awaited && state.job.status.finished().is_none();
        let newest = usize::from(awaited);
        // The next owner learns from any of them.
        let learns = awaited && state.job.options.needs().lineage();
        Self { failed: if learns { usize::MAX } else { newest }, finished: newest }
    }
}
