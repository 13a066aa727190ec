//! The results of indexes that a status adds: see [`IndexResults`](super::index_results::IndexResults).

use jiff::Timestamp;

use super::index_results::{IndexResults, ResultRun};
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
    let mut ended: Vec<(u32, Option<ResultRun>)> = Vec::new();
    let mut completed = IndexSet::default();
    for pod in failed.into_iter().chain(succeeded) {
        let Some(index) = pod.index else { continue };
        let succeeds = pod.phase == Phase::Succeeded;
        let is_complete = |status: &JobStatus| status.completed_indexes.contains(index);
        let was_complete = is_complete(before);
        // Only one success of an index counts.
        if succeeds && (was_complete || !is_complete(status) || !completed.insert(index)) {
            continue;
        }
        let exit_code = if succeeds { Some(0) } else { pods.exit_code(&pod.uid) };
        // A pod that was given up may succeed in spite of that.
        let tries = u32::from(!listed.contains(&pod.uid));
        ended.push((index, (!was_complete).then(|| result(state, pod, exit_code, tries, now))));
    }
    if ended.is_empty() {
        return;
    }
    let mut results = IndexResults::read(before.results.as_deref().unwrap_or_default());
    for (index, run) in ended {
        match run {
            Some(run) => results.record(index, run),
            None => results.record_surplus(index),
        }
    }
    results.bound();
    status.results = Some(results.to_string().into());
}

fn result(state: &JobState, pod: &Pod, exit_code: Option<i32>, tries: u32, now: Timestamp) -> ResultRun {
    let ended = if pod.phase.is_final() || pod.deleting { pod.finished.into() } else { now };
    let created = Timestamp::from(pod.created);
    let seconds = |from: Timestamp, to: Timestamp| to.as_second().saturating_sub(from.as_second());
    ResultRun {
        last: 0,
        exit_code,
        tries,
        created: seconds(state.job.created, created),
        took: u32::try_from(seconds(created, ended).max(0)).unwrap_or(u32::MAX),
    }
}
