//! An Event of the core API group (`v1`). Protobuf is smaller than JSON, and costs the API server less.

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::json;

use super::{Series, SeriesKey};
use crate::job::manifest::Encoding;
use crate::job::protobuf::{Writer, core_object};

/// `apiVersion` and `kind` of the object that an Event is about.
const API_VERSION: &str = "batch/v1";
const KIND: &str = "Job";
/// About how many bytes an Event has in protobuf.
const ROOM: usize = 512;

/// An Event that covers the recorded ones of a series.
pub(super) struct EventBody<'a> {
    pub(super) series: &'a Series,
    pub(super) name: &'a str,
    pub(super) message: &'a str,
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
        let Self { series, name, message, component } = self;
        let SeriesKey { about, kind, reason, .. } = &*series.key;
        let event = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": about.namespace()},
            "involvedObject": {
                "apiVersion": API_VERSION,
                "kind": KIND,
                "namespace": about.namespace(),
                "name": about.name(),
                "uid": about.uid(),
            },
            "type": kind.as_str(),
            "reason": reason,
            "message": message,
            "count": series.count,
            "firstTimestamp": seconds(series.first),
            "lastTimestamp": seconds(series.last),
            "source": {"component": component},
            "reportingComponent": component,
        });
        event.to_string().into()
    }

    /// The numbers of fields are those of `k8s.io/api/core/v1`.
    fn in_protobuf(&self) -> Bytes {
        let Self { series, name, message, component } = self;
        let SeriesKey { about, kind, reason, .. } = &*series.key;
        core_object("Event", ROOM, |event| {
            event.message(1, |metadata| {
                metadata.bytes(1, name.as_bytes());
                metadata.bytes(3, about.namespace().as_bytes());
            });
            event.message(2, |object| {
                object.bytes(1, KIND.as_bytes());
                object.bytes(2, about.namespace().as_bytes());
                object.bytes(3, about.name().as_bytes());
                object.bytes(4, about.uid().to_string().as_bytes());
                object.bytes(5, API_VERSION.as_bytes());
            });
            event.bytes(3, reason.as_bytes());
            event.bytes(4, message.as_bytes());
            event.message(5, |source| source.bytes(1, component.as_bytes()));
            event.message(6, |time| write_seconds(time, series.first));
            event.message(7, |time| write_seconds(time, series.last));
            event.number(8, series.count.into());
            event.bytes(9, kind.as_str().as_bytes());
            event.bytes(14, component.as_bytes());
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
