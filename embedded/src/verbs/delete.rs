//! DELETE of an object or a collection: preconditions, grace, finalizers, dependents.

use std::sync::Arc;

use http::StatusCode;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Writer, list, update};
use crate::error::ApiError;
use crate::exchange::decode;
use crate::exchange::delete_options::{DeleteOptions, Propagation};
use crate::exchange::reply::Reply;
use crate::exchange::request::Request;
use crate::object::{self, Key, Object, meta, metadata_mut};
use crate::resources::{Deletion, Resource};
use crate::rules::Subresource;
use crate::server::Server;
use crate::store::{Expect, NewVersion, Page, WriteError};
use crate::table::ListMeta;
use crate::time::{format_time, seconds_after};
use crate::views;

/// The finalizer with which the garbage collector orphans dependents first.
pub(crate) const ORPHAN: &str = "orphan";
/// The finalizer with which the garbage collector deletes dependents first.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";

const ORPHAN_WARNING: &str = "child pods are preserved by default when jobs are deleted; set \
                              propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress \
                              this warning";

/// The result of a DELETE.
pub(crate) struct Deleted {
    /// The last state of the object if it is gone, otherwise its current state.
    pub(crate) object: Arc<Object>,
    /// Whether it is gone.
    pub(crate) gone: bool,
}

/// DELETE of one object.
pub(crate) fn delete(server: &Server, request: &Request) -> Result<Reply, ApiError> {
    let resource = request.resource();
    let options = DeleteOptions::parse(&request.query, &request.content_type, &request.body)?;
    let warnings = warnings(resource, &options);
    let reply = remove(server, resource, &request.key(), &options)
        .and_then(|deleted| {
            let code = if !deleted.gone && options.orphan_dependents == Some(false) {
                StatusCode::ACCEPTED
            } else {
                StatusCode::OK
            };
            if deleted.gone && resource.deletion != Deletion::Graceful {
                return Ok(Reply::success(request.accept, resource, &deleted.object));
            }
            Reply::object(code, request.accept, resource, &deleted.object, request.rows()?)
        })
        .map_err(|error| error.with_warnings(&warnings))?;
    Ok(reply.with_warnings(warnings))
}

/// DELETE of a collection; the response is the list of objects found.
pub(crate) fn delete_collection(server: &Server, request: &Request) -> Result<Reply, ApiError> {
    let resource = request.resource();
    let options = DeleteOptions::parse(&request.query, &request.content_type, &request.body)?;
    let selector = list::selector(server, request)?;
    let warnings = warnings(resource, &options);
    let found = server
        .table(resource)
        .page(&request.prefix(), None, None, None, |object| selector.matches(object))
        .map_err(|_| ApiError::expired("The resourceVersion for the provided list is too old."))?;
    for object in &found.items {
        let namespace = (!object.header.namespace.is_empty()).then_some(&*object.header.namespace);
        match remove(server, resource, &object::key(namespace, &object.header.name), &options) {
            Err(error) if error.code != StatusCode::NOT_FOUND => return Err(error.with_warnings(&warnings)),
            _ => {}
        }
    }
    let meta = ListMeta::of_one(found.revision);
    let page = Page { next: None, remaining: 0, ..found };
    Ok(Reply::list(request.accept, resource, &page, &meta, request.rows()?)?.with_warnings(warnings))
}

/// POST of an eviction: a deletion subject to disruption budgets, which this server does not have.
pub(crate) fn evict(server: &Server, request: &Request) -> Result<Reply, ApiError> {
    let eviction = decode::object("Eviction", "policy", "v1", &request.content_type, &request.body)?;
    if !matches!(meta(&eviction, "name"), "") && meta(&eviction, "name") != request.name() {
        return Err(ApiError::bad_request("name in URL does not match name in Eviction object"));
    }
    let options = DeleteOptions::from_value(&eviction["deleteOptions"])?;
    let (key, writer) = (request.key(), Writer { dry_run: options.dry_run, ..Writer::of(server, request) });
    update::modify(server, request.resource(), &key, Subresource::Status, writer, |pod| {
        Ok(with_condition(pod.clone(), disruption(writer.now)))
    })?;
    remove(server, request.resource(), &request.key(), &options)?;
    let status =
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    Ok(Reply::value(StatusCode::CREATED, request.accept, &status))
}

/// The condition of an evicted pod.
fn disruption(now: Timestamp) -> Value {
    json!({
        "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting", "lastProbeTime": null,
        "lastTransitionTime": format_time(now),
    })
}

