//! Events of controllers, as shown by `kubectl describe`.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::ObjectReference;
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::object::{self, Key};
use crate::resources::{self, Resource};
use crate::rules::Subresource;
use crate::server::Server;
use crate::time::format_time;
use crate::verbs::{Writer, create, update};

/// Maximum number of events that are remembered, so that a repetition is counted.
const REMEMBERED_MAX: usize = 4096;
/// Longest message of an event, in bytes: it may quote what an author has written.
const MESSAGE_MAX: usize = 1024;

/// An event's `type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum EventType {
    Normal,
    Warning,
}

impl EventType {
    fn name(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// The contents of an event: uid of its object, type, reason and message.
type Content = (String, EventType, &'static str, String);

/// Writes the events of one controller. Losing one is harmless.
pub(super) struct Events {
    component: &'static str,
    /// The keys of written events, by their contents.
    written: HashMap<Content, Key>,
}

impl Events {
    pub(super) fn of(component: &'static str) -> Self {
        Self { component, written: HashMap::new() }
    }

    /// Writes an event about an object. If it has been written before, raises its count.
    pub(super) fn record(
        &mut self,
        server: &Server,
        about: &ObjectReference,
        kind: EventType,
        reason: &'static str,
        mut message: String,
    ) {
        message.truncate(message.floor_char_boundary(MESSAGE_MAX));
        let Some(events) = resources::stored("events") else { return };
        let content = (about.uid.clone().unwrap_or_default(), kind, reason, message);
        if let Some(key) = self.written.get(&content)
            && self.count(server, events, key).is_ok()
        {
            return;
        }
        match self.write(server, events, about, &content) {
            Ok(key) => {
                if self.written.len() >= REMEMBERED_MAX {
                    self.written.clear();
                }
                self.written.insert(content, key);
            }
            Err(error) => tracing::debug!(error = %error.message, reason, "cannot write an event"),
        }
    }

    fn count(&self, server: &Server, events: &'static Resource, key: &Key) -> Result<(), ApiError> {
        let writer = Writer::internal(server, self.component);
        let counted = update::modify(server, events, key, Subresource::Main, writer, |old| {
            let mut new = old.clone();
            new["count"] = old["count"].as_i64().unwrap_or(1).saturating_add(1).into();
            new["lastTimestamp"] = format_time(writer.now).into();
            Ok(new)
        });
        counted.map(drop)
    }

    fn write(
        &self,
        server: &Server,
        events: &'static Resource,
        about: &ObjectReference,
        (_, kind, reason, message): &Content,
    ) -> Result<Key, ApiError> {
        let writer = Writer::internal(server, self.component);
        let now = format_time(writer.now);
        let namespace = about.namespace.as_deref();
        let uid = server.new_uid().replace('-', "");
        let suffix = uid.get(..16).unwrap_or(&uid);
        let name = format!("{}.{suffix}", about.name.as_deref().unwrap_or_default());
        let event: Value = json!({
            "metadata": {"name": name},
            "involvedObject": about,
            "type": kind.name(), "reason": reason, "message": message,
            "source": {"component": self.component},
            "firstTimestamp": now, "lastTimestamp": now, "count": 1, "eventTime": null,
            "reportingComponent": self.component, "reportingInstance": "",
        });
        create::insert(server, events, namespace, event, writer)?;
        Ok(object::key(namespace, &name))
    }
}
