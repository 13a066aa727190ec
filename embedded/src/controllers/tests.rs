//! Tests of what a panic ends, and what it does not.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use serde_json::{Value, json};

use crate::resources;
use crate::verbs::{Writer, create};
use crate::{ApiServer, ApiServerConfig, object};

/// The name of objects that make the garbage collector panic.
const POISON: &str = "poison";

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
