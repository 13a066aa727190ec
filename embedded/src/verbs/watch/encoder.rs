//! Encoding of watch events: lines of JSON or frames of protobuf.

use std::sync::Arc;

use bytes::BytesMut;
use serde_json::{Error, Value, json};

use crate::error::ApiError;
use crate::exchange::media::{Accept, Form, Format};
use crate::object::Object;
use crate::protobuf;
use crate::resources::Resource;
use crate::table::{self, Include, ListMeta, Rows};
use crate::time::Clock;
use crate::views;

/// The annotation of the bookmark after the initial events.
const INITIAL_END: &str = "k8s.io/initial-events-end";

/// Writes events in the negotiated form. Each function fails if protobuf cannot represent the object, and
/// then writes nothing.
pub(super) struct Encoder {
    /// The kind of the objects.
    pub(super) resource: &'static Resource,
    accept: Accept,
    include: Include,
    /// The clock of the ages in Tables.
    clock: Arc<dyn Clock>,
    /// Whether no Table has been sent yet: the first one carries the column definitions.
    first: bool,
    /// Buffer for the JSON of an object to be encoded in protobuf.
    json: BytesMut,
}

impl Encoder {
    pub(super) fn new(
        resource: &'static Resource,
        accept: Accept,
        include: Include,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { resource, accept, include, clock, first: true, json: BytesMut::new() }
    }

    /// `apiVersion` and `kind` of what is sent in protobuf.
    fn kind(&self) -> (String, &'static str) {
        match self.accept.form {
            Form::Partial => ("meta.k8s.io/v1".to_owned(), "PartialObjectMetadata"),
            _ => (self.resource.api_version(), self.resource.kind),
        }
    }

    /// Appends an event about an object, with this revision as its resourceVersion.
    pub(super) fn event(
        &mut self,
        out: &mut BytesMut,
        kind: &str,
        object: &Object,
        revision: u64,
    ) -> Result<(), Error> {
        if self.accept.format == Format::Protobuf {
            self.json.clear();
            match self.accept.form {
                Form::Partial => views::write_partial_item(&mut self.json, object, revision),
                _ => views::write_item(&mut self.json, self.resource, object, revision),
            }
            let (api_version, of_kind) = self.kind();
            return protobuf::write_event(out, kind, &api_version, of_kind, &self.json);
        }
        out.extend_from_slice(br#"{"type":""#);
        out.extend_from_slice(kind.as_bytes());
        out.extend_from_slice(br#"","object":"#);
        match self.accept.form {
            Form::Object | Form::PartialList | Form::Discovery(_) => {
                views::write_with_kind(out, self.resource, object, revision);
            }
            Form::Partial => views::write_partial(out, object, revision),
            Form::Table(version) => {
                let meta = ListMeta::of_one(revision);
                let rows = Rows { include: self.include, now: self.clock.now() };
                let table = table::value(self.resource, version, rows, &[object], &meta, self.first);
                self.first = false;
                out.extend_from_slice(table.to_string().as_bytes());
            }
        }
        out.extend_from_slice(b"}\n");
        Ok(())
    }

    /// Appends a bookmark at this revision. `initial_end` marks the end of the initial events.
    pub(super) fn bookmark(&self, out: &mut BytesMut, revision: u64, initial_end: bool) -> Result<(), Error> {
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if initial_end {
            metadata["annotations"] = json!({INITIAL_END: "true"});
        }
        if self.accept.format == Format::Protobuf {
            let rest = if self.accept.form == Form::Partial { "" } else { self.resource.empty };
            let object = format!(r#"{{"metadata":{metadata}{rest}}}"#);
            let (api_version, kind) = self.kind();
            return protobuf::write_event(out, "BOOKMARK", &api_version, kind, object.as_bytes());
        }
        let object = match self.accept.form {
            Form::Partial => format!(
                r#"{{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{metadata}}}"#
            ),
            Form::Table(version) => {
                let row: Value = json!({"cells": [], "object": {
                    "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
                }});
                json!({
                    "kind": "Table", "apiVersion": format!("meta.k8s.io/{version}"),
                    "metadata": {"resourceVersion": revision.to_string()}, "columnDefinitions": null, "rows": [row],
                })
                .to_string()
            }
            Form::Object | Form::PartialList | Form::Discovery(_) => {
                format!(r#"{{{}"metadata":{metadata}{}}}"#, self.resource.type_meta(), self.resource.empty)
            }
        };
        out.extend_from_slice(format!("{{\"type\":\"BOOKMARK\",\"object\":{object}}}\n").as_bytes());
        Ok(())
    }

    /// Appends the error event that ends the watch.
    pub(super) fn error(&self, out: &mut BytesMut, error: &ApiError) -> Result<(), Error> {
        let mut status = error.to_status();
        if self.accept.format == Format::Protobuf {
            if let Some(fields) = status.as_object_mut() {
                fields.remove("kind");
                fields.remove("apiVersion");
            }
            return protobuf::write_event(out, "ERROR", "v1", "Status", status.to_string().as_bytes());
        }
        out.extend_from_slice(json!({"type": "ERROR", "object": status}).to_string().as_bytes());
        out.extend_from_slice(b"\n");
        Ok(())
    }
}
