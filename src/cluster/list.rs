//! Reads a list while it arrives, object by object: of an answer of any length, no more than one incomplete object is held.
//!
//! Lists are asked for in one piece, without a version: consistent, and since Kubernetes 1.31
//! from the API server's watch cache. The API server asks etcd for the newest version, waits
//! until its cache is there, and encodes the objects of the cache. Since 1.33 it encodes them
//! one by one, without a copy of the whole. Pages would cost it more. Until 1.33, each page
//! after the first is read from etcd and decoded again, and so are all pods that a selector
//! passes over. A list of 100,000 pods is 199 such reads, and any of them may expire. The
//! limit for a list in one piece is the API server's `--request-timeout`, 60 s. The API
//! server's own caches and controllers list the same way. A streaming list has no such limit,
//! and is preferred where served.
//!
//! A list whose end is missing is an error, never a shorter list: see [`ListBody::end`].

mod json;
mod protobuf;

use bytes::Bytes;
use http::HeaderMap;
use serde::de::IgnoredAny;

pub(crate) use self::json::JsonList;
use self::protobuf::ProtobufList;
use super::wire::protobuf::{Message as _, is_in_protobuf};
use super::wire::{
    DecodeError, Decoder, FromProtobuf, ListMeta, Malformed, Unreadable, guarded, version_number,
};
use crate::cluster::byte_queue::TooLong;
use crate::job::short_text::short;

/// Why a list cannot be read to its end.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// The format is not one that was asked for.
    #[error("the list is in a format that was not requested")]
    Format,
    /// The end is missing.
    #[error("the list broke off")]
    Cut,
    /// The bytes are not JSON.
    #[error("the list is malformed: {}", short(&.0.to_string()))]
    Json(#[from] serde_json::Error),
    /// The bytes are not protobuf.
    #[error("the list is malformed: {0}")]
    Protobuf(#[from] Malformed),
    /// The bytes around or between the objects are not those of a list.
    #[error("the answer is not a list")]
    NotAList,
    /// An object is longer than any.
    #[error("the list is malformed: {0}")]
    TooLong(#[from] TooLongObject),
    /// The answer is a page, although the whole list was asked for.
    #[error("the API server has sent a part of the list only")]
    Paged,
    /// `metadata.resourceVersion` is missing, or is not a number above 0.
    #[error("the list has no version that is a number")]
    NoVersion,
}

/// An object in a list is longer than any.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct TooLongObject(#[from] TooLong);

impl From<TooLong> for ListError {
    fn from(error: TooLong) -> Self {
        Self::TooLong(error.into())
    }
}

/// An object of a list that cannot be read.
#[derive(Debug)]
pub(super) struct NotRead {
    /// Why.
    pub(super) error: DecodeError,
    /// The object's metadata, unless even its name is unreadable.
    pub(super) object: Option<Unreadable>,
}

/// The body of a list in either format.
pub(super) enum ListBody<D: Decoder> {
    Json(JsonList),
    Protobuf(ProtobufList, FromProtobuf<D>),
}

impl<D: Decoder> ListBody<D> {
    /// The body of an answer with these headers.
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, ListError> {
        if is_in_protobuf(headers) {
            let object = D::FROM_PROTOBUF.ok_or(ListError::Format)?;
            return Ok(Self::Protobuf(ProtobufList::default(), object));
        }
        Ok(Self::Json(JsonList::default()))
    }

    /// Adds the next piece. The piece before must hold no complete object any more.
    pub(super) fn push(&mut self, piece: Bytes) {
        match self {
            Self::Json(list) => list.push(piece),
            Self::Protobuf(list, _) => list.push(piece),
        }
    }

    /// The next object that is complete. An unreadable object costs no other. If it is not
    /// even JSON or a message, the list is broken.
    pub(super) fn next(&mut self, decoder: &D) -> Result<Option<Result<D::Object, NotRead>>, ListError> {
        Ok(match self {
            Self::Json(list) => {
                let Some(object) = list.next()? else { return Ok(None) };
                Some(match decoder.decode(&object) {
                    Ok(object) => Ok(object),
                    Err(error) => {
                        serde_json::from_slice::<IgnoredAny>(&object)?;
                        let object = Unreadable::in_list(&object, &error);
                        Err(NotRead { error, object })
                    }
                })
            }
            Self::Protobuf(list, read) => {
                let Some(message) = list.next()? else { return Ok(None) };
                Some(match guarded(|| read(decoder, &message)) {
                    Ok(object) => Ok(object),
                    Err(error) => {
                        <()>::read(&message)?;
                        let object = Unreadable::in_message(&message, &error);
                        Err(NotRead { error, object })
                    }
                })
            }
        })
    }

    /// The version of the list, after its last piece.
    ///
    /// # Errors
    /// When the list is not complete. The syntax of the list shows whether it is complete. An
    /// orderly end of the connection proves nothing: a proxy may close it after a part. So
    /// does an API server that fails to encode an object.
    pub(super) fn end(self) -> Result<u64, ListError> {
        match self {
            Self::Json(list) => list.end(),
            Self::Protobuf(list, _) => list.end(),
        }
    }
}

/// The version of a whole list.
fn version(metadata: &ListMeta<'_>) -> Result<u64, ListError> {
    if metadata.continue_token.as_deref().is_some_and(|token| !token.is_empty()) {
        return Err(ListError::Paged);
    }
    match version_number(metadata.resource_version.as_deref()) {
        0 => Err(ListError::NoVersion),
        version => Ok(version),
    }
}

#[cfg(test)]
mod tests;
