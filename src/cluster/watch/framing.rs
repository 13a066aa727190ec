//! The format of a watch's answer: lines of JSON or frames of protobuf.

use bytes::Bytes;
use http::HeaderMap;

use super::event::{Event, read_event, read_frame};
use super::frames::Frames;
use super::lines::Lines;
use crate::cluster::byte_queue::TooLong;
use crate::cluster::wire::protobuf::is_in_protobuf;
use crate::cluster::wire::{DecodeError, Decoder, FromProtobuf, Unreadable, guarded};

/// Splits the body of a watch into events.
pub(super) enum Framing<D: Decoder> {
    /// Each event is a line of JSON.
    Json(Lines),
    /// Each event is a frame of protobuf.
    Protobuf(Frames, FromProtobuf<D>),
}

/// A decoded event. An error concerns this event only: the watch goes on.
pub(super) type Read<D> = Result<Event<<D as Decoder>::Object>, DecodeError>;

impl<D: Decoder> Framing<D> {
    /// The framing of an answer with these headers, or `None` for a format that the decoder cannot read.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        if is_in_protobuf(headers) {
            D::FROM_PROTOBUF.map(|object| Self::Protobuf(Frames::default(), object))
        } else {
            Some(Self::Json(Lines::default()))
        }
    }

    /// Adds the next piece. The piece before must hold no complete event any more.
    pub(super) fn push(&mut self, piece: Bytes) {
        match self {
            Self::Json(lines) => lines.push(piece),
            Self::Protobuf(frames, _) => frames.push(piece),
        }
    }

    /// The next complete event.
    pub(super) fn next(&mut self, decoder: &D) -> Result<Option<Read<D>>, TooLong> {
        Ok(match self {
            Self::Json(lines) => lines.next()?.map(|line| {
                guarded(|| read_event(decoder, &line))
                    .or_else(|error| Unreadable::in_line(&line, &error).map(Event::Unreadable).ok_or(error))
            }),
            Self::Protobuf(frames, object) => {
                frames.next()?.map(|frame| read_frame(&frame, |bytes| guarded(|| object(decoder, bytes))))
            }
        })
    }

    /// Whether an incomplete event is buffered. It is never reported for lines, since the last may lack its
    /// newline.
    pub(super) fn is_cut(&self) -> bool {
        match self {
            Self::Json(_) => false,
            Self::Protobuf(frames, _) => frames.is_cut(),
        }
    }
}
