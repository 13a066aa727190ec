//! HTTP: from a request on a connection to a response.

mod other;
mod sender;
mod site;

use std::error::Error;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Response, header, request::Parts};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::{Body as Content, Incoming};
use tokio::time::timeout;

pub(crate) use self::sender::Sender;
use super::audit::Entry;
use super::authorization::User;
use super::connections::Newcomer;
use super::door::Door;
use super::error::ApiError;
use super::faults::Fault;
use super::resources::Subresource;
use super::server::{Network, Server};
use super::verbs::{
    self, binding, create, delete, list, log, namespaces, patch, review, token_request, update, watch,
};
use crate::exchange::media::{self, Accept, Offer};
use crate::exchange::options::{self, OptionsKind};
use crate::exchange::path::{self, ObjectPath, Target};
use crate::exchange::query::Query;
use crate::exchange::reply::{Body, Reply};
use crate::exchange::request::Request;

/// Maximum size of a request body, in bytes, as in Kubernetes.
pub const BODY_LIMIT: usize = 3 << 20;

/// Maximum number of bytes of a larger body that are read and dropped. If the connection closes while a
/// client is still writing, the client fails with "Broken pipe" and never sees the answer.
const DROPPED_MAX: usize = 64 << 20;

/// If no piece of a larger body arrives for this time, its client is assumed to wait for the answer.
const PAUSE: Duration = Duration::from_millis(500);

/// The connection ends without a response.
#[derive(Debug, thiserror::Error)]
#[error("connection dropped by an injected fault")]
pub(crate) struct Dropped;

/// The body of a request, from a connection or from memory.
pub(crate) trait RequestBody:
    Content<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>>
{
}

impl<B: Content<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>>> RequestBody for B {}

/// Answers one request of a connection.
pub(crate) async fn handle(
    server: Arc<Server>,
    request: http::Request<Incoming>,
    connection: Arc<Newcomer>,
    door: Arc<Door>,
) -> Result<Response<Body>, Dropped> {
    let (parts, body) = request.into_parts();
    let mut audit = Entry::begin(server.audit.as_ref(), &*server.clock, &parts);
    let sender = Sender::Client(&connection, &door);
    let response = respond(&server, &parts, body, sender, &mut audit).await;
    if let Some(entry) = audit {
        entry.finish(response.as_ref().map_or(0, |response| response.status().as_u16()));
    }
    response
}

async fn respond(
    server: &Arc<Server>,
    parts: &Parts,
    body: Incoming,
    sender: Sender<'_>,
    audit: &mut Option<Entry<'_>>,
) -> Result<Response<Body>, Dropped> {
    let user_agent = text(&parts.headers, header::USER_AGENT);
    let faults = server.faults.hitting(&user_agent, &parts.method, parts.uri.path());
    let mut lose_reply = false;
    for fault in faults {
        match fault {
            Fault::Delay(time) => tokio::time::sleep(time).await,
            Fault::Refuse(code) => return Ok(Reply::error(Accept::JSON, &ApiError::injected(code))),
            Fault::FailWebhook(after) => {
                tokio::time::sleep(after).await;
                return Ok(Reply::error(Accept::JSON, &ApiError::webhook_timeout(after)));
            }
            Fault::DenyByWebhook(bytes) => {
                return Ok(Reply::error(Accept::JSON, &ApiError::denied_by_webhook(bytes)));
            }
            Fault::Partition => return Err(Dropped),
            Fault::LoseReplies => lose_reply = true,
            Fault::ExpireWatches | Fault::HoldWatches => {}
        }
    }
    let response = answer(server, parts, body, sender, audit).await;
    if lose_reply { Err(Dropped) } else { Ok(response) }
}

/// Answers one request, from a connection or from this process.
pub(crate) async fn answer(
    server: &Arc<Server>,
    parts: &Parts,
    body: impl RequestBody,
    sender: Sender<'_>,
    audit: &mut Option<Entry<'_>>,
) -> Response<Body> {
    let user = match sender::admit(server, parts, sender) {
        Ok(user) => user,
        Err(error) => return Reply::error(Accept::JSON, &error),
    };
    let target = path::parse(parts.uri.path());
    let path = match target {
        Target::Other => return other::answer(server, parts),
        Target::Objects(path) if server.serves(path.resource) => path,
        Target::Objects(_) | Target::Unknown => {
            return Reply::error(Accept::JSON, &ApiError::no_resource());
        }
    };
    let head = parts.method == Method::HEAD;
    let (accept, result) = objects(server, parts, user, path, body, audit).await;
    match result {
        Ok(reply) => reply.into_response(),
        Err(error) => {
            let mut response = Reply::error(accept, &error);
            if head {
                *response.body_mut() = Body::default();
            }
            response
        }
    }
}

