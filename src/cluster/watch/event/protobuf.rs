//! Events in protobuf.

use super::Event;
use crate::cluster::wire::protobuf::{self, Malformed, Message, Value};
use crate::cluster::wire::{Bare, DecodeError, Refusal, Unreadable, WireRefusal};
use crate::job::short_text::short;

/// Reads a frame of a watch, and the message of its object with `object`.
///
/// # Errors
/// When the frame is not an event, or its object is not understood.
pub fn read_frame<T>(
    frame: &[u8],
    object: impl Fn(&[u8]) -> Result<T, DecodeError>,
) -> Result<Event<T>, DecodeError> {
    let event = WatchEvent::read(frame)?;
    let message = protobuf::object(event.object.raw)?;
    let of = |shown: fn(T) -> Event<T>| match object(message) {
        Ok(object) => Ok(shown(object)),
        Err(error) => match Unreadable::in_message(message, &error) {
            Some(found) => Ok(Event::Unreadable(Unreadable { has_left: event.kind == b"DELETED", ..found })),
            None => Err(error),
        },
    };
    Ok(match event.kind {
        b"ADDED" => of(|object| Event::Applied { kind: "ADDED", object })?,
        b"MODIFIED" => of(|object| Event::Applied { kind: "MODIFIED", object })?,
        b"DELETED" => of(Event::Deleted)?,
        b"BOOKMARK" => Bare::read(message)?.into(),
        b"ERROR" => Event::Error(Refusal::from_status(0, WireRefusal::read(message)?)),
        other => return Err(Malformed::EventType(short(&String::from_utf8_lossy(other)).into()).into()),
    })
}

#[derive(Default)]
struct WatchEvent<'a> {
    kind: &'a [u8],
    object: RawExtension<'a>,
}

impl<'a> Message<'a> for WatchEvent<'a> {
    fn take(&mut self, number: u32, value: Value<'a>) -> Result<(), Malformed> {
        match number {
            1 => self.kind = value.bytes()?,
            2 => self.object = value.message()?,
            _ => {}
        }
        Ok(())
    }
}

#[derive(Default)]
struct RawExtension<'a> {
    raw: &'a [u8],
}

impl<'a> Message<'a> for RawExtension<'a> {
    fn take(&mut self, number: u32, value: Value<'a>) -> Result<(), Malformed> {
        if number == 1 {
            self.raw = value.bytes()?;
        }
        Ok(())
    }
}
