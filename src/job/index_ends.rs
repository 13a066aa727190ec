//! The results of indexes that a status adds: see [`IndexResults`](super::index_results::IndexResults).

use std::sync::Arc;

use jiff::Timestamp;

use super::index_results::ResultRun;
use super::index_set::IndexSet;
use super::pod::{Phase, Pod};
use super::state::JobState;
use super::status::JobStatus;
use super::uid::UidSet;

/// Adds the results of the pods that a status records and the one before did not.
pub(super) fn record(state: &JobState, status: &mut JobStatus, now: Timestamp) {
    if !state.job.options.index_results || state.job.spec.completion.indexes().is_none() {
        return;
    }
    let (pods, before) = (&state.pods, &state.job.status);
    let listed: UidSet = before.uncounted.iter().flat_map(|pods| &pods.failed).cloned().collect();
    let failed = status.uncounted.iter().flat_map(|pods| &pods.failed);
    let mut failed: Vec<&Pod> =
        failed.filter(|uid| !listed.contains(uid)).filter_map(|uid| pods.get(uid)).collect();
    failed.sort_by_key(|pod| (pod.finished, pod.uid.clone()));
    let succeeded = pods.to_record().filter(|pod| pod.phase == Phase::Succeeded);
    let mut ended: Vec<(u32, ResultRun)> = Vec::new();
    let mut completed = IndexSet::default();
    for pod in failed.into_iter().chain(succeeded) {
        let Some(index) = pod.index else { continue };
        let succeeds = pod.phase == Phase::Succeeded;
        let is_complete = |status: &JobStatus| status.completed_indexes.contains(index);
        let is_new = is_complete(status) && !is_complete(before);
        // Only one success of an index counts.
        let counts = !succeeds || (is_new && completed.insert(index));
        let exit_code = if succeeds { Some(0) } else { pods.exit_code(&pod.uid) };
        // The index has succeeded before: this pod was surplus.
        let exit_code = if is_complete(before) { Some(0) } else { exit_code };
        if counts {
            ended.push((index, result(state, pod, exit_code, now)));
        }
    }
    if ended.is_empty() {
        return;
    }
    let results = Arc::make_mut(status.results.get_or_insert_default());
    ended.into_iter().for_each(|(index, run)| results.record(index, run));
    results.bound();
}

fn result(state: &JobState, pod: &Pod, exit_code: Option<i32>, now: Timestamp) -> ResultRun {
    let ended = if pod.phase.is_final() || pod.deleting { pod.finished.into() } else { now };
    let created = Timestamp::from(pod.created);
    let seconds = |from: Timestamp, to: Timestamp| to.as_second().saturating_sub(from.as_second());
    ResultRun {
        last: 0,
        exit_code,
        tries: 1,
        created: seconds(state.job.created, created),
        took: u32::try_from(seconds(created, ended).max(0)).unwrap_or(u32::MAX),
    }
}
