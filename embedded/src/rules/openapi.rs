//! OpenAPI v3 documents of the served kinds, limited to what clients need: `kubectl explain`, `apply`,
//! `diff`, and the check whether a server validates fields.

use std::collections::BTreeSet;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::schema::{self, ListType, PatchStrategy, Types};

/// A served kind.
#[derive(Clone, Copy, Debug)]
pub struct Served<'a> {
    /// API group, empty for the core group.
    pub group: &'a str,
    /// API version.
    pub version: &'a str,
    /// Kind.
    pub kind: &'a str,
    /// Name in paths.
    pub plural: &'a str,
    /// Whether objects live in a namespace.
    pub namespaced: bool,
    /// Whether the kind has the subresource `status`.
    pub status: bool,
}

impl Served<'_> {
    /// The path of the group and version, such as `apis/batch/v1`.
    fn base(&self) -> String {
        match self.group {
            "" => format!("api/{}", self.version),
            group => format!("apis/{group}/{}", self.version),
        }
    }

    fn api_version(&self) -> String {
        match self.group {
            "" => self.version.to_owned(),
            group => format!("{group}/{}", self.version),
        }
    }

    fn definition(&self) -> String {
        schema::definition_name(&self.api_version(), self.kind)
    }

    fn group_version_kind(&self) -> Value {
        json!({ "group": self.group, "version": self.version, "kind": self.kind })
    }
}