async fn objects(
    server: &Arc<Server>,
    parts: &Parts,
    user: Option<Arc<User>>,
    path: ObjectPath,
    body: impl RequestBody,
    audit: &mut Option<Entry<'_>>,
) -> (Accept, Result<Reply, ApiError>) {
    let verb = match Verb::of(&parts.method, &path, &parts.uri) {
        Ok(verb) => verb,
        Err(error) => return (Accept::JSON, Err(error)),
    };
    let header = parts.headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let offer = match verb {
        Verb::Watch | Verb::Get if server.streams_protobuf(path.resource) => Offer::ObjectsInProtobuf,
        Verb::List if server.streams_protobuf(path.resource) => Offer::ListsInProtobuf,
        Verb::Create | Verb::Update | Verb::Patch => Offer::PartialInProtobuf,
        _ => Offer::Forms,
    };
    let accept = match media::negotiate(header, offer) {
        Ok(accept) => accept,
        Err(error) => return (Accept::JSON, Err(error)),
    };
    let body = match read(body, server.network.as_ref()).await {
        Ok(body) => body,
        Err(error) => return (accept, Err(error)),
    };
    // The permit is held while the request is processed, not while a client or a kubelet is slow. As in
    // Kubernetes, watches and logs do not count.
    let _permit = match &server.inflight {
        Some(limit) if !matches!(verb, Verb::Watch | Verb::Log) => match limit.try_acquire() {
            Ok(permit) => Some(permit),
            Err(_) => return (accept, Err(ApiError::too_many_requests())),
        },
        _ => None,
    };
    if let Some(entry) = audit.as_mut().filter(|_| verb == Verb::Create) {
        entry.read_name(&body);
    }
    let request = Request {
        path,
        query: Query::parse(parts.uri.query()),
        accept,
        user,
        content_type: text(&parts.headers, header::CONTENT_TYPE),
        user_agent: text(&parts.headers, header::USER_AGENT),
        received: server.now(),
        body,
    };
    let checked = match verb.options(&request.content_type) {
        Some(kind) => options::validate(kind, &request.query),
        None => Ok(()),
    };
    if let Err(error) = checked {
        return (Accept { form: media::Form::Object, ..accept }, Err(error));
    }
    let result = match verb {
        Verb::Get => verbs::get(server, &request),
        Verb::List => list::list(server, &request),
        Verb::Watch => watch::watch(server, &request),
        Verb::Create => create::create(server, &request),
        Verb::Update => update::update(server, &request),
        Verb::Patch => patch::patch(server, &request),
        Verb::Delete => delete::delete(server, &request),
        Verb::DeleteCollection => delete::delete_collection(server, &request),
        Verb::Bind => binding::bind(server, &request),
        Verb::Evict => delete::evict(server, &request),
        Verb::Log => log::log(server, &request).await,
        Verb::Finalize => namespaces::finalize(server, &request),
        Verb::ReviewAccess => review::access(server, &request),
        Verb::ReviewSelf => review::own_user(&request),
        Verb::ReviewToken => review::token(server, &request),
        Verb::RequestToken => token_request::create(server, &request),
    };
    // Everything that the response shows must survive a crash.
    let durable = server.store.wait_durable(server.store.revision()).await;
    let result = durable.map_err(|broken| ApiError::internal(&broken.to_string())).and(result);
    // Statuses are never shown as tables.
    (Accept { form: media::Form::Object, ..accept }, result)
}

/// The action of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
    Bind,
    Evict,
    Log,
    Finalize,
    ReviewAccess,
    ReviewSelf,
    ReviewToken,
    RequestToken,
}

impl Verb {
    fn of(method: &Method, path: &ObjectPath, uri: &http::Uri) -> Result<Self, ApiError> {
        let resource = path.resource;
        // The authorizer takes every request below `/watch/` for a watch.
        if path.watch_prefix && (method != Method::GET || path.subresource.is_some()) {
            return Err(ApiError::method_not_allowed());
        }
        let (verb, name) = match (method, &path.name, path.subresource) {
            (_, _, Some(subresource)) => {
                return Self::of_subresource(method, subresource);
            }
            (&Method::GET, Some(_), None) if path.watch_prefix => (Self::Watch, "watch"),
            (&Method::GET, Some(_), None) => (Self::Get, "get"),
            (&Method::PUT, Some(_), None) => (Self::Update, "update"),
            (&Method::PATCH, Some(_), None) => (Self::Patch, "patch"),
            (&Method::DELETE, Some(_), None) => (Self::Delete, "delete"),
            (&Method::GET, None, None) => {
                let watch = path.watch_prefix || Query::parse(uri.query()).flag("watch");
                if watch { (Self::Watch, "watch") } else { (Self::List, "list") }
            }
            // The collection of all namespaces is read-only.
            (_, None, None) if resource.namespaced && path.namespace.is_none() => {
                return Err(ApiError::method_not_allowed());
            }
            (&Method::POST, None, None) => match resource.kind {
                "Binding" => (Self::Bind, "create"),
                "SelfSubjectReview" => (Self::ReviewSelf, "create"),
                "TokenReview" => (Self::ReviewToken, "create"),
                "LocalSubjectAccessReview" | "SelfSubjectAccessReview" | "SubjectAccessReview" => {
                    (Self::ReviewAccess, "create")
                }
                _ => (Self::Create, "create"),
            },
            (&Method::DELETE, None, None) => (Self::DeleteCollection, "deletecollection"),
            _ => return Err(ApiError::method_not_allowed()),
        };
        if resource.has_verb(name) { Ok(verb) } else { Err(ApiError::method_not_allowed()) }
    }

