//! What a path asks for.

use super::super::resources::{self, Resource, Subresource};

/// A parsed path.
pub(crate) enum Target {
    /// Anything that is no object: discovery, health, version, OpenAPI.
    Other,
    /// Objects of a kind.
    Objects(ObjectPath),
    /// A path below a served group version that names nothing that exists.
    Unknown,
}

/// Objects of a kind, one of them, or a subresource of one.
pub(crate) struct ObjectPath {
    /// The kind.
    pub(crate) resource: &'static Resource,
    /// The namespace; `None` for cluster-scoped kinds and for all namespaces.
    pub(crate) namespace: Option<String>,
    /// The object's name; `None` for the collection.
    pub(crate) name: Option<String>,
    /// A subresource of the object.
    pub(crate) subresource: Option<&'static Subresource>,
    /// The old form of a watch: `/watch/` in the path.
    pub(crate) watch_prefix: bool,
}

/// Parses a path.
pub(crate) fn parse(path: &str) -> Target {
    let trimmed = path.strip_suffix('/').unwrap_or(path);
    let parts: Vec<&str> = trimmed.split('/').skip(1).collect();
    let (group, version, rest) = match parts.as_slice() {
        ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
        ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
        _ => return Target::Other,
    };
    let rest: Option<Vec<String>> = rest
        .iter()
        .map(|part| percent_encoding::percent_decode_str(part).decode_utf8().ok().map(Into::into))
        .collect();
    let Some(rest) = rest else { return Target::Unknown };
    let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
    let (watch_prefix, rest) = match rest.as_slice() {
        ["watch", rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    objects(group, version, rest)
        .map_or(Target::Unknown, |path| Target::Objects(ObjectPath { watch_prefix, ..path }))
}

fn objects(group: &str, version: &str, rest: &[&str]) -> Option<ObjectPath> {
    let (namespace, plural, tail) = match rest {
        ["namespaces", tail @ ..] if tail.len() <= 1 => (None, "namespaces", tail),
        ["namespaces", _, sub] if resources::stored("namespaces")?.subresource(sub).is_some() => {
            (None, "namespaces", rest.get(1..)?)
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
