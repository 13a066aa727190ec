//! The records of played faults.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::ProcessFault;

/// A fault that was played.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
pub(crate) struct Record {
    pub(crate) fault: ProcessFault,
    /// The process or connection that it met.
    pub(crate) target: String,
    /// Begin, in seconds from the start of the load.
    pub(crate) at_s: f64,
    /// Its own length, in seconds.
    pub(crate) lasted_s: f64,
    /// Seconds from its begin until work was done as promptly as before and running replicas owned all
    /// shards. Absent if that took more than three minutes after its end.
    pub(crate) recovered_after_s: Option<f64>,
    /// Shards that have another owner than before.
    pub(crate) shards_moved: usize,
    /// Observations of the fault itself.
    pub(crate) observed: String,
}

/// A line with the fault, its begin, its length and the recovery.
impl std::fmt::Display for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { fault, target, at_s, lasted_s, shards_moved, observed, .. } = self;
        let recovered = match self.recovered_after_s {
            Some(seconds) => format!("recovered after {seconds:.1} s"),
            None => "NOT RECOVERED".to_owned(),
        };
        write!(
            f,
            "{at_s:7.1} s {fault} ({target}) for {lasted_s:.1} s: {recovered}, {shards_moved} shards moved; {observed}"
        )
    }
}

/// A Markdown table: how often each kind was played, how long it lasted, and the times until recovery.
pub(crate) fn table(records: &[Record]) -> String {
    let mut kinds: BTreeMap<ProcessFault, Vec<&Record>> = BTreeMap::new();
    for record in records {
        kinds.entry(record.fault).or_default().push(record);
    }
    let mut table =
        "| fault | times | lasted | recovered after: median | at most | shards moved, at most |\n\
                     |---|---|---|---|---|---|\n"
            .to_owned();
    for (fault, records) in kinds {
        let mut times: Vec<f64> = records.iter().filter_map(|record| record.recovered_after_s).collect();
        times.sort_by(f64::total_cmp);
        let never = records.len() > times.len();
        let seconds = |time: Option<&f64>| time.map_or_else(|| "-".to_owned(), |time| format!("{time:.1} s"));
        let lasted = records.iter().map(|record| record.lasted_s).fold(0.0, f64::max);
        let moved = records.iter().map(|record| record.shards_moved).max().unwrap_or_default();
        // Writing to a string does not fail.
        let _ = writeln!(
            table,
            "| {fault} | {} | {lasted:.1} s | {} | {} | {moved} |",
            records.len(),
            seconds(times.get(times.len() / 2)),
            if never { "not at all".to_owned() } else { seconds(times.last()) },
        );
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(recovered_after_s: Option<f64>) -> Record {
        Record {
            fault: ProcessFault::HalfOpen,
            target: "replica-1: GET /api/v1/pods (watch)".into(),
            at_s: 12.5,
            lasted_s: 20.0,
            recovered_after_s,
            shards_moved: 3,
            observed: "17 bytes swallowed".into(),
        }
    }

    #[test]
    fn a_line_tells_what_when_and_how_long() {
        let line = record(Some(21.25)).to_string();
        for part in ["12.5 s half-open", "replica-1", "for 20.0 s", "after 21.2 s", "3 shards", "17 bytes"] {
            assert!(line.contains(part), "{part}: {line}");
        }
        assert!(record(None).to_string().contains("NOT RECOVERED"));
    }

    #[test]
    fn the_table_has_a_row_for_each_kind() {
        let some = [record(Some(3.0)), record(Some(1.0)), record(Some(2.0))];
        assert!(
            table(&some).ends_with("| half-open | 3 | 20.0 s | 2.0 s | 3.0 s | 3 |\n"),
            "{}",
            table(&some)
        );
        assert!(table(&[record(None)]).ends_with("| - | not at all | 3 |\n"));
    }
}
