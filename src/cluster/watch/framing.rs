//! In which format a watch is answered, and how its events stand in the stream.

use bytes::Bytes;
use http::HeaderMap;

use super::event::{Event, read_event, read_frame};
use super::frames::{Frames, TooLong};
use super::lines::Lines;
use crate::cluster::wire::protobuf::is_in_protobuf;
use crate::cluster::wire::{DecodeError, Decoder, FromProtobuf};

/// What is asked for.
pub(super) const JSON: &str = "application/json";
/// As Kubernetes' own clients ask: API servers that have no protobuf for a resource answer in JSON.
pub(super) const PROTOBUF_FIRST: &str = "application/vnd.kubernetes.protobuf, application/json";

/// The events of a watch, out of the pieces in which they arrive.
pub(super) enum Framing<D: Decoder> {
    /// A line of JSON each.
    Json(Lines),
    /// A frame of protobuf each.
    Protobuf(Frames, FromProtobuf<D>),
}

/// An event; its error is one of that event alone.
pub(super) type Read<D> = Result<Event<<D as Decoder>::Object>, DecodeError>;

impl<D: Decoder> Framing<D> {
    /// As the answer with these headers says; `None` for a format in which the decoder reads nothing.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        if is_in_protobuf(headers) {
            D::FROM_PROTOBUF.map(|object| Self::Protobuf(Frames::default(), object))
        } else {
            Some(Self::Json(Lines::default()))
        }
    }

    /// Takes in the next piece, once there is no whole event left in the one before.
    pub(super) fn push(&mut self, piece: Bytes) {
        match self {
            Self::Json(lines) => lines.push(piece),
            Self::Protobuf(frames, _) => frames.push(piece),
        }
    }

    /// The next event that is whole.
    pub(super) fn next(&mut self, decoder: &D) -> Result<Option<Read<D>>, TooLong> {
        Ok(match self {
            Self::Json(lines) => lines.next().map(|line| read_event(decoder, &line)),
            Self::Protobuf(frames, object) => {
                frames.next()?.map(|frame| read_frame(&frame, |bytes| object(decoder, bytes)))
            }
        })
    }

    /// Whether an event has begun that is not whole. Of lines that is not known: the last may lack its end.
    pub(super) fn is_cut(&self) -> bool {
        match self {
            Self::Json(_) => false,
            Self::Protobuf(frames, _) => frames.is_cut(),
        }
    }
}
