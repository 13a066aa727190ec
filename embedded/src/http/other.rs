//! Paths without objects: discovery, health, version, OpenAPI.

use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode, header, request::Parts};
use serde_json::{Value, json};

use crate::discovery;
use crate::error::ApiError;
use crate::exchange::media::{self, Accept, Form, Offer};
use crate::exchange::openapi::Documents;
use crate::exchange::reply::{Body, Reply};
use crate::platform;
use crate::rules::openapi;
use crate::server::Server;

const PLAIN: &str = "text/plain; charset=utf-8";

/// The paths that `GET /` lists.
const PATHS: &[&str] = &[
    "/api",
    "/api/v1",
    "/apis",
    "/healthz",
    "/healthz/ping",
    "/livez",
    "/livez/ping",
    "/openapi/v2",
    "/openapi/v3",
    "/readyz",
    "/readyz/ping",
    "/version",
];

/// Answers requests to paths without objects.
pub(super) fn answer(server: &Server, parts: &Parts) -> Response<Body> {
    let path = parts.uri.path();
    let path = path.strip_suffix('/').unwrap_or(path);
    let parts_of_path: Vec<&str> = path.split('/').skip(1).collect();
    let accept_header = parts.headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let accept = match media::negotiate(accept_header, Offer::Discovery) {
        Ok(accept) => accept,
        // Health checks and the like accept any header.
        Err(_) => Accept::JSON,
    };
    let document = match parts_of_path.as_slice() {
        [] | [""] => Some(json!({"paths": PATHS})),
        ["version"] => Some(version(server.git_version.as_deref())),
        ["healthz" | "livez" | "readyz"] | ["healthz" | "livez" | "readyz", "ping"] => {
            return Reply::full(StatusCode::OK, PLAIN, "ok").into_response();
        }
        ["api"] | ["apis"] => {
            let core = path == "/api";
            if let Form::Discovery(version) = accept.form {
                let list = discovery::aggregated(server, core, version);
                return cached(parts, accept.content_type(), list.to_string().into());
            }
            Some(if core { discovery::legacy_versions(&host(parts)) } else { discovery::groups(server) })
        }
        ["api", version] => discovery::resources(server, "", version),
        ["apis", group] => match discovery::group(server, group) {
            Some(group) => Some(group),
            None => return not_found(),
        },
        ["openapi", "v2"] => return schemaless(accept_header),
        ["openapi", "v3"] => Some(documents(server).index.clone()),
        ["openapi", "v3", path @ ..] => {
            return match documents(server).by_path.get(&path.join("/")) {
                Some(document) => cached(parts, "application/json", document.clone()),
                None => not_found(),
            };
        }
        ["apis", group, version] => discovery::resources(server, group, version),
        _ => return not_found(),
    };
    let accept = Accept { form: Form::Object, ..accept };
    match document {
        None => Reply::error(accept, &ApiError::no_resource()),
        Some(_) if parts.method != Method::GET => Reply::error(accept, &ApiError::method_not_allowed()),
        Some(document) => Reply::value(StatusCode::OK, accept, &document).into_response(),
    }
}

/// A document that clients cache. A client that already has it gets an empty 304.
fn cached(parts: &Parts, content_type: &'static str, document: Bytes) -> Response<Body> {
    let tag = format!("\"{:016X}\"", openapi::hash(&document));
    let known = parts.headers.get(header::IF_NONE_MATCH).is_some_and(|known| known == tag.as_str());
    let reply = if known {
        Reply::full(StatusCode::NOT_MODIFIED, "", "")
    } else {
        Reply::full(StatusCode::OK, content_type, document)
    };
    let mut response = reply.into_response();
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
    response
}

/// `/openapi/v2`, without schemas: clients of today read `/openapi/v3`. Before kubectl creates a `List`,
/// which no API serves, it reads this document. Without a schema, kubectl checks no fields; the server checks
/// those of the items.
fn schemaless(accept: Option<&str>) -> Response<Body> {
    const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
    // Fields 1 and 2 of the document: `swagger`, and `info` with `title` and `version`.
    const DOCUMENT: &[u8] = b"\x0a\x032.0\x12\x15\x0a\x0aKubernetes\x12\x07v1.36.2";
    if accept.is_some_and(|accept| accept.contains("com.github.proto-openapi.spec.v2")) {
        return Reply::full(StatusCode::OK, PROTOBUF, DOCUMENT).into_response();
    }
    let info = json!({"title": "Kubernetes", "version": "v1.36.2"});
    let document = json!({"swagger": "2.0", "info": info, "paths": {}});
    Reply::full(StatusCode::OK, "application/json", document.to_string()).into_response()
}

fn documents(server: &Server) -> &Documents {
    server.openapi.get_or_init(|| Documents::new(|resource| server.serves(resource)))
}

fn not_found() -> Response<Body> {
    Reply::full(StatusCode::NOT_FOUND, PLAIN, "404 page not found\n").into_response()
}

fn host(parts: &Parts) -> String {
    parts.headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default().to_owned()
}

/// `GET /version`: the Kubernetes release whose API this server implements, or the given one.
fn version(given: Option<&str>) -> Value {
    let mut version = own_version();
    if let Some(given) = given {
        let mut numbers = given.trim_start_matches('v').split('.');
        for fields in [
            ["major", "emulationMajor", "minCompatibilityMajor"],
            ["minor", "emulationMinor", "minCompatibilityMinor"],
        ] {
            let number = numbers.next().unwrap_or_default();
            fields.into_iter().for_each(|field| version[field] = number.into());
        }
        version["gitVersion"] = given.into();
    }
    version
}

fn own_version() -> Value {
    json!({
        "major": "1", "minor": "36", "emulationMajor": "1", "emulationMinor": "36", "minCompatibilityMajor": "1",
        "minCompatibilityMinor": "35", "gitVersion": concat!("v1.36.2+yardmaster-", env!("CARGO_PKG_VERSION")),
        "gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z", "goVersion": "",
        "compiler": "rustc", "platform": format!("{}/{}", std::env::consts::OS, platform::architecture()),
    })
}