/// The response to `/openapi/v3`: a document for each group and version.
pub fn index(served: &[Served<'_>]) -> Value {
    let bases: BTreeSet<String> = served.iter().map(Served::base).collect();
    let paths: Map<String, Value> = bases
        .into_iter()
        .map(|base| {
            let hash = document(&base, served).map_or(0, |document| hash(&document));
            let url = format!("/openapi/v3/{base}?hash={hash:016X}");
            (base, json!({ "serverRelativeURL": url }))
        })
        .collect();
    json!({ "paths": paths })
}

/// The hash with which clients cache a document; also its `ETag`.
pub fn hash(document: &[u8]) -> u64 {
    use std::hash::Hasher as _;
    let mut hasher = fnv::FnvHasher::default();
    hasher.write(document);
    hasher.finish()
}

/// The document of a group and version, given as its path below `/openapi/v3/`, such as `apis/batch/v1`.
pub fn document(base: &str, served: &[Served<'_>]) -> Option<Bytes> {
    let kinds: Vec<&Served<'_>> = served.iter().filter(|kind| kind.base() == base).collect();
    if kinds.is_empty() {
        return None;
    }
    let mut paths = Map::new();
    for kind in &kinds {
        add_paths(&mut paths, kind);
    }
    let document = json!({
        "openapi": "3.0.0",
        "info": { "title": "Kubernetes", "version": "v1.36.2" },
        "paths": paths,
        "components": { "schemas": schemas(&kinds) },
    });
    serde_json::to_vec(&document).ok().map(Bytes::from)
}

/// Query parameters of writes, from which clients learn what the server supports.
const WRITE_PARAMETERS: [&str; 3] = ["dryRun", "fieldManager", "fieldValidation"];

fn add_paths(paths: &mut Map<String, Value>, kind: &Served<'_>) {
    let (base, plural) = (kind.base(), kind.plural);
    let collection = if kind.namespaced {
        paths.insert(format!("/{base}/{plural}"), json!({ "get": operation(kind, "list") }));
        format!("/{base}/namespaces/{{namespace}}/{plural}")
    } else {
        format!("/{base}/{plural}")
    };
    let item = format!("{collection}/{{name}}");
    let list = json!({ "get": operation(kind, "list"), "post": operation(kind, "post") });
    paths.insert(collection, list);
    let mut parts = vec![item.clone()];
    if kind.status {
        parts.push(format!("{item}/status"));
    }
    for path in parts {
        let mut operations = json!({
            "get": operation(kind, "get"),
            "put": operation(kind, "put"),
            "patch": operation(kind, "patch"),
        });
        if path == item {
            operations["delete"] = operation(kind, "delete");
        }
        paths.insert(path, operations);
    }
}

fn operation(kind: &Served<'_>, action: &str) -> Value {
    let parameters: Vec<Value> = match action {
        "post" | "put" | "patch" => WRITE_PARAMETERS
            .iter()
            .map(|name| json!({ "name": name, "in": "query", "schema": { "type": "string", "uniqueItems": true } }))
            .collect(),
        _ => Vec::new(),
    };
    let reference = json!({ "$ref": format!("#/components/schemas/{}", kind.definition()) });
    json!({
        "parameters": parameters,
        "responses": { "200": { "description": "OK", "content": { "application/json": { "schema": reference } } } },
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": kind.group_version_kind(),
    })
}

/// The schemas of these kinds and of all types that they refer to.
fn schemas(kinds: &[&Served<'_>]) -> Value {
    let definitions = schema::definitions();
    let mut wanted: Vec<String> = kinds.iter().map(|kind| kind.definition()).collect();
    let mut schemas = Map::new();
    while let Some(name) = wanted.pop() {
        let Some(definition) = definitions.get(&name).filter(|_| !schemas.contains_key(&name)) else {
            continue;
        };
        let schema = converted(&name, definition);
        references(&schema, &mut wanted);
        schemas.insert(name, schema);
    }
    for kind in kinds {
        if let Some(schema) = schemas.get_mut(&kind.definition()) {
            schema["x-kubernetes-group-version-kind"] = json!([kind.group_version_kind()]);
        }
    }
    Value::Object(schemas)
}

fn references(schema: &Value, found: &mut Vec<String>) {
    match schema {
        Value::Object(map) => {
            if let Some(name) =
                map.get("$ref").and_then(Value::as_str).and_then(|path| path.rsplit('/').next())
            {
                found.push(name.to_owned());
            }
            map.values().for_each(|value| references(value, found));
        }
        Value::Array(list) => list.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

/// A JSON Schema in the form of Kubernetes' OpenAPI documents.
fn converted(name: &str, definition: &Value) -> Value {
    let mut schema = definition.clone();
    if name.ends_with(".Quantity") {
        schema = json!({ "description": definition["description"], "oneOf": [{ "type": "string" }, { "type": "number" }] });
    } else if name.ends_with(".IntOrString") {
        let forms = json!([{ "type": "integer" }, { "type": "string" }]);
        schema =
            json!({ "description": definition["description"], "format": "int-or-string", "oneOf": forms });
    }
    let types = Types::get();
    let id = types.of_definition(name);
    if id.is_some_and(|id| types.by_id(id).atomic) {
        schema["x-kubernetes-map-type"] = json!("atomic");
    }
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    for (field, property) in properties.into_iter().flatten() {
        *property = converted_reference(property);
        if let Some(id) = id {
            add_merge_hints(property, schema::list_type(id, field));
        }
    }
    schema
}

/// Wraps a reference that has sibling keywords, as OpenAPI 3.0 requires, and points it to the document's
/// components.
fn converted_reference(schema: &Value) -> Value {
    let mut schema = schema.clone();
    if let Some(map) = schema.as_object_mut() {
        for nested in ["items", "additionalProperties"] {
            if let Some(inner) = map.get_mut(nested) {
                *inner = converted_reference(inner);
            }
        }
        let name = map
            .get("$ref")
            .and_then(Value::as_str)
            .and_then(|path| path.rsplit('/').next())
            .map(str::to_owned);
        if let Some(name) = name {
            let reference = json!({ "$ref": format!("#/components/schemas/{name}") });
            map.remove("$ref");
            map.insert("allOf".into(), json!([reference]));
        }
    }
    schema
}

fn add_merge_hints(property: &mut Value, merge: ListType) {
    match merge {
        ListType::Atomic => {}
        ListType::Set { .. } => property["x-kubernetes-list-type"] = json!("set"),
        ListType::Map { keys: [], .. } => property["x-kubernetes-list-type"] = json!("atomic"),
        ListType::Map { keys, .. } => {
            property["x-kubernetes-list-type"] = json!("map");
            property["x-kubernetes-list-map-keys"] = json!(keys);
        }
    }
    let strategy = merge.patch_strategy();
    if strategy != PatchStrategy::Replace {
        property["x-kubernetes-patch-strategy"] = json!("merge");
    }
    if let PatchStrategy::Key(key) = strategy {
        property["x-kubernetes-patch-merge-key"] = json!(key);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const SERVED: &[Served<'_>] = &[
        Served { group: "batch", version: "v1", kind: "Job", plural: "jobs", namespaced: true, status: true },
        Served {
            group: "",
            version: "v1",
            kind: "Namespace",
            plural: "namespaces",
            namespaced: false,
            status: true,
        },
    ];

    #[test]
    fn the_index_lists_a_document_of_each_group_and_version() {
        let index = index(SERVED);
        let paths = index["paths"].as_object().unwrap();
        assert_eq!(paths.keys().collect::<Vec<_>>(), ["api/v1", "apis/batch/v1"]);
        for (base, entry) in paths {
            assert!(
                entry["serverRelativeURL"]
                    .as_str()
                    .unwrap()
                    .starts_with(&format!("/openapi/v3/{base}?hash="))
            );
            assert!(document(base, SERVED).is_some());
        }
        assert_eq!(document("apis/apps/v1", SERVED), None);
    }

    #[test]
    fn documents_are_complete_and_have_what_kubectl_needs() {
        let document: Value = serde_json::from_slice(&document("apis/batch/v1", SERVED).unwrap()).unwrap();
        let schemas = document["components"]["schemas"].as_object().unwrap();
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(found.len() > 100);
        for name in found {
            assert!(schemas.contains_key(&name), "{name}");
        }
        let job = &schemas["io.k8s.api.batch.v1.Job"];
        assert_eq!(job["x-kubernetes-group-version-kind"][0]["kind"], "Job");
        let containers = &schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"];
        assert_eq!(containers["x-kubernetes-patch-merge-key"], "name");
        assert!(!containers["description"].as_str().unwrap().is_empty());
        let patch = &document["paths"]["/apis/batch/v1/namespaces/{namespace}/jobs/{name}"]["patch"];
        assert_eq!(patch["x-kubernetes-group-version-kind"]["group"], "batch");
        assert!(patch["parameters"].as_array().unwrap().iter().any(|one| one["name"] == "fieldValidation"));
    }
}
