//! Jobs that run the failed indexes of a Job again: one Job for each index, since a Job that has ended runs no pod.
//!
//! Their names follow from the Job, the index and the attempt. So a viewer who asks twice, or asks again after an answer was
//! lost, gets each Job once. An attempt that has failed leads to the next.

use axum::http::StatusCode;
use k8s_openapi::api::batch::v1::Job;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};

use super::{refusal, refuse};
use crate::cli::export::clean;
use crate::job::index_set::IndexSet;
use crate::job::names::{COMPLETION_INDEX, COMPLETION_INDEX_ENV, RETRY_OF_ANNOTATION};
use crate::job::pod_name::suffix;
use crate::telemetry::http::LiveRefusal;

/// Most indexes that are run again at once.
const MOST: u32 = 50;
/// Most attempts of an index that may exist.
const ATTEMPTS: u32 = 10;
/// Letters of the old name in the new one. A name of a Job has 63, since its pods have it as a label. The index and an ending
/// of 12 follow.
const NAME: usize = 40;
/// Letters at the end of a name that tell Jobs and attempts apart.
const SUFFIX: usize = 5;
/// Fields that only Indexed Jobs may have, and those that the new Job gets itself. A selector of the author would select the
/// pods of the old Job.
const INDEXED: [&str; 6] =
    ["backoffLimitPerIndex", "manualSelector", "maxFailedIndexes", "selector", "successPolicy", "suspend"];

/// Creates the Jobs that run the failed indexes of a Job again, and returns their names. A Job that an earlier call has created
/// counts.
///
/// # Errors
/// If there is nothing to run again, or the API server refuses a Job.
pub(super) async fn retry(jobs: &Api<Job>, failed: &Job) -> Result<Vec<String>, LiveRefusal> {
    let mut names = Vec::new();
    for again in again(failed).map_err(|why| refuse(StatusCode::CONFLICT, &why))? {
        names.push(again.create(jobs).await?);
    }
    Ok(names)
}

/// A failed index that is run again.
#[derive(Debug, PartialEq)]
struct IndexRetry {
    index: u32,
    /// The Job without its name.
    job: Job,
    /// The beginning of its name.
    begin: String,
    /// The failed Job and the index, as an annotation has them.
    of: String,
}

impl IndexRetry {
    async fn create(&self, jobs: &Api<Job>) -> Result<String, LiveRefusal> {
        for attempt in 1..=ATTEMPTS {
            let job = self.attempt(attempt);
            let name = job.metadata.name.clone().unwrap_or_default();
            match jobs.create(&PostParams::default(), &job).await {
                Ok(_) => return Ok(name),
                Err(kube::Error::Api(status)) if status.is_already_exists() => {
                    let there = jobs.get_opt(&name).await.map_err(refusal)?;
                    if there.is_some_and(|job| self.is_under_way(&job)) {
                        return Ok(name);
                    }
                }
                Err(error) => return Err(refusal(error)),
            }
        }
        let problem = format!("{ATTEMPTS} retries of index {} have failed: delete them first", self.index);
        Err(refuse(StatusCode::CONFLICT, &problem))
    }

    /// The Job of an attempt, from 1. The same attempt has the same name.
    fn attempt(&self, number: u32) -> Job {
        let mut job = self.job.clone();
        let end = suffix(&[self.of.as_bytes(), &number.to_be_bytes()], SUFFIX);
        job.metadata.name = Some(format!("{}{end}", self.begin));
        job
    }

    /// Whether this Job runs the index again, or has run it with success.
    fn is_under_way(&self, job: &Job) -> bool {
        let annotations = job.metadata.annotations.as_ref();
        let is_own = annotations.and_then(|all| all.get(RETRY_OF_ANNOTATION)) == Some(&self.of);
        let conditions = job.status.as_ref().and_then(|status| status.conditions.as_deref());
        let mut ends = conditions.into_iter().flatten().filter(|condition| condition.status == "True");
        is_own
            && job.metadata.deletion_timestamp.is_none()
            && !ends.any(|end| matches!(&*end.type_, "Failed" | "FailureTarget"))
    }
}

