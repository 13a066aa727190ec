//! Validates a Job manifest like an API server, before one is started.

use serde_json::{Value, json};

use super::located::Document;
use yardmaster_embedded::rules::{JobStrategy, Strategy, decode};

/// Placeholder for the uid that a server would assign, which becomes part of generated labels.
const UID: &str = "00000000-0000-0000-0000-000000000000";
/// Placeholder for the suffix that a server would append to `metadata.generateName`.
const SUFFIX: &str = "xxxxx";

/// A text about a field, with its line number in the file if that is known.
pub(super) fn at(document: &Document, field: &str, text: String) -> String {
    match document.line(field) {
        Some(line) => format!("{text} (line {line})"),
        None => text,
    }
}

/// The Job with its defaults; or all its problems, one line each.
pub(super) fn job(job: &Value, document: &Document) -> Result<Value, Vec<String>> {
    let at = |field: &str, text: String| at(document, field, text);
    let decoded = match decode::from_value("batch/v1", "Job", job.clone()) {
        Ok(decoded) => decoded,
        Err(error) => {
            let text = error.to_string();
            return Err(vec![at(&field_of(&text), text)]);
        }
    };
    if !decoded.strict.is_empty() {
        let quoted = |text: &String| text.split('"').nth(1).unwrap_or_default().to_owned();
        return Err(decoded.strict.iter().map(|text| at(&quoted(text), text.clone())).collect());
    }

    let mut job = decoded.object;
    job["metadata"]["uid"] = json!(UID);
    if let (None, Some(prefix)) = (job["metadata"]["name"].as_str(), job["metadata"]["generateName"].as_str())
    {
        job["metadata"]["name"] = json!(format!("{prefix}{SUFFIX}"));
    }
    JobStrategy.default_object(&mut job);
    JobStrategy.prepare_create(&mut job);
    let causes = JobStrategy.validate_create(&job);
    let problem = |field: &str, message: &str| at(field, format!("{field}: {message}"));
    let problems: Vec<_> = causes.iter().map(|cause| problem(&cause.field, &cause.message)).collect();
    if problems.is_empty() { Ok(job) } else { Err(problems) }
}

/// The field of a type error: Kubernetes writes `Go struct field JobSpec.spec.parallelism of type ...`.
fn field_of(text: &str) -> String {
    let field = text.split_once("struct field ").and_then(|(_, field)| field.split_whitespace().next());
    field.and_then(|field| field.split_once('.')).map(|(_, path)| path.to_owned()).unwrap_or_default()
}
