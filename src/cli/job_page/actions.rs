//! Actions of a viewer on a Job. The API server decides about each: the requests carry the viewer's token.

use axum::http::StatusCode;
use futures::future::try_join_all;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::api::batch::v1::Job;
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy};
use serde_json::{Value, json};

use super::retry::retry;
use super::{job, refusal, refuse};
use crate::telemetry::http::{ActionAsk, JobAction, JobKey, LiveRefusal};

/// Verbs on Jobs, and the actions that they permit.
const VERBS: [(&str, &[&str]); 3] =
    [("patch", &["suspend", "resume"]), ("delete", &["delete"]), ("create", &["retry"])];

/// The actions that the viewer has the rights for.
pub(super) async fn possible(client: &Client, key: &JobKey) -> Result<Vec<&'static str>, LiveRefusal> {
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let ask = async |(verb, actions): (&str, &'static [&'static str])| {
        // A new Job gets a name of its own.
        let name = (verb != "create").then(|| key.name.clone());
        let review =
            SelfSubjectAccessReview { spec: may(verb, key, name), ..SelfSubjectAccessReview::default() };
        let answer = reviews.create(&PostParams::default(), &review).await.map_err(refusal)?;
        let is_allowed = answer.status.is_some_and(|status| status.allowed);
        let none: &'static [&'static str] = &[];
        Ok::<_, LiveRefusal>(if is_allowed { actions } else { none })
    };
    Ok(try_join_all(VERBS.map(ask)).await?.concat())
}

fn may(verb: &str, key: &JobKey, name: Option<String>) -> SelfSubjectAccessReviewSpec {
    let attributes = ResourceAttributes {
        group: Some("batch".to_owned()),
        resource: Some("jobs".to_owned()),
        verb: Some(verb.to_owned()),
        namespace: Some(key.namespace.clone()),
        name,
        ..ResourceAttributes::default()
    };
    SelfSubjectAccessReviewSpec {
        resource_attributes: Some(attributes),
        ..SelfSubjectAccessReviewSpec::default()
    }
}

/// Does what the viewer asks for, if the Job still has this UID.
pub(super) async fn act(client: &Client, key: &JobKey, ask: ActionAsk) -> Result<Value, LiveRefusal> {
    let jobs: Api<Job> = Api::namespaced(client.clone(), &key.namespace);
    match ask.action {
        JobAction::Suspend | JobAction::Resume => {
            let suspend = ask.action == JobAction::Suspend;
            // A patch with another UID is refused.
            let patch = json!({"metadata": {"uid": ask.uid}, "spec": {"suspend": suspend}});
            jobs.patch(&key.name, &PatchParams::default(), &Patch::Merge(patch)).await.map_err(refusal)?;
            Ok(json!({"done": if suspend { "suspended" } else { "resumed" }}))
        }
        JobAction::Delete => {
            let params = DeleteParams {
                preconditions: Some(Preconditions { uid: Some(ask.uid), resource_version: None }),
                propagation_policy: Some(PropagationPolicy::Background),
                ..DeleteParams::default()
            };
            jobs.delete(&key.name, &params).await.map_err(refusal)?;
            Ok(json!({"done": "deleted"}))
        }
        JobAction::Retry => {
            let failed = job(client, key).await?;
            if failed.metadata.uid.as_ref() != Some(&ask.uid) {
                return Err(refuse(StatusCode::CONFLICT, "another Job has this name now"));
            }
            let created = retry(&jobs, &failed).await?;
            Ok(json!({"done": "created", "jobs": created}))
        }
    }
}
