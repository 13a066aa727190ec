//! A record of every requested write: client, object, times and result.
//!
//! The server does not keep the records; it sends them to a channel that its caller provides. Load tests use
//! them to count writes by client and to see which replica acted when.

use bytes::Bytes;
use http::request::Parts;
use http::{Method, header};
use jiff::Timestamp;
use serde::Deserialize;
use tokio::sync::mpsc::UnboundedSender;

use super::time::Clock;
use crate::protobuf;

/// Receives the records of one server.
pub type AuditSink = UnboundedSender<AuditRecord>;

/// A request other than GET, HEAD and OPTIONS, with its client and result.
#[derive(Clone, Debug)]
pub struct AuditRecord {
    /// The client's User-Agent.
    pub user_agent: String,
    /// HTTP method.
    pub method: Method,
    /// The path, without the query.
    pub path: String,
    /// `metadata.name` of a created object, if the body contains it.
    pub created: Option<String>,
    /// Whether the body is in protobuf.
    pub is_in_protobuf: bool,
    /// HTTP status; 0 if a fault broke the connection, before or after the write.
    pub code: u16,
    /// When the request was read.
    pub received: Timestamp,
    /// When it was answered.
    pub answered: Timestamp,
}

/// The record of a request in progress.
pub(crate) struct Entry<'a> {
    sink: &'a AuditSink,
    clock: &'a dyn Clock,
    record: AuditRecord,
}

impl<'a> Entry<'a> {
    /// Begins the record of a request; reads have none.
    pub(crate) fn begin(sink: Option<&'a AuditSink>, clock: &'a dyn Clock, parts: &Parts) -> Option<Self> {
        let sink = sink.filter(|_| !matches!(parts.method, Method::GET | Method::HEAD | Method::OPTIONS))?;
        let agent = parts.headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok());
        let now = clock.now();
        let record = AuditRecord {
            user_agent: agent.unwrap_or_default().to_owned(),
            method: parts.method.clone(),
            path: parts.uri.path().to_owned(),
            created: None,
            is_in_protobuf: false,
            code: 0,
            received: now,
            answered: now,
        };
        Some(Self { sink, clock, record })
    }

    /// Reads the name of the object to be created from the request body.
    pub(crate) fn read_name(&mut self, body: &Bytes) {
        #[derive(Deserialize)]
        struct Named {
            metadata: Metadata,
        }
        #[derive(Deserialize)]
        struct Metadata {
            name: Option<String>,
        }
        let named = protobuf::is_encoded(body).then(|| protobuf::decode(body));
        self.record.is_in_protobuf = named.is_some();
        // A generated name stays unknown.
        self.record.created = match named {
            Some(object) => {
                object.ok().and_then(|object| Some(object["metadata"]["name"].as_str()?.to_owned()))
            }
            None => serde_json::from_slice::<Named>(body).ok().and_then(|named| named.metadata.name),
        };
    }

    /// Ends the record.
    pub(crate) fn finish(mut self, code: u16) {
        self.record.code = code;
        self.record.answered = self.clock.now();
        // The receiver may be gone when the server stops.
        let _sent = self.sink.send(self.record);
    }
}
