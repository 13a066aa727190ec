//! A report as text that fits a terminal.

use jiff::Timestamp;

use super::job::JobReport;
use super::report::Report;
use super::wait_reasons::Waiting;
use crate::cli::duration;
use crate::cli::fit::{Shorten, clip};
use crate::cli::line::{Line, Paint};
use crate::cli::ownership::{ControllerShards, Ownership, Replica, ReplicaState, ranges};
use crate::cli::table::{Column, Table};

/// Finished Jobs that are shown unless all are asked for.
pub(super) const FINISHED: usize = 10;

/// How much is shown.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Layout {
    /// Columns of the terminal; without it nothing is made shorter.
    pub(super) width: Option<usize>,
    /// Show trace ids and shards of Jobs.
    pub(super) wide: bool,
    /// Show the owner and the epoch of every shard.
    pub(super) shards: bool,
    /// Finished Jobs that are shown; without it all.
    pub(super) finished: Option<usize>,
    /// All Jobs are of one namespace, which is not shown.
    pub(super) one_namespace: bool,
    /// Show everything about the only Job instead of a table.
    pub(super) one_job: bool,
    /// Show the results of its indexes, too.
    pub(super) indexes: bool,
}

/// The Jobs, then the replicas. `jobs` are those of the report that may be shown, in their order.
pub(super) fn lines(report: &Report, jobs: &[&JobReport], layout: &Layout) -> Vec<Line> {
    let mut lines = self::jobs(jobs, report.time, layout);
    let mut section = |more: Vec<String>| {
        if !more.is_empty() {
            lines.push(Line::default());
            lines.extend(more.into_iter().map(Line::from));
        }
    };
    for controller in report.ownership.controllers() {
        section(replicas(&report.ownership, controller, layout.width));
    }
    if layout.shards {
        section(shards(&report.ownership, layout.width));
    }
    section(warnings(&report.ownership, layout.width));
    lines
}

/// The Jobs that have a row below the header of the table: not all finished ones.
pub(super) fn listed<'a>(jobs: &[&'a JobReport], layout: &Layout) -> Vec<&'a JobReport> {
    let mut room = layout.finished.unwrap_or(usize::MAX);
    let has_room = |job: &&&JobReport| {
        !job.is_finished() || {
            let has_room = room > 0;
            room = room.saturating_sub(1);
            has_room
        }
    };
    jobs.iter().filter(has_room).copied().collect()
}

fn jobs(jobs: &[&JobReport], now: Timestamp, layout: &Layout) -> Vec<Line> {
    let mut table = Table::new([
        Column::names("NAMESPACE", 9, 3),
        Column::names("JOB", 16, 0),
        Column::names("STATE", 9, 0).painted(state_paint),
        Column::whole("SUCCEEDED", 0),
        Column::whole("ACTIVE", 4),
        Column::whole("FAILED", 2).painted(|failed| (failed != "0").then_some(Paint::Bad)),
        Column::whole("PODS/S", 6),
        Column::whole("LEFT", 5),
        Column::text("WAITING", 12, 1).painted(|_| Some(Paint::Warning)),
        Column::whole("SHARD", 8),
        Column::whole("TRACE", 7),
    ]);
    let listed = listed(jobs, layout);
    for job in &listed {
        table.row([
            if layout.one_namespace { String::new() } else { job.namespace.clone() },
            job.name.clone(),
            job.state.name().to_owned(),
            job.progress(),
            job.active.to_string(),
            job.failed.to_string(),
            job.rate.map(|rate| format!("{rate:.2}")).unwrap_or_default(),
            job.seconds_left.map(duration::seconds).unwrap_or_default(),
            job.waiting.as_ref().map(|waiting| describe(waiting, now)).unwrap_or_default(),
            job.shard.filter(|_| layout.wide).map(|shard| shard.to_string()).unwrap_or_default(),
            if layout.wide { job.trace_id.clone() } else { String::new() },
        ]);
    }
    if jobs.is_empty() {
        return vec!["No Jobs.".into()];
    }
    let mut lines = if table.is_empty() { Vec::new() } else { table.painted_lines(layout.width) };
    let more = jobs.len() - listed.len();
    if more > 0 {
        let jobs = if more == 1 { "Job" } else { "Jobs" };
        let older = if layout.finished == Some(0) { "" } else { " older" };
        let text = format!("{more}{older} finished {jobs} not shown (--all)");
        lines.push(clip(&text, layout.width, Shorten::End).into());
    }
    lines
}

