//! PUT, and the steps that PATCH shares with it: from an old and a new object to a stored one.

use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value, json};

use super::create;
use crate::admission;
use crate::error::ApiError;
use crate::exchange::reply::Reply;
use crate::exchange::request::Request;
use crate::object::{self, Key, Object, meta, metadata_mut};
use crate::resources::{Deletion, Resource};
use crate::rules::{Cause, CauseReason, Subresource};
use crate::server::Server;
use crate::store::{Expect, NewVersion, WriteError};
use crate::verbs::Writer;
use crate::views;

/// PUT of an object or of its status.
pub(crate) fn update(server: &Server, request: &Request) -> Result<Reply, ApiError> {
    let resource = request.resource();
    let rows = request.rows()?;
    let body = request.decode()?;
    let mut sent = body.object;
    check_name(&sent, request.name())?;
    let namespace = request.path.namespace.as_deref();
    create::set_namespace(&mut sent, namespace)?;
    resource.strategy.default_object(&mut sent);
    let writer = Writer::of(server, request);
    let result = modify(server, resource, &request.key(), request.subresource(), writer, |old| {
        check_uid(resource, &sent, old)?;
        check_version_given(resource, &sent)?;
        Ok(sent.clone())
    });
    match result {
        Err(missing) if missing.code == StatusCode::NOT_FOUND && creates(request) => {
            let uid = meta(&sent, "uid");
            if !uid.is_empty() {
                let nothing = json!({"metadata": {"namespace": namespace, "name": request.name()}});
                return Err(uid_mismatch(resource, uid, &nothing));
            }
            if let Some(metadata) = metadata_mut(&mut sent) {
                metadata.remove("resourceVersion");
            }
            create::authorize(server, request)?;
            let (stored, warnings) = create::insert(server, resource, namespace, sent, writer)?;
            let reply = Reply::object(StatusCode::CREATED, request.accept, resource, &stored, rows)?;
            Ok(reply.with_warnings(body.warnings).with_warnings(warnings))
        }
        result => {
            let (stored, warnings) = result?;
            let reply = Reply::object(StatusCode::OK, request.accept, resource, &stored, rows)?;
            Ok(reply.with_warnings(body.warnings).with_warnings(warnings))
        }
    }
}

fn creates(request: &Request) -> bool {
    request.resource().create_on_update && request.path.subresource.is_none()
}

/// Refuses a sent object whose uid is not the stored one's.
pub(crate) fn check_uid(resource: &Resource, sent: &Value, old: &Value) -> Result<(), ApiError> {
    let wanted = meta(sent, "uid");
    if wanted.is_empty() || wanted == meta(old, "uid") {
        return Ok(());
    }
    Err(uid_mismatch(resource, wanted, old))
}

pub(crate) fn check_name(sent: &Value, name: &str) -> Result<(), ApiError> {
    match meta(sent, "name") {
        "" => Err(ApiError::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        ))),
        sent if sent != name => Err(ApiError::bad_request(format!(
            "the name of the object ({sent}) does not match the name on the URL ({name})"
        ))),
        _ => Ok(()),
    }
}

/// Refuses a PUT without resourceVersion for kinds without unconditional updates.
fn check_version_given(resource: &Resource, sent: &Value) -> Result<(), ApiError> {
    if resource.unconditional_update || !matches!(meta(sent, "resourceVersion"), "" | "0") {
        return Ok(());
    }
    let cause = Cause::new(
        CauseReason::Invalid,
        "metadata.resourceVersion",
        "Invalid value: 0: must be specified for an update",
    );
    // Unlike other errors of this sort, it names the kind by its plural.
    Err(ApiError::invalid(resource.group, resource.plural, meta(sent, "name"), &[cause]))
}

