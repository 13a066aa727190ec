//! The report of `top` as text.

use std::cmp::Reverse;

use super::super::job::JobReport;
use super::super::text::{describe, state_paint};
use super::nodes::Nodes;
use super::rates::RateHistory;
use crate::cli::duration;
use crate::cli::fit::{Shorten, clip};
use crate::cli::job_phase::JobPhase;
use crate::cli::line::{Line, Paint};
use crate::cli::table::{Column, Table};

/// A line with totals, then a table of the slowest Jobs, of the failing ones, and of nodes with failed pods. Each has at most
/// `limit` rows.
pub(super) fn lines(
    history: &RateHistory,
    nodes: &Nodes,
    problem: Option<&str>,
    limit: usize,
    width: Option<usize>,
) -> Vec<Line> {
    let totals = Line::from(totals(history));
    let mut lines = vec![width.map_or(totals.clone(), |width| totals.shortened(width))];
    if let Some(problem) = problem {
        let mut line = Line::default();
        line.push(&clip(problem, width, Shorten::End), Some(Paint::Warning));
        lines.push(line);
    }
    for table in [slowest(history, limit), failing(history, limit), failed_nodes(nodes, limit)] {
        if !table.is_empty() {
            lines.push(Line::default());
            lines.extend(table.painted_lines(width));
        }
    }
    lines
}

fn totals(history: &RateHistory) -> String {
    let Some(report) = history.latest() else { return "Reading Jobs and Leases ...".to_owned() };
    let unfinished = report.jobs.iter().filter(|job| !job.is_finished()).count();
    let active: i64 = report.jobs.iter().map(|job| i64::from(job.active)).sum();
    let time = report.time.strftime("%H:%M:%S UTC");
    let rates = history.rates().map(|rates| {
        let ended = rates.succeeded + rates.failed;
        let (created, failed) = (rates.created, rates.failed);
        format!(", {created:.1}/s created, {ended:.1}/s ended, {failed:.1}/s failed")
    });
    format!("{time}, {unfinished} unfinished Jobs, {active} active pods{}", rates.unwrap_or_default())
}

/// The Jobs that will take longest. Jobs without a success since their start come first: their time is unknown.
fn slowest(history: &RateHistory, limit: usize) -> Table {
    let mut jobs: Vec<&JobReport> = history.latest().into_iter().flat_map(|report| &report.jobs).collect();
    jobs.retain(|job| !job.is_finished() && job.state != JobPhase::Suspended);
    jobs.sort_by(|one, other| {
        let left = |job: &JobReport| job.seconds_left.unwrap_or(f64::INFINITY);
        left(other).total_cmp(&left(one)).then(one.start_time.cmp(&other.start_time))
    });
    let mut table = Table::new([
        Column::names("SLOWEST JOB", 16, 0),
        Column::whole("LEFT", 0),
        Column::whole("PODS/S", 3),
        Column::whole("SUCCEEDED", 0),
        Column::whole("ACTIVE", 4),
        Column::text("WAITING", 12, 1).painted(|_| Some(Paint::Warning)),
    ]);
    let now = history.latest().map(|report| report.time).unwrap_or_default();
    for job in jobs.into_iter().take(limit) {
        table.row([
            job.key(),
            job.seconds_left.map_or_else(|| "?".to_owned(), duration::seconds),
            format!("{:.1}", history.of_job(job).succeeded),
            job.progress(),
            job.active.to_string(),
            job.waiting.as_ref().map(|waiting| describe(waiting, now)).unwrap_or_default(),
        ]);
    }
    table
}

/// Jobs with failed pods that run, or failed a short time ago: those whose pods fail fastest come first.
fn failing(history: &RateHistory, limit: usize) -> Table {
    let mut jobs: Vec<&JobReport> = history.latest().into_iter().flat_map(|report| &report.jobs).collect();
    jobs.retain(|job| job.failed_lately() || !job.is_finished() && job.failed > 0);
    jobs.sort_by(|one, other| {
        let rate = |job: &JobReport| history.of_job(job).failed;
        rate(other).total_cmp(&rate(one)).then(other.failed.cmp(&one.failed))
    });
    let mut table = Table::new([
        Column::names("FAILING JOB", 16, 0),
        Column::whole("FAILED", 0).painted(|_| Some(Paint::Bad)),
        Column::whole("FAILED/S", 1),
        Column::whole("SUCCEEDED", 3),
        Column::names("STATE", 9, 0).painted(state_paint),
    ]);
    for job in jobs.into_iter().take(limit) {
        let limit = job.backoff_limit.map(|limit| format!("/{limit}")).unwrap_or_default();
        table.row([
            job.key(),
            format!("{}{limit}", job.failed),
            format!("{:.1}", history.of_job(job).failed),
            job.progress(),
            job.state.name().to_owned(),
        ]);
    }
    table
}

