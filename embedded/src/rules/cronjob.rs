//! `batch/v1` CronJob: validated and stored, but there is no controller for it.

use serde_json::{Value, json};

use super::field::{Causes, Path};
use super::job::validate_spec_without_selector;
use super::metadata::{self, MetadataRule, child, default_to, object_at};
use super::pod::template;
use super::{Cause, Strategy, Subresource, names};

const METADATA_RULE: MetadataRule = MetadataRule { namespaced: true, name: names::dns_subdomain };
/// Maximum length of a CronJob's name, which leaves room for the suffix of its Jobs' names.
const NAME_LENGTH_MAX: usize = 52;
const CONCURRENCY_POLICIES: [&str; 3] = ["Allow", "Forbid", "Replace"];
const SCHEDULE_FIELDS: usize = 5;

/// The rules of CronJobs.
#[derive(Clone, Copy, Debug, Default)]
pub struct CronJobStrategy;

impl Strategy for CronJobStrategy {
    fn default_object(&self, object: &mut Value) {
        let spec = object_at(object, "spec");
        default_to(spec, "concurrencyPolicy", "Allow");
        default_to(spec, "suspend", false);
        default_to(spec, "successfulJobsHistoryLimit", 3);
        default_to(spec, "failedJobsHistoryLimit", 1);
        let job_template = metadata::as_object(child(spec, "jobTemplate"));
        let job_spec = metadata::as_object(child(job_template, "spec"));
        template::default_template(child(job_spec, "template"));
    }

    fn prepare_create(&self, object: &mut Value) {
        object["status"] = json!({});
        object_at(object, "metadata").insert("generation".into(), json!(1));
    }

    fn validate_create(&self, object: &Value) -> Vec<Cause> {
        let mut causes = Causes::default();
        metadata::validate(&mut causes, object, METADATA_RULE);
        validate_spec(&mut causes, &object["spec"]);
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        if name.len() > NAME_LENGTH_MAX {
            let detail = format!("must be no more than {NAME_LENGTH_MAX} characters");
            causes.invalid_str(&Path::root("metadata").child("name"), name, &detail);
        }
        causes.into_vec()
    }

    fn prepare_update(&self, subresource: Subresource, old: &Value, new: &mut Value) {
        metadata::carry_over(old, new);
        if subresource == Subresource::Status {
            metadata::keep(old, new, "spec");
            return;
        }
        metadata::keep(old, new, "status");
        if new["spec"] != old["spec"] {
            metadata::bump_generation(new);
        }
    }

    fn validate_update(&self, subresource: Subresource, old: &Value, new: &Value) -> Vec<Cause> {
        let mut causes = Causes::default();
        match subresource {
            Subresource::Status => metadata::validate_update_generic(&mut causes, old, new),
            _ => metadata::validate_update(
                &mut causes,
                old,
                new,
                |_| {},
                |causes| validate_spec(causes, &new["spec"]),
            ),
        }
        causes.into_vec()
    }
}

fn validate_spec(causes: &mut Causes, spec: &Value) {
    let path = Path::root("spec");
    schedule(causes, &path.child("schedule"), spec["schedule"].as_str().unwrap_or_default());
    causes.non_negative(&path.child("startingDeadlineSeconds"), &spec["startingDeadlineSeconds"]);
    time_zone(causes, &path.child("timeZone"), &spec["timeZone"]);
    causes.required_enum(&path.child("concurrencyPolicy"), &spec["concurrencyPolicy"], &CONCURRENCY_POLICIES);
    let template_path = path.child("jobTemplate");
    let job_path = template_path.child("spec");
    let job = &spec["jobTemplate"]["spec"];
    validate_spec_without_selector(causes, &job_path, job);
    if !job["selector"].is_null() {
        causes.invalid_of(
            &job_path.child("selector"),
            "meta.LabelSelector",
            &job["selector"],
            "`selector` will be auto-generated",
        );
    }
    if job["manualSelector"] == true {
        causes.not_supported(&job_path.child("manualSelector"), &job["manualSelector"], &["nil", "false"]);
    }
    for field in ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        causes.non_negative(&path.child(field), &spec[field]);
    }
}

/// Checks a time zone: a name of the time zone database. A machine without that database cannot tell.
fn time_zone(causes: &mut Causes, path: &Path<'_>, zone: &Value) {
    let Some(name) = zone.as_str() else { return };
    let is_part = |part: &str| {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_' | b'+');
        (1..=14).contains(&part.len())
            && !part.starts_with('-')
            && part != "."
            && part != ".."
            && part.bytes().all(allowed)
    };
    if name.is_empty() {
        causes.invalid(path, zone, "timeZone must be nil or non-empty string");
    } else if !name.split('/').all(is_part) {
        causes.invalid(path, zone, &format!("unknown time zone {name}"));
    } else if name.eq_ignore_ascii_case("Local") {
        let detail = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        causes.invalid(path, zone, detail);
    } else if !jiff::tz::db().is_definitively_empty() && jiff::tz::TimeZone::get(name).is_err() {
        causes.invalid(path, zone, &format!("unknown time zone {name}"));
    }
}

/// Checks the form of a schedule: five fields, or a name such as `@daily`.
fn schedule(causes: &mut Causes, path: &Path<'_>, schedule: &str) {
    if schedule.is_empty() {
        causes.required(path, "");
        return;
    }
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    if !schedule.starts_with('@') && fields.len() != SCHEDULE_FIELDS {
        let (found, shown) = (fields.len(), fields.join(" "));
        let detail = format!("expected exactly {SCHEDULE_FIELDS} fields, found {found}: [{shown}]");
        causes.invalid_str(path, schedule, &detail);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn time_zones_of_the_database_are_accepted() {
        for zone in
            [json!("Etc/UTC"), json!("Europe/Berlin"), json!("America/Argentina/Rio_Gallegos"), Value::Null]
        {
            let mut causes = Causes::default();
            time_zone(&mut causes, &Path::root("timeZone"), &zone);
            assert!(causes.is_empty(), "{zone}");
        }
    }
}
