//! The report after all Jobs have ended, or after an interrupt.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::pods::PodObserver;
use super::tracker::{End, Tracked, Tracker};
use super::view::{JobView, Outcome};
use crate::cli::command_line::{Invocation, again_with};
use crate::cli::duration::precise;
use crate::cli::output::Format;
use crate::cli::table::{Column, Table};

/// Failed Jobs that are explained at length.
pub(super) const EXPLAINED: usize = 10;

/// Where to look at the pods after the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Afterwards {
    /// They end with the embedded cluster.
    Gone,
    /// The cluster stays, and these flags of other commands choose it.
    Kept { flags: String },
}

/// A table of all Jobs, and why some did not complete.
pub(super) fn summary(tracker: &Tracker, pods: &PodObserver, afterwards: &Afterwards) -> String {
    let mut text = table(tracker);
    let mut explained = 0;
    for tracked in &tracker.jobs {
        match &tracked.end {
            Some(End::Outcome(Outcome::Failed { reason, message })) => {
                text.push_str(&format!("\n{}: {reason}: {message}", tracked.key()));
                explained += 1;
                if explained <= EXPLAINED {
                    let answer = answer(tracked, pods, afterwards);
                    text.push_str(&answer.map(|line| format!("\n  {line}")).collect::<String>());
                }
            }
            Some(End::Held(hold)) => text.push_str(&format!("\n{}: {hold}", tracked.key())),
            Some(End::Outcome(Outcome::Complete) | End::Deleted) | None => {}
        }
    }
    text
}

/// The state of all Jobs at an interrupt, what becomes of the unfinished ones, and how to begin again.
pub(super) fn interrupted(tracker: &Tracker, can_resume: bool) -> String {
    let unfinished = || tracker.jobs.iter().filter(|tracked| tracked.end.is_none());
    let pods: u64 = unfinished().map(Tracked::active).sum();
    let count = |count: u64, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let stopped = match unfinished().count() {
        0 => String::new(),
        jobs if tracker.is_shared() => {
            let jobs = count(jobs as u64, "unfinished Job");
            format!("\nDeleting {jobs} with {}.", count(pods, "active pod"))
        }
        _ => format!("\nStopping {}; Ctrl-C again does not wait.", count(pods, "active pod")),
    };
    let is_indexed = |tracked: &Tracked| tracked.job["spec"]["completionMode"] == "Indexed";
    let resumes = can_resume && tracker.jobs.iter().all(is_indexed);
    let flags: &[&str] = if resumes { &["--resume"] } else { &[] };
    format!("{}{stopped}\nNext: {}", table(tracker), again_with("run", flags))
}

fn table(tracker: &Tracker) -> String {
    let mut table = Table::new([
        Column::whole("JOB", 0),
        Column::whole("RESULT", 0),
        Column::whole("SUCCEEDED", 0),
        Column::whole("FAILED", 0),
        Column::whole("ACTIVE", 1),
        Column::whole("DURATION", 0),
    ]);
    for tracked in &tracker.jobs {
        let view = JobView::of(&tracked.job);
        let result = match &tracked.end {
            Some(End::Outcome(Outcome::Complete)) => "Complete",
            Some(End::Outcome(Outcome::Failed { .. })) => "Failed",
            Some(End::Deleted) => "Deleted",
            Some(End::Held(hold)) => hold.result(),
            None => "Interrupted",
        };
        let active = tracked.end.is_none().then(|| tracked.active().to_string());
        table.row([
            tracked.key(),
            result.to_owned(),
            view.progress(),
            view.failed().to_string(),
            active.unwrap_or_default(),
            precise(tracked.duration()),
        ]);
    }
    table.lines(None).join("\n")
}

/// Why a Job failed: the same as `status JOB` says.
fn answer(tracked: &Tracked, pods: &PodObserver, afterwards: &Afterwards) -> impl Iterator<Item = String> {
    let view = JobView::of(&tracked.job);
    let (program, key) = (Invocation::of_process().words(), tracked.key());
    let next = match afterwards {
        Afterwards::Gone => {
            vec![format!("{}   and then: {program} logs {key} --failed", again_with("run", &["--keep"]))]
        }
        Afterwards::Kept { flags } => vec![
            format!("{program} status {key}{flags}"),
            format!("{program} logs {key} --failed --tail 20{flags}"),
        ],
    };
    let failures = pods.failures(&tracked.uid);
    let answer = view.answer(failures, next);
    let facts = answer
        .facts()
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| format!("{:13} {value}", format!("{name}:")));
    let lines: Vec<_> = facts.chain(answer.evidence(Timestamp::now(), None)).collect();
    lines.into_iter()
}

/// The finished Jobs in the requested format: a single one as it is, several as a List.
pub(super) fn jobs(jobs: &[Tracked], format: &Format) -> anyhow::Result<String> {
    let mut objects: Vec<Value> = jobs.iter().map(|tracked| without_managed_fields(&tracked.job)).collect();
    let document = match objects.len() {
        1 => objects.remove(0),
        _ => json!({ "apiVersion": "v1", "kind": "List", "items": objects }),
    };
    Ok(format.text(&document, jobs.iter().map(Tracked::name), false)?)
}

fn without_managed_fields(job: &Value) -> Value {
    let mut job = job.clone();
    if let Some(metadata) = job["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    job
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupt_tells_what_succeeded_what_ran_and_the_next_command() {
        for is_shared in [true, false] {
            let mut tracker = Tracker::new(is_shared);
            let job = |name: &str, status: Value| {
                let metadata = json!({"namespace": "n", "name": name, "uid": name});
                let spec = json!({"completions": 9, "completionMode": "Indexed"});
                json!({"metadata": metadata, "spec": spec, "status": status})
            };
            let complete = json!([{"type": "Complete", "status": "True"}]);
            tracker.add(job("a", json!({"succeeded": 9, "conditions": complete})));
            tracker.add(job("b", json!({"succeeded": 3, "failed": 2, "active": 4})));
            let text = interrupted(&tracker, true);
            let row = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            let rows: Vec<_> = text.lines().map(row).collect();
            assert_eq!(rows[1][..4], ["n/a", "Complete", "9/9", "0"], "{text}");
            assert_eq!(rows[2][..5], ["n/b", "Interrupted", "3/9", "2", "4"], "{text}");
            let stopped = if is_shared {
                "Deleting 1 unfinished Job with 4 active pods."
            } else {
                "Stopping 4 active pods;"
            };
            assert!(text.contains(stopped), "{text}");
            assert!(text.lines().last().is_some_and(|line| line.contains("--resume")), "{text}");
        }
    }
}
