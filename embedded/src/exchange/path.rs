//! Parsing of request paths.

use crate::resources::{self, Resource, Subresource};

/// A parsed path.
pub(crate) enum Target {
    /// A path without objects: discovery, health, version, OpenAPI.
    Other,
    /// Objects of a kind.
    Objects(ObjectPath),
    /// A path below a group version that matches nothing.
    Unknown,
}

/// The collection of a kind, one object, or a subresource of one.
pub(crate) struct ObjectPath {
    /// The kind.
    pub(crate) resource: &'static Resource,
    /// The namespace; `None` for cluster-scoped kinds and for all namespaces.
    pub(crate) namespace: Option<String>,
    /// The object's name; `None` for the collection.
    pub(crate) name: Option<String>,
    /// A subresource of the object.
    pub(crate) subresource: Option<&'static Subresource>,
    /// Whether the path has the deprecated watch prefix `/watch/`.
    pub(crate) watch_prefix: bool,
}

/// Parses a path.
pub(crate) fn parse(path: &str) -> Target {
    let trimmed = path.strip_suffix('/').unwrap_or(path);
    let parts: Vec<&str> = trimmed.split('/').skip(1).collect();
    let (group, version, tail) = match parts.as_slice() {
        ["api", version, tail @ ..] if !tail.is_empty() => ("", *version, tail),
        ["apis", group, version, tail @ ..] if !tail.is_empty() => (*group, *version, tail),
        _ => return Target::Other,
    };
    let tail: Option<Vec<String>> = tail
        .iter()
        .map(|part| percent_encoding::percent_decode_str(part).decode_utf8().ok().map(Into::into))
        .collect();
    let Some(tail) = tail else { return Target::Unknown };
    let tail: Vec<&str> = tail.iter().map(String::as_str).collect();
    let (watch_prefix, tail) = match tail.as_slice() {
        ["watch", tail @ ..] => (true, tail),
        tail => (false, tail),
    };
    objects(group, version, tail)
        .map_or(Target::Unknown, |path| Target::Objects(ObjectPath { watch_prefix, ..path }))
}

fn objects(group: &str, version: &str, path: &[&str]) -> Option<ObjectPath> {
    let (namespace, plural, tail) = match path {
        ["namespaces", tail @ ..] if tail.len() <= 1 => (None, "namespaces", tail),
        ["namespaces", _, sub] if resources::stored("namespaces")?.subresource(sub).is_some() => {
            (None, "namespaces", path.get(1..)?)
        }
        ["namespaces", namespace, plural, tail @ ..] => (Some(*namespace), *plural, tail),
        [plural, tail @ ..] => (None, *plural, tail),
        [] => return None,
    };
    let resource = resources::find(group, version, plural)?;
    if namespace.is_some() && !resource.namespaced {
        return None;
    }
    let (name, subresource) = match tail {
        [] => (None, None),
        [name] => (Some(*name), None),
        [name, subresource] => (Some(*name), Some(resource.subresource(subresource)?)),
        _ => return None,
    };
    let names = namespace.iter().chain(name.iter());
    if names.clone().any(|name| name.is_empty() || name.contains('/')) {
        return None;
    }
    if name.is_some() && resource.namespaced && namespace.is_none() {
        return None;
    }
    Some(ObjectPath {
        resource,
        namespace: namespace.map(Into::into),
        name: name.map(Into::into),
        subresource,
        watch_prefix: false,
    })
}
