//! The report after all Jobs have ended.

use serde_json::{Value, json};

use super::pods::PodObserver;
use super::tracker::{End, Tracked};
use super::view::{JobView, Outcome};
use crate::cli::table::{Column, Table};
use crate::telemetry::printable;

/// Format of the finished Jobs on standard output.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(super) enum Format {
    Json,
    Yaml,
}

/// A table of all Jobs, and why some did not complete.
pub(super) fn summary(jobs: &[Tracked], pods: &PodObserver) -> String {
    let columns = ["JOB", "RESULT", "SUCCEEDED", "FAILED", "DURATION"];
    let mut table = Table::new(columns.map(|header| Column::whole(header, 0)));
    let mut reasons = String::new();
    for tracked in jobs {
        let view = JobView::of(&tracked.job);
        let result = match &tracked.end {
            Some(End::Outcome(Outcome::Complete)) => "Complete".to_owned(),
            Some(End::Outcome(Outcome::Failed { reason, message })) => {
                reasons.push_str(&format!("{}: {reason}: {message}\n", tracked.key()));
                if let Some(failure) = pods.failure(&tracked.uid) {
                    reasons.push_str(&format!("  last failed pod {}: {}\n", failure.pod, failure.what));
                }
                "Failed".to_owned()
            }
            Some(End::Deleted) => "Deleted".to_owned(),
            Some(End::Held(hold)) => {
                reasons.push_str(&format!("{}: {hold}\n", tracked.key()));
                hold.result().to_owned()
            }
            None => "Running".to_owned(),
        };
        let duration = view.duration().map_or_else(String::new, |duration| format!("{duration:#}"));
        let failed = view.failed().to_string();
        table.row([tracked.key(), result, view.progress(), failed, duration]);
    }
    format!("{}\n{reasons}", table.lines(None).join("\n")).trim_end().to_owned()
}

/// The finished Jobs in the requested format: a single one as it is, several as a List.
pub(super) fn jobs(jobs: &[Tracked], format: Format) -> anyhow::Result<String> {
    let mut objects: Vec<Value> = jobs.iter().map(|tracked| without_managed_fields(&tracked.job)).collect();
    let document = match objects.len() {
        1 => objects.remove(0),
        _ => json!({ "apiVersion": "v1", "kind": "List", "items": objects }),
    };
    object(&document, format)
}

/// An object as text.
pub(super) fn object(document: &Value, format: Format) -> anyhow::Result<String> {
    Ok(match format {
        Format::Json => printable::json(&serde_json::to_string_pretty(document)?) + "\n",
        Format::Yaml => printable::yaml(serde_saphyr::to_string(document)?, document)?,
    })
}

fn without_managed_fields(job: &Value) -> Value {
    let mut job = job.clone();
    if let Some(metadata) = job["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    job
}
