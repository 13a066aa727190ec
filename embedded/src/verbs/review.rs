//! POST of a review: a query about access or about a token. The answer is in its status; it is not stored.

use http::StatusCode;
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::exchange::reply::Reply;
use crate::exchange::request::Request;
use crate::server::Server;

/// An access review. Everything is allowed.
pub(crate) fn access(request: &Request) -> Result<Reply, ApiError> {
    answer(request, |_| json!({"allowed": true}))
}

/// A token review. There is at most one user: the holder of the server's token.
pub(crate) fn token(server: &Server, request: &Request) -> Result<Reply, ApiError> {
    answer(request, |review| match &server.token {
        Some(token) if review["spec"]["token"] == token.as_str() => json!({
            "authenticated": true, "user": {"username": "admin", "groups": ["system:masters", "system:authenticated"]},
        }),
        _ => json!({"user": {}, "error": "unknown token"}),
    })
}

fn answer(request: &Request, status: impl FnOnce(&Value) -> Value) -> Result<Reply, ApiError> {
    let resource = request.resource();
    let mut review = request.decode()?.object;
    review["kind"] = resource.kind.into();
    review["apiVersion"] = resource.api_version().into();
    review["status"] = status(&review);
    Ok(Reply::value(StatusCode::CREATED, request.accept, &review))
}
