//! Informers of every resource that the garbage collector and the namespace controller discover.

use serde_json::{Value, json};

use crate::client::{DISCOVERY, PARTIAL, PARTIAL_LIST, Stage, TYPED};

/// A resource that can be watched and deleted.
pub(crate) struct Discovered {
    /// Kind.
    pub(crate) kind: String,
    /// Whether objects live in a namespace.
    pub(crate) namespaced: bool,
    /// Verbs.
    pub(crate) verbs: Vec<String>,
    group_version: String,
    plural: String,
}

impl Discovered {
    fn root(&self) -> String {
        let prefix = if self.group_version.contains('/') { "apis" } else { "api" };
        format!("/{prefix}/{}", self.group_version)
    }

    /// The collection over all namespaces.
    pub(crate) fn everywhere(&self) -> String {
        format!("{}/{}", self.root(), self.plural)
    }

    /// The collection in a namespace.
    pub(crate) fn within(&self, namespace: &str) -> String {
        format!("{}/namespaces/{namespace}/{}", self.root(), self.plural)
    }

    fn has(&self, verbs: &[&str]) -> bool {
        verbs.iter().all(|verb| self.verbs.iter().any(|have| have == verb))
    }
}

/// All discovered resources with these verbs.
pub(crate) async fn discover(stage: &Stage, verbs: &[&str]) -> Vec<Discovered> {
    let mut found = Vec::new();
    for path in ["/api", "/apis"] {
        let document = stage.get_as(path, DISCOVERY).await.expect(200);
        for group in document["items"].as_array().unwrap() {
            for version in group["versions"].as_array().unwrap() {
                let name = version["version"].as_str().unwrap();
                let group_version =
                    group["metadata"]["name"].as_str().map_or(name.into(), |group| format!("{group}/{name}"));
                found.extend(version["resources"].as_array().unwrap().iter().map(|resource| Discovered {
                    kind: resource["responseKind"]["kind"].as_str().unwrap().to_owned(),
                    namespaced: resource["scope"] == "Namespaced",
                    verbs: serde_json::from_value(resource["verbs"].clone()).unwrap(),
                    group_version: group_version.clone(),
                    plural: resource["resource"].as_str().unwrap().to_owned(),
                }));
            }
        }
    }
    found.retain(|resource| resource.has(verbs));
    found
}

const STREAMING: &str = "allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&timeoutSeconds=300&watch=true";

fn check_partial(object: &Value) {
    assert_eq!([&object["kind"], &object["apiVersion"]], ["PartialObjectMetadata", "meta.k8s.io/v1"]);
    let fields: Vec<&String> = object.as_object().unwrap().keys().collect();
    assert_eq!(fields.len(), 3, "{fields:?}");
}

#[tokio::test]
async fn informers_of_every_resource_sync() {
    let stage = Stage::start().await;
    let resources = discover(&stage, &["delete", "list", "watch"]).await;
    assert!(resources.len() >= 14, "{} resources", resources.len());
    for resource in &resources {
        let path = resource.everywhere();
        // The typed informer: its initial events, and the watch after them.
        let mut watch = stage.watch(&format!("{path}?{STREAMING}"), TYPED).await;
        let (objects, version) = watch.initial().await;
        assert!(objects.iter().all(|object| object["kind"] == resource.kind.as_str()), "{path}");
        let on = format!("allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds=300&watch=true");
        stage.watch(&format!("{path}?{on}"), TYPED).await;
        // The metadata informer.
        let mut watch = stage.watch(&format!("{path}?{STREAMING}"), PARTIAL).await;
        let (partial, _) = watch.initial().await;
        assert_eq!(partial.len(), objects.len(), "{path}");
        partial.iter().for_each(check_partial);
        // Both fall back to lists.
        let list = stage.get(&format!("{path}?limit=500&resourceVersion=0")).await.expect(200);
        assert_eq!(list["kind"], format!("{}List", resource.kind), "{path}");
        let list =
            stage.get_as(&format!("{path}?limit=500&resourceVersion=0"), PARTIAL_LIST).await.expect(200);
        assert_eq!([&list["kind"], &list["apiVersion"]], ["PartialObjectMetadataList", "meta.k8s.io/v1"]);
        // In protobuf, which is preferred, only the list has a kind.
        for object in list["items"].as_array().unwrap() {
            assert_eq!(object.as_object().unwrap().keys().collect::<Vec<_>>(), ["metadata"]);
        }
    }
    stage.server.shutdown().await;
}

#[tokio::test]
async fn informers_receive_changes_and_expire_with_410() {
    let stage = Stage::start().await;
    let path = "/api/v1/namespaces/default/configmaps";
    let mut typed = stage.watch(&format!("/api/v1/configmaps?{STREAMING}"), TYPED).await;
    let mut partial = stage.watch(&format!("/api/v1/configmaps?{STREAMING}"), PARTIAL).await;
    typed.initial().await;
    partial.initial().await;
    let map = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}, "data": {"k": "v"}});
    let map = stage.create(path, map).await;
    stage.delete(&format!("{path}/a"), TYPED, json!({})).await.expect(200);
    for wanted in ["ADDED", "DELETED"] {
        let (kind, object) = typed.next().await;
        assert_eq!((kind.as_str(), &object["data"]), (wanted, &map["data"]));
        let (kind, object) = partial.next().await;
        assert_eq!(kind, wanted);
        check_partial(&object);
        assert_eq!(object["metadata"]["uid"], map["metadata"]["uid"]);
    }
    // A compacted version makes them relist.
    stage.server.compact();
    let old = "allowWatchBookmarks=true&resourceVersion=1&timeoutSeconds=300&watch=true";
    let (kind, status) = stage.watch(&format!("/api/v1/configmaps?{old}"), TYPED).await.next().await;
    assert_eq!(
        (kind.as_str(), &status["code"], &status["reason"]),
        ("ERROR", &json!(410), &json!("Expired"))
    );
    stage.server.shutdown().await;
}
