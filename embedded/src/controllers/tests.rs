//! Tests of what a panic ends and what it does not, and of the objects that every cluster has.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use serde_json::{Value, json};

use crate::exchange::delete_options::DeleteOptions;
use crate::resources;
use crate::verbs::{Writer, create, delete};
use crate::{ApiServer, ApiServerConfig, object};

/// The name of objects that make the garbage collector panic.
pub(super) const POISON: &str = "poison";

pub(super) fn maybe_panic(name: &str) {
    assert_ne!(name, POISON, "as the test wants it");
}

async fn eventually(holds: impl Fn() -> bool) {
    let check = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), check).await.unwrap();
}

#[tokio::test]
async fn an_object_that_makes_the_collector_panic_stops_no_collection() {
    let api = ApiServer::start(ApiServerConfig::default()).await.unwrap();
    let server = &api.server;
    let maps = resources::stored("configmaps").unwrap();
    // Their owner never existed, so all are garbage.
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "none", "uid": "none"}]);
    let insert = |name: &str, owners: &Value| {
        let map = json!({"metadata": {"name": name, "ownerReferences": owners}});
        create::insert(server, maps, Some("default"), map, Writer::internal(server, "test")).unwrap();
    };
    let exists = |name: &str| server.table(maps).get(&object::key(Some("default"), name)).is_some();
    insert(POISON, &owner);
    insert("after", &owner);
    eventually(|| !exists("after")).await;
    assert!(exists(POISON));
    insert("later", &owner);
    eventually(|| !exists("later")).await;
    api.shutdown().await;
}

/// The contents of an object, if there is one.
fn stored(api: &ApiServer, plural: &str, namespace: &str, name: &str) -> Option<Value> {
    let resource = resources::stored(plural).unwrap();
    let found = api.server.table(resource).get(&object::key(Some(namespace), name))?;
    Some(found.decode(resource))
}

#[tokio::test]
async fn the_first_client_finds_what_every_cluster_has() {
    for api_only in [false, true] {
        let api = ApiServer::start(ApiServerConfig { api_only, ..ApiServerConfig::default() }).await.unwrap();
        let service = stored(&api, "services", "default", "kubernetes").unwrap();
        assert_eq!(format!("https://127.0.0.1:{}", service["spec"]["ports"][0]["port"]), api.secure_url());
        for namespace in ["default", "kube-system"] {
            let account = stored(&api, "serviceaccounts", namespace, "default");
            let authority = stored(&api, "configmaps", namespace, "kube-root-ca.crt");
            assert_eq!(account.is_none(), api_only, "{namespace}: kube-apiserver alone makes no accounts");
            assert_eq!(authority.is_none(), api_only, "{namespace}");
            let pem = authority.map(|map| map["data"]["ca.crt"].as_str().unwrap().to_owned());
            assert!(pem.is_none_or(|pem| pem.starts_with("-----BEGIN CERTIFICATE-----")));
        }
        api.shutdown().await;
    }
}

#[tokio::test]
async fn the_service_follows_a_server_that_comes_back_at_another_port() {
    let directory = tempfile::tempdir().unwrap();
    let config =
        || ApiServerConfig { data_dir: Some(directory.path().join("data")), ..ApiServerConfig::default() };
    let mut uids = Vec::new();
    for _ in 0..2 {
        let api = ApiServer::start(config()).await.unwrap();
        let service = stored(&api, "services", "default", "kubernetes").unwrap();
        assert_eq!(format!("https://127.0.0.1:{}", service["spec"]["ports"][0]["port"]), api.secure_url());
        uids.push(service["metadata"]["uid"].clone());
        api.shutdown().await;
    }
    assert_eq!(uids[0], uids[1]);
}

#[tokio::test]
async fn a_namespace_that_ends_gets_no_new_account() {
    let api = ApiServer::start(ApiServerConfig::default()).await.unwrap();
    let server = &api.server;
    let namespaces = resources::stored("namespaces").unwrap();
    let namespace = json!({"metadata": {"name": "short"}});
    create::insert(server, namespaces, None, namespace, Writer::internal(server, "test")).unwrap();
    eventually(|| stored(&api, "serviceaccounts", "short", "default").is_some()).await;
    let options = DeleteOptions::default();
    delete::remove(server, namespaces, &object::key(None, "short"), &options).unwrap();
    eventually(|| server.table(namespaces).get(&object::key(None, "short")).is_none()).await;
    assert!(stored(&api, "serviceaccounts", "short", "default").is_none());
    api.shutdown().await;
}
