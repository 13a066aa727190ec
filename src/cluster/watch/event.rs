//! Events in the stream of a watch.

mod protobuf;

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

pub use self::protobuf::read_frame;
use crate::cluster::wire::{
    Bare, DecodeError, Decoder, Refusal, Text, Unreadable, WireRefusal, version_number,
};

/// Annotation of the bookmark that ends the initial events of a streaming list.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// An event of a watch.
#[derive(Debug)]
pub enum Event<T> {
    /// `ADDED` or `MODIFIED`.
    Applied {
        /// `ADDED` or `MODIFIED`, as the API server sent it.
        kind: &'static str,
        /// The object as it is now.
        object: T,
    },
    /// `DELETED`.
    Deleted(T),
    /// `BOOKMARK`: all changes up to this version have been sent.
    Bookmark {
        /// `metadata.resourceVersion`; 0 if it is no number.
        version: u64,
        /// The initial events of a streaming list are complete.
        ends_list: bool,
    },
    /// `ADDED`, `MODIFIED` or `DELETED`, of an object that cannot be read.
    Unreadable(Unreadable),
    /// `ERROR`.
    Error(Refusal),
}

/// Reads one line of a watch. It takes one pass if `type` comes before `object`, as API servers write it.
///
/// # Errors
/// When the line is not an event, or the decoder cannot read its object.
pub fn read_event<D: Decoder>(decoder: &D, line: &[u8]) -> Result<Event<D::Object>, DecodeError> {
    let mut json = serde_json::Deserializer::from_slice(line);
    let event = json.deserialize_map(EventVisitor(decoder))?;
    json.end()?;
    event
}

struct EventVisitor<'d, D>(&'d D);

impl<'de, D: Decoder> Visitor<'de> for EventVisitor<'_, D> {
    /// The inner error concerns the object only.
    type Value = Result<Event<D::Object>, DecodeError>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a watch event")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut kind: Option<Text<'de>> = None;
        let mut early: Option<&'de RawValue> = None;
        let mut event = None;
        while let Some(key) = map.next_key::<Text<'de>>()? {
            match (&*key, &kind) {
                ("type", _) => kind = Some(map.next_value()?),
                ("object", Some(kind)) => {
                    event = Some(map.next_value_seed(ObjectSeed { decoder: self.0, kind })?)
                }
                ("object", None) => early = Some(map.next_value()?),
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        match (event, kind, early) {
            (Some(event), ..) => Ok(event),
            (None, Some(kind), Some(object)) => {
                let seed = ObjectSeed { decoder: self.0, kind: &kind };
                seed.deserialize(object).map_err(A::Error::custom)
            }
            _ => Err(A::Error::custom("a watch event needs a type and an object")),
        }
    }
}

/// The object of an event whose type is known.
struct ObjectSeed<'a, D> {
    decoder: &'a D,
    kind: &'a str,
}

impl<'de, D: Decoder> DeserializeSeed<'de> for ObjectSeed<'_, D> {
    type Value = Result<Event<D::Object>, DecodeError>;

    fn deserialize<J: Deserializer<'de>>(self, json: J) -> Result<Self::Value, J::Error> {
        Ok(match self.kind {
            "ADDED" => self.object(json)?.map(|object| Event::Applied { kind: "ADDED", object }),
            "MODIFIED" => self.object(json)?.map(|object| Event::Applied { kind: "MODIFIED", object }),
            "DELETED" => self.object(json)?.map(Event::Deleted),
            "BOOKMARK" => Ok(Bare::deserialize(json)?.into()),
            "ERROR" => Ok(Event::Error(Refusal::from_status(0, WireRefusal::deserialize(json)?))),
            other => return Err(J::Error::custom(format_args!("unknown type {other:?} of a watch event"))),
        })
    }
}

impl<D: Decoder> ObjectSeed<'_, D> {
    fn object<'de, J: Deserializer<'de>>(&self, json: J) -> Result<Result<D::Object, DecodeError>, J::Error> {
        Ok(self.decoder.observe(D::Wire::<'de>::deserialize(json)?))
    }
}

/// A bookmark is read for its version and the end of a streaming list only.
impl<T> From<Bare<'_>> for Event<T> {
    fn from(Bare { metadata }: Bare<'_>) -> Self {
        Self::Bookmark {
            version: version_number(metadata.resource_version.as_deref()),
            ends_list: metadata.annotation(INITIAL_EVENTS_END) == Some("true"),
        }
    }
}
