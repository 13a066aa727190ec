//! The generic verbs, the same for every kind. Differences are in the kind's strategy.

pub(crate) mod apply_patch;
pub(crate) mod binding;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod list;
pub(crate) mod log;
pub(crate) mod namespaces;
pub(crate) mod patch;
pub(crate) mod review;
pub(crate) mod roles;
pub(crate) mod token_request;
pub(crate) mod update;
pub(crate) mod watch;

use http::StatusCode;
use jiff::Timestamp;
use serde_json::Value;

use super::authorization::User;
use super::error::ApiError;
use super::exchange::reply::Reply;
use super::exchange::request::Request;
use super::object;
use super::resources::Resource;
use super::rules::Subresource;
use super::rules::apply::{self, ObjectType, Write};
use super::server::Server;

/// The writer and mode of a write.
#[derive(Clone, Copy)]
pub(crate) struct Writer<'a> {
    /// The user whose rights count; `None` if everybody has all rights, and for the server's own components.
    pub(crate) user: Option<&'a User>,
    /// How the write updates `managedFields`.
    pub(crate) fields: ManagedFields<'a>,
    /// When it writes.
    pub(crate) now: Timestamp,
    /// Whether to do everything except storing.
    pub(crate) dry_run: bool,
}

/// How a write updates `metadata.managedFields`.
#[derive(Clone, Copy)]
pub(crate) enum ManagedFields<'a> {
    /// This manager owns the fields that it changes.
    Track(&'a str),
    /// Server-side apply has already computed them in the new object.
    Computed,
    /// They are removed, because the server does not track fields.
    Ignore,
}

impl<'a> Writer<'a> {
    /// A component of the server itself.
    pub(crate) fn internal(server: &Server, manager: &'a str) -> Self {
        Self { user: None, fields: ManagedFields::by(server, manager), now: server.now(), dry_run: false }
    }

    /// The client of a request.
    pub(crate) fn of(server: &Server, request: &'a Request) -> Self {
        Self {
            user: request.user.as_deref(),
            fields: ManagedFields::by(server, request.manager()),
            now: server.now(),
            dry_run: request.query.dry_run(),
        }
    }

    /// Updates the `managedFields` of `new`.
    pub(crate) fn track(
        &self,
        resource: &Resource,
        old: Option<&Value>,
        new: &mut Value,
        subresource: Subresource,
    ) {
        let manager = match self.fields {
            ManagedFields::Track(manager) => manager,
            ManagedFields::Computed => return,
            ManagedFields::Ignore => {
                if let Some(metadata) = object::metadata_mut(new) {
                    metadata.remove("managedFields");
                }
                return;
            }
        };
        let api_version = resource.api_version();
        let kind = ObjectType { api_version: &api_version, kind: resource.kind };
        apply::track_update(kind, old, new, Write { manager, subresource, now: self.now });
    }
}

impl<'a> ManagedFields<'a> {
    fn by(server: &Server, manager: &'a str) -> Self {
        if server.track_managed_fields { Self::Track(manager) } else { Self::Ignore }
    }
}

/// Creates the objects of a new cluster that do not exist yet.
pub(crate) fn bootstrap(server: &Server) -> Result<(), ApiError> {
    namespaces::bootstrap(server)?;
    roles::bootstrap(server)
}

/// GET of one object.
pub(crate) fn get(server: &Server, request: &Request) -> Result<Reply, ApiError> {
    let rows = request.rows()?;
    list::check_not_future(server, &request.query)?;
    let resource = request.resource();
    let found = server.table(resource).get(&request.key());
    let object = found.ok_or_else(|| ApiError::not_found(resource, request.name()))?;
    Reply::object(StatusCode::OK, request.accept, resource, &object, rows)
}
