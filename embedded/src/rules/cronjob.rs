//! `batch/v1` CronJob.

use serde_json::{Value, json};

use super::cron_schedule::CronSchedule;
use super::field::{Causes, Path};
use super::job::{spec_warnings, validate_spec_without_selector};
use super::metadata::{self, MetadataRule, child, default_to, object_at};
use super::pod::{template, warnings as pod_warnings};
use super::{Cause, Strategy, Subresource, names};

const METADATA_RULE: MetadataRule = MetadataRule { namespaced: true, name: names::dns_subdomain };
/// Maximum length of a CronJob's name, which leaves room for the suffix of its Jobs' names.
const NAME_LENGTH_MAX: usize = 52;
const CONCURRENCY_POLICIES: [&str; 3] = ["Allow", "Forbid", "Replace"];

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
        validate_spec(&mut causes, None, &object["spec"]);
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
                |causes| validate_spec(causes, Some(&old["spec"]), &new["spec"]),
            ),
        }
        causes.into_vec()
    }

    fn warnings(&self, subresource: Subresource, old: Option<&Value>, new: &Value) -> Vec<String> {
        let mut warnings = Vec::new();
        let changed = old.is_none_or(|old| old["metadata"]["generation"] != new["metadata"]["generation"]);
        if subresource != Subresource::Main || !changed {
            return warnings;
        }
        if old.is_none() {
            let name = new["metadata"]["name"].as_str().unwrap_or_default();
            warnings.extend(pod_warnings::hostname(name, "Pod names and hostnames"));
        }
        let (spec, template) = (Path::root("spec"), &new["spec"]["jobTemplate"]["spec"]);
        spec_warnings(&mut warnings, &spec.child("jobTemplate").child("spec"), template);
        warnings
    }
}

/// Checks a spec. An unchanged schedule or time zone is not checked again. An earlier version may have
/// accepted the schedule, and the database may have lost the time zone.
fn validate_spec(causes: &mut Causes, old: Option<&Value>, spec: &Value) {
    let path = Path::root("spec");
    if old.is_none_or(|old| old["schedule"] != spec["schedule"]) {
        schedule(causes, &path.child("schedule"), spec["schedule"].as_str().unwrap_or_default());
    }
    causes.non_negative(&path.child("startingDeadlineSeconds"), &spec["startingDeadlineSeconds"]);
    if old.is_none_or(|old| old["timeZone"] != spec["timeZone"]) {
        time_zone(causes, &path.child("timeZone"), &spec["timeZone"]);
    }
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

/// Checks a time zone: a name of the time zone database. A machine without that database accepts every
/// well-formed name.
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

/// Checks a schedule. Its time zone is a field of its own.
fn schedule(causes: &mut Causes, path: &Path<'_>, schedule: &str) {
    if schedule.is_empty() {
        causes.required(path, "");
        return;
    }
    let zoned = schedule.strip_prefix("TZ=").or_else(|| schedule.strip_prefix("CRON_TZ="));
    let unzoned = zoned.and_then(|zoned| zoned.split_once(' ')).map_or(schedule, |(_, rest)| rest.trim());
    if let Err(error) = CronSchedule::parse(unzoned) {
        causes.invalid_str(path, schedule, &error.to_string());
    }
    if schedule.contains("TZ") {
        let detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
        causes.invalid_str(path, schedule, detail);
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

    fn cron_job(spec: Value) -> Value {
        let mut cron_job = json!({"metadata": {"name": "c", "namespace": "n"}, "spec": {"schedule": "@daily", "jobTemplate": {
            "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}},
        }}});
        object_at(&mut cron_job, "spec").extend(spec.as_object().cloned().unwrap_or_default());
        CronJobStrategy.default_object(&mut cron_job);
        cron_job
    }

    fn messages(causes: &[Cause]) -> Vec<String> {
        causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect()
    }

    #[test]
    fn schedules_are_read_as_the_controller_reads_them() {
        let zoned = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
        let cases: [(&str, &[&str]); 5] = [
            ("*/5 * * * mon-fri", &[]),
            ("", &["spec.schedule: Required value"]),
            (
                "* * * * 7",
                &["spec.schedule: Invalid value: \"* * * * 7\": end of range (7) above maximum (6): 7"],
            ),
            ("TZ=UTC * * * * *", &[&format!("spec.schedule: Invalid value: \"TZ=UTC * * * * *\": {zoned}")]),
            (
                "CRON_TZ=UTC @daily",
                &[&format!("spec.schedule: Invalid value: \"CRON_TZ=UTC @daily\": {zoned}")],
            ),
        ];
        for (schedule, expected) in cases {
            let causes = CronJobStrategy.validate_create(&cron_job(json!({"schedule": schedule})));
            assert_eq!(messages(&causes), expected, "{schedule}");
        }
    }

    #[test]
    fn a_time_zone_that_the_database_has_lost_stays() {
        let (lost, other) = (json!({"timeZone": "Europe/Atlantis"}), json!({"timeZone": "Europe/Lemuria"}));
        let update = |new: &Value| {
            let update = Subresource::Main;
            messages(&CronJobStrategy.validate_update(
                update,
                &cron_job(lost.clone()),
                &cron_job(new.clone()),
            ))
        };
        assert!(update(&lost).is_empty());
        assert_eq!(
            update(&other),
            ["spec.timeZone: Invalid value: \"Europe/Lemuria\": unknown time zone Europe/Lemuria"]
        );
    }

    #[test]
    fn warnings_of_the_job_name_its_place() {
        let mut cron_job = cron_job(json!({}));
        cron_job["metadata"]["name"] = "a.b".into();
        let container = &mut cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0];
        container["env"] = json!([{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]);
        let warnings = CronJobStrategy.warnings(Subresource::Main, None, &cron_job);
        assert!(
            warnings[0].starts_with("metadata.name: this is used in Pod names and hostnames"),
            "{warnings:?}"
        );
        let place = "spec.jobTemplate.spec.template.spec.containers[0].env[1]";
        assert!(warnings[1].starts_with(place), "{warnings:?}");
        assert!(CronJobStrategy.warnings(Subresource::Main, Some(&cron_job), &cron_job).is_empty());
        assert!(CronJobStrategy.warnings(Subresource::Status, None, &cron_job).is_empty());
    }
}
