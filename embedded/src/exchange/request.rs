//! Parsed requests for objects.

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;

use super::decode;
use super::media::{Accept, Form};
use super::options;
use super::path::ObjectPath;
use super::query::Query;
use crate::authorization::User;
use crate::error::ApiError;
use crate::object::{self, Key};
use crate::resources::Resource;
use crate::rules::{FieldValidation, Subresource};
use crate::table::{Include, Rows};

/// A request for objects.
pub(crate) struct Request {
    /// The parsed path.
    pub(crate) path: ObjectPath,
    /// Query parameters.
    pub(crate) query: Query,
    /// The negotiated form of the response.
    pub(crate) accept: Accept,
    /// The sender, whose rights count; `None` if every request has all rights.
    pub(crate) user: Option<Arc<User>>,
    /// `Content-Type`, empty if absent.
    pub(crate) content_type: String,
    /// `User-Agent`, empty if absent.
    pub(crate) user_agent: String,
    /// When the request was read.
    pub(crate) received: Timestamp,
    /// The body.
    pub(crate) body: Bytes,
}

impl Request {
    /// The kind.
    pub(crate) fn resource(&self) -> &'static Resource {
        self.path.resource
    }

    /// The name in the path, empty for a collection.
    pub(crate) fn name(&self) -> &str {
        self.path.name.as_deref().unwrap_or_default()
    }

    /// The store's key of the object in the path.
    pub(crate) fn key(&self) -> Key {
        object::key(self.path.namespace.as_deref(), self.name())
    }

    /// The store's prefix of the collection in the path.
    pub(crate) fn prefix(&self) -> String {
        self.path.namespace.as_ref().map(|namespace| format!("{namespace}/")).unwrap_or_default()
    }

    /// The part of the object that the path names, as strategies expect it.
    pub(crate) fn subresource(&self) -> Subresource {
        match self.path.subresource.map(|subresource| subresource.name) {
            Some("status") => Subresource::Status,
            Some("scale") => Subresource::Scale,
            Some("binding") => Subresource::Binding,
            _ => Subresource::Main,
        }
    }

    /// The rows of a Table, if the response is one.
    pub(crate) fn rows(&self) -> Result<Rows, ApiError> {
        let include = match self.accept.form {
            Form::Table(_) => Include::parse(self.query.text("includeObject"))?,
            _ => Include::default(),
        };
        Ok(Rows { include, now: self.received })
    }

    /// Handling of unknown and repeated fields in the body.
    pub(crate) fn field_validation(&self) -> FieldValidation {
        options::field_validation(&self.query).unwrap_or(FieldValidation::Warn)
    }

    /// Decodes the body as an object of the resource.
    pub(crate) fn decode(&self) -> Result<decode::Body, ApiError> {
        decode::of(self.resource(), &self.content_type, &self.body, self.field_validation())
    }

    /// The manager of the fields that this request writes: `fieldManager`, or the client's name if that is
    /// empty.
    pub(crate) fn manager(&self) -> &str {
        const LONGEST: usize = 128;
        let name = match self.query.get("fieldManager") {
            Some(manager) => manager,
            None => self.user_agent.split('/').next().unwrap_or_default(),
        };
        name.get(..LONGEST.min(name.len())).unwrap_or(name)
    }
}
