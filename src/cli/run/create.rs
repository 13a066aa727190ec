//! Creates the Jobs of a run.

use anyhow::Context;
use serde::Serialize;
use serde_json::{Value, json};

use super::manifest::Manifest;
use crate::cluster::resource::Resource;
use crate::job::index_set::IndexSet;

/// Creates a Job from the unchanged manifest: the server validates every field. Indexes that had succeeded in an earlier run have
/// so in this one: the Job is suspended until its status says that.
pub(super) async fn create(
    client: &kube::Client,
    manifest: &Manifest,
    succeeded: &IndexSet,
) -> anyhow::Result<Value> {
    let Manifest { job, namespace } = manifest;
    let what = format!("cannot create Job {}", key(job));
    let uri = format!("{}?fieldValidation=Strict", Resource::JOBS.path(Some(namespace)));
    let mut made = job.clone();
    if !succeeded.is_empty() {
        made["spec"]["suspend"] = json!(true);
    }
    let made = send(client, http::Method::POST, &uri, JSON, &made).await;
    let made = made.map_err(|error| with_next_step(error, job)).context(what)?;
    if succeeded.is_empty() {
        return Ok(made);
    }
    let name = made["metadata"]["name"].as_str().unwrap_or_default();
    let what = format!("cannot resume Job {}", key(&made));
    let uri = Resource::JOBS.object_path(namespace.as_str(), name);
    let status = json!({"status": {"completedIndexes": succeeded.to_string(), "succeeded": succeeded.len()}});
    let status_uri = format!("{uri}/status");
    let restored = send(client, http::Method::PATCH, &status_uri, MERGE, &status).await;
    let restored = restored.context(what.clone())?;
    if job["spec"]["suspend"] == true {
        return Ok(restored);
    }
    let begin = json!({"spec": {"suspend": false}});
    send(client, http::Method::PATCH, &uri, MERGE, &begin).await.context(what)
}

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";

async fn send(
    client: &kube::Client,
    method: http::Method,
    uri: &str,
    media_type: &str,
    body: &impl Serialize,
) -> anyhow::Result<Value> {
    let request = http::Request::builder().method(method).uri(uri);
    let request = request.header(http::header::CONTENT_TYPE, media_type).body(serde_json::to_vec(body)?)?;
    Ok(client.request(request).await?)
}

/// The error of a creation, with what to do about a Job of the same name.
fn with_next_step(error: anyhow::Error, job: &Value) -> anyhow::Error {
    let exists = matches!(
        error.downcast_ref(), Some(kube::Error::Api(status)) if status.reason == "AlreadyExists"
    );
    if !exists {
        return error;
    }
    let field = |name: &str| job["metadata"][name].as_str().unwrap_or_default().to_owned();
    let (namespace, name) = (field("namespace"), field("name"));
    anyhow::anyhow!(
        "it exists already: delete it with `kubectl delete job -n {namespace} {name}`, or give metadata.generateName in place of \
         metadata.name"
    )
}

/// `namespace/name` of a Job.
pub(super) fn key(job: &Value) -> String {
    let field = |name: &str| job["metadata"][name].as_str().unwrap_or_default().to_owned();
    format!("{}/{}", field("namespace"), field("name"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::convert::Infallible;
    use std::sync::{Arc, Mutex};

    use http::{Request, Response};
    use kube::client::Body;

    use super::*;

    #[tokio::test]
    async fn a_name_that_an_api_server_answers_leads_to_no_other_object() {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let uris = asked.clone();
        let answer = tower::service_fn(move |request: Request<Body>| {
            uris.lock().unwrap().push(request.uri().path().to_owned());
            let job = json!({"metadata": {"namespace": "n", "name": "../secrets/s?x="}});
            async move { Ok::<_, Infallible>(Response::new(Body::from(job.to_string().into_bytes()))) }
        });
        let client = kube::Client::new(answer, "default");
        let manifest = Manifest { job: json!({"spec": {}}), namespace: "n".to_owned() };
        create(&client, &manifest, &IndexSet::from_iter([0])).await.unwrap();
        let jobs = "/apis/batch/v1/namespaces/n/jobs";
        let job = format!("{jobs}/..%2Fsecrets%2Fs%3Fx%3D");
        assert_eq!(*asked.lock().unwrap(), [jobs.to_owned(), format!("{job}/status"), job]);
    }
}
