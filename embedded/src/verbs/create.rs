//! POST: creation of objects.

use std::sync::Arc;

use http::StatusCode;
use jiff::Timestamp;
use serde_json::Value;

use crate::admission;
use crate::admission::namespaces;
use crate::authorization::Attributes;
use crate::error::ApiError;
use crate::exchange::reply::Reply;
use crate::exchange::request::Request;
use crate::object::{self, Header, Object, meta, metadata_mut};
use crate::resources::Resource;
use crate::rules::{Cause, CauseReason, Subresource};
use crate::server::Server;
use crate::store::{Expect, NewVersion, WriteError};
use crate::time::format_time;
use crate::verbs::{ManagedFields, Writer};
use crate::views;

/// Number of attempts to find a free generated name.
const NAME_ATTEMPTS: usize = 8;

/// POST on a collection.
pub(crate) fn create(server: &Server, request: &Request) -> Result<Reply, ApiError> {
    let resource = request.resource();
    let rows = request.rows()?;
    let body = request.decode()?;
    let namespace = request.path.namespace.as_deref();
    let (stored, warnings) = insert(server, resource, namespace, body.object, Writer::of(server, request))
        .map_err(|error| error.with_warnings(&body.warnings))?;
    let reply = Reply::object(StatusCode::CREATED, request.accept, resource, &stored, rows)?;
    Ok(reply.with_warnings(body.warnings).with_warnings(warnings))
}

/// Creates an object: defaults, preparation, admission, validation, storage. Refusals also carry warnings.
pub(crate) fn insert(
    server: &Server,
    resource: &'static Resource,
    namespace: Option<&str>,
    mut object: Value,
    writer: Writer<'_>,
) -> Result<(Arc<Object>, Vec<String>), ApiError> {
    set_namespace(&mut object, namespace)?;
    if !meta(&object, "resourceVersion").is_empty() {
        return Err(ApiError::unclassified("resourceVersion should not be set on objects to be created"));
    }
    resource.strategy.default_object(&mut object);
    if let (ManagedFields::Track(_), Some(metadata)) = (writer.fields, metadata_mut(&mut object)) {
        metadata.remove("managedFields");
    }
    writer.track(resource, None, &mut object, Subresource::Main);
    if let Some(namespace) = namespace {
        namespaces::admit_creation(server, resource, namespace, &object)?;
    }
    admission::complete(server, resource, &mut object)?;
    let generated = meta(&object, "name").is_empty() && !meta(&object, "generateName").is_empty();
    let mut attempts = if generated { NAME_ATTEMPTS } else { 1 };
    loop {
        attempts -= 1;
        let mut candidate = if attempts == 0 { std::mem::take(&mut object) } else { object.clone() };
        fill_metadata(server, writer.now, &mut candidate);
        resource.strategy.prepare_create(&mut candidate);
        validate(resource, &candidate)?;
        let warnings = resource.strategy.warnings(Subresource::Main, None, &candidate);
        let stored = store(server, resource, namespace, candidate, writer)
            .map_err(|error| error.with_warnings(&warnings));
        match stored {
            Err(taken) if attempts > 0 && taken.reason == "AlreadyExists" => {}
            stored => return Ok((stored?, warnings)),
        }
    }
}

fn validate(resource: &Resource, object: &Value) -> Result<(), ApiError> {
    let name = meta(object, "name");
    let mut causes = resource.strategy.validate_create(object);
    if causes.is_empty() && name.is_empty() {
        causes.push(Cause::new(
            CauseReason::Required,
            "metadata.name",
            "Required value: name or generateName is required",
        ));
    }
    if causes.is_empty() {
        return Ok(());
    }
    Err(ApiError::invalid_object(resource, name, &causes))
}

/// If an update or apply would create an object, refuses it unless its user may create the object.
pub(super) fn authorize(server: &Server, request: &Request) -> Result<(), ApiError> {
    if request.user.is_none() {
        return Ok(());
    }
    let namespace = request.path.namespace.as_deref().unwrap_or_default();
    let creation = Attributes::for_object("create", request.resource(), "", namespace, request.name());
    server.authorize(request.user.as_deref(), &creation)
}

/// Sets the object's namespace from the path, or refuses a different one.
pub(super) fn set_namespace(object: &mut Value, namespace: Option<&str>) -> Result<(), ApiError> {
    let Some(metadata) = metadata_mut(object) else { return Ok(()) };
    let have = metadata.get("namespace").and_then(Value::as_str).unwrap_or_default();
    match namespace {
        Some(namespace) if have.is_empty() => {
            metadata.insert("namespace".into(), namespace.into());
        }
        Some(namespace) if have != namespace => {
            return Err(ApiError::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        Some(_) => {}
        None if have.is_empty() => {
            metadata.remove("namespace");
        }
        None => {}
    }
    Ok(())
}

/// Sets the metadata that the server assigns to every new object.
fn fill_metadata(server: &Server, now: Timestamp, object: &mut Value) {
    let uid = server.new_uid();
    let Some(metadata) = metadata_mut(object) else { return };
    for given in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generation"] {
        metadata.remove(given);
    }
    let text = |field: &str| metadata.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (name, prefix) = (text("name"), text("generateName"));
    if name.is_empty() && !prefix.is_empty() {
        metadata.insert("name".into(), server.generate_name(&prefix).into());
    }
    metadata.insert("uid".into(), uid.into());
    metadata.insert("creationTimestamp".into(), format_time(now).into());
}

fn store(
    server: &Server,
    resource: &Resource,
    namespace: Option<&str>,
    mut object: Value,
    writer: Writer<'_>,
) -> Result<Arc<Object>, ApiError> {
    let key = object::key(namespace, meta(&object, "name"));
    let table = server.table(resource);
    let name = meta(&object, "name").to_owned();
    if let Some(taken) = table.get(&key) {
        return Err(ApiError::already_exists(resource, &name, taken.header.deleting));
    }
    admission::admit(server, resource, &object, writer)?;
    let lacks_defaults = resource.strategy.default_read_back(&mut object);
    let (header, tail) = Object::encode(resource, views::to_stored(resource, object));
    let header = Header { lacks_defaults, ..header };
    if writer.dry_run {
        return Ok(Arc::new(Object { revision: 0, header, tail }));
    }
    table.put(&key, Expect::Absent, NewVersion { header, tail }).map_err(|WriteError::Changed(taken)| {
        let deleting = taken.is_some_and(|taken| taken.header.deleting);
        ApiError::already_exists(resource, &name, deleting)
    })
}