/// Changes an object: `change` makes the new one from the old one, and is repeated until no concurrent write
/// comes first.
pub(crate) fn modify(
    server: &Server,
    resource: &'static Resource,
    key: &Key,
    subresource: Subresource,
    writer: Writer<'_>,
    mut change: impl FnMut(&Value) -> Result<Value, ApiError>,
) -> Result<(Arc<Object>, Vec<String>), ApiError> {
    let name = key.rsplit('/').next().unwrap_or(key);
    let table = server.table(resource);
    loop {
        let current = table.get(key).ok_or_else(|| ApiError::not_found(resource, name))?;
        let old = views::decode(resource, &current);
        let mut new = change(&old)?;
        check_version(resource, name, &new, current.revision)?;
        carry_over(&old, &mut new);
        writer.track(resource, Some(&old), &mut new, subresource);
        resource.strategy.prepare_update(subresource, &old, &mut new);
        let causes = resource.strategy.validate_update(subresource, &old, &new);
        if !causes.is_empty() {
            return Err(ApiError::invalid_object(resource, name, &causes));
        }
        let warnings = resource.strategy.warnings(subresource, Some(&old), &new);
        admission::admit_update(server, resource, subresource, &old, &new, writer)?;
        let ends_deletion = ends_deletion(resource, &new);
        if same(&old, &new) && !ends_deletion && !current.header.lacks_defaults {
            return Ok((current, warnings));
        }
        let (header, tail) = Object::encode(resource, views::to_stored(resource, new));
        if writer.dry_run {
            return Ok((Arc::new(Object { revision: current.revision, header, tail }), warnings));
        }
        let expect = Expect::Version(current.revision);
        let written = if ends_deletion {
            // Watchers see the state before this write as the last one; only the writer sees its own change.
            let last = NewVersion { header: current.header.clone(), tail: current.tail.clone() };
            let gone = table.delete(key, expect, last);
            gone.map(|gone| Arc::new(Object { revision: gone.revision, header, tail }))
        } else {
            table.put(key, expect, NewVersion { header, tail })
        };
        match written {
            Ok(stored) => return Ok((stored, warnings)),
            // A concurrent write came first: repeat with the current version.
            Err(WriteError::Changed(_)) => {}
        }
    }
}

/// Refuses a resourceVersion that is not the current one. An absent one and `0` match any.
pub(crate) fn check_version(
    resource: &Resource,
    name: &str,
    new: &Value,
    current: u64,
) -> Result<(), ApiError> {
    let wanted = meta(new, "resourceVersion");
    if wanted.is_empty() {
        return Ok(());
    }
    match wanted.parse::<u64>() {
        Ok(wanted) if wanted == 0 || wanted == current => Ok(()),
        Ok(_) => Err(ApiError::modified(resource, name)),
        Err(_) => {
            Err(ApiError::unclassified(format!("strconv.ParseUint: parsing \"{wanted}\": invalid syntax")))
        }
    }
}

/// The error for a write whose uid is not the stored one's.
pub(super) fn uid_mismatch(resource: &Resource, wanted: &str, object: &Value) -> ApiError {
    let (namespace, name) = (meta(object, "namespace"), meta(object, "name"));
    let key = object::key((!namespace.is_empty()).then_some(namespace), name);
    ApiError::conflict(
        resource,
        name,
        &format!(
            "StorageError: invalid object, Code: 4, Key: /registry/{}/{key}, ResourceVersion: 0, AdditionalErrorMsg: \
             Precondition failed: UID in precondition: {wanted}, UID in object meta: {}",
            resource.plural,
            meta(object, "uid")
        ),
    )
}

/// Copies the metadata that no update of any kind can change. Strategies handle other fields.
fn carry_over(old: &Value, new: &mut Value) {
    let Some(metadata) = metadata_mut(new) else { return };
    match old["metadata"].get("namespace") {
        Some(namespace) => metadata.insert("namespace".into(), namespace.clone()),
        None => metadata.remove("namespace"),
    };
}

/// Whether an update changes nothing, apart from the resourceVersion and the type.
fn same(old: &Value, new: &Value) -> bool {
    let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else { return false };
    let field_count = |object: &serde_json::Map<String, Value>| {
        object.iter().filter(|(key, _)| !matches!(key.as_str(), "kind" | "apiVersion" | "metadata")).count()
    };
    field_count(old) == field_count(new)
        && old.iter().all(|(key, value)| match key.as_str() {
            "kind" | "apiVersion" => true,
            "metadata" => same_metadata(value, new.get(key).unwrap_or(&Value::Null)),
            _ => new.get(key) == Some(value),
        })
}

fn same_metadata(old: &Value, new: &Value) -> bool {
    let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else { return old == new };
    let counted = |key: &str| key != "resourceVersion";
    let count = |map: &serde_json::Map<String, Value>| map.keys().filter(|key| counted(key)).count();
    count(old) == count(new) && old.iter().all(|(key, value)| !counted(key) || new.get(key) == Some(value))
}

/// Whether a terminating object has neither grace nor finalizers left.
pub(crate) fn ends_deletion(resource: &Resource, object: &Value) -> bool {
    let metadata = &object["metadata"];
    if metadata["deletionTimestamp"].is_null() || !object::finalizers(object).is_empty() {
        return false;
    }
    match resource.deletion {
        Deletion::Graceful => metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0,
        Deletion::Namespace => ends_namespace(object),
        Deletion::Plain | Deletion::OrphanByDefault => true,
    }
}

/// Whether a namespace has no finalizers of either kind.
pub(super) fn ends_namespace(namespace: &Value) -> bool {
    object::finalizers(namespace).is_empty()
        && namespace["spec"]["finalizers"].as_array().is_none_or(Vec::is_empty)
}
