//! The answer to "my Job failed, what now": the same in `status JOB` and at the end of `run`.

use jiff::Timestamp;

use super::{FailedPod, Failures};
use crate::cli::duration::ago;
use crate::cli::fit::{Shorten, clip, shorten};
use crate::cli::log_tail::marked;
use crate::cli::table::{Column, Table};
use crate::cli::untrusted::Untrusted;

/// The explanation of a Job's failures.
#[derive(Clone, Debug)]
pub(in crate::cli) struct Answer<'a> {
    /// `status.failed`.
    pub(in crate::cli) failed: u64,
    /// Failed pods that the Job may have, if it limits them.
    pub(in crate::cli) backoff_limit: Option<i32>,
    /// Failed pods that each index may have, if the Job limits them.
    pub(in crate::cli) backoff_limit_per_index: Option<i32>,
    /// `status.failedIndexes`.
    pub(in crate::cli) failed_indexes: Option<&'a Untrusted>,
    /// Failed indexes that the Job may have, if it limits them.
    pub(in crate::cli) max_failed_indexes: Option<i32>,
    /// The pods that failed, as far as they are known.
    pub(in crate::cli) failures: Option<&'a Failures>,
    /// Commands that tell more.
    pub(in crate::cli) next: Vec<String>,
}

impl Answer<'_> {
    /// How much failed, and why, each with its name.
    pub(in crate::cli) fn facts(&self) -> Vec<(&'static str, String)> {
        let mut facts = vec![("Failed", with_limit(self.failed.to_string(), self.backoff_limit))];
        if let Some(indexes) = self.failed_indexes {
            facts.push(("Failed index", with_limit(indexes.to_string(), self.max_failed_indexes)));
        }
        let Some(failures) = self.failures.filter(|failures| failures.pods > 0) else { return facts };
        // Pods may be gone, and a failed pod of an index may stay uncounted until its index is tried again.
        let part = match failures.pods {
            pods if pods < self.failed => format!(" (of the {pods} failed pods that are left)"),
            pods if pods > self.failed => {
                format!(" (with {} that the Job does not count yet)", pods - self.failed)
            }
            _ => String::new(),
        };
        facts.push(("Causes", format!("{}{part}", failures.histogram())));
        facts.push(("Nodes", failures.by_node()));
        facts
    }

    /// The pods that failed last, the ends of their logs, and the next commands. No line is wider than `width`.
    pub(in crate::cli) fn evidence(&self, now: Timestamp, width: Option<usize>) -> Vec<String> {
        let Some(failures) = self.failures.filter(|failures| !failures.last.is_empty()) else {
            return Vec::new();
        };
        let mut lines = self.pods(failures, now).lines(width);
        for failed in &failures.last {
            // The spaces of a log stay as they are.
            let fit = |line: String| width.map_or(line.clone(), |width| shorten(&line, width, Shorten::End));
            lines.extend(log(failed).into_iter().map(fit));
        }
        if !self.next.is_empty() {
            lines.push(String::new());
        }
        for (number, next) in self.next.iter().enumerate() {
            let name = if number == 0 { "Next:" } else { "     " };
            lines.push(format!(
                "{name} {}",
                clip(next, width.map(|width| width.saturating_sub(6)), Shorten::End)
            ));
        }
        lines
    }

    fn pods(&self, failures: &Failures, now: Timestamp) -> Table {
        let mut table = Table::new([
            Column::names("FAILED POD", 16, 0),
            Column::whole("INDEX", 2),
            Column::whole("TRY", 4),
            Column::names("NODE", 8, 3),
            Column::whole("ENDED", 1),
            Column::text("CAUSE", 16, 0),
        ]);
        let tries = self.backoff_limit_per_index.map(|limit| format!("/{}", i64::from(limit) + 1));
        for failed in &failures.last {
            let attempt =
                failed.attempt.map(|attempt| format!("{attempt}{}", tries.as_deref().unwrap_or_default()));
            table.row([
                failed.pod.clone(),
                failed.index.map(|index| index.to_string()).unwrap_or_default(),
                attempt.unwrap_or_default(),
                failed.node.as_ref().map(Untrusted::to_string).unwrap_or_default(),
                failed.ended.map(|ended| ago(ended, now)).unwrap_or_default(),
                failed.cause.to_string(),
            ]);
        }
        table
    }
}

