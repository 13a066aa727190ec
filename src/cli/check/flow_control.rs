//! API Priority and Fairness: the levels whose seats the replicas' requests take.

use bytes::Bytes;
use http::{Request, Response, header};
use k8s_openapi::api::flowcontrol::v1::{FlowSchema, PriorityLevelConfiguration};
use kube::api::{Api, ListParams};
use serde::de::DeserializeOwned;

use super::context::{Context, message};
use super::{CheckId, Finding};
use crate::cluster::resource::Resource;

pub(super) const CHECK: CheckId = CheckId { group: "kubernetes", name: "priority-level" };

const LEVEL: &str = "x-kubernetes-pf-prioritylevel-uid";
const SCHEMA: &str = "x-kubernetes-pf-flowschema-uid";
/// Levels that all other clients share.
const SHARED: [&str; 3] = ["catch-all", "global-default", "workload-low"];

/// The priority level that answered a request.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Answered {
    resource: &'static str,
    level: String,
    schema: String,
}

/// Why the levels are not known.
enum Unknown {
    /// The headers are absent.
    Off,
    Other(String),
}

pub(super) async fn check(cx: &Context) -> Finding {
    match read(cx).await {
        Ok(answered) => evaluate(&answered),
        Err(Unknown::Off) => Finding::skipped("the API server does not name its priority levels"),
        Err(Unknown::Other(reason)) => Finding::skipped(format!("the priority levels are unknown: {reason}")),
    }
}

async fn read(cx: &Context) -> Result<Vec<Answered>, Unknown> {
    let mut uids = Vec::new();
    for resource in [Resource::PODS, Resource::LEASES] {
        let path = format!("{}?limit=1", resource.path(Some(cx.namespace())));
        let mut request = Request::get(path).header(header::ACCEPT, "application/json");
        if let Some(account) = &cx.account {
            request = request.header("impersonate-user", account.user());
            for group in account.groups() {
                request = request.header("impersonate-group", group);
            }
        }
        let request = request.body(Bytes::new()).map_err(|error| Unknown::Other(error.to_string()))?;
        let response = cx.send(request).await.map_err(|error| Unknown::Other(error.to_string()))?;
        // An account that may not impersonate would learn its own level.
        if cx.account.is_some() && !response.status().is_success() {
            let reason = format!("the answer to the service account is {}", response.status());
            return Err(Unknown::Other(reason));
        }
        let uid = |name| uid(&response, name).ok_or(Unknown::Off);
        uids.push((resource.plural, uid(LEVEL)?, uid(SCHEMA)?));
    }
    let levels = names::<PriorityLevelConfiguration>(cx).await?;
    let schemas = names::<FlowSchema>(cx).await?;
    let name = |names: &[(String, String)], uid: String| {
        names.iter().find(|(of, _)| *of == uid).map_or(uid.clone(), |(_, name)| name.clone())
    };
    let answered = uids.into_iter().map(|(resource, level, schema)| Answered {
        resource,
        level: name(&levels, level),
        schema: name(&schemas, schema),
    });
    Ok(answered.collect())
}

fn uid(response: &Response<Bytes>, name: &str) -> Option<String> {
    response.headers().get(name)?.to_str().ok().map(str::to_owned)
}

/// UID and name of all objects of a kind.
async fn names<K>(cx: &Context) -> Result<Vec<(String, String)>, Unknown>
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::ClusterResourceScope>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug,
{
    let api: Api<K> = Api::all(cx.client.clone());
    let listed = api.list_metadata(&ListParams::default()).await;
    let listed = listed.map_err(|error| Unknown::Other(message(&error)))?;
    Ok(listed.items.into_iter().filter_map(|item| Some((item.metadata.uid?, item.metadata.name?))).collect())
}

fn evaluate(answered: &[Answered]) -> Finding {
    let texts = answered.iter().map(|answered| {
        let Answered { resource, level, schema } = answered;
        format!("{resource} are answered at level {level} (FlowSchema {schema})")
    });
    let text = texts.collect::<Vec<_>>().join(", ");
    if answered.iter().any(|answered| SHARED.contains(&&*answered.level)) {
        return Finding::warning(
            format!("{text}: a level that all other clients share"),
            "Install the FlowSchemas of the Helm chart (flowControl.enabled=true): under load, heartbeats \
             would wait for others.",
        );
    }
    Finding::ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::check::report::Status;

    #[test]
    fn a_shared_level_is_a_warning() {
        for (pods, leases, status) in [
            ("yardmaster", "leader-election", Status::Ok),
            ("exempt", "exempt", Status::Ok),
            ("workload-high", "workload-low", Status::Warning),
            ("workload-low", "leader-election", Status::Warning),
            ("global-default", "global-default", Status::Warning),
            ("catch-all", "catch-all", Status::Warning),
        ] {
            let answered =
                |resource, level: &str| Answered { resource, level: level.into(), schema: "s".into() };
            let finding = evaluate(&[answered("pods", pods), answered("leases", leases)]);
            assert_eq!(finding.status, status, "{}", finding.message);
            assert!(finding.message.contains(&format!("level {pods} (FlowSchema s)")), "{}", finding.message);
        }
    }
}