/// Nodes by the number of failed pods that are still there.
fn failed_nodes(nodes: &Nodes, limit: usize) -> Table {
    let mut nodes: Vec<_> = nodes.iter().collect();
    nodes.sort_by_key(|(_, node)| Reverse(node.failures.pods));
    let mut table = Table::new([
        Column::names("NODE", 12, 0),
        Column::whole("FAILED PODS", 0).painted(|_| Some(Paint::Bad)),
        Column::whole("JOBS", 1),
        Column::text("CAUSES", 16, 0),
    ]);
    for (name, node) in nodes.into_iter().take(limit) {
        let pods = node.failures.pods.to_string();
        table.row([name.clone(), pods, node.jobs().to_string(), node.failures.histogram()]);
    }
    table
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use unicode_width::UnicodeWidthStr as _;

    use super::super::nodes::tests::nodes;
    use super::super::rates::tests::report;
    use super::*;

    fn status(succeeded: i32, failed: i32) -> Value {
        json!({"active": 2, "succeeded": succeeded, "failed": failed, "startTime": "2026-01-01T00:00:00Z"})
    }

    fn history() -> RateHistory {
        let spec = json!({"completions": 100, "backoffLimit": 6});
        let ended = json!({"failed": 9, "conditions": [{
            "type": "Failed", "status": "True", "lastTransitionTime": "2026-01-01T00:00:02Z",
        }]});
        let at = |succeeded: i32| {
            [
                ("fast", spec.clone(), status(5 * succeeded, 0)),
                ("slow", spec.clone(), status(succeeded, 1)),
                ("stuck", spec.clone(), status(0, succeeded)),
                ("failed", spec.clone(), ended.clone()),
                ("asleep", json!({"completions": 100, "suspend": true}), json!({})),
            ]
        };
        let mut history = RateHistory::default();
        history.record(report(18, &at(2)));
        history.record(report(20, &at(4)));
        history
    }

    fn shown(width: Option<usize>) -> Vec<String> {
        let nodes = nodes(&[("gpu-2", "j", 1), ("gpu-7", "j", 137), ("gpu-7", "k", 137)]);
        let lines = lines(&history(), &nodes, None, 3, width);
        lines.iter().map(|line| line.text().to_owned()).collect()
    }

    #[test]
    fn the_slowest_jobs_the_failing_ones_and_bad_nodes_come_first() {
        let lines = shown(None);
        let total =
            "00:00:20 UTC, 4 unfinished Jobs, 6 active pods, 7.0/s created, 7.0/s ended, 1.0/s failed";
        assert_eq!(lines[0], total);
        let below = |header: &str| {
            let header =
                lines.iter().position(|line| line.starts_with(header)).map_or(lines.len(), |at| at + 1);
            let rows = lines[header..].iter().take_while(|line| !line.is_empty());
            rows.map(|row| row.split("  ").next().unwrap_or_default()).collect::<Vec<_>>()
        };
        assert_eq!(below("SLOWEST"), ["n/stuck", "n/slow", "n/fast"]);
        assert_eq!(below("FAILING"), ["n/stuck", "n/failed", "n/slow"]);
        assert_eq!(below("NODE"), ["gpu-7", "gpu-2"]);
        assert!(lines.last().is_some_and(|line| line.ends_with("exit code 1 ×1")), "{lines:#?}");
    }

    #[test]
    fn nothing_is_wider_than_the_terminal() {
        for width in [20, 40, 60, 80] {
            assert!(shown(Some(width)).iter().all(|line| line.width() <= width), "{width}");
        }
    }
}
