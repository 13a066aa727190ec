//! GET of a collection.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use crate::error::ApiError;
use crate::exchange::query::Query;
use crate::exchange::reply::Reply;
use crate::exchange::request::Request;
use crate::rules::{Cause, CauseReason};
use crate::selectors::Selector;
use crate::server::Server;
use crate::store::Page;
use crate::table::ListMeta;

/// The contents of a continue token.
#[derive(Serialize, Deserialize)]
struct Token {
    /// Version of this encoding.
    #[serde(default)]
    v: String,
    /// The revision of the first page; 0 continues at the newest one.
    #[serde(default)]
    rv: u64,
    /// The last key of the previous page, without the collection's prefix.
    #[serde(default)]
    start: String,
}

const TOKEN_VERSION: &str = "meta.k8s.io/v1";

/// GET of a collection.
pub(crate) fn list(server: &Server, request: &Request) -> Result<Reply, ApiError> {
    let resource = request.resource();
    let query = &request.query;
    let rows = request.rows()?;
    let limit = query.integer("limit")?;
    let selector = selector(server, request)?;
    validate_versions(server, query, false)?;
    let (page, meta) = read(server, request, &selector, limit)?;
    Reply::list(request.accept, resource, &page, &meta, rows)
}

/// The selectors of a request.
pub(crate) fn selector(server: &Server, request: &Request) -> Result<Selector, ApiError> {
    let query = &request.query;
    let shard = if server.gate("ShardedListAndWatch") { query.text("shardSelector") } else { "" };
    Selector::parse(request.resource(), query.text("labelSelector"), query.text("fieldSelector"), shard)
}

fn read(
    server: &Server,
    request: &Request,
    selector: &Selector,
    limit: Option<i64>,
) -> Result<(Page, ListMeta), ApiError> {
    let query = &request.query;
    let prefix = request.prefix();
    let table = server.table(request.resource());
    let limit = limit.and_then(|limit| usize::try_from(limit).ok()).filter(|limit| *limit > 0);
    let mut page = if let Some(text) = query.get("continue") {
        if !matches!(query.get("resourceVersion"), None | Some("0")) {
            return Err(ApiError::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        let token = decode_token(text).map_err(|problem| {
            ApiError::bad_request(format!("invalid continue token: continue key is not valid: {problem}"))
        })?;
        // A token from before etcd was restored.
        let current = server.store.revision();
        if token.rv > current {
            return Err(ApiError::future_version(token.rv, current));
        }
        let after = format!("{prefix}{}", token.start);
        let revision = (token.rv > 0).then_some(token.rv);
        table.page(&prefix, Some(&after), revision, limit, |object| selector.matches(object)).map_err(|_| {
            let newest = encode_token(&Token { v: TOKEN_VERSION.into(), rv: 0, start: token.start });
            ApiError::expired(
                "The provided continue parameter is too old to display a consistent list result. You can start a new \
                 list without the continue parameter, or use the continue token in this response to retrieve the \
                 remainder of the results. Continuing with the provided token results in an inconsistent list - \
                 objects that were created, modified, or deleted between the time the first chunk was returned and \
                 now may show up in the list.",
            )
            .with_continue(newest)
        })?
    } else {
        let exact = query.get("resourceVersionMatch") == Some("Exact");
        let asked = check_not_future(server, query)?;
        let revision = asked.filter(|_| exact);
        // kube-apiserver serves a list at any version from its cache, which does not page.
        let limit = limit.filter(|_| query.get("resourceVersion") != Some("0"));
        table
            .page(&prefix, None, revision, limit, |object| selector.matches(object))
            .map_err(|_| ApiError::expired("The resourceVersion for the provided list is too old."))?
    };
    let next = page.next.take();
    let token = next.map(|key| {
        let start = key.strip_prefix(prefix.as_str()).unwrap_or(&key).to_owned();
        encode_token(&Token { v: TOKEN_VERSION.into(), rv: page.revision, start })
    });
    let remaining = (token.is_some() && !selector.narrows()).then_some(page.remaining);
    let meta = ListMeta { revision: page.revision, token, remaining, shard: selector.shard() };
    Ok((page, meta))
}

fn encode_token(token: &Token) -> String {
    URL_SAFE_NO_PAD
        .encode(serde_json::json!({"v": token.v, "rv": token.rv, "start": token.start}).to_string())
}

fn decode_token(text: &str) -> Result<Token, String> {
    let json = URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).map_err(|error| error.to_string())?;
    let value = crate::exchange::decode::json(&json)?;
    let token: Token = serde_json::from_value(value).map_err(|error| error.to_string())?;
    if token.v != TOKEN_VERSION {
        return Err(format!("server does not recognize this encoded version {}", token.v));
    }
    Ok(token)
}

/// The resourceVersion of a read. An error if the server has not reached it.
pub(crate) fn check_not_future(server: &Server, query: &Query) -> Result<Option<u64>, ApiError> {
    let Some(text) = query.get("resourceVersion") else { return Ok(None) };
    let asked: u64 = text
        .parse()
        .map_err(|_| ApiError::bad_request(format!("invalid resource version: {}", invalid_version(text))))?;
    let current = server.store.revision();
    if asked > current { Err(ApiError::future_version(asked, current)) } else { Ok(Some(asked)) }
}

/// The error message for a resourceVersion that is not a number.
pub(crate) fn invalid_version(text: &str) -> String {
    format!(
        "resourceVersion: Invalid value: \"{text}\": strconv.ParseUint: parsing \"{text}\": invalid syntax"
    )
}

/// Refuses options that contradict each other (`metav1.ListOptions` validation).
pub(crate) fn validate_versions(server: &Server, query: &Query, watch: bool) -> Result<(), ApiError> {
    let matching = query.get("resourceVersionMatch");
    let version = query.get("resourceVersion");
    let initial = query.option("sendInitialEvents");
    let mut causes = Vec::new();
    let mut forbid = |field: &str, why: &str| {
        causes.push(Cause::new(CauseReason::Forbidden, field, format!("Forbidden: {why}")));
    };
    if watch {
        if initial.is_some() && matching != Some("NotOlderThan") {
            forbid(
                "resourceVersionMatch",
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            );
        }
        if initial.is_some() && !server.gate("WatchList") {
            forbid(
                "sendInitialEvents",
                "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled",
            );
        }
        if initial.is_none() && matching.is_some() {
            forbid(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            );
        }
        if let Some(other) = matching.filter(|one| initial.is_some() && *one != "NotOlderThan") {
            causes.push(unsupported(other, "\"NotOlderThan\""));
        }
    } else {
        if let Some(matching) = matching {
            if version.is_none() {
                forbid(
                    "resourceVersionMatch",
                    "resourceVersionMatch is forbidden unless resourceVersion is provided",
                );
            }
            if query.get("continue").is_some() {
                forbid("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided");
            }
            if matching == "Exact" && version == Some("0") {
                forbid(
                    "resourceVersionMatch",
                    "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
                );
            }
        }
        if initial.is_some() {
            forbid("sendInitialEvents", "sendInitialEvents is forbidden for list");
        }
        if let Some(other) = matching.filter(|one| !matches!(*one, "Exact" | "NotOlderThan")) {
            causes.push(unsupported(other, "\"Exact\", \"NotOlderThan\", \"\""));
        }
    }
    if causes.is_empty() { Ok(()) } else { Err(ApiError::invalid_options(&causes)) }
}

fn unsupported(value: &str, supported: &str) -> Cause {
    Cause::new(
        CauseReason::NotSupported,
        "resourceVersionMatch",
        format!("Unsupported value: \"{value}\": supported values: {supported}"),
    )
}
