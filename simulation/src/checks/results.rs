//! Jobs that keep the results of their indexes: each pod that is counted is one try of its index.

use yardmaster::job::index_results::IndexResults;

use super::Promise;
use crate::ledger::JobFacts;

/// How the results of a finished Job differ from its counts, if they do.
pub(super) fn differ(job: &JobFacts) -> Option<(Promise, String)> {
    let annotation = |name: &str| job.object["metadata"]["annotations"].get(format!("yardmaster.dev/{name}"));
    if job.meddled || job.sizes.len() > 1 || annotation("index-results")? != "true" {
        return None;
    }
    let text = annotation("results").and_then(|text| text.as_str()).unwrap_or_default();
    let results = IndexResults::read(text);
    let name = job.name().1;
    let completions = job.object["spec"]["completions"].as_u64().unwrap_or(0) as u32;
    let fails = |index: &u32| results.of(*index).and_then(|run| run.exit_code) != Some(0);
    if let Some(index) = (0..completions).filter(|index| job.is_completed(*index)).find(fails) {
        return Some((
            Promise::Lost,
            format!("{name}: index {index} has succeeded, and its result is {text:?}"),
        ));
    }
    let tries = results
        .runs()
        .map(|(first, run)| u64::from(run.last - first + 1) * u64::from(run.tries))
        .sum::<u64>();
    let counted = job.count("succeeded") + job.count("failed");
    let promise = if tries < counted { Promise::Lost } else { Promise::Doubled };
    (tries != counted)
        .then(|| (promise, format!("{name}: {tries} tries of {counted} counted pods: {text:?}")))
}