/// The colour of a state.
pub(super) fn state_paint(state: &str) -> Option<Paint> {
    match state {
        "Complete" => Some(Paint::Good),
        "Failed" | "FailureTarget" => Some(Paint::Bad),
        "Suspended" => Some(Paint::Quiet),
        _ => None,
    }
}

fn replicas(ownership: &Ownership, controller: &ControllerShards, width: Option<usize>) -> Vec<String> {
    let its: Vec<&Replica> =
        ownership.replicas.iter().filter(|replica| replica.controller == controller.name).collect();
    let count = |count: usize, what: &str| match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    };
    let shards = controller.shards.map(|shards| count(shards as usize, "shard"));
    let counts: Vec<_> = shards.into_iter().chain([count(its.len(), "replica")]).collect();
    let title = format!("Controller {}: {}", controller.name, counts.join(", "));
    let mut table = Table::new([
        Column::names("REPLICA", 20, 0),
        Column::whole("HEARTBEAT", 0),
        Column::whole("STATE", 0),
        Column::whole("SHARDS", 0),
        Column::lists("NUMBERS", 10, 1),
    ]);
    for replica in its {
        let age = replica.heartbeat_age.map(|age| format!("{} ago", duration::seconds(age)));
        let state = match replica.state {
            ReplicaState::Active => "active",
            ReplicaState::Leaving => "leaving",
            ReplicaState::Silent => "silent",
        };
        table.row([
            replica.identity.clone(),
            age.unwrap_or_default(),
            state.to_owned(),
            replica.shards.to_string(),
            ranges(&ownership.shards_of(replica)),
        ]);
    }
    let mut lines = vec![clip(&title, width, Shorten::End)];
    if !table.is_empty() {
        lines.extend(table.lines(width));
    }
    lines
}

fn shards(ownership: &Ownership, width: Option<usize>) -> Vec<String> {
    let mut table = Table::new([
        Column::whole("SHARDS", 0),
        Column::names("OWNER", 12, 0),
        Column::whole("EPOCH", 0),
        Column::names("CONTROLLER", 12, 1),
    ]);
    for run in ownership.runs() {
        let [first, ..] = run else { continue };
        let numbers: Vec<u32> = run.iter().map(|shard| shard.shard).collect();
        let owner = first.owner.clone().unwrap_or_else(|| "none".to_owned());
        table.row([ranges(&numbers), owner, first.epoch.to_string(), first.controller.clone()]);
    }
    if table.is_empty() { Vec::new() } else { table.lines(width) }
}

fn warnings(ownership: &Ownership, width: Option<usize>) -> Vec<String> {
    let of_each = ownership.controllers().iter().flat_map(|controller| {
        let name = &controller.name;
        let unowned = (!controller.unowned.is_empty()).then(|| {
            let (count, numbers) = (controller.unowned.len(), ranges(&controller.unowned));
            let have = if count == 1 { "shard has" } else { "shards have" };
            format!("Warning: {count} {have} no owner: {numbers} ({name})")
        });
        let resharding = controller.resharding_to.map(|to| {
            format!("Warning: the number of shards is being changed to {to}, and no replica may act ({name})")
        });
        unowned.into_iter().chain(resharding)
    });
    of_each.map(|line| clip(&line, width, Shorten::End)).collect()
}