/// A number of failures, with the limit of them.
fn with_limit(failed: String, limit: Option<i32>) -> String {
    match limit {
        Some(limit) => format!("{failed} (at most {limit})"),
        None => failed,
    }
}

/// The end of a pod's log below its name.
fn log(failed: &FailedPod) -> Vec<String> {
    let lines = failed.log.as_deref().filter(|lines| !lines.is_empty());
    let Some(lines) = lines else { return Vec::new() };
    let title = format!("The log of {} ends with", failed.pod);
    [String::new(), title].into_iter().chain(marked(lines)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;
    use crate::job::names::INDEX_FAILURE_COUNT;

    fn failures() -> Failures {
        let mut failures = Failures::default();
        for (name, code, node) in [("j-3-a", 137, "gpu-7"), ("j-3-b", 137, "gpu-7"), ("j-5-c", 1, "gpu-2")] {
            let end = json!({"exitCode": code, "reason": "Error", "finishedAt": "2026-01-01T00:00:11Z"});
            let main = json!({"name": "main", "state": {"terminated": end}});
            let metadata = json!({"name": name, "annotations": {INDEX_FAILURE_COUNT: "1"}});
            let status = json!({"phase": "Failed", "containerStatuses": [main]});
            let pod = json!({"metadata": metadata, "spec": {"nodeName": node}, "status": status});
            failures.record(&serde_json::from_value(pod).unwrap());
        }
        failures
    }

    fn answer(failures: &Failures) -> Answer<'_> {
        Answer {
            failed: 3,
            backoff_limit: Some(6),
            backoff_limit_per_index: Some(3),
            failed_indexes: None,
            max_failed_indexes: Some(1),
            failures: Some(failures),
            next: vec!["yardmaster logs n/j --failed".to_owned(), "kubectl describe pod j-3-a".to_owned()],
        }
    }

    fn now() -> Timestamp {
        "2026-01-01T00:00:20Z".parse().unwrap()
    }

    #[test]
    fn the_answer_has_limits_causes_nodes_logs_and_the_next_commands() {
        let mut failures = failures();
        failures.last[0].log = Some(vec!["CUDA out of memory".into()]);
        let indexes = Untrusted::from("3,5");
        let answer = Answer { failed_indexes: Some(&indexes), ..answer(&failures) };
        let facts = [
            ("Failed", "3 (at most 6)"),
            ("Failed index", "3,5 (at most 1)"),
            ("Causes", "exit code 137 ×2, exit code 1 ×1"),
            ("Nodes", "gpu-7 ×2, gpu-2 ×1"),
        ];
        assert_eq!(answer.facts(), facts.map(|(name, value)| (name, value.to_owned())));
        let text = answer.evidence(now(), None).join("\n");
        assert!(text.contains("2/4  gpu-2  9s ago  container main: exit code 1 (Error)"), "{text}");
        let end = "\n  | CUDA out of memory\n\nNext: yardmaster logs n/j --failed\n      kubectl describe pod j-3-a";
        assert!(text.ends_with(end), "{text}");
    }

    #[test]
    fn pods_that_are_gone_or_not_counted_yet_are_mentioned() {
        let failures = failures();
        let causes = |failed| Answer { failed, ..answer(&failures) }.facts()[1].1.clone();
        assert!(causes(5).ends_with("(of the 3 failed pods that are left)"));
        assert!(causes(1).ends_with("(with 2 that the Job does not count yet)"));
        assert!(causes(3).ends_with("×1"));
    }
}
