//! Everything about one Job, as text.

use jiff::Timestamp;

use super::job::JobReport;
use super::report::Report;
use super::results;
use super::text::{self, Layout, describe};
use crate::cli::command_line::Invocation;
use crate::cli::duration;
use crate::cli::failures::Answer;
use crate::cli::fit::{Shorten, clip};
use crate::cli::line::{Line, Paint};
use crate::cli::table::{Column, Table};
use crate::cli::untrusted::Untrusted;

/// The report: everything about a Job that was asked for by name, else tables. `jobs` are those that are shown.
pub(super) fn body(report: &Report, jobs: &[&JobReport], layout: &Layout) -> Vec<Line> {
    match jobs {
        [job] if layout.one_job => {
            let mut lines = lines(job, report.time, layout.width);
            if layout.indexes {
                lines.push(Line::default());
                lines.extend(results::lines(job.index_results.as_deref(), layout.width));
            }
            lines
        }
        _ => text::lines(report, jobs, layout),
    }
}

/// The lines about a Job at `now`; none is wider than `width`.
pub(super) fn lines(job: &JobReport, now: Timestamp, width: Option<usize>) -> Vec<Line> {
    let answer = answer(job);
    let facts = facts(job, &answer, now).into_iter().filter(|(_, value)| !value.is_empty());
    let mut lines: Vec<Line> = facts.map(|(name, value)| fact(name, &value, width)).collect();
    let mut section = |more: Vec<Line>| {
        if !more.is_empty() {
            lines.push(Line::default());
            lines.extend(more);
        }
    };
    section(job.index_map.as_ref().map(|map| map.lines(width)).unwrap_or_default());
    section(if job.conditions.is_empty() { Vec::new() } else { plain(conditions(job).lines(width)) });
    section(plain(answer.evidence(now, width)));
    section(gone(job).map(|line| clip(&line, width, Shorten::End).into()).collect());
    lines
}

fn plain(lines: Vec<String>) -> Vec<Line> {
    lines.into_iter().map(Line::from).collect()
}

/// The facts about a Job, each with its name. The text of an unknown fact is empty.
fn facts(job: &JobReport, answer: &Answer<'_>, now: Timestamp) -> Vec<(&'static str, String)> {
    let ago = |time: Timestamp| format!("{time} ({})", duration::ago(time, now));
    let waiting = job.waiting.as_ref().map(|waiting| {
        let until = waiting.until.map(|until| format!(" (until {until})"));
        format!("{}{}", describe(waiting, now), until.unwrap_or_default())
    });
    let parallelism = job.parallelism.map(|parallelism| format!(" of {parallelism}")).unwrap_or_default();
    let pods = job.pods.as_ref().map(|pods| {
        let counts: Vec<_> = pods.iter().map(|(phase, count)| format!("{count} {phase}")).collect();
        if counts.is_empty() { "none".to_owned() } else { counts.join(", ") }
    });
    let shard = job.shard.map(|shard| match (&job.owner, job.epoch) {
        (Some(owner), Some(epoch)) => {
            let silent =
                if job.owner_is_silent { ", silent: others take over after its lease duration" } else { "" };
            format!("{shard}, owned by {owner} (epoch {epoch}){silent}")
        }
        _ => format!("{shard}, without an owner"),
    });
    let indexes = job.completed_indexes.as_ref().map(|indexes| format!("succeeded {indexes}"));
    let mut facts = vec![
        ("Job", job.key()),
        ("State", job.state.name().to_owned()),
        ("Waiting", waiting.unwrap_or_default()),
        ("Succeeded", job.progress()),
        ("Indexes", indexes.unwrap_or_default()),
        ("Active", format!("{}{parallelism}, {} ready", job.active, job.ready)),
    ];
    facts.extend(answer.facts());
    facts.extend([
        ("Pods", pods.unwrap_or_default()),
        ("Pods/s", job.rate.map(|rate| format!("{rate:.2}")).unwrap_or_default()),
        ("Time left", job.seconds_left.map(duration::seconds).unwrap_or_default()),
        ("Started", job.start_time.map(ago).unwrap_or_default()),
        ("Ended", job.end_time.map(ago).unwrap_or_default()),
        ("Controller", controller(job)),
        ("Shard", shard.unwrap_or_default()),
        ("Trace", job.trace_id.clone()),
    ]);
    facts
}