fn with_condition(mut pod: Value, condition: Value) -> Value {
    if let Some(conditions) = pod["status"]["conditions"].as_array_mut() {
        conditions.retain(|one| one["type"] != condition["type"]);
        conditions.push(condition);
    } else {
        pod["status"]["conditions"] = json!([condition]);
    }
    pod
}

fn warnings(resource: &Resource, options: &DeleteOptions) -> Vec<String> {
    let silent = resource.deletion != Deletion::OrphanByDefault
        || options.propagation.is_some()
        || options.orphan_dependents.is_some();
    if silent { Vec::new() } else { vec![ORPHAN_WARNING.into()] }
}

/// Deletes an object, or marks it while grace or finalizers keep it.
pub(crate) fn remove(
    server: &Server,
    resource: &'static Resource,
    key: &Key,
    options: &DeleteOptions,
) -> Result<Deleted, ApiError> {
    let table = server.table(resource);
    loop {
        let name = key.rsplit('/').next().unwrap_or(key);
        let current = table.get(key).ok_or_else(|| ApiError::not_found(resource, name))?;
        check_preconditions(resource, &current, options)?;
        let mut object = views::decode(resource, &current);
        let step = plan(resource, &mut object, options, server.now());
        if step == Step::Pending {
            return Ok(Deleted { object: current, gone: false });
        }
        let (header, tail) = Object::encode(resource, views::to_stored(resource, object));
        let version = NewVersion { header, tail };
        if options.dry_run {
            let object = Object { revision: current.revision, header: version.header, tail: version.tail };
            return Ok(Deleted { object: Arc::new(object), gone: step != Step::Mark });
        }
        let expect = Expect::Version(current.revision);
        let written = match step {
            Step::Mark | Step::MarkAndRemove => table.put(key, expect, version),
            Step::Pending | Step::Remove => table.delete(key, expect, version),
        };
        let Ok(stored) = written else { continue };
        if step == Step::Mark {
            return Ok(Deleted { object: stored, gone: false });
        }
        let gone = if step == Step::MarkAndRemove { finish(server, resource, key, &stored) } else { stored };
        return Ok(Deleted { object: gone, gone: true });
    }
}

