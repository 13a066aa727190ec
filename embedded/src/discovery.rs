//! Discovery: the served groups, versions and resources, in the legacy and the aggregated form.

use serde_json::{Map, Value, json};

use super::resources::{RESOURCES, Resource, api_version};
use super::server::Server;

/// The API groups except core, most preferred first.
const GROUPS: &[&str] = &[
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "rbac.authorization.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
];

/// `GET /api`.
pub(crate) fn legacy_versions(address: &str) -> Value {
    json!({
        "kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    })
}

/// `GET /apis`.
pub(crate) fn groups(server: &Server) -> Value {
    let groups: Vec<Value> = GROUPS.iter().filter_map(|name| group_fields(server, name)).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `GET /apis/GROUP`.
pub(crate) fn group(server: &Server, name: &str) -> Option<Value> {
    let mut group = group_fields(server, name)?;
    group["kind"] = "APIGroup".into();
    group["apiVersion"] = "v1".into();
    Some(group)
}

fn group_fields(server: &Server, name: &str) -> Option<Value> {
    let versions: Vec<Value> = versions(server, name)
        .into_iter()
        .map(|version| json!({"groupVersion": api_version(name, version), "version": version}))
        .collect();
    let preferred = versions.first()?.clone();
    Some(json!({"name": name, "versions": versions, "preferredVersion": preferred}))
}

/// The versions of a group, most preferred first: stable versions before alpha versions.
fn versions(server: &Server, group: &str) -> Vec<&'static str> {
    let mut versions: Vec<&str> =
        served(server).filter(|one| one.group == group).map(|one| one.version).collect();
    versions.sort_by_key(|version| (version.contains("alpha"), *version));
    versions.dedup();
    versions
}

fn served(server: &Server) -> impl Iterator<Item = &'static Resource> {
    RESOURCES.iter().filter(|resource| server.serves(resource))
}

/// `GET /apis/GROUP/VERSION` and `GET /api/v1`.
pub(crate) fn resources(server: &Server, group: &str, version: &str) -> Option<Value> {
    let mut listed = Vec::new();
    for resource in served(server).filter(|one| (one.group, one.version) == (group, version)) {
        let mut entry = json!({
            "name": resource.plural, "singularName": resource.singular, "namespaced": resource.namespaced,
            "kind": resource.kind, "verbs": resource.verbs,
        });
        if !resource.short_names.is_empty() {
            entry["shortNames"] = resource.short_names.into();
        }
        if !resource.categories.is_empty() {
            entry["categories"] = resource.categories.into();
        }
        if resource.has_verb("list") {
            entry["storageVersionHash"] = storage_hash(resource).into();
        }
        listed.push(entry);
        for subresource in resource.subresources {
            let kind = if subresource.kind.is_empty() { resource.kind } else { subresource.kind };
            let mut entry = json!({
                "name": format!("{}/{}", resource.plural, subresource.name), "singularName": "",
                "namespaced": resource.namespaced, "kind": kind, "verbs": subresource.verbs,
            });
            if let Some((group, version)) = subresource.group_version {
                entry["group"] = group.into();
                entry["version"] = version.into();
            }
            listed.push(entry);
        }
    }
    if listed.is_empty() {
        return None;
    }
    let mut list = json!({
        "kind": "APIResourceList", "groupVersion": api_version(group, version), "resources": listed,
    });
    if !group.is_empty() {
        list["apiVersion"] = "v1".into();
    }
    Some(list)
}

/// A hash that changes with the storage version of a kind.
fn storage_hash(resource: &Resource) -> String {
    use base64::Engine as _;
    use std::hash::Hasher as _;
    let mut hasher = fnv::FnvHasher::default();
    hasher.write(format!("{}/{}/{}", resource.group, resource.version, resource.kind).as_bytes());
    base64::engine::general_purpose::STANDARD.encode(hasher.finish().to_be_bytes())
}

/// The aggregated form of `GET /api` (`core` is true) and `GET /apis`.
pub(crate) fn aggregated(server: &Server, core: bool, version: &str) -> Value {
    let names: &[&str] = if core { &[""] } else { GROUPS };
    let items: Vec<Value> = names
        .iter()
        .filter_map(|name| {
            let versions: Vec<Value> = versions(server, name)
                .into_iter()
                .map(|version| {
                    let resources: Vec<Value> = served(server)
                        .filter(|one| (one.group, one.version) == (*name, version))
                        .map(aggregated_resource)
                        .collect();
                    json!({"version": version, "resources": resources, "freshness": "Current"})
                })
                .collect();
            let metadata = if name.is_empty() { json!({}) } else { json!({"name": name}) };
            (!versions.is_empty()).then(|| json!({"metadata": metadata, "versions": versions}))
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": format!("apidiscovery.k8s.io/{version}"), "metadata": {},
        "items": items,
    })
}

fn aggregated_resource(resource: &'static Resource) -> Value {
    let mut entry = Map::new();
    entry.insert("resource".into(), resource.plural.into());
    entry.insert("responseKind".into(), json!({"group": "", "version": "", "kind": resource.kind}));
    entry.insert("scope".into(), if resource.namespaced { "Namespaced" } else { "Cluster" }.into());
    entry.insert("singularResource".into(), resource.singular.into());
    entry.insert("verbs".into(), resource.verbs.into());
    if !resource.short_names.is_empty() {
        entry.insert("shortNames".into(), resource.short_names.into());
    }
    if !resource.categories.is_empty() {
        entry.insert("categories".into(), resource.categories.into());
    }
    let subresources: Vec<Value> = resource
        .subresources
        .iter()
        .map(|subresource| {
            let kind = if subresource.kind.is_empty() { resource.kind } else { subresource.kind };
            let (group, version) = subresource.group_version.unwrap_or_default();
            json!({
                "subresource": subresource.name,
                "responseKind": {"group": group, "version": version, "kind": kind},
                "verbs": subresource.verbs,
            })
        })
        .collect();
    if !subresources.is_empty() {
        entry.insert("subresources".into(), subresources.into());
    }
    Value::Object(entry)
}