/// The controller. If no replica runs for it, the Job may wait for ever.
fn controller(job: &JobReport) -> String {
    let name = &job.controller;
    if job.has_no_replica && job.start_time.is_none() && !job.is_finished() {
        return format!(
            "{name}: no replica of Yardmaster runs for it. spec.managedBy cannot be changed: start the controller, or create \
             the Job again without it"
        );
    }
    name.clone()
}

/// A fact behind its name, on one line that fits.
fn fact(name: &str, value: &str, width: Option<usize>) -> Line {
    let name = format!("{:13} ", format!("{name}:"));
    let paint = match name.trim_end() {
        "State:" => text::state_paint(value),
        "Waiting:" => Some(Paint::Warning),
        "Failed index:" | "Causes:" => Some(Paint::Bad),
        _ => None,
    };
    let room = width.map(|width| width.saturating_sub(name.len()));
    let mut line = Line::from(name);
    line.push(&clip(value, room, Shorten::End), paint);
    width.map_or(line.clone(), |width| line.shortened(width))
}

/// Where failed pods may be remembered that are gone.
fn gone(job: &JobReport) -> impl Iterator<Item = String> {
    let is_unknown = job.failures.as_ref().is_some_and(|failures| failures.last.is_empty()) && job.failed > 0;
    let owner = job.owner.as_ref().filter(|_| is_unknown);
    owner.into_iter().flat_map(|owner| {
        let ask = format!(
            "{} status {} --page http://localhost:8080/",
            Invocation::of_process().words(),
            job.key()
        );
        [
            format!("The failed pods are gone. The page of {owner} may remember them:"),
            format!("  kubectl port-forward pod/{owner} 8080    (in the namespace of Yardmaster)"),
            format!("  {ask}"),
        ]
    })
}

/// The answer to "my Job failed, what now".
pub(super) fn answer(job: &JobReport) -> Answer<'_> {
    let logs = || format!("{} logs {} --failed --tail 20", Invocation::of_process().words(), job.key());
    // Of pods that are gone, neither command has anything.
    let left = job.failures.as_ref().filter(|failures| failures.pods > 0);
    let newest = left.and_then(|failures| failures.last.iter().find(|failed| !failed.is_gone));
    let describe = newest.map(|failed| format!("kubectl describe pod -n {} {}", job.namespace, failed.pod));
    Answer {
        failed: u64::try_from(job.failed).unwrap_or_default(),
        backoff_limit: job.backoff_limit,
        backoff_limit_per_index: job.backoff_limit_per_index,
        failed_indexes: job.failed_indexes.as_ref(),
        max_failed_indexes: job.max_failed_indexes,
        failures: job.failures.as_ref(),
        next: left.map(|_| logs()).into_iter().chain(describe).collect(),
    }
}

