//! POST of a review: a query about access or about a token. The answer is in its status; it is not stored.

use http::StatusCode;
use serde_json::{Value, json};

use crate::authentication::{Account, ISSUER};
use crate::authorization::{Access, Attributes, Target, User};
use crate::error::ApiError;
use crate::exchange::reply::Reply;
use crate::exchange::request::Request;
use crate::rules::{Cause, CauseReason};
use crate::server::Server;

/// An access review. If requests need no token, everything is allowed.
pub(crate) fn access(server: &Server, request: &Request) -> Result<Reply, ApiError> {
    let (Some(authorizer), Some(own)) = (&server.authorizer, &request.user) else {
        return answer(request, |_| Ok(json!({"allowed": true})));
    };
    answer(request, |review| {
        let spec = &review["spec"];
        check_namespace(request, spec)?;
        let attributes = attributes(request, spec)?;
        let access = if request.resource().kind == "SelfSubjectAccessReview" {
            authorizer.review(&server.store, own, &attributes)
        } else {
            authorizer.review(&server.store, &subject(request, spec)?, &attributes)
        };
        Ok(access.to_status())
    })
}

/// A token review. Besides users it knows the API server itself, as kubelets meet it.
pub(crate) fn token(server: &Server, request: &Request) -> Result<Reply, ApiError> {
    answer(request, |review| {
        let spec = &review["spec"];
        let token = spec["token"].as_str().unwrap_or_default();
        let asked = spec["audiences"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let asked: Vec<&str> = asked.collect();
        let own = || server.network.as_ref()?.authenticator.review(token);
        // Tokens of users are for the API server. They have no audiences to compare.
        if let Some(user) = own().filter(|_| asked.is_empty() || asked.contains(&ISSUER)) {
            return Ok(authenticated(&user, &[]));
        }
        let audiences = if asked.is_empty() { &[ISSUER][..] } else { &asked };
        Ok(match server.account(token, audiences) {
            Ok(Account { user, audiences }) => authenticated(&user, &audiences),
            Err(invalid) => json!({"user": {}, "error": invalid.to_string()}),
        })
    })
}

fn authenticated(user: &User, audiences: &[String]) -> Value {
    let mut status = json!({"authenticated": true, "user": user_info(user)});
    if !audiences.is_empty() {
        status["audiences"] = audiences.into();
    }
    status
}

/// A review of the user who sends it.
pub(crate) fn own_user(request: &Request) -> Result<Reply, ApiError> {
    let user = request.user.as_deref().map_or_else(|| user_info(&User::anonymous()), user_info);
    answer(request, |_| Ok(json!({"userInfo": user})))
}

fn answer(
    request: &Request,
    status: impl FnOnce(&Value) -> Result<Value, ApiError>,
) -> Result<Reply, ApiError> {
    let resource = request.resource();
    let mut review = request.decode()?.object;
    review["kind"] = resource.kind.into();
    review["apiVersion"] = resource.api_version().into();
    review["status"] = status(&review)?;
    Ok(Reply::value(StatusCode::CREATED, request.accept, &review))
}

fn user_info(user: &User) -> Value {
    let mut info = json!({"username": user.name, "groups": user.groups});
    if !user.uid.is_empty() {
        info["uid"] = user.uid.as_str().into();
    }
    if !user.extra.is_empty() {
        info["extra"] = json!(user.extra);
    }
    info
}

impl Access {
    fn to_status(&self) -> Value {
        let mut status = json!({"allowed": self.allowed});
        if !self.reason.is_empty() {
            status["reason"] = self.reason.as_str().into();
        }
        status
    }
}

/// A review of one namespace asks about objects of that namespace alone: the right to create it there says nothing about
/// others.
fn check_namespace(request: &Request, spec: &Value) -> Result<(), ApiError> {
    let Some(own) = &request.path.namespace else { return Ok(()) };
    let path = &spec["nonResourceAttributes"];
    if !path.is_null() {
        let why = "disallowed on this kind of request";
        return Err(invalid(request, "spec.nonResourceAttributes", path, why));
    }
    let namespace = &spec["resourceAttributes"]["namespace"];
    if spec["resourceAttributes"].is_null() || namespace.as_str() == Some(&**own) {
        return Ok(());
    }
    let why = "must match metadata.namespace";
    Err(invalid(request, "spec.resourceAttributes.namespace", namespace, why))
}

/// The subject of an access review.
fn attributes(request: &Request, spec: &Value) -> Result<Attributes, ApiError> {
    let (objects, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    let given = if objects.is_null() { path } else { objects };
    let text = |field: &str| given[field].as_str().unwrap_or_default().to_owned();
    let target = match (objects.is_null(), path.is_null()) {
        (false, true) => Target::Objects {
            group: text("group"),
            resource: text("resource"),
            subresource: text("subresource"),
            namespace: text("namespace"),
            name: text("name"),
        },
        (true, false) => Target::Path(text("path")),
        (false, false) => {
            let why = "cannot be specified in combination with resourceAttributes";
            return Err(invalid(request, "spec.nonResourceAttributes", path, why));
        }
        (true, true) => {
            let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            return Err(invalid(request, "spec.resourceAttributes", objects, why));
        }
    };
    Ok(Attributes { verb: text("verb"), target })
}

/// Whom an access review asks about.
fn subject(request: &Request, spec: &Value) -> Result<User, ApiError> {
    let groups = spec["groups"].as_array().into_iter().flatten();
    let user = User {
        name: spec["user"].as_str().unwrap_or_default().to_owned(),
        groups: groups.filter_map(|group| group.as_str().map(str::to_owned)).collect(),
        ..User::default()
    };
    if user.name.is_empty() && user.groups.is_empty() {
        let why = "at least one of user or group must be specified";
        return Err(invalid(request, "spec.user", &"".into(), why));
    }
    Ok(user)
}

fn invalid(request: &Request, field: &str, value: &Value, why: &str) -> ApiError {
    let message = format!("Invalid value: {value}: {why}");
    let cause = Cause::new(CauseReason::Invalid, field, message);
    // The message names no kind.
    ApiError::invalid(request.resource().group, "", "", &[cause])
}
