//! What keeps a Job from running, as far as it is known before anything starts.

use serde_json::Value;

use super::view::is_ours;
use super::{Host, preflight};
use crate::cli::embedded::workspace;
use yardmaster_embedded::rules::{Cause, job_of_manifest, refusals_of_pods};

/// The fields that an API server refuses; or, if there are none, those that this machine cannot give the pods. Each has a text that
/// names it.
pub(super) fn problems(job: &Value, host: Host) -> Vec<(String, String)> {
    let job = match job_of_manifest(job) {
        Ok(job) => job,
        Err(causes) => return causes.into_iter().map(named).collect(),
    };
    let Host::ThisMachine { here } = host else { return Vec::new() };
    // The pods of another controller's Job are nobody's here.
    if !job["spec"]["managedBy"].as_str().is_none_or(is_ours) {
        return Vec::new();
    }
    let found = owners(&job).into_iter().chain(preflight::problems(&job, workspace(here)));
    let found = found.map(|(field, text)| (field.clone(), format!("{field}: {text}")));
    refusals_of_pods(&job).into_iter().map(named).chain(found).collect()
}

/// The garbage collector deletes a Job whose owners are not there, and `run` brings none.
fn owners(job: &Value) -> Option<(String, String)> {
    let owner = job["metadata"]["ownerReferences"].as_array()?.first()?;
    let text = |field: &str| owner[field].as_str().unwrap_or_default();
    let problem = format!(
        "the owner {} {:?} is not there, so the Job would be deleted at once: leave its owners out, or run with --exported",
        text("kind"),
        text("name")
    );
    Some(("metadata.ownerReferences".to_owned(), problem))
}

/// The field of a cause, and a text that names it once.
fn named(Cause { field, message, .. }: Cause) -> (String, String) {
    let text = match message.as_str() {
        unknown if unknown.ends_with(" field") => format!("{message} \"{field}\""),
        _ => format!("{field}: {message}"),
    };
    (field, text)
}