/// The second half of a deletion without grace. If a concurrent write came first, its writer removes the
/// object.
fn finish(server: &Server, resource: &Resource, key: &Key, marked: &Arc<Object>) -> Arc<Object> {
    let last = NewVersion { header: marked.header.clone(), tail: marked.tail.clone() };
    match server.table(resource).delete(key, Expect::Version(marked.revision), last) {
        Ok(gone) => gone,
        Err(WriteError::Changed(_)) => Arc::clone(marked),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// A deletion is in progress and this one changes nothing.
    Pending,
    /// The object is marked and stays.
    Mark,
    /// The object is marked, which watchers see, and then removed.
    MarkAndRemove,
    /// The object is removed.
    Remove,
}

fn check_preconditions(
    resource: &Resource,
    current: &Object,
    options: &DeleteOptions,
) -> Result<(), ApiError> {
    let what = |what: &str, wanted: &str, have: &str| {
        let mut details = resource.details(&current.header.name);
        details["kind"] = resource.kind.into();
        let why = format!(
            "the {what} in the precondition ({wanted}) does not match the {what} in record ({have}). The object might \
             have been {}",
            if what == "UID" { "deleted and then recreated" } else { "modified" }
        );
        ApiError::conflict_on(details, &resource.qualified_kind(), &current.header.name, &why)
    };
    if let Some(uid) = options.uid.as_deref().filter(|uid| *uid != &*current.header.uid) {
        return Err(what("UID", uid, &current.header.uid));
    }
    let revision = current.revision.to_string();
    if let Some(version) = options.resource_version.as_deref().filter(|version| *version != revision) {
        return Err(what("ResourceVersion", version, &revision));
    }
    Ok(())
}

/// Marks the object according to the options and returns the next step (`rest.BeforeDelete` and the
/// finalizers of garbage collection).
fn plan(resource: &Resource, object: &mut Value, options: &DeleteOptions, now: Timestamp) -> Step {
    if resource.deletion == Deletion::Namespace {
        return plan_namespace(object, now);
    }
    let graceful = if resource.deletion == Deletion::Graceful {
        match shorten(object, options, now) {
            Grace::Pending => return Step::Pending,
            Grace::Marked(seconds) => Some(seconds),
            Grace::None => None,
        }
    } else {
        None
    };
    let finalizers = finalizers_after(resource, object, options);
    let held = !finalizers.is_empty();
    object::set_finalizers(object, &finalizers);
    match graceful {
        Some(0) if !held => Step::MarkAndRemove,
        Some(_) => Step::Mark,
        None if held => {
            mark(object, now);
            Step::Mark
        }
        None => Step::Remove,
    }
}

fn plan_namespace(object: &mut Value, now: Timestamp) -> Step {
    if object["metadata"]["deletionTimestamp"].is_null() {
        if let Some(metadata) = metadata_mut(object) {
            metadata.insert("deletionTimestamp".into(), format_time(now).into());
        }
        object["status"]["phase"] = "Terminating".into();
        return if super::update::ends_namespace(object) { Step::MarkAndRemove } else { Step::Mark };
    }
    if super::update::ends_namespace(object) { Step::Remove } else { Step::Pending }
}

enum Grace {
    /// A deletion with no more grace than requested is in progress.
    Pending,
    /// The object is marked with this grace, in seconds.
    Marked(i64),
    /// The object was already marked, without grace.
    None,
}

/// Sets or shortens the grace period of a pod, but never lengthens it.
fn shorten(object: &mut Value, options: &DeleteOptions, now: Timestamp) -> Grace {
    let metadata = &object["metadata"];
    let had = metadata["deletionGracePeriodSeconds"].as_i64();
    let deadline: Option<Timestamp> =
        metadata["deletionTimestamp"].as_str().and_then(|time| time.parse().ok());
    let (seconds, deadline, first) = match (deadline, had) {
        (Some(_), None) => return Grace::None,
        (Some(deadline), Some(had)) => {
            let Some(asked) = options.grace.filter(|asked| *asked < had) else { return Grace::Pending };
            let asked = asked.max(0);
            (asked, seconds_after(deadline, asked.saturating_sub(had)), false)
        }
        (None, _) => {
            let seconds = grace(object, options);
            (seconds, seconds_after(now, seconds), true)
        }
    };
    if first {
        raise_generation(object);
    }
    if let Some(metadata) = metadata_mut(object) {
        metadata.insert("deletionTimestamp".into(), format_time(deadline).into());
        metadata.insert("deletionGracePeriodSeconds".into(), seconds.into());
    }
    Grace::Marked(seconds)
}

/// The grace period of a pod, from the options or its spec. Zero for a pod that is unscheduled or finished. A
/// negative value means 1.
fn grace(pod: &Value, options: &DeleteOptions) -> i64 {
    let spec = &pod["spec"];
    let unscheduled = spec["nodeName"].as_str().is_none_or(str::is_empty);
    let finished = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    let asked = options.grace.or_else(|| spec["terminationGracePeriodSeconds"].as_i64()).unwrap_or(0);
    match asked {
        _ if unscheduled || finished => 0,
        asked if asked < 0 => 1,
        asked => asked,
    }
}

/// Marks an object that only its finalizers keep.
fn mark(object: &mut Value, now: Timestamp) {
    let deadline: Option<Timestamp> =
        object["metadata"]["deletionTimestamp"].as_str().and_then(|time| time.parse().ok());
    if deadline.is_none() {
        raise_generation(object);
    }
    let Some(metadata) = metadata_mut(object) else { return };
    if deadline.is_none_or(|deadline| deadline > now) {
        metadata.insert("deletionTimestamp".into(), format_time(now).into());
    }
    metadata.insert("deletionGracePeriodSeconds".into(), 0.into());
}

fn raise_generation(object: &mut Value) {
    if let Some(generation) = object["metadata"]["generation"].as_i64().filter(|generation| *generation > 0) {
        object["metadata"]["generation"] = generation.saturating_add(1).into();
    }
}

/// The finalizers of an object after a DELETE. Finalizers of garbage collection follow the first that is
/// given: the options, the existing finalizers, or the kind's default.
fn finalizers_after(resource: &Resource, object: &Value, options: &DeleteOptions) -> Vec<String> {
    let have = object::finalizers(object);
    let standing = have.iter().find_map(|finalizer| match *finalizer {
        ORPHAN => Some(Propagation::Orphan),
        FOREGROUND => Some(Propagation::Foreground),
        _ => None,
    });
    let default = if resource.deletion == Deletion::OrphanByDefault {
        Propagation::Orphan
    } else {
        Propagation::Background
    };
    let asked = match options.orphan_dependents {
        Some(true) => Some(Propagation::Orphan),
        Some(false) => Some(Propagation::Background),
        None => options.propagation,
    };
    let policy = asked.or(standing).unwrap_or(default);
    let others = have.into_iter().filter(|finalizer| !matches!(*finalizer, ORPHAN | FOREGROUND));
    let wanted = match policy {
        Propagation::Orphan => Some(ORPHAN),
        Propagation::Foreground => Some(FOREGROUND),
        Propagation::Background => None,
    };
    others.chain(wanted).map(str::to_owned).collect()
}
