//! CronJobs that run now, whatever their schedule says.

use serde_json::Value;
use yardmaster_manifest::job_of_template;

/// The kind of CronJobs.
pub(super) const CRON_JOB: &str = "CronJob";
/// The annotation of a Job that was made from a CronJob by hand, as `kubectl create job --from` writes it.
const INSTANTIATE: &str = "cronjob.kubernetes.io/instantiate";

/// The Job that a CronJob would create now: of its template's metadata, labels and annotations count. The API server completes its
/// name, so that it differs from those of others. Returns `None` without a template.
pub(super) fn job_now(cron_job: &Value) -> Option<Value> {
    let template = cron_job.pointer("/spec/jobTemplate").filter(|template| template.is_object())?;
    let name = cron_job["metadata"]["name"].as_str().unwrap_or_default();
    let mut job = job_of_template(template, (INSTANTIATE, "manual"));
    job["metadata"]["generateName"] = format!("{name}-").into();
    job["metadata"]["namespace"] = cron_job["metadata"]["namespace"].clone();
    Some(job)
}

/// Where a CronJob has a field of its Job.
pub(super) fn place(field: &str) -> String {
    match field {
        "metadata.name" | "metadata.generateName" => "metadata.name".to_owned(),
        "" => String::new(),
        field => format!("spec.jobTemplate.{field}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_cron_job_runs_now_as_its_template_says() {
        let spec = json!({"template": {"spec": {"restartPolicy": "Never"}}});
        let cron_job = json!({
            "metadata": {"name": "nightly", "namespace": "n", "labels": {"of": "cron-job"}},
            "spec": {
                "schedule": "@daily",
                "jobTemplate": {
                    "metadata": {"name": "other", "finalizers": ["f"], "labels": {"a": "b"}, "annotations": {"c": "d"}},
                    "spec": spec,
                },
            },
        });
        let expected = json!({
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "generateName": "nightly-",
                "namespace": "n",
                "labels": {"a": "b"},
                "annotations": {"c": "d", INSTANTIATE: "manual"},
            },
            "spec": spec,
        });
        assert_eq!(job_now(&cron_job), Some(expected));
        for wrong in [json!({"spec": {"jobTemplate": [{"spec": {}}]}}), json!({"spec": "text"}), json!({})] {
            assert_eq!(job_now(&wrong), None);
        }
        assert_eq!(place("spec.template.spec.containers"), "spec.jobTemplate.spec.template.spec.containers");
        assert_eq!(place("metadata.name"), "metadata.name");
    }
}
