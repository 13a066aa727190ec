//! The fields of Jobs that commands read of all Jobs.

use k8s_openapi::api::batch::v1::Job;
use kube::Client;
use kube::api::{Api, ApiResource};
use kube::core::Object;
use serde::{Deserialize, Serialize};

/// A Job with the fields that commands read of all Jobs.
pub(super) type JobView = Object<JobSpec, JobStatus>;

/// Fields of a Job's `spec`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct JobSpec {
    pub(super) managed_by: Option<String>,
}

/// Fields of a Job's `status`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct JobStatus {
    conditions: Vec<JobCondition>,
}

/// A condition of a Job.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct JobCondition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
}

impl JobStatus {
    /// Whether the Job has ended.
    pub(super) fn is_finished(&self) -> bool {
        let ends = |condition: &JobCondition| matches!(&*condition.type_, "Complete" | "Failed");
        self.conditions.iter().any(|condition| ends(condition) && condition.status == "True")
    }
}

/// All Jobs of the cluster.
pub(super) fn all_jobs(client: &Client) -> Api<JobView> {
    Api::all_with(client.clone(), &ApiResource::erase::<Job>(&()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    #[test]
    fn only_complete_and_failed_jobs_are_finished() {
        for (type_, status, finished) in [
            ("Complete", "True", true),
            ("Failed", "True", true),
            ("Complete", "False", false),
            ("Suspended", "True", false),
            ("FailureTarget", "True", false),
        ] {
            let conditions = json!([{"type": type_, "status": status}]);
            let read: JobStatus = serde_json::from_value(json!({"conditions": conditions})).unwrap();
            assert_eq!(read.is_finished(), finished, "{type_} {status}");
        }
    }
}