/// The reason, the time left, and the message.
pub(super) fn describe(waiting: &Waiting, now: Timestamp) -> String {
    let Waiting { reason, until, message } = waiting;
    let left =
        until.map(|until| format!(", {} left", duration::seconds(until.duration_since(now).as_secs_f64())));
    let message = message.as_ref().map(|message| format!(": {message}"));
    [Some((*reason).to_owned()), left, message].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;
    use unicode_width::UnicodeWidthStr as _;

    use super::super::job::tests::{ended, job};
    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T00:00:20Z".parse().unwrap()
    }

    fn waits(reason: &'static str, until: Option<&str>, message: Option<&str>) -> Waiting {
        Waiting { reason, until: until.map(|until| until.parse().unwrap()), message: message.map(Into::into) }
    }

    /// A big cluster: long names, many Jobs, 40 replicas, 512 shards of which some have no owner.
    fn big() -> Report {
        let mut jobs: Vec<_> = (0..60)
            .map(|n| {
                let status = if n % 2 == 0 {
                    ended("Complete", n % 20)
                } else {
                    json!({"active": n, "failed": n % 7})
                };
                let spec = json!({"completions": 100_000, "parallelism": 100});
                let name = format!("a-training-run-with-a-rather-long-name-{n:03}");
                JobReport { namespace: "a-team-with-a-long-name".into(), ..job(&name, spec, status) }
            })
            .collect();
        let message = "pods \"a\" is forbidden: exceeded quota: compute\nlimited: pods=10".repeat(3);
        jobs[1].waiting = Some(waits("Refused", None, Some(&message)));
        jobs[3].waiting = Some(waits("PodBackoff", Some("2026-01-01T00:01:30Z"), None));
        jobs.sort_by(JobReport::by_interest);
        Report { time: now(), ownership: crate::cli::ownership::tests::big(now()), jobs }
    }

    fn shown(report: &Report, layout: &Layout) -> Vec<String> {
        let lines = lines(report, &report.jobs.iter().collect::<Vec<_>>(), layout);
        lines.iter().map(|line| line.text().to_owned()).collect()
    }

    #[test]
    fn nothing_is_wider_than_the_terminal() {
        let report = big();
        for width in [40, 80, 100, 120, 200] {
            for (wide, shards) in [(false, false), (true, true)] {
                let layout =
                    Layout { width: Some(width), wide, shards, finished: Some(10), ..Layout::default() };
                for line in shown(&report, &layout) {
                    assert!(line.width() <= width, "{width}: {line}");
                }
            }
        }
    }

    #[test]
    fn eighty_columns_say_what_matters() {
        let layout = Layout { width: Some(80), finished: Some(10), ..Layout::default() };
        let lines = shown(&big(), &layout);
        let header: Vec<_> = lines[0].split_whitespace().collect();
        assert_eq!(header[..4], ["NAMESPACE", "JOB", "STATE", "SUCCEEDED"], "{lines:#?}");
        assert_eq!(header.last(), Some(&"WAITING"), "{lines:#?}");
        let narrow = shown(&big(), &Layout { width: Some(60), ..layout });
        let waits = |line: &String| line.contains("Refused");
        assert!(narrow.iter().any(waits), "{narrow:#?}");
        // Both ends of a name stay, so that numbered Jobs can be distinguished.
        assert!(lines[1].contains("…") && lines.iter().any(|line| line.contains("-059")), "{lines:#?}");
        assert!(lines.iter().any(|line| line.contains("Refused")), "{lines:#?}");
        assert!(lines.contains(&"20 older finished Jobs not shown (--all)".to_owned()), "{lines:#?}");
        let replicas = lines.iter().filter(|line| line.contains("ago  ")).count();
        assert_eq!(replicas, 40, "{lines:#?}");
        assert!(lines.iter().any(|line| line.starts_with("Warning: 4 shards have no owner: 5,505-507")));
    }

    #[test]
    fn a_terminal_with_room_shows_everything() {
        let layout = Layout { wide: true, shards: true, ..Layout::default() };
        let lines = shown(&big(), &layout);
        assert!(lines[1].contains("a-team-with-a-long-name  a-training-run-with-a-rather-long-name-"));
        assert!(lines[1].ends_with("6ba7b8109dad11d180b400c04fd430c8"), "{}", lines[1]);
        assert!(!lines.iter().any(|line| line.contains('…') || line.contains("not shown")));
        assert!(lines.iter().any(|line| line.starts_with("SHARDS") && line.contains("EPOCH")));
    }

    #[test]
    fn a_namespace_that_all_jobs_share_is_not_shown() {
        let report = Report { jobs: vec![job("j", json!({}), json!({}))], ..big() };
        let layout = Layout { one_namespace: true, ..Layout::default() };
        assert!(shown(&report, &layout)[0].contains("JOB") && shown(&report, &layout)[1].starts_with("j "));
        assert_eq!(shown(&Report { jobs: vec![], ..report }, &layout)[0], "No Jobs.");
    }

    #[test]
    fn a_wait_shows_its_reason_and_the_time_left() {
        let until = Some("2026-01-01T00:01:30Z");
        assert_eq!(describe(&waits("PodBackoff", until, None), now()), "PodBackoff, 1m 10s left");
        assert_eq!(describe(&waits("Suspended", None, None), now()), "Suspended");
        assert_eq!(
            describe(&waits("Refused", None, Some("exceeded quota")), now()),
            "Refused: exceeded quota"
        );
    }
}