/// The Jobs that run the failed indexes again.
///
/// # Errors
/// Says why there are none.
fn again(job: &Job) -> Result<Vec<IndexRetry>, String> {
    if job.metadata.deletion_timestamp.is_some() {
        return Err("the Job is being deleted".to_owned());
    }
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

fn of_index(mut job: Value, index: u32) -> Result<IndexRetry, String> {
    let of = format!("{}/{index}", job["metadata"]["uid"].as_str().unwrap_or_default());
    clean(&mut job);
    let name = job["metadata"]["name"].as_str().unwrap_or_default();
    let name: String = name.chars().take(NAME).collect();
    // A part of a name between dots ends with a letter or digit.
    let begin = format!("{}-{index}-again-", name.trim_end_matches(['-', '.']));
    let limit = job["spec"]["backoffLimitPerIndex"].clone();
    job["metadata"]["annotations"][RETRY_OF_ANNOTATION] = (&*of).into();
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
    let job = serde_json::from_value(job).map_err(|error| error.to_string())?;
    Ok(IndexRetry { index, job, begin, of })
}

/// Gives a container the index, unless its author has set the variable.
fn with_index(container: &mut Value, index: u32) {
    if container["env"]
        .as_array()
        .is_some_and(|all| all.iter().any(|one| one["name"] == COMPLETION_INDEX_ENV))
    {
        return;
    }
    let variable = json!({"name": COMPLETION_INDEX_ENV, "value": index.to_string()});
    match container["env"].as_array_mut() {
        Some(variables) => variables.push(variable),
        None => container["env"] = json!([variable]),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeMap;
    use std::convert::Infallible;
    use std::sync::{Arc, Mutex};

    use http::{Method, Request, Response};
    use http_body_util::BodyExt as _;
    use kube::Client;
    use kube::client::Body;

    use super::*;
    use crate::job::job_id::is_subdomain;
    use crate::job::names::STATUS_ANNOTATIONS;

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
                        {"name": "own", "env": [{"name": COMPLETION_INDEX_ENV, "value": "x"}]},
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
        let names: Vec<_> = jobs.iter().map(|job| &*job.begin).collect();
        assert_eq!(names, ["train-3-again-", "train-20-again-", "train-21-again-"]);
        let job = serde_json::to_value(jobs[1].attempt(1)).unwrap();
        let spec = &job["spec"];
        assert!(job["metadata"]["name"].as_str().unwrap().starts_with("train-20-again-"));
        assert_eq!(job["metadata"]["uid"], Value::Null);
        assert!(job["status"].is_null() && spec["selector"].is_null());
        assert_eq!(spec["template"]["metadata"]["labels"], json!({"app": "train"}));
        assert_eq!((&spec["completions"], &spec["backoffLimit"]), (&json!(1), &json!(2)));
        assert!(INDEXED.iter().all(|field| spec[*field].is_null()), "{spec}");
        assert_eq!(spec["podFailurePolicy"]["rules"].as_array().unwrap().len(), 1);
        let containers = &spec["template"]["spec"]["containers"];
        assert_eq!(containers[0]["env"][1], json!({"name": COMPLETION_INDEX_ENV, "value": "20"}));
        assert_eq!(containers[1]["env"], json!([{"name": COMPLETION_INDEX_ENV, "value": "x"}]));
        assert_eq!(spec["template"]["metadata"]["annotations"][COMPLETION_INDEX], "20");
    }

    #[test]
    fn without_failed_indexes_or_with_too_many_there_are_none() {
        assert!(again(&job("")).is_err());
        assert_eq!(again(&job("0-49")).map(|jobs| jobs.len()), Ok(50));
        assert!(again(&job("0-50")).is_err_and(|why| why.contains("51")));
        let mut deleted = job("3");
        deleted.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        assert!(again(&deleted).is_err_and(|why| why.contains("deleted")));
    }

    #[test]
    fn a_new_job_has_no_finalizers_and_nothing_that_the_controller_wrote() {
        let mut failed = job("3");
        let annotations = STATUS_ANNOTATIONS.map(|name| (name.to_owned(), "7".to_owned()));
        failed.metadata.annotations = Some(annotations.into());
        failed.metadata.finalizers = Some(vec!["example.com/hold".into()]);
        let metadata = again(&failed).unwrap().remove(0).attempt(1).metadata;
        let expected = BTreeMap::from([(RETRY_OF_ANNOTATION.to_owned(), "u/3".to_owned())]);
        assert_eq!((metadata.annotations, metadata.finalizers), (Some(expected), None));
    }

    #[test]
    fn names_are_those_that_a_job_may_have_and_follow_from_job_index_and_attempt() {
        for name in
            ["train".to_owned(), "a".repeat(63), format!("{}.b", "a".repeat(39)), "a-".repeat(31) + "a"]
        {
            let mut failed = job("2147483646");
            failed.spec.as_mut().unwrap().completions = Some(i32::MAX);
            failed.metadata.name = Some(name);
            let name = |attempt| again(&failed).unwrap()[0].attempt(attempt).metadata.name.unwrap();
            assert!(is_subdomain(&name(1)) && name(1).len() <= 63, "{}", name(1));
            assert_eq!(name(1), name(1));
            assert_ne!(name(1), name(2));
        }
    }

    /// An API server that stores Jobs by their names.
    fn server() -> (Client, Arc<Mutex<BTreeMap<String, Value>>>) {
        let stored = Arc::new(Mutex::new(BTreeMap::new()));
        let jobs = stored.clone();
        let answer = tower::service_fn(move |request: Request<Body>| {
            let jobs: Arc<Mutex<BTreeMap<String, Value>>> = jobs.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let mut jobs = jobs.lock().unwrap();
                let (code, answer) = if head.method == Method::POST {
                    let job: Value = serde_json::from_slice(&body).unwrap();
                    let name = job["metadata"]["name"].as_str().unwrap().to_owned();
                    match jobs.contains_key(&name) {
                        true => (
                            409,
                            json!({"code": 409, "reason": "AlreadyExists", "message": "", "status": "Failure"}),
                        ),
                        false => (201, jobs.entry(name).or_insert(job).clone()),
                    }
                } else {
                    (200, jobs[head.uri.path().rsplit('/').next().unwrap()].clone())
                };
                let answer = Body::from(serde_json::to_vec(&answer).unwrap());
                Ok::<_, Infallible>(Response::builder().status(code).body(answer).unwrap())
            }
        });
        (Client::new(answer, "default"), stored)
    }

    #[tokio::test]
    async fn asking_twice_creates_each_job_once_and_a_failed_one_leads_to_the_next() {
        let (client, stored) = server();
        let jobs: Api<Job> = Api::namespaced(client, "ml");
        let first = retry(&jobs, &job("3,5")).await.unwrap();
        assert_eq!(retry(&jobs, &job("3,5")).await.unwrap(), first);
        assert_eq!(stored.lock().unwrap().len(), 2);
        stored.lock().unwrap().get_mut(&first[0]).unwrap()["status"] =
            json!({"conditions": [{"type": "Failed", "status": "True"}]});
        let second = retry(&jobs, &job("3,5")).await.unwrap();
        assert!(second[0] != first[0] && second[1] == first[1], "{second:?}");
        // A Job of another author with this name is not ours.
        stored.lock().unwrap().get_mut(&first[1]).unwrap()["metadata"]["annotations"] = json!({});
        assert_ne!(retry(&jobs, &job("5")).await.unwrap()[0], first[1]);
    }
}
