//! Jobs that run the failed indexes of a Job again: one Job for each index, since a Job that has ended runs no pod.

use k8s_openapi::api::batch::v1::Job;
use serde_json::{Value, json};

use crate::cli::export::clean;
use crate::job::index_set::IndexSet;
use crate::job::names::COMPLETION_INDEX;

/// Most indexes that are run again at once.
const MOST: u32 = 50;
/// The variable with the index, which the controller sets in pods of Indexed Jobs.
const VARIABLE: &str = "JOB_COMPLETION_INDEX";
/// Letters of the old name in the new one: a name has 63, and the index and an ending follow.
const NAME: usize = 40;
/// Fields that only Indexed Jobs may have, and those that the new Job gets itself.
const INDEXED: [&str; 4] = ["backoffLimitPerIndex", "maxFailedIndexes", "successPolicy", "suspend"];

/// The Jobs that run the failed indexes again.
///
/// # Errors
/// Says why there are none.
pub(super) fn again(job: &Job) -> Result<Vec<Job>, String> {
    let status = job.status.as_ref().and_then(|status| status.failed_indexes.as_deref()).unwrap_or_default();
    let completions = job.spec.as_ref().and_then(|spec| spec.completions).unwrap_or_default();
    let failed = IndexSet::parse_lenient(status, u32::try_from(completions).unwrap_or_default());
    match failed.len() {
        0 => return Err("the Job has no failed indexes".to_owned()),
        count if count > MOST => {
            return Err(format!("{count} indexes have failed: the page runs {MOST} again at most"));
        }
        _ => {}
    }
    let job = serde_json::to_value(job).map_err(|error| error.to_string())?;
    failed.iter().map(|index| of_index(job.clone(), index)).collect()
}

fn of_index(mut job: Value, index: u32) -> Result<Job, String> {
    clean(&mut job);
    let name = job["metadata"]["name"].as_str().unwrap_or_default();
    let name: String = name.chars().take(NAME).collect();
    let limit = job["spec"]["backoffLimitPerIndex"].clone();
    if let Some(metadata) = job["metadata"].as_object_mut() {
        metadata.remove("name");
        metadata.insert("generateName".to_owned(), format!("{name}-{index}-again-").into());
    }
    if let Some(spec) = job["spec"].as_object_mut() {
        INDEXED.iter().for_each(|field| _ = spec.remove(*field));
        spec.insert("completionMode".to_owned(), "NonIndexed".into());
        spec.insert("completions".to_owned(), 1.into());
        spec.insert("parallelism".to_owned(), 1.into());
        if !limit.is_null() {
            spec.insert("backoffLimit".to_owned(), limit);
        }
        if let Some(rules) =
            spec.get_mut("podFailurePolicy").and_then(|policy| policy["rules"].as_array_mut())
        {
            rules.retain(|rule| rule["action"] != "FailIndex");
            if rules.is_empty() {
                spec.remove("podFailurePolicy");
            }
        }
    }
    let template = &mut job["spec"]["template"];
    template["metadata"]["annotations"][COMPLETION_INDEX] = index.to_string().into();
    for containers in ["initContainers", "containers"] {
        for container in template["spec"][containers].as_array_mut().into_iter().flatten() {
            with_index(container, index);
        }
    }
    serde_json::from_value(job).map_err(|error| error.to_string())
}

/// Gives a container the index, unless its author has set the variable.
fn with_index(container: &mut Value, index: u32) {
    if container["env"].as_array().is_some_and(|all| all.iter().any(|one| one["name"] == VARIABLE)) {
        return;
    }
    let variable = json!({"name": VARIABLE, "value": index.to_string()});
    match container["env"].as_array_mut() {
        Some(variables) => variables.push(variable),
        None => container["env"] = json!([variable]),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn job(failed: &str) -> Job {
        let labels = json!({"batch.kubernetes.io/controller-uid": "u", "app": "train"});
        serde_json::from_value(json!({
            "metadata": {"name": "train", "namespace": "ml", "uid": "u", "resourceVersion": "7"},
            "spec": {
                "completionMode": "Indexed", "completions": 100, "parallelism": 8, "backoffLimit": 600,
                "backoffLimitPerIndex": 2, "maxFailedIndexes": 5, "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}},
                "podFailurePolicy": {"rules": [
                    {"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [9]}},
                    {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [7]}},
                ]},
                "template": {"metadata": {"labels": labels}, "spec": {
                    "restartPolicy": "Never",
                    "containers": [
                        {"name": "main", "env": [{"name": "A", "value": "b"}]},
                        {"name": "own", "env": [{"name": VARIABLE, "value": "x"}]},
                    ],
                }},
            },
            "status": {"failedIndexes": failed, "failed": 9},
        }))
        .unwrap()
    }

    #[test]
    fn each_failed_index_gets_a_job_whose_program_sees_the_index() {
        let jobs = again(&job("3,20-21")).unwrap();
        let names: Vec<_> = jobs.iter().map(|job| job.metadata.generate_name.as_deref().unwrap()).collect();
        assert_eq!(names, ["train-3-again-", "train-20-again-", "train-21-again-"]);
        let job = serde_json::to_value(&jobs[1]).unwrap();
        let spec = &job["spec"];
        assert_eq!(job["metadata"]["name"], Value::Null);
        assert_eq!(job["metadata"]["uid"], Value::Null);
        assert!(job["status"].is_null() && spec["selector"].is_null());
        assert_eq!(spec["template"]["metadata"]["labels"], json!({"app": "train"}));
        assert_eq!((&spec["completions"], &spec["backoffLimit"]), (&json!(1), &json!(2)));
        assert!(INDEXED.iter().all(|field| spec[*field].is_null()), "{spec}");
        assert_eq!(spec["podFailurePolicy"]["rules"].as_array().unwrap().len(), 1);
        let containers = &spec["template"]["spec"]["containers"];
        assert_eq!(containers[0]["env"][1], json!({"name": VARIABLE, "value": "20"}));
        assert_eq!(containers[1]["env"], json!([{"name": VARIABLE, "value": "x"}]));
        assert_eq!(spec["template"]["metadata"]["annotations"][COMPLETION_INDEX], "20");
    }

    #[test]
    fn without_failed_indexes_or_with_too_many_there_are_none() {
        assert!(again(&job("")).is_err());
        assert_eq!(again(&job("0-49")).map(|jobs| jobs.len()), Ok(50));
        assert!(again(&job("0-50")).is_err_and(|why| why.contains("51")));
    }
}
