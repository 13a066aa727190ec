//! How the indexes of a Job have ended, as its annotation says (`yardmaster.dev/index-results`).

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1 as batch;
use serde::Serialize;

use crate::cli::duration;
use crate::cli::line::Line;
use crate::cli::table::{Column, Table};
use crate::job::index_results::{IndexResults, ResultRun};
use crate::job::names::RESULTS_ANNOTATION;

/// Adjacent indexes with the same result.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct IndexResult {
    /// An index, or the first and the last one: `0-3`.
    pub(super) indexes: String,
    /// Absent if a pod has ended without one.
    pub(super) exit_code: Option<i32>,
    /// How many pods of each index were counted.
    pub(super) tries: u32,
    /// When the first of their last pods was created.
    pub(super) created: Option<Timestamp>,
    /// When the last of these ended.
    pub(super) ended: Option<Timestamp>,
}

impl IndexResult {
    fn of(first: u32, run: &ResultRun, created: Timestamp) -> Self {
        let after = |seconds: i64| created.checked_add(SignedDuration::from_secs(seconds)).ok();
        Self {
            indexes: if run.last > first { format!("{first}-{}", run.last) } else { first.to_string() },
            exit_code: run.exit_code,
            tries: run.tries,
            created: after(run.created),
            ended: after(run.created.saturating_add(run.took.into())),
        }
    }
}

/// The results that the annotation of a Job has.
pub(super) fn of(job: &batch::Job) -> Option<Vec<IndexResult>> {
    let text = job.metadata.annotations.as_ref()?.get(RESULTS_ANNOTATION)?;
    let created = job.metadata.creation_timestamp.as_ref()?.0;
    let results = IndexResults::read(text);
    if results.is_cut() {
        tracing::warn!(
            "the annotation {RESULTS_ANNOTATION} had no room for all results: some indexes are missing"
        );
    }
    Some(results.runs().map(|(first, run)| IndexResult::of(first, run, created)).collect())
}

/// The results as a table.
pub(super) fn lines(results: Option<&[IndexResult]>, width: Option<usize>) -> Vec<Line> {
    let Some(results) = results.filter(|results| !results.is_empty()) else {
        let hint = "No results of indexes: the annotation yardmaster.dev/index-results: \"true\" of a Job keeps them.";
        return vec![Line::from(hint.to_owned())];
    };
    let mut table = Table::new([
        Column::whole("INDEXES", 0),
        Column::whole("EXIT CODE", 0),
        Column::whole("TRIES", 0),
        Column::whole("CREATED", 2),
        Column::whole("TOOK", 1),
    ]);
    for result in results {
        let took = result.created.zip(result.ended).map(|(from, to)| to.duration_since(from).as_secs_f64());
        table.row([
            result.indexes.clone(),
            result.exit_code.map_or_else(|| "-".to_owned(), |code| code.to_string()),
            result.tries.to_string(),
            result.created.map(|time| time.to_string()).unwrap_or_default(),
            took.map(duration::seconds).unwrap_or_default(),
        ]);
    }
    table.lines(width).into_iter().map(Line::from).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn the_annotation_becomes_a_table() {
        let job = json!({"metadata": {
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {"yardmaster.dev/results": "0-3:0@12+35 4:137x2@80+3 9:-@90+0"},
        }});
        let results = of(&serde_json::from_value(job).unwrap()).unwrap();
        let text: Vec<_> = lines(Some(&results), None).iter().map(|line| line.text().to_owned()).collect();
        let cells: Vec<Vec<_>> = text.iter().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(cells[0], ["INDEXES", "EXIT", "CODE", "TRIES", "CREATED", "TOOK"]);
        assert_eq!(cells[1], ["0-3", "0", "1", "2026-01-01T00:00:12Z", "35s"]);
        assert_eq!(cells[2], ["4", "137", "2", "2026-01-01T00:01:20Z", "3s"]);
        assert_eq!(cells[3][..3], ["9", "-", "1"]);
        let none = of(&serde_json::from_value(json!({"metadata": {}})).unwrap());
        assert!(lines(none.as_deref(), None)[0].text().contains("index-results"));
    }
}
