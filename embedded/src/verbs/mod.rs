//! The generic verbs: the same for every kind; what differs is in the kind's strategy.

pub(crate) mod apply_patch;
pub(crate) mod binding;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod list;
pub(crate) mod log;
pub(crate) mod patch;
pub(crate) mod review;
pub(crate) mod update;
pub(crate) mod watch;

use http::StatusCode;
use jiff::Timestamp;
use serde_json::Value;

use super::error::ApiError;
use super::http::reply::Reply;
use super::http::request::Request;
use super::object;
use super::resources::Resource;
use super::rules::Subresource;
use super::rules::apply::{self, ObjectType, Write};
use super::server::Server;

/// Who writes, and whether the write is for real.
#[derive(Clone, Copy)]
pub(crate) struct Writer<'a> {
    /// What becomes of `managedFields`.
    pub(crate) fields: ManagedFields<'a>,
    /// Whether everything is done but storing.
    pub(crate) dry_run: bool,
}

/// What becomes of `metadata.managedFields` in a write.
#[derive(Clone, Copy)]
pub(crate) enum ManagedFields<'a> {
    /// This manager owns what it changes.
    Track(&'a str),
    /// The new object has them as they are to be: server-side apply settled them.
    Settled,
    /// Nobody owns anything; the server does not track fields.
    Ignore,
}

impl<'a> Writer<'a> {
    /// A part of the server itself.
    pub(crate) fn internal(server: &Server, manager: &'a str) -> Self {
        Self { fields: ManagedFields::by(server, manager), dry_run: false }
    }

    /// The client of a request.
    pub(crate) fn of(server: &Server, request: &'a Request) -> Self {
        Self { fields: ManagedFields::by(server, request.manager()), dry_run: request.query.dry_run() }
    }

    /// Notes in `new` who set its fields.
    pub(crate) fn track(
        &self,
        resource: &Resource,
        old: Option<&Value>,
        new: &mut Value,
        subresource: Subresource,
    ) {
        let manager = match self.fields {
            ManagedFields::Track(manager) => manager,
            ManagedFields::Settled => return,
            ManagedFields::Ignore => {
                if let Some(metadata) = object::metadata_mut(new) {
                    metadata.remove("managedFields");
                }
                return;
            }
        };
        let api_version = resource.api_version();
        let kind = ObjectType { api_version: &api_version, kind: resource.kind };
        apply::track_update(kind, old, new, Write { manager, subresource, now: Timestamp::now() });
    }
}

impl<'a> ManagedFields<'a> {
    fn by(server: &Server, manager: &'a str) -> Self {
        if server.track_managed_fields { Self::Track(manager) } else { Self::Ignore }
    }
}

/// GET of one object.
pub(crate) fn get(server: &Server, request: &Request) -> Result<Reply, ApiError> {
    let include = request.include()?;
    list::check_not_future(server, &request.query)?;
    let resource = request.resource();
    let found = server.table(resource).get(&request.key());
    let object = found.ok_or_else(|| ApiError::not_found(resource, request.name()))?;
    Reply::object(StatusCode::OK, request.accept, resource, &object, include)
}