fn conditions(job: &JobReport) -> Table {
    let mut table = Table::new([
        Column::whole("CONDITION", 0),
        Column::whole("STATUS", 0),
        Column::whole("SINCE", 2),
        Column::text("REASON", 12, 0),
        Column::text("MESSAGE", 16, 1),
    ]);
    let text = |text: Option<&Untrusted>| text.map(Untrusted::to_string).unwrap_or_default();
    for condition in &job.conditions {
        table.row([
            condition.type_.to_string(),
            condition.status.to_string(),
            condition.last_transition_time.map(|time| time.to_string()).unwrap_or_default(),
            text(condition.reason.as_ref()),
            text(condition.message.as_ref()),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::super::job::tests::{ended, job};
    use super::*;
    use crate::cli::failures::Failures;
    use crate::cli::ownership::Ownership;
    use crate::cli::status::wait_reasons::Waiting;
    use crate::telemetry::printable::is_shown;

    #[test]
    fn a_failed_job_says_which_pods_failed_and_why() {
        let mut failures = Failures::default();
        let pod = json!({"metadata": {"name": "j-a"}, "spec": {}, "status": {"phase": "Failed", "reason": "Evicted"}});
        failures.record(&serde_json::from_value(pod).unwrap());
        let mut status = ended("Failed", 12);
        status["failed"] = 1.into();
        let spec = json!({"backoffLimit": 0});
        let job = JobReport { failures: Some(failures), ..job("j", spec, status) };
        let lines = lines(&job, "2026-01-01T00:00:20Z".parse().unwrap(), None);
        let text: Vec<_> = lines.iter().map(Line::text).collect();
        for line in [
            "Failed:       1 (at most 0)",
            "Causes:       Evicted ×1",
            "Next: yardmaster logs n/j --failed --tail 20",
            "      kubectl describe pod -n n j-a",
        ] {
            assert!(text.contains(&line), "{line}: {text:#?}");
        }
    }

    #[test]
    fn no_command_names_a_pod_that_is_gone() {
        let left = json!({"metadata": {"name": "left"}, "spec": {}, "status": {"phase": "Failed", "reason": "Evicted"}});
        let mut failures = Failures::default();
        failures.record(&serde_json::from_value(left).unwrap());
        let gone = json!({"pod": "gone", "ended": "2026-01-01T00:00:10Z", "exitCode": 1});
        failures.remember(&[serde_json::from_value(gone).unwrap()]);
        assert_eq!(failures.last[0].pod, "gone", "the newest");
        let job = JobReport { failures: Some(failures), ..job("j", json!({}), ended("Failed", 12)) };
        let next = ["yardmaster logs n/j --failed --tail 20", "kubectl describe pod -n n left"];
        assert_eq!(answer(&job).next, next);
    }

    #[test]
    fn a_job_of_a_controller_that_does_not_run_says_so() {
        let controller = |job: &JobReport| super::controller(job);
        let other = json!({"managedBy": "example.com/nobody"});
        let waits = job("j", other.clone(), json!({}));
        assert!(controller(&waits).starts_with("example.com/nobody: no replica of Yardmaster runs for it"));
        let runs = job("j", other, json!({"startTime": "2026-01-01T00:00:00Z"}));
        assert_eq!(controller(&runs), "example.com/nobody");
        assert_eq!(controller(&job("j", json!({}), json!({}))), "kubernetes.io/job-controller");
    }

    /// Conditions and Events of a Job may have any text.
    #[test]
    fn no_text_of_a_job_reaches_the_terminal_as_it_is() {
        let hostile = "\u{1b}]0;title\u{7}\u{9b}2J\nJob: other\u{202e}gnp";
        let condition = json!({"type": hostile, "status": hostile, "reason": hostile, "message": hostile});
        let waiting = Waiting { reason: "Refused", until: None, message: Some(hostile.into()) };
        let job = JobReport {
            waiting: Some(waiting),
            controller: hostile.into(),
            owner: Some(hostile.into()),
            epoch: Some(1),
            shard: Some(1),
            pods: Some([(hostile.to_owned(), 1)].into()),
            ..job("j", json!({}), json!({"conditions": [condition]}))
        };
        let time = "2026-01-01T00:00:20Z".parse().unwrap();
        let report = Report { time, ownership: Ownership::default(), jobs: vec![job] };
        for one_job in [true, false] {
            let layout = Layout { one_job, wide: true, shards: true, ..Layout::default() };
            let lines = body(&report, &report.jobs.iter().collect::<Vec<_>>(), &layout);
            let lines: Vec<_> = lines.iter().map(Line::text).collect();
            assert!(lines.iter().flat_map(|line| line.chars()).all(is_shown), "{lines:#?}");
            assert_eq!(lines.iter().filter(|line| line.starts_with("Job:")).count(), usize::from(one_job));
        }
    }
}
