//! Restoring a store from a data directory.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use super::object::{Header, Key, Object};
use super::resources;
use super::server::Server;
use super::store::{Contents, DataDirError, Disk, Expect, HistoryLimits, NewVersion, Store};
use super::verbs::update;

/// Opens a store with the contents of the directory, which also keeps its writes. Blocks while reading.
pub(crate) fn open(directory: &Path, limits: HistoryLimits) -> Result<Store, DataDirError> {
    let disk = Disk::open(directory)?;
    let contents = disk.read()?;
    let store = Store::durable(&resources::plurals(), limits, disk, contents.revision)
        .map_err(DataDirError::Unusable)?;
    fill(&store, contents)?;
    Ok(store)
}

fn fill(store: &Store, contents: Contents) -> Result<(), DataDirError> {
    let mut tables: BTreeMap<String, Vec<(Key, Arc<Object>)>> = BTreeMap::new();
    for kept in contents.objects {
        let damaged = |why: &str| DataDirError::Damaged(format!("{} {}: {why}", kept.plural, kept.key));
        let resource = resources::stored(&kept.plural).ok_or_else(|| damaged("no such kind"))?;
        let mut object =
            Object { revision: kept.revision, header: Header::default(), tail: kept.content.tail };
        let value: Value = serde_json::from_slice(&object.to_bytes(resource))
            .map_err(|problem| damaged(&problem.to_string()))?;
        object.header =
            Header { lacks_defaults: kept.content.lacks_defaults, ..Header::of(resource, &value) };
        tables.entry(kept.plural).or_default().push((kept.key.into(), Arc::new(object)));
    }
    for (plural, newest) in contents.newest {
        let table = store.table(&plural);
        let table = table.ok_or_else(|| DataDirError::Damaged(format!("{plural}: no such kind")))?;
        table.restore(tables.remove(&plural).unwrap_or_default().into_iter(), newest);
    }
    Ok(())
}

/// Finishes deletions that a crash interrupted: some take two writes, one to mark the object and one to
/// remove it.
pub(crate) fn finish_deletions(server: &Server) {
    for (plural, table) in server.store.tables() {
        let Some(resource) = resources::stored(plural) else { continue };
        let Ok(marked) = table.page("", None, None, None, |object| object.header.deleting) else { continue };
        for object in marked.items {
            if !update::ends_deletion(resource, &object.decode(resource)) {
                continue;
            }
            let namespace = (!object.header.namespace.is_empty()).then_some(&*object.header.namespace);
            let key = super::object::key(namespace, &object.header.name);
            let last = NewVersion { header: object.header.clone(), tail: object.tail.clone() };
            // There are no other writers yet.
            let _gone = table.delete(&key, Expect::Version(object.revision), last);
        }
    }
}