    /// The kind of the verb's options, if it has options to validate.
    fn options(self, content_type: &str) -> Option<OptionsKind> {
        match self {
            Self::Create | Self::Bind | Self::Evict | Self::RequestToken => Some(OptionsKind::Create),
            Self::Update | Self::Finalize => Some(OptionsKind::Update),
            Self::Patch if options::APPLY_TYPES.contains(&media::essence(content_type)) => {
                Some(OptionsKind::Apply)
            }
            Self::Patch => Some(OptionsKind::Patch),
            _ => None,
        }
    }

    fn of_subresource(method: &Method, subresource: &Subresource) -> Result<Self, ApiError> {
        let (verb, generic) = match *method {
            Method::GET => ("get", Self::Get),
            Method::PUT => ("update", Self::Update),
            Method::PATCH => ("patch", Self::Patch),
            Method::POST => ("create", Self::Create),
            Method::DELETE => ("delete", Self::Delete),
            _ => return Err(ApiError::method_not_allowed()),
        };
        if !subresource.verbs.contains(&verb) {
            return Err(ApiError::method_not_allowed());
        }
        if subresource.refused.contains(&verb) {
            return Err(ApiError::not_implemented(verb, subresource.name));
        }
        Ok(match subresource.name {
            "binding" => Self::Bind,
            "eviction" => Self::Evict,
            "log" => Self::Log,
            "finalize" => Self::Finalize,
            "token" => Self::RequestToken,
            _ => generic,
        })
    }
}

/// Reads a body, which has a time limit only if it comes over the network.
async fn read(body: impl RequestBody, network: Option<&Network>) -> Result<Bytes, ApiError> {
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    let all = collect(body, network.is_some());
    match network.map(|network| network.limits.body) {
        Some(time) => timeout(time, all).await.map_err(|_| ApiError::body_too_slow(time.as_secs()))?,
        None => all.await,
    }
}

async fn collect(body: impl RequestBody, may_pause: bool) -> Result<Bytes, ApiError> {
    let mut body = pin!(body);
    match Limited::new(body.as_mut(), BODY_LIMIT).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => {
            drop_rest(body, may_pause).await;
            Err(ApiError::body_too_large(BODY_LIMIT))
        }
        Err(error) => Err(ApiError::bad_request(error.to_string())),
    }
}

/// Reads the rest of a body that is too large.
async fn drop_rest(mut body: Pin<&mut impl RequestBody>, may_pause: bool) {
    let mut dropped = 0;
    while dropped < DROPPED_MAX {
        let next = body.frame();
        let next = if may_pause { timeout(PAUSE, next).await.unwrap_or_default() } else { next.await };
        let Some(Ok(frame)) = next else { return };
        // Empty pieces count, too, so that a client cannot send them without end.
        dropped += frame.data_ref().map_or(0, Bytes::len).max(1);
    }
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> String {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::stream::{self, StreamExt as _};
    use http_body_util::StreamBody;
    use hyper::body::Frame;

    use super::*;

    const PIECE: Bytes = Bytes::from_static(&[0; 1 << 16]);

    /// The answer to a body of this size, and how much of it has been read.
    async fn answer(size: usize) -> (Result<Bytes, ApiError>, usize) {
        let pieces = AtomicUsize::new(0);
        let body = stream::iter(0..size / PIECE.len()).map(|_| {
            pieces.fetch_add(1, Ordering::Relaxed);
            Ok::<_, Infallible>(Frame::data(PIECE))
        });
        let answer = read(StreamBody::new(body), None).await;
        (answer, pieces.into_inner() * PIECE.len())
    }

    /// If the connection closed while a client is still writing, the client would not see the reason.
    #[tokio::test]
    async fn a_body_that_is_too_large_is_read_before_it_is_refused() {
        let (taken, read) = answer(BODY_LIMIT).await;
        assert_eq!((taken.map_or(0, |body| body.len()), read), (BODY_LIMIT, BODY_LIMIT));
        let larger = 4 * BODY_LIMIT;
        let (refused, read) = answer(larger).await;
        assert!(refused.is_err());
        assert_eq!(read, larger);
        // No body is read without end.
        let (refused, read) = answer(1 << 40).await;
        assert!(refused.is_err());
        assert!(read < 2 * DROPPED_MAX, "{read}");
    }
}
