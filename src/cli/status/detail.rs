//! Everything about one Job, as text.

use jiff::Timestamp;

use super::job::JobReport;
use super::report::Report;
use super::text::{self, Layout, clip, describe, duration};
use crate::cli::failures::Failures;
use crate::cli::table::{Column, Shorten, Table};
use crate::cli::untrusted::Untrusted;

/// The report: everything about a Job that was asked for by name, else tables. `jobs` are those that are shown.
pub(super) fn body(report: &Report, jobs: &[&JobReport], layout: &Layout) -> Vec<String> {
    match jobs {
        [job] if layout.one_job => lines(job, report.time, layout.width),
        _ => text::lines(report, jobs, layout),
    }
}

/// The lines about a Job at `now`; none is wider than `width`.
fn lines(job: &JobReport, now: Timestamp, width: Option<usize>) -> Vec<String> {
    let mut lines = Vec::new();
    let mut fact = |name: &str, value: Option<String>| {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            let text = format!("{name}:{:1$}{value}", "", 13_usize.saturating_sub(name.len()));
            // The padding is part of the text, so only the value is made printable.
            lines.push((text, value));
        }
    };
    fact("Job", Some(job.key()));
    fact("State", Some(job.state.name().to_owned()));
    fact(
        "Waiting",
        job.waiting.as_ref().map(|waiting| {
            let until = waiting.until.map(|until| format!(" (until {until})"));
            format!("{}{}", describe(waiting, now), until.unwrap_or_default())
        }),
    );
    fact("Succeeded", Some(job.progress()));
    fact("Indexes", job.completed_indexes.as_ref().map(|indexes| format!("succeeded {indexes}")));
    let parallelism = job.parallelism.map(|parallelism| format!(" of {parallelism}")).unwrap_or_default();
    fact("Active", Some(format!("{}{parallelism}, {} ready", job.active, job.ready)));
    fact("Failed", Some(with_limit(job.failed.to_string(), job.backoff_limit)));
    fact(
        "Failed index",
        job.failed_indexes.as_ref().map(|indexes| with_limit(indexes.to_string(), job.max_failed_indexes)),
    );
    fact("Causes", job.failures.as_ref().map(Failures::histogram));
    fact(
        "Pods",
        job.pods.as_ref().map(|pods| {
            let counts: Vec<_> = pods.iter().map(|(phase, count)| format!("{count} {phase}")).collect();
            if counts.is_empty() { "none".to_owned() } else { counts.join(", ") }
        }),
    );
    fact("Pods/s", job.rate.map(|rate| format!("{rate:.2}")));
    fact("Time left", job.seconds_left.map(duration));
    let ago = |time: Timestamp| format!("{time} ({} ago)", duration(now.duration_since(time).as_secs_f64()));
    fact("Started", job.start_time.map(ago));
    fact("Ended", job.end_time.map(ago));
    fact("Controller", Some(job.controller.clone()));
    fact(
        "Shard",
        job.shard.map(|shard| match (&job.owner, job.epoch) {
            (Some(owner), Some(epoch)) => format!("{shard}, owned by {owner} (epoch {epoch})"),
            _ => format!("{shard}, without an owner"),
        }),
    );
    fact("Trace", Some(job.trace_id.clone()));
    let mut text: Vec<String> = lines.into_iter().map(|(line, value)| fit(&line, &value, width)).collect();
    if !job.conditions.is_empty() {
        text.push(String::new());
        text.extend(conditions(job).lines(width));
    }
    if let Some(failures) = job.failures.as_ref().filter(|failures| !failures.last.is_empty()) {
        text.push(String::new());
        text.extend(failed_pods(failures, now).lines(width));
        text.push(String::new());
        let next = format!("Next: yardmaster logs {} --failed --tail 20", job.key());
        text.push(clip(&next, width, Shorten::End));
    }
    text
}

/// A number of failures, with the limit of them.
fn with_limit(failed: String, limit: Option<i32>) -> String {
    match limit {
        Some(limit) => format!("{failed} (at most {limit})"),
        None => failed,
    }
}

/// The line with its value made printable, and shortened if it is too long.
fn fit(line: &str, value: &str, width: Option<usize>) -> String {
    let name = line.strip_suffix(value).unwrap_or_default();
    let room = width.map(|width| width.saturating_sub(name.len()));
    format!("{name}{}", clip(value, room, Shorten::End))
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

/// The pods that failed last.
fn failed_pods(failures: &Failures, now: Timestamp) -> Table {
    let mut table = Table::new([
        Column::names("FAILED POD", 16, 0),
        Column::whole("INDEX", 2),
        Column::whole("TRY", 4),
        Column::names("NODE", 8, 3),
        Column::whole("ENDED", 1),
        Column::text("CAUSE", 16, 0),
    ]);
    let number = |number: Option<u32>| number.map(|number| number.to_string()).unwrap_or_default();
    for failed in &failures.last {
        let ago = |ended| format!("{} ago", duration(now.duration_since(ended).as_secs_f64()));
        table.row([
            failed.pod.clone(),
            number(failed.index),
            number(failed.attempt),
            failed.node.as_ref().map(Untrusted::to_string).unwrap_or_default(),
            failed.ended.map(ago).unwrap_or_default(),
            failed.cause.to_string(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::super::job::tests::{ended, job};
    use super::super::waits::Waiting;
    use super::*;
    use crate::cli::ownership::Ownership;
    use crate::telemetry::printable::is_shown;

    #[test]
    fn a_failed_job_says_which_pods_failed_and_why() {
        let mut failures = Failures::default();
        for (name, code) in [("j-3-a", 137), ("j-3-b", 137), ("j-5-c", 1)] {
            let end = json!({"exitCode": code, "reason": "Error", "finishedAt": "2026-01-01T00:00:11Z"});
            let main = json!({"name": "main", "state": {"terminated": end}});
            let status = json!({"phase": "Failed", "containerStatuses": [main]});
            let spec = json!({"nodeName": "gpu-7"});
            let pod = json!({"metadata": {"name": name}, "spec": spec, "status": status});
            failures.record(&serde_json::from_value(pod).unwrap());
        }
        let mut status = ended("Failed", 12);
        status["failed"] = 3.into();
        status["failedIndexes"] = "3,5".into();
        let spec = json!({"backoffLimit": 6, "maxFailedIndexes": 1});
        let job = JobReport { failures: Some(failures), ..job("j", spec, status) };
        let text = lines(&job, "2026-01-01T00:00:20Z".parse().unwrap(), None).join("\n");
        for line in [
            "Failed:       3 (at most 6)",
            "Failed index: 3,5 (at most 1)",
            "Causes:       exit code 137 ×2, exit code 1 ×1",
            "Next: yardmaster logs n/j --failed --tail 20",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}: {text}");
        }
        assert!(text.contains("gpu-7  9s ago  container main: exit code 1 (Error)"), "{text}");
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
            assert!(lines.iter().flat_map(|line| line.chars()).all(is_shown), "{lines:#?}");
            assert_eq!(lines.iter().filter(|line| line.starts_with("Job:")).count(), usize::from(one_job));
        }
    }
}