/// Removes the addresses of kubelets from all Nodes. These kubelets ended together with the server that wrote
/// the addresses, and other processes may have their ports by now.
pub(crate) fn forget_kubelets(server: &Server) {
    let Some(nodes) = resources::stored("nodes") else { return };
    let table = server.table(nodes);
    let Ok(all) = table.page("", None, None, None, |_| true) else { return };
    for object in all.items {
        let mut node = object.decode(nodes);
        let endpoints = node.get_mut("status").and_then(Value::as_object_mut);
        if endpoints.and_then(|status| status.remove("daemonEndpoints")).is_none() {
            continue;
        }
        let (header, tail) = Object::encode(nodes, node);
        let key = super::object::key(None, &object.header.name);
        // There are no other writers yet.
        let _written = table.put(&key, Expect::Version(object.revision), NewVersion { header, tail });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;
    use crate::store::Change;
    use crate::{ApiServer, ApiServerConfig, EmbeddedError};

    fn limits() -> HistoryLimits {
        HistoryLimits::default()
    }

    /// A directory with these objects, each under its own revision from 10 on.
    fn directory(objects: &[(&'static str, Value)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let disk = Disk::open(directory.path()).unwrap();
        let store = Store::durable(&resources::plurals(), limits(), disk, 9).unwrap();
        for (plural, object) in objects {
            let resource = resources::stored(plural).unwrap();
            let (header, tail) = Object::encode(resource, object.clone());
            let namespace = resource.namespaced.then_some(&*header.namespace);
            let key = super::super::object::key(namespace, &header.name);
            store.table(plural).unwrap().put(&key, Expect::Absent, NewVersion { header, tail }).unwrap();
        }
        store.close();
        directory
    }

    async fn start(directory: &tempfile::TempDir) -> Result<ApiServer, EmbeddedError> {
        let data_dir = Some(directory.path().to_owned());
        ApiServer::start(ApiServerConfig { data_dir, api_only: true, ..ApiServerConfig::default() }).await
    }

    #[test]
    fn objects_are_restored_unchanged() {
        let map = json!({"metadata": {
            "namespace": "n", "name": "a", "uid": "u", "labels": {"x": "y"},
            "ownerReferences": [{"uid": "o", "blockOwnerDeletion": true}],
        }, "data": {"k": "v"}});
        let directory = directory(&[("configmaps", map), ("namespaces", json!({"metadata": {"name": "n"}}))]);
        let store = open(directory.path(), limits()).unwrap();
        assert_eq!(store.revision(), 11);
        let object = store.table("configmaps").unwrap().get("n/a").unwrap();
        assert_eq!((object.revision, &*object.header.uid, object.header.label("x")), (10, "u", Some("y")));
        assert!(object.header.owners.first().unwrap().blocks_deletion);
        let changes = |table: &str, revision| {
            let read = store.table(table).unwrap().changes(revision, 10);
            read.map(|(changes, _)| changes.iter().map(|change: &Change| change.revision).collect::<Vec<_>>())
        };
        assert_eq!(changes("configmaps", 10), Ok(vec![]), "nothing was written after 10");
        assert_eq!(changes("configmaps", 9), Err(10));
        assert_eq!(changes("namespaces", 10), Err(11));
        assert_eq!(changes("jobs", 1), Ok(vec![]), "no Job was ever written");
    }

    #[tokio::test]
    async fn a_half_done_deletion_is_finished() {
        let pod = |name: &str, finalizers: &[&str]| {
            json!({"metadata": {
                "namespace": "default", "name": name, "finalizers": finalizers,
                "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0,
            }, "spec": {"containers": []}, "status": {"phase": "Failed"}})
        };
        let directory = directory(&[("pods", pod("marked", &[])), ("pods", pod("held", &["a/b"]))]);
        let server = start(&directory).await.unwrap();
        let pods = server.server.store.table("pods").unwrap();
        assert!(pods.get("default/marked").is_none());
        assert!(pods.get("default/held").is_some());
        assert!(server.server.store.table("namespaces").unwrap().get("default").is_some());
        server.shutdown().await;
    }

    #[tokio::test]
    async fn a_cluster_is_bootstrapped_once() {
        let directory = tempfile::tempdir().unwrap();
        let uid = async || {
            let server = start(&directory).await.unwrap();
            let namespace = server.server.store.table("namespaces").unwrap().get("default").unwrap();
            server.shutdown().await;
            (namespace.header.uid.clone(), namespace.revision)
        };
        assert_eq!(uid().await, uid().await);
    }

    #[tokio::test]
    async fn an_object_that_cannot_be_read_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let disk = Disk::open(directory.path()).unwrap();
        let store = Store::durable(&resources::plurals(), limits(), disk, 1).unwrap();
        let namespaces = resources::stored("namespaces").unwrap();
        let (header, _) = Object::encode(namespaces, json!({"metadata": {"name": "n"}}));
        let tail = "no JSON".into();
        store
            .table("namespaces")
            .unwrap()
            .put(&"n".into(), Expect::Absent, NewVersion { header, tail })
            .unwrap();
        store.close();
        drop(store);
        let Err(problem) = start(&directory).await else { panic!("took it") };
        let problem = problem.to_string();
        assert!(problem.contains("namespaces n") && problem.lines().count() == 1, "{problem}");
    }
}
