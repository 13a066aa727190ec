//! POST on `serviceaccounts/NAME/token`: a token for the account.

use std::sync::Arc;

use http::StatusCode;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequestSpec};
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::admission::pods::DEFAULT_ACCOUNT;
use crate::authentication::{Bound, ISSUER, Reference, TokenClaims};
use crate::error::ApiError;
use crate::exchange::decode;
use crate::exchange::reply::Reply;
use crate::exchange::request::Request;
use crate::object::{self, Object, meta};
use crate::resources::{self, Resource};
use crate::rules::{Cause, CauseReason};
use crate::server::Server;
use crate::time::{format_time, seconds_after};

const KIND: &str = "TokenRequest";
const GROUP: &str = "authentication.k8s.io";
/// Seconds that a token is valid unless the request says how long.
const DEFAULT_SECONDS: i64 = 3600;
/// The bounds of what a request may say.
const SHORTEST: i64 = 600;
const LONGEST: i64 = 1 << 32;

/// Issues a token.
pub(crate) fn create(server: &Server, request: &Request) -> Result<Reply, ApiError> {
    let sent = decode::object(KIND, GROUP, "v1", &request.content_type, &request.body)?;
    let namespace = request.path.namespace.as_deref().unwrap_or_default();
    let name = request.name();
    check_metadata(&sent, namespace, name)?;
    let accounts = request.resource();
    let account = server.table(accounts).get(&request.key());
    let account = account.ok_or_else(|| ApiError::not_found(accounts, name))?;
    let spec = read_spec(&sent)?;
    let seconds = spec.expiration_seconds.unwrap_or(DEFAULT_SECONDS);
    check_seconds(seconds)?;
    let (pod, node) = match &spec.bound_object_ref {
        Some(reference) => pod_of(server, namespace, name, reference)?,
        None => (None, None),
    };
    let (now, audiences) = (server.now(), audiences(&spec));
    let claims = TokenClaims {
        aud: audiences.clone(),
        exp: now.as_second().saturating_add(seconds),
        iat: now.as_second(),
        iss: ISSUER.to_owned(),
        jti: server.new_uid(),
        bound: Bound {
            namespace: namespace.to_owned(),
            node,
            pod,
            serviceaccount: Reference { name: name.to_owned(), uid: account.header.uid.to_string() },
        },
        nbf: now.as_second(),
        sub: format!("system:serviceaccount:{namespace}:{name}"),
    };
    let answer = json!({
        "kind": KIND, "apiVersion": format!("{GROUP}/v1"),
        "metadata": {"name": name, "namespace": namespace, "creationTimestamp": format_time(now)},
        "spec": {
            "audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": sent["spec"]["boundObjectRef"],
        },
        "status": {
            "token": server.account_key.sign(&claims),
            "expirationTimestamp": format_time(seconds_after(now, seconds)),
        },
    });
    Ok(Reply::value(StatusCode::CREATED, request.accept, &answer))
}

fn read_spec(sent: &Value) -> Result<TokenRequestSpec, ApiError> {
    if sent["spec"].is_null() {
        return Ok(TokenRequestSpec::default());
    }
    TokenRequestSpec::deserialize(&sent["spec"]).map_err(|problem| {
        ApiError::bad_request(format!("{KIND} in version \"v1\" cannot be handled as a {KIND}: {problem}"))
    })
}

fn audiences(spec: &TokenRequestSpec) -> Vec<String> {
    let given = spec.audiences.clone().filter(|audiences| !audiences.is_empty());
    given.unwrap_or_else(|| vec![ISSUER.to_owned()])
}

/// Refuses names in the body that are not those of the path.
fn check_metadata(sent: &Value, namespace: &str, name: &str) -> Result<(), ApiError> {
    for (field, own) in [("name", name), ("namespace", namespace)] {
        let given = meta(sent, field);
        if !given.is_empty() && given != own {
            let why = format!(
                "Invalid value: {}: must match the service account {field} if specified",
                Value::from(given)
            );
            let cause = Cause::new(CauseReason::Invalid, format!("metadata.{field}"), why);
            return Err(ApiError::invalid(GROUP, KIND, name, &[cause]));
        }
    }
    Ok(())
}

fn check_seconds(seconds: i64) -> Result<(), ApiError> {
    let why = match seconds {
        ..SHORTEST => "may not specify a duration less than 10 minutes",
        SHORTEST..=LONGEST => return Ok(()),
        _ => "may not specify a duration larger than 2^32 seconds",
    };
    let why = format!("Invalid value: {seconds}: {why}");
    Err(ApiError::invalid(
        GROUP,
        KIND,
        "",
        &[Cause::new(CauseReason::Invalid, "spec.expirationSeconds", why)],
    ))
}

/// The pod that a token is to be bound to, and its node if it has one.
fn pod_of(
    server: &Server,
    namespace: &str,
    account: &str,
    reference: &BoundObjectReference,
) -> Result<(Option<Reference>, Option<Reference>), ApiError> {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let (version, kind) = (text(&reference.api_version), text(&reference.kind));
    let (name, uid) = (text(&reference.name), text(&reference.uid));
    if version != "v1" || kind != "Pod" {
        let (group, version) = version.rsplit_once('/').unwrap_or(("", &version));
        return Err(ApiError::bad_request(format!(
            "cannot bind token to object of type {group}/{version}, Kind={kind}"
        )));
    }
    let (pods, pod) = find(server, "pods", Some(namespace), &name)?;
    let own = pod.header.uid.to_string();
    let pod = pod.decode(pods);
    // Pods here need not name the usual account.
    let named = pod["spec"]["serviceAccountName"].as_str().filter(|name| !name.is_empty());
    if named.unwrap_or(DEFAULT_ACCOUNT) != account {
        return Err(ApiError::bad_request(format!(
            "cannot bind token for serviceaccount {account:?} to pod running with different serviceaccount name."
        )));
    }
    if !uid.is_empty() && uid != own {
        let why = format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have \
             been deleted and then recreated"
        );
        return Err(ApiError::conflict_on(json!({"name": name, "kind": kind}), &kind, &name, &why));
    }
    let node = pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()).map(|node| {
        let uid = find(server, "nodes", None, node).map(|(_, node)| node.header.uid.to_string());
        Reference { name: node.to_owned(), uid: uid.unwrap_or_default() }
    });
    Ok((Some(Reference { name, uid: own }), node))
}

fn find(
    server: &Server,
    plural: &str,
    namespace: Option<&str>,
    name: &str,
) -> Result<(&'static Resource, Arc<Object>), ApiError> {
    let resource = resources::stored(plural).ok_or_else(ApiError::no_resource)?;
    let found = server.table(resource).get(&object::key(namespace, name));
    Ok((resource, found.ok_or_else(|| ApiError::not_found(resource, name))?))
}
