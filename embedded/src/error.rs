//! Errors as clients see them: `metav1.Status` with its reason, details and causes.

use std::collections::HashSet;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use http::StatusCode;
use serde_json::{Map, Value, json};

use super::resources::Resource;
use super::rules::{Cause, CauseReason};

/// A refused request. Boxed, since refusals are rare and results are everywhere.
#[derive(Clone, Debug)]
pub(crate) struct ApiError(Box<Refusal>);

/// The contents of a refusal.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    /// HTTP status.
    pub(crate) code: StatusCode,
    /// `Status.reason`; empty reasons are left out.
    pub(crate) reason: &'static str,
    /// `Status.message`.
    pub(crate) message: String,
    /// `Status.details`, if the answer has any.
    pub(crate) details: Option<Value>,
    /// Seconds for the `Retry-After` header.
    pub(crate) retry_after: Option<u32>,
    /// A continue token that replaces an expired one.
    pub(crate) continue_token: Option<String>,
    /// `Warning` headers that accompany the refusal.
    pub(crate) warnings: Vec<String>,
}

impl Deref for ApiError {
    type Target = Refusal;

    fn deref(&self) -> &Refusal {
        &self.0
    }
}

impl DerefMut for ApiError {
    fn deref_mut(&mut self) -> &mut Refusal {
        &mut self.0
    }
}

