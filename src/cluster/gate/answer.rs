//! The results of writes.

use std::time::Duration;

use bytes::Bytes;
use http::Response;
use serde::Deserialize;

use super::write::Expected;
use crate::cluster::fence::Fence;
use crate::cluster::transport::retry_after;
use crate::cluster::wire::protobuf::{self, Message as _, is_in_protobuf};
use crate::cluster::wire::{
    DecodeError, Decoder, ObservedPod, PodDecoder, Refusal, ResourceVersion, Text, Versioned,
};
use crate::telemetry::metrics::Metrics;

/// The result of a write that was carried out, or had nothing to do.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The pod as it is now; after a deletion that removed it at once, its last state.
    Pod(Box<ObservedPod>),
    /// The version of the Job that the write created.
    Version(ResourceVersion),
    /// The object of another resource, as JSON.
    Object(Bytes),
    /// The object to change or delete does not exist. This deletion removed it at once, it was removed
    /// before, or its name now belongs to another object.
    Gone,
    /// The write was carried out, and its answer is not read.
    Done,
}

/// The failure of a write that was not carried out, or whose outcome is unknown. The caller decides whether
/// and when to repeat it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The shard is no longer ours, or this part of the right was withdrawn; the write did not leave.
    #[error("the shard is no longer owned")]
    Fenced,
    /// The name is taken.
    #[error("{0}")]
    AlreadyExists(Box<str>),
    /// There is no such namespace or resource, or a proxy finds no way to the API server.
    #[error("{0}")]
    NotFound(Box<str>),
    /// The object has changed since it was read.
    #[error("{0}")]
    Conflict(Box<str>),
    /// Not authenticated, or not allowed by RBAC, a quota, an admission webhook or policy, whatever their
    /// code. A later attempt may be allowed.
    #[error("{0}")]
    Forbidden(Box<str>),
    /// The namespace accepts no new objects, since it is being deleted.
    #[error("{0}")]
    NamespaceTerminating(Box<str>),
    /// No valid object (422): the API server would always refuse it.
    #[error("{0}")]
    Invalid(Box<str>),
    /// Refused as a request (4xx): it may not have been read.
    #[error("{0}")]
    BadRequest(Box<str>),
    /// The API server is overloaded (429) and did nothing. Only Events fail with this: other writes stay in
    /// the gate.
    #[error("the API server is busy")]
    Busy {
        /// The `Retry-After` of the API server.
        retry_after: Option<Duration>,
    },
    /// No answer while one was awaited: the write may or may not have been carried out, now or later.
    #[error("no answer: {0}")]
    Unknown(Box<str>),
    /// The API server failed (5xx): the write may or may not have been carried out.
    #[error("{message}")]
    Server {
        /// HTTP status.
        code: u16,
        /// The API server's message.
        message: Box<str>,
    },
}

/// Why a write did not leave through this fence. Only writes that a lost claim keeps back count.
pub(super) fn kept_back(fence: &Fence, metrics: &Metrics) -> WriteError {
    if !fence.is_handed_over() && !fence.is_withdrawn() {
        metrics.fenced_writes.inc();
    }
    WriteError::Fenced
}

impl WriteError {
    /// Whether something has decided against the write, and would again: no failure of the API server or network.
    pub fn is_lasting(&self) -> bool {
        // For a write to an existing object, `NotFound` comes from a proxy: the API server's own 404 becomes
        // `Gone`.
        !matches!(
            self,
            Self::Fenced | Self::Busy { .. } | Self::NotFound(_) | Self::Unknown(_) | Self::Server { .. }
        )
    }

    /// Whether a write in protobuf may succeed in JSON: a proxy that authenticates requests, for example, may
    /// not read protobuf.
    pub fn may_succeed_in_json(&self) -> bool {
        matches!(self, Self::BadRequest(_))
    }
}

/// Reads the answer to a write; `of_existing` if it concerned an object that existed.
pub(super) fn read(
    pods: &PodDecoder,
    response: &Response<Bytes>,
    expected: Expected,
    of_existing: bool,
) -> Result<Answer, WriteError> {
    if response.status().is_success() {
        return read_success(pods, response, expected);
    }
    let refusal = Refusal::of(response.status(), response.headers(), response.body());
    let gone = refusal.is_not_found() || refusal.is_of_another_uid();
    if of_existing && gone { Ok(Answer::Gone) } else { Err(error(refusal, retry_after(response))) }
}

fn read_success(
    pods: &PodDecoder,
    response: &Response<Bytes>,
    expected: Expected,
) -> Result<Answer, WriteError> {
    let body = response.body();
    let unreadable =
        |e| WriteError::Unknown(format!("carried out, but the answer is unreadable: {e}").into());
    match expected {
        Expected::Nothing => Ok(Answer::Done),
        Expected::Object => Ok(Answer::Object(body.clone())),
        // A deletion that removes an object at once is answered with a Status; for pods, with the pod.
        Expected::Deleted if is_status(body) => Ok(Answer::Gone),
        Expected::NewPod if is_in_protobuf(response.headers()) => {
            pods.decode_protobuf(body).map(Answer::Pod).map_err(unreadable)
        }
        Expected::Pod | Expected::NewPod | Expected::Deleted => {
            pods.decode(body).map(Answer::Pod).map_err(unreadable)
        }
        Expected::Version => version(response).map(Answer::Version).map_err(unreadable),
    }
}

/// The version of the object in an answer.
fn version(response: &Response<Bytes>) -> Result<ResourceVersion, DecodeError> {
    let object = if is_in_protobuf(response.headers()) {
        Versioned::read(protobuf::object(response.body())?)?
    } else {
        serde_json::from_slice(response.body())?
    };
    object.version()
}

fn is_status(body: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Kind<'a> {
        #[serde(borrow)]
        kind: Text<'a>,
    }
    serde_json::from_slice::<Kind<'_>>(body).is_ok_and(|object| *object.kind == *"Status")
}

fn error(refusal: Refusal, retry_after: Option<Duration>) -> WriteError {
    let terminating = refusal.is_namespace_terminating();
    let (of_webhook, invalid) = (refusal.is_of_webhook(), refusal.is_of_invalid_object());
    let Refusal { code, reason, message, .. } = refusal;
    match (code, &*reason) {
        // The gate would ask the webhook again and again, and the webhook's reasons about other objects say
        // nothing of ours.
        (400..500, _) if of_webhook => WriteError::Forbidden(message),
        (403, _) if terminating => WriteError::NamespaceTerminating(message),
        (401 | 403, _) => WriteError::Forbidden(message),
        (404, _) => WriteError::NotFound(message),
        (409, "AlreadyExists") => WriteError::AlreadyExists(message),
        (409, _) => WriteError::Conflict(message),
        (429, _) => WriteError::Busy { retry_after },
        (422, _) if invalid => WriteError::Invalid(message),
        (422, "Invalid") => WriteError::Forbidden(message),
        (400..500, _) => WriteError::BadRequest(message),
        _ => WriteError::Server { code, message },
    }
}
