//! An Event of the core API group (`v1`). Protobuf is smaller than JSON, and costs the API server less.

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::json;

use super::EventType;
use crate::job::job_id::JobId;
use crate::job::manifest::Encoding;
use crate::job::protobuf::{Writer, core_object};

/// `apiVersion` and `kind` of the object that an Event is about.
const API_VERSION: &str = "batch/v1";
const KIND: &str = "Job";
/// About how many bytes an Event has in protobuf.
const ROOM: usize = 512;

/// The content of an Event.
pub(super) struct EventBody<'a> {
    pub(super) name: &'a str,
    pub(super) about: &'a JobId,
    pub(super) kind: EventType,
    pub(super) reason: &'a str,
    pub(super) message: &'a str,
    pub(super) count: u32,
    pub(super) first: Timestamp,
    pub(super) last: Timestamp,
    /// `source.component` and `reportingComponent`.
    pub(super) component: &'a str,
}

impl EventBody<'_> {
    /// The object in this encoding.
    pub(super) fn encode(&self, encoding: Encoding) -> Bytes {
        match encoding {
            Encoding::Json => self.in_json(),
            Encoding::Protobuf => self.in_protobuf(),
        }
    }

    fn in_json(&self) -> Bytes {
        let Self { about, component, .. } = self;
        let event = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": self.name, "namespace": about.namespace()},
            "involvedObject": {
                "apiVersion": API_VERSION,
                "kind": KIND,
                "namespace": about.namespace(),
                "name": about.name(),
                "uid": about.uid(),
            },
            "type": self.kind.as_str(),
            "reason": self.reason,
            "message": self.message,
            "count": self.count,
            "firstTimestamp": seconds(self.first),
            "lastTimestamp": seconds(self.last),
            "source": {"component": component},
            "reportingComponent": component,
        });
        event.to_string().into()
    }

    /// The numbers of fields are those of `k8s.io/api/core/v1`.
    fn in_protobuf(&self) -> Bytes {
        core_object("Event", ROOM, |event| {
            event.message(1, |metadata| {
                metadata.bytes(1, self.name.as_bytes());
                metadata.bytes(3, self.about.namespace().as_bytes());
            });
            event.message(2, |about| {
                about.bytes(1, KIND.as_bytes());
                about.bytes(2, self.about.namespace().as_bytes());
                about.bytes(3, self.about.name().as_bytes());
                about.bytes(4, self.about.uid().to_string().as_bytes());
                about.bytes(5, API_VERSION.as_bytes());
            });
            event.bytes(3, self.reason.as_bytes());
            event.bytes(4, self.message.as_bytes());
            event.message(5, |source| source.bytes(1, self.component.as_bytes()));
            event.message(6, |time| write_seconds(time, self.first));
            event.message(7, |time| write_seconds(time, self.last));
            event.number(8, self.count.into());
            event.bytes(9, self.kind.as_str().as_bytes());
            event.bytes(14, self.component.as_bytes());
        })
    }
}

/// A time in JSON, of which the API keeps whole seconds.
pub(super) fn seconds(time: Timestamp) -> String {
    format!("{time:.0}")
}

/// A `Time`, of which the API keeps whole seconds. Events are not of before 1970.
fn write_seconds(message: &mut Writer, time: Timestamp) {
    message.number(1, time.as_second().try_into().unwrap_or_default());
}