impl ApiError {
    fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self(Box::new(Refusal {
            code,
            reason,
            message: message.into(),
            details: None,
            retry_after: None,
            continue_token: None,
            warnings: Vec::new(),
        }))
    }

    fn with_details(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }

    /// 400 with the given text.
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    /// 401: the bearer token is wrong, or absent where one is needed.
    pub(crate) fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    /// 403: the request is addressed to another server, or comes from a page of another, as this header says.
    pub(crate) fn foreign_site(header: &str, value: &str) -> Self {
        const SHOWN: usize = 100;
        let value: String = value.chars().take(SHOWN).collect();
        let why = format!("forbidden: {header} {value:?} is not of this server");
        Self::new(StatusCode::FORBIDDEN, "Forbidden", why).with_details(json!({}))
    }

    /// 408: the body did not arrive in time.
    pub(crate) fn body_too_slow(seconds: u64) -> Self {
        let why = format!("Timeout: the request body did not arrive within {seconds} s");
        Self::new(StatusCode::REQUEST_TIMEOUT, "Timeout", why).with_details(json!({}))
    }

    /// 500 without a reason: the API server's answer to an error that it has not classified.
    pub(crate) fn unclassified(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "", message)
    }

    /// 500 with the text of an error behind the server.
    pub(crate) fn internal(why: &str) -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "InternalError",
            format!("Internal error occurred: {why}"),
        )
        .with_details(json!({"causes": [{"message": why}]}))
    }

    /// A request that a node refused, when only the HTTP status is known. 404 has its own reason.
    pub(crate) fn of_node(resource: &Resource, name: &str, code: StatusCode) -> Self {
        let (reason, why) = match code {
            StatusCode::NOT_FOUND => ("NotFound", "the server could not find the requested resource"),
            _ => ("", "the server responded with an error of the node"),
        };
        let message = format!("{why} (get {} {name})", resource.qualified());
        Self::new(code, reason, message).with_details(resource.details(name))
    }

    /// 404 for a path that the server does not serve.
    pub(crate) fn no_resource() -> Self {
        Self::new(StatusCode::NOT_FOUND, "NotFound", "the server could not find the requested resource")
            .with_details(json!({}))
    }

    /// 405.
    pub(crate) fn method_not_allowed() -> Self {
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )
        .with_details(json!({}))
    }

    /// 501 for a verb that discovery lists, as in Kubernetes, but that this server cannot serve.
    pub(crate) fn not_implemented(verb: &str, subresource: &str) -> Self {
        Self::new(
            StatusCode::NOT_IMPLEMENTED,
            "",
            format!("this server does not implement {verb} of {subresource}"),
        )
    }

    /// 404 for an object.
    pub(crate) fn not_found(resource: &Resource, name: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "NotFound", format!("{} \"{name}\" not found", resource.qualified()))
            .with_details(resource.details(name))
    }

    /// 409: an object of this name exists.
    pub(crate) fn already_exists(resource: &Resource, name: &str, being_deleted: bool) -> Self {
        let deleting = if being_deleted { "object is being deleted: " } else { "" };
        Self::new(
            StatusCode::CONFLICT,
            "AlreadyExists",
            format!("{deleting}{} \"{name}\" already exists", resource.qualified()),
        )
        .with_details(resource.details(name))
    }

    /// 409: the resourceVersion in the request is not the current one.
    pub(crate) fn modified(resource: &Resource, name: &str) -> Self {
        Self::conflict(
            resource,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// 409 about a resource, with the given text.
    pub(crate) fn conflict(resource: &Resource, name: &str, why: &str) -> Self {
        Self::conflict_on(resource.details(name), &resource.qualified(), name, why)
    }

    /// 409 about something that the caller names, such as a subresource.
    pub(crate) fn conflict_on(details: Value, what: &str, name: &str, why: &str) -> Self {
        Self::new(
            StatusCode::CONFLICT,
            "Conflict",
            format!("Operation cannot be fulfilled on {what} \"{name}\": {why}"),
        )
        .with_details(details)
    }

    /// 409 of a server-side apply.
    pub(crate) fn apply_conflict(message: String) -> Self {
        Self::new(StatusCode::CONFLICT, "Conflict", message)
    }

    /// 403 about an object.
    pub(crate) fn forbidden(resource: &Resource, name: &str, why: &str) -> Self {
        Self::new(
            StatusCode::FORBIDDEN,
            "Forbidden",
            format!("{} \"{name}\" is forbidden: {why}", resource.qualified()),
        )
        .with_details(resource.details(name))
    }

    /// 403 by access control. The resource, which need not be one that the server serves, is empty for a path
    /// without objects.
    pub(crate) fn access_denied(group: &str, resource: &str, name: &str, why: &str) -> Self {
        let (message, details) = if resource.is_empty() {
            (format!("forbidden: {why}"), json!({}))
        } else {
            let mut details = json!({"kind": resource});
            let mut what = resource.to_owned();
            if !group.is_empty() {
                details["group"] = group.into();
                what = format!("{what}.{group}");
            }
            if !name.is_empty() {
                details["name"] = name.into();
                what = format!("{what} \"{name}\"");
            }
            (format!("{what} is forbidden: {why}"), details)
        };
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message).with_details(details)
    }

    /// Adds causes to the details.
    pub(crate) fn with_causes(mut self, causes: Value) -> Self {
        if let Value::Object(details) = self.details.get_or_insert_with(|| json!({})) {
            details.insert("causes".into(), causes);
        }
        self
    }

    /// Adds `Warning` headers.
    pub(crate) fn with_warnings(mut self, warnings: &[String]) -> Self {
        self.warnings.extend_from_slice(warnings);
        self
    }

    /// Adds a token with which a list can continue, inconsistently, after its own token expired.
    pub(crate) fn with_continue(mut self, token: String) -> Self {
        self.continue_token = Some(token);
        self
    }

    /// 422 from field validation.
    pub(crate) fn invalid(group: &str, kind: &str, name: &str, causes: &[Cause]) -> Self {
        let qualified = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let mut known = HashSet::new();
        let texts = causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message));
        let texts: Vec<String> = texts.filter(|text| known.insert(text.clone())).collect();
        let all = if let [one] = texts.as_slice() { one.clone() } else { format!("[{}]", texts.join(", ")) };
        let mut details = Map::new();
        if !name.is_empty() {
            details.insert("name".into(), name.into());
        }
        if !group.is_empty() {
            details.insert("group".into(), group.into());
        }
        if !kind.is_empty() {
            details.insert("kind".into(), kind.into());
        }
        let causes = causes.iter().map(
            |cause| json!({"reason": cause.reason.name(), "message": cause.message, "field": cause.field}),
        );
        details.insert("causes".into(), causes.collect());
        Self::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "Invalid",
            format!("{qualified} \"{name}\" is invalid: {all}"),
        )
        .with_details(Value::Object(details))
    }

    /// 422 from the validation of an object. Events of both groups share one internal kind, which has no
    /// group.
    pub(crate) fn invalid_object(resource: &Resource, name: &str, causes: &[Cause]) -> Self {
        let group = if resource.group == "events.k8s.io" { "" } else { resource.group };
        Self::invalid(group, resource.kind, name, causes)
    }

    /// 422 for list and watch options that contradict each other.
    pub(crate) fn invalid_options(causes: &[Cause]) -> Self {
        Self::invalid("meta.k8s.io", "ListOptions", "", causes)
    }

    /// 422 for a patch that cannot be applied, without an object name.
    pub(crate) fn invalid_patch(value: &str, why: &str) -> Self {
        let cause = Cause::new(
            CauseReason::Invalid,
            "patch",
            format!("Invalid value: {}: {why}", Value::from(value)),
        );
        Self::invalid("", "", "", &[cause])
    }

    /// 422 for a JSON patch whose operations do not fit the object.
    pub(crate) fn inapplicable_patch() -> Self {
        Self::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "Invalid",
            "the server rejected our request due to an error in our request",
        )
        .with_details(json!({}))
    }

    /// 410: the version is no longer in the history.
    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "Expired", message)
    }

    /// 504: a resourceVersion that the server has not reached.
    pub(crate) fn future_version(asked: u64, current: u64) -> Self {
        let mut error = Self::new(
            StatusCode::GATEWAY_TIMEOUT,
            "Timeout",
            format!("Timeout: Too large resource version: {asked}, current: {current}"),
        )
        .with_details(json!({
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        }));
        error.retry_after = Some(1);
        error
    }

    /// 429 of the request limiter.
    pub(crate) fn too_many_requests() -> Self {
        let mut error = Self::new(
            StatusCode::TOO_MANY_REQUESTS,
            "TooManyRequests",
            "The server has received too many requests and has asked us to try again later",
        )
        .with_details(json!({"retryAfterSeconds": 1}));
        error.retry_after = Some(1);
        error
    }

    /// 500: an admission webhook has not answered in time.
    pub(crate) fn webhook_timeout(timeout: Duration) -> Self {
        Self::internal(&format!(
            "failed calling webhook \"webhook.example.com\": failed to call webhook: Post \
             \"https://webhook.example.com/admit?timeout={}s\": context deadline exceeded",
            timeout.as_secs()
        ))
    }

    /// 400: an admission webhook has refused the request, with a message of this many bytes.
    pub(crate) fn denied_by_webhook(bytes: usize) -> Self {
        let message =
            format!("admission webhook \"webhook.example.com\" denied the request: {}", "x".repeat(bytes));
        Self::new(StatusCode::BAD_REQUEST, "", &message)
    }

    /// A status that a test injects.
    pub(crate) fn injected(code: StatusCode) -> Self {
        let (reason, message) = match code {
            StatusCode::TOO_MANY_REQUESTS => return Self::too_many_requests(),
            StatusCode::SERVICE_UNAVAILABLE => {
                ("ServiceUnavailable", "the server is currently unable to handle the request")
            }
            StatusCode::GATEWAY_TIMEOUT => ("Timeout", "the server was unable to return a response in time"),
            _ => ("InternalError", "Internal error occurred"),
        };
        Self::new(code, reason, message)
    }

    /// 413.
    pub(crate) fn body_too_large(limit: usize) -> Self {
        Self::too_large(&format!("limit is {limit}"))
    }

    /// 413 with the given text.
    pub(crate) fn too_large(why: &str) -> Self {
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "RequestEntityTooLarge",
            format!("Request entity too large: {why}"),
        )
    }

    /// 415 of create and update.
    pub(crate) fn unsupported_media_type() -> Self {
        Self::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "UnsupportedMediaType",
            "the body of the request was in an unknown format - accepted media types include: \
             application/json, application/yaml, application/vnd.kubernetes.protobuf",
        )
    }

    /// 415 of patch.
    pub(crate) fn unsupported_patch_type() -> Self {
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", "415: Unsupported Media Type")
            .with_details(json!({}))
    }

    /// 406 for a media type that the server does not know.
    pub(crate) fn not_acceptable() -> Self {
        Self::new(
            StatusCode::NOT_ACCEPTABLE,
            "NotAcceptable",
            "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, \
             application/vnd.kubernetes.protobuf, application/json;stream=watch, \
             application/vnd.kubernetes.protobuf;stream=watch",
        )
        .with_details(json!({}))
    }

    /// 406 for a form of the response (such as a Table) that the server does not know.
    pub(crate) fn form_not_acceptable() -> Self {
        Self::not_acceptable_because(
            "only the following media types are accepted: application/json, application/yaml, \
             application/vnd.kubernetes.protobuf",
        )
    }

    /// 406 with the given text.
    pub(crate) fn not_acceptable_because(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
    }

    /// The body of the response.
    pub(crate) fn to_status(&self) -> Value {
        let mut metadata = Map::new();
        if let Some(token) = &self.continue_token {
            metadata.insert("continue".into(), token.as_str().into());
        }
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": metadata, "status": "Failure",
            "message": self.message, "code": self.code.as_u16(),
        });
        if !self.reason.is_empty() {
            status["reason"] = self.reason.into();
        }
        if let Some(details) = &self.details {
            status["details"] = details.clone();
        }
        status
    }
}

impl CauseReason {
    /// The value of `StatusCause.reason`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Duplicate => "FieldValueDuplicate",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::Forbidden => "FieldValueForbidden",
            Self::NotFound => "FieldValueNotFound",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::Internal => "InternalError",
        }
    }
}
