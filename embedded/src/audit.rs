//! A record of every write that was asked for: who, what, when, and how it ended.
//!
//! The server keeps none of it. Whoever starts the server gives it a channel, and does with the records what it likes:
//! load tests count writes by client with it, and tell which replica acted when.

use bytes::Bytes;
use http::request::Parts;
use http::{Method, header};
use jiff::Timestamp;
use serde::Deserialize;
use tokio::sync::mpsc::UnboundedSender;

/// Takes the records of one server.
pub type AuditSink = UnboundedSender<AuditRecord>;

/// One request that was not a read.
#[derive(Clone, Debug)]
pub struct AuditRecord {
    /// The client's User-Agent.
    pub user_agent: String,
    /// HTTP method.
    pub method: Method,
    /// The path, without the query.
    pub path: String,
    /// `metadata.name` of a created object, where the body gives it.
    pub created: Option<String>,
    /// HTTP status; 0 if the connection was broken on purpose, before or after the write.
    pub code: u16,
    /// When the request was read.
    pub received: Timestamp,
    /// When it was answered.
    pub answered: Timestamp,
}

/// A record in the making.
pub(crate) struct Entry<'a> {
    sink: &'a AuditSink,
    record: AuditRecord,
}

impl<'a> Entry<'a> {
    /// Begins the record of a request; reads have none.
    pub(crate) fn begin(sink: Option<&'a AuditSink>, parts: &Parts) -> Option<Self> {
        let sink = sink.filter(|_| !matches!(parts.method, Method::GET | Method::HEAD | Method::OPTIONS))?;
        let agent = parts.headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok());
        let now = Timestamp::now();
        let record = AuditRecord {
            user_agent: agent.unwrap_or_default().to_owned(),
            method: parts.method.clone(),
            path: parts.uri.path().to_owned(),
            created: None,
            code: 0,
            received: now,
            answered: now,
        };
        Some(Self { sink, record })
    }

    /// Takes the name of an object that is to be created from the request's body.
    pub(crate) fn read_name(&mut self, body: &Bytes) {
        #[derive(Deserialize)]
        struct Named {
            metadata: Metadata,
        }
        #[derive(Deserialize)]
        struct Metadata {
            name: Option<String>,
        }
        // Other encodings than JSON, and names that the server makes, leave it open.
        self.record.created =
            serde_json::from_slice::<Named>(body).ok().and_then(|named| named.metadata.name);
    }

    /// Ends the record.
    pub(crate) fn finish(mut self, code: u16) {
        self.record.code = code;
        self.record.answered = Timestamp::now();
        // Nobody listens any more when the server ends.
        let _heard = self.sink.send(self.record);
    }
}
