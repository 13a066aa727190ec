//! Reasons why a Job cannot run, as far as they are known before anything starts.

use std::collections::HashSet;

use serde_json::Value;

use super::view::is_ours;
use super::{Host, preflight};
use yardmaster_embedded::BODY_LIMIT;
use yardmaster_embedded::rules::{Cause, job_of_manifest, refusals_of_pods};

/// A field that keeps a Job from running.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Problem {
    /// Its path.
    pub(super) field: String,
    /// The problem, with the path.
    pub(super) text: String,
    /// Kind and name of the object of the Job's namespace that is missing, if that is what is wrong.
    pub(super) missing: Option<(&'static str, String)>,
}

impl Problem {
    fn new((field, text): (String, String)) -> Self {
        Self { field, text, missing: None }
    }
}

/// The fields that an API server refuses; or, if there are none, those that this machine cannot give the pods.
pub(super) fn problems(job: &Value, host: &Host) -> Vec<Problem> {
    let mut problems: Vec<_> =
        too_large(job).map(Problem::new).into_iter().chain(problems_of_fields(job, host)).collect();
    // Kubernetes checks some values twice, as those of both labels with the name of the Job.
    let mut told = HashSet::new();
    problems.retain(|problem| told.insert(problem.clone()));
    problems
}

/// An API server ends a request that is larger.
fn too_large(job: &Value) -> Option<(String, String)> {
    let size = serde_json::to_vec(job).map_or(0, |body| body.len());
    let problem = format!(
        "the Job has {size} bytes as JSON, and an API server takes at most {BODY_LIMIT}: keep large texts in files"
    );
    (size > BODY_LIMIT).then(|| (String::new(), problem))
}

fn problems_of_fields(manifest: &Value, host: &Host) -> Vec<Problem> {
    let refused = |cause| Problem::new(named(manifest, cause));
    let job = match job_of_manifest(manifest) {
        Ok(job) => job,
        Err(causes) => return causes.into_iter().map(refused).collect(),
    };
    let Host::ThisMachine(runtime) = host else { return Vec::new() };
    // The pods of another controller's Job do not run here.
    if !job["spec"]["managedBy"].as_str().is_none_or(is_ours) {
        return Vec::new();
    }
    let owners = owners(&job).map(Problem::new);
    let found = owners.into_iter().chain(preflight::problems(&job, &runtime.machine()));
    let found =
        found.map(|problem| Problem { text: format!("{}: {}", problem.field, problem.text), ..problem });
    refusals_of_pods(&job).into_iter().map(refused).chain(found).collect()
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

/// The place of a cause, and a text that names its field once.
fn named(manifest: &Value, cause: Cause) -> (String, String) {
    let Cause { message, entry, .. } = cause;
    let field = written(manifest, cause.field);
    let labels = &manifest["spec"]["template"]["metadata"]["labels"];
    match entry {
        // Each pod has a label with the name of its Job.
        Some(key) if field == TEMPLATE_LABELS && NAME_LABELS.contains(&&*key) && labels[&key].is_null() => {
            let field = "metadata.name".to_owned();
            let text = format!("{field}: {message}, as it is a label of the pods");
            (field, text)
        }
        Some(key) => (format!("{field}[{key}]"), format!("{field}: {message}")),
        None if message.ends_with(" field") => (field.clone(), format!("{message} \"{field}\"")),
        None => (field.clone(), format!("{field}: {message}")),
    }
}

const TEMPLATE_LABELS: &str = "spec.template.metadata.labels";
/// The labels that a new Job gives its pods, with its name as their value.
const NAME_LABELS: [&str; 2] = ["batch.kubernetes.io/job-name", "job-name"];

/// The path of a field as it is written. Kubernetes leaves `metadata` out for two fields of a template, and gives a Job without
/// labels those of its template.
fn written(manifest: &Value, field: String) -> String {
    let labels = &manifest["metadata"]["labels"];
    if field == "metadata.labels" && labels.as_object().is_none_or(serde_json::Map::is_empty) {
        return TEMPLATE_LABELS.to_owned();
    }
    for part in ["labels", "annotations"] {
        let rest = field.strip_prefix("spec.template.").and_then(|rest| rest.strip_prefix(part));
        if let Some(rest) = rest.filter(|rest| rest.is_empty() || rest.starts_with(['.', '['])) {
            return format!("spec.template.metadata.{part}{rest}");
        }
    }
    field
}
